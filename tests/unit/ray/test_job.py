"""What `Job` says of arguments that can't be: one line with the option, what was given, what it accepts."""

from __future__ import annotations

from typing import Any

import pytest

from kafka_actors import Autoscale, Job, KafkaSink, RetryTopics
from kafka_actors.errors import ConfigError
from kafka_actors.job.autoscale import parsed_workers


def yields(batch):
    yield batch


async def yields_later(batch):
    yield batch


class Yields:
    def __call__(self, batch):
        yield batch


class YieldsInFlush:
    def __call__(self, batch):
        pass

    def flush(self):
        yield


class Scaled:
    def __init__(self, factor):
        self.factor = factor

    def __call__(self, batch):
        return None


def job(**changed: Any) -> Job:
    given = {"topics": "t", "group_id": "g", "bootstrap_servers": "h:1", "process": lambda batch: None}
    return Job(**(given | changed))


@pytest.mark.parametrize(
    ("changed", "option", "says"),
    [
        ({"topics": 5}, "topics", "is 5, an int: accepts a list of topic names"),
        ({"topics": b"t"}, "topics", "is b't', a bytes: accepts a list of topic names"),
        ({"topics": ["a", 5]}, "topics", "has 5"),
        ({"topics": []}, "topics", "is empty"),
        ({"topics": "a,b"}, "topics", "has 'a,b': several topics are a list, ['a', 'b']"),
        (
            {"process": yields},
            "process",
            "is a generator, and the job has no sink=: give it one, or return None",
        ),
        (
            {"process": Yields},
            "process",
            "is a generator, and the job has no sink=: give it one, or return None",
        ),
        (
            {"process": YieldsInFlush},
            "process",
            "is the class YieldsInFlush, whose flush is a generator: make it",
        ),
        ({"process": Yields()}, "process", "is a generator, and the job has no sink="),
        (
            {"process": None, "process_message": yields},
            "process_message",
            "is a generator, and the job has no",
        ),
        (
            {"process": yields_later, "sink": print},
            "process",
            "is an async generator: return the batches, or a list of them",
        ),
        ({"topics": None}, "topics", "give exactly one of topics= and pattern="),
        ({"pattern": "x"}, "topics", "give exactly one of topics= and pattern="),
        ({"topics": None, "pattern": 5}, "pattern", "is 5, an int: accepts a str"),
        ({"topics": None, "pattern": "("}, "pattern", "is '(', not a regular expression"),
        ({"name": ""}, "name", "is '': accepts a name that is not empty"),
        ({"name": 5}, "name", "is 5: accepts a name"),
        ({"status_address": 8000}, "status_address", "is 8000, an int: accepts a text such as ':8000'"),
        ({"status_address": "here"}, "status_address", "is 'here': give PORT, :PORT or HOST:PORT"),
        ({"resources_per_worker": 5}, "resources_per_worker", "is an int: accepts a dict with"),
        (
            {"resources_per_worker": {"runtime_env": {"env_vars": {"KEY": 7133}}}},
            "resources_per_worker",
            "has runtime_env['env_vars']['KEY'], an int: variables are str",
        ),
        (
            {"resources_per_worker": {"cpus": 5}},
            "resources_per_worker",
            "has 'cpus': accepts accelerator_type",
        ),
        (
            {"resources_per_worker": {"memory": "1GB"}},
            "resources_per_worker",
            "has memory='1GB': accepts a number",
        ),
        ({"resources_per_worker": {"num_cpus": -1}}, "resources_per_worker", "has num_cpus=-1: accepts"),
        ({"resources_per_worker": {"num_gpus": True}}, "resources_per_worker", "has num_gpus=True: accepts"),
        (
            {"resources_per_worker": {"resources": {"disk": "x"}}},
            "resources_per_worker",
            "has resources['disk']='x': accepts a number",
        ),
        (
            {"on_error": "dead_letter", "dead_letter_topic": "t"},
            "dead_letter_topic",
            "is 't', which is read here: a record that fails would come back for ever",
        ),
        (
            {"on_error": "dead_letter", "dead_letter_topic": "t-dead", "topics": None, "pattern": "t.*"},
            "dead_letter_topic",
            "is 't-dead', which matches the pattern 't.*' that is read here",
        ),
        ({"batch_linger_ms": 50}, "batch_linger_ms", "is 50 without batch_rows"),
        ({"retries": 4, "config": {"retries": 5}}, "retries", "is given twice"),
        (
            {"process": Scaled},
            "process",
            "is the class Scaled, which is made without arguments in each worker: missing a required argument: 'factor'",
        ),
        ({"config": 5}, "config", "is an int: accepts a dict of options"),
        ({"worker_assignor": 5}, "worker_assignor", "5 is no assignor"),
        ({"auto_offset_rest": "latest"}, "auto_offset_rest", "did you mean 'auto_offset_reset'?"),
        ({"foo": 1}, "foo", "is not an option"),
        ({"num_cpus": 1}, "num_cpus", "give resources_per_worker={'num_cpus': …}"),
        ({"config": {"num_gpus": 1}}, "num_gpus", "give resources_per_worker={'num_gpus': …}"),
        ({"drain_timeout_ms": 5}, "drain_timeout_ms", "give it as config={'drain_timeout_ms': …}"),
        ({"config": {"workers": 3}}, "workers", "is an argument of Job"),
        ({"worker_assignor": "best"}, "worker_assignor", "unknown assignor 'best'"),
        ({"partition_assignment_strategy": 5}, "partition_assignment_strategy", "5 is no assignor"),
        ({"workers": "2"}, "workers", "is '2': must be a whole number of at least 1, or an Autoscale"),
        ({"config": {"enable_auto_commit": False}}, "enable_auto_commit", "a job always commits"),
        (
            {"config": {"enable.auto.commit": "false"}},
            "enable_auto_commit",
            "to commit by hand use a Consumer",
        ),
        ({"group_id": 5}, "group_id", "is 5: expected `str"),
    ],
    ids=lambda value: ",".join(value) if isinstance(value, dict) else "",
)
def test_arguments_that_can_not_be_are_refused_by_name(changed, option, says):
    with pytest.raises(ConfigError) as caught:
        job(**changed)
    assert caught.value.option == option
    assert says in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("policy", "option", "says"),
    [
        ({"max": 0}, "workers.max", "is 0: must be a whole number of at least 1"),
        ({"max": 2.0}, "workers.max", "is 2.0: must be a whole number"),
        ({"min": True, "max": 2}, "workers.min", "is True: must be a whole number"),
        ({"min": 3, "max": 2}, "workers.max", "is 2: must be at least min (3)"),
        ({"max": 4, "initial": 5}, "workers.initial", "is 5: must lie in 1..4"),
        ({"max": 4, "target_lag_seconds": 0.5}, "workers.target_lag_seconds", "must be at least 1"),
        (
            {"max": 4, "target_lag_seconds": "30"},
            "workers.target_lag_seconds",
            "is '30', a str: accepts a number",
        ),
        (
            {"max": 4, "target_utilization": 1.5},
            "workers.target_utilization",
            "must be above 0, and 1 at most",
        ),
        ({"max": 4, "upscale_delay_seconds": -1}, "workers.upscale_delay_seconds", "must not be negative"),
        ({"max": 4, "downscale_delay_seconds": float("nan")}, "workers.downscale_delay_seconds", "a number"),
        ({"max": 4, "request_resources": 1}, "workers.request_resources", "accepts True or False"),
    ],
    ids=str,
)
def test_a_policy_that_can_not_be_is_refused_by_name(policy, option, says):
    with pytest.raises(ConfigError) as caught:
        Autoscale(**policy)
    assert caught.value.option == option
    assert says in str(caught.value)


def test_workers_are_a_number_or_a_policy_also_as_text():
    policy = Autoscale(min=2, max=8)
    assert (policy.first, str(policy)) == (2, "2..8")
    assert Autoscale(max=8, initial=3).first == 3
    assert job(workers=policy).workers is policy
    assert job().changed(workers=policy).workers is policy
    assert (parsed_workers(" 12 "), parsed_workers("2..8")) == (12, policy)
    for text in ("", "0", "-1", "1..", "..4", "1...4", "4..1", "x", "1.5"):
        with pytest.raises(ConfigError):
            parsed_workers(text)


def test_a_status_page_is_for_this_machine_unless_a_host_is_given_and_has_the_job_measured():
    assert job().plan().status_address is None
    plan = job(status_address=":8000").plan()
    assert plan.status_address == ("localhost", 8000)
    assert plan.telemetry.page
    assert job().changed(status_address="0.0.0.0:0").plan().status_address == ("0.0.0.0", 0)
    assert job(status_address="[::1]:9").changed().plan().status_address == ("::1", 9)


def test_one_topic_may_be_given_without_a_list():
    assert job(topics="orders").topics == ["orders"]
    assert job(topics=["b", "a", "b"]).topics == ["a", "b"]


def test_options_may_stand_in_config_where_no_argument_says_otherwise():
    config = {
        "auto.offset.reset": "latest",
        "retries": 5,
        "batch_rows": 10,
        "partition_assignment_strategy": "range",
    }
    made = job(config=config).config
    assert (made.auto_offset_reset, made.retries, made.batch_rows) == ("latest", 5, 10)
    assert made.partition_assignment_strategy == ["range"]
    assert job(retries=5, config=config).config.retries == 5


def test_auto_commit_may_be_said_to_be_on():
    assert job(config={"enable_auto_commit": True}).config.enable_auto_commit


def test_a_changed_job_has_other_options_and_leaves_the_rest() -> None:
    first = job(workers=2, config={"session_timeout_ms": 20_000})
    changed = first.changed(
        {"bootstrap_servers": "b:2,c:3", "session_timeout_ms": "30000"}, workers=5, until="latest"
    )
    assert (changed.workers, changed.until) == (5, "latest")
    assert changed.config.bootstrap_servers == ["b:2", "c:3"]
    assert (changed.config.group_id, changed.config.session_timeout_ms) == ("g", 30_000)
    assert (first.workers, first.until, first.config.bootstrap_servers) == (2, None, ["h:1"])


def test_a_changed_job_may_have_other_arguments_too() -> None:
    first = job(
        resources_per_worker={"num_cpus": 1, "num_gpus": 1}, on_error="dead_letter", dead_letter_topic="d"
    )
    changed = first.changed(
        topics=["b", "a"], name="scorer", dead_letter_topic="dead", resources_per_worker={"num_cpus": 2}
    )
    plan = changed.plan()
    assert (plan.topics, plan.pattern, plan.name) == (["a", "b"], None, "scorer")
    assert plan.group_instance_id == "g-scorer"
    assert plan.resources == {"num_cpus": 2, "num_gpus": 1}
    assert plan.spec.outputs.dead_letter_topic == "dead"
    by_pattern = changed.changed(pattern="x.*")
    assert (by_pattern.topics, by_pattern.pattern) == (None, "x.*")
    assert (first.topics, first.name, first.resources) == (["t"], None, {"num_cpus": 1, "num_gpus": 1})


def test_a_changed_jobs_workers_are_told_of_what_changed() -> None:
    plan = job().changed({"on_error": "skip", "retries": "7"}).plan()
    assert (plan.spec.on_error, plan.spec.retries) == ("skip", 7)


@pytest.mark.parametrize(
    ("options", "more", "message"),
    [
        ({"sesion_timeout_ms": "1"}, {}, "did you mean 'session_timeout_ms'"),
        ({"heartbeat_interval_ms": "50000"}, {}, "heartbeat_interval_ms"),
        ({"on_error": "dead_letter"}, {}, "dead_letter_topic: is missing"),
        ({}, {"workers": 0}, "workers: is 0"),
        ({}, {"topics": ["a"], "pattern": "b"}, "topics: give exactly one"),
        ({}, {"dead_letter_topic": "d"}, "dead_letter_topic: is given without"),
        ({}, {"resources_per_worker": {"gpus": 1}}, "resources_per_worker: has 'gpus'"),
    ],
)
def test_a_changed_job_is_checked_like_a_new_one(options, more, message) -> None:
    with pytest.raises(ConfigError, match=message):
        job().changed(options, **more)


def test_retry_topics_are_read_with_the_topic_and_end_with_dead_letters() -> None:
    retries = RetryTopics("r", ("1s", "1m"), "dead")
    made = job(ordering="key", on_error=retries)
    plan = made.plan()
    assert plan.topics == ["t", "r-1s", "r-1m"]
    assert (plan.spec.on_error, plan.spec.outputs.dead_letter_topic) == ("dead_letter", "dead")
    assert plan.spec.outputs.tiers == retries.tiers("t", ordering="key")
    assert made.changed({"on_error": "skip"}).plan().topics == ["t"]
    with pytest.raises(ConfigError, match=r"^dead_letter_topic: is given twice"):
        job(ordering="key", on_error=retries, dead_letter_topic="other")
    with pytest.raises(ConfigError, match=r"^sink: is 'r-1m', which is read here"):
        job(ordering="key", on_error=retries, sink=KafkaSink("r-1m"))
