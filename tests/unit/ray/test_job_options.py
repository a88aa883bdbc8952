"""Arguments of `Job`, one by one: what is accepted, and the error that names the option."""

from __future__ import annotations

from typing import Any

import pytest

from kafka_actors.base.backoff import Backoff
from kafka_actors.config import JobConfig
from kafka_actors.errors import ConfigError
from kafka_actors.job.retry_topics import RetryTopics
from kafka_actors.pipeline import Pipeline
from kafka_actors.ray import Job, job_options
from kafka_actors.sinks import KafkaSink, ParquetSink

DEFAULTS = {"topics": None, "group_id": None, "on_error": "fail", "workers": 1}


@pytest.mark.parametrize(
    ("unknown", "why"),
    [
        (
            {"max_poll_interval_ms": 5},
            r"is no argument of Job; give it as config=\{'max_poll_interval_ms': …\}",
        ),
        ({"topcs": "t"}, "is not an option; did you mean 'topics'"),
        ({"zzz_qqq": 1}, "is not an option$"),
        ({"enable_auto_commit": True}, "enable_auto_commit"),
    ],
)
def test_an_unknown_argument_is_refused_with_advice(unknown: dict[str, Any], why: str) -> None:
    with pytest.raises(ConfigError, match=why):
        job_options.check_names(DEFAULTS, unknown, None)


def test_an_argument_of_job_in_config_is_sent_to_its_place_but_one_that_is_both_is_fine() -> None:
    with pytest.raises(ConfigError, match="workers: is an argument of Job; give it there"):
        job_options.check_names(DEFAULTS, {}, {"workers": 3})
    assert "group_id" in JobConfig.__struct_fields__
    job_options.check_names(DEFAULTS, {}, {"group_id": "g", "max_poll_interval_ms": 5})


def test_config_wins_over_an_argument_that_nobody_gave_and_over_no_other() -> None:
    given = {"group_id": None, "on_error": "skip", "workers": 1}
    merged = job_options.explicit_arguments(DEFAULTS, {"group.id": "g", "on_error": "fail"}, **given)
    assert merged == {"on_error": "skip", "workers": 1}
    assert job_options.explicit_arguments(DEFAULTS, None, **given) == given


@pytest.mark.parametrize(
    ("topics", "pattern", "found"),
    [
        ("t", None, ["t"]),
        (["b", "a"], None, ["a", "b"]),
        ((t for t in "ba"), None, ["a", "b"]),
        (None, "a.*", None),
    ],
)
def test_topics_are_names_or_a_pattern(topics: Any, pattern: Any, found: Any) -> None:
    assert job_options.checked_topics(topics, pattern) == found


@pytest.mark.parametrize(
    ("topics", "pattern", "why"),
    [
        (None, None, "topics: give exactly one"),
        ("t", "t", "topics: give exactly one"),
        ([], None, "topics: is empty"),
        (["a b"], None, "topics: has 'a b'"),
        (None, 5, "pattern: is 5"),
        (None, "(", "pattern: .*not a regular expression"),
    ],
)
def test_topics_that_cant_be(topics: Any, pattern: Any, why: str) -> None:
    with pytest.raises(ConfigError, match=why):
        job_options.checked_topics(topics, pattern)


def test_dead_letters_need_a_topic_and_a_topic_needs_dead_letters() -> None:
    assert job_options.checked_dead_letter_topic("dead_letter", "d") == "d"
    assert job_options.checked_dead_letter_topic("fail", None) is None
    for on_error, topic, why in (
        ("dead_letter", None, "is missing"),
        ("skip", "d", "without on_error='dead_letter'"),
        ("dead_letter", "a b", "has 'a b'"),
    ):
        with pytest.raises(ConfigError, match=f"dead_letter_topic: .*{why}"):
            job_options.checked_dead_letter_topic(on_error, topic)


def test_the_status_address_is_a_text() -> None:
    assert job_options.parsed_status_address(None) is None
    assert job_options.parsed_status_address(":8000") == ("localhost", 8000)
    for broken in (8000, "localhost", ":http"):
        with pytest.raises(ConfigError, match="status_address"):
            job_options.parsed_status_address(broken)


def test_a_name_isnt_empty() -> None:
    assert [job_options.checked_name(name) for name in (None, "orders")] == [None, "orders"]
    for broken in ("", "  ", 5):
        with pytest.raises(ConfigError, match=r"name: is .*accepts a name that is not empty"):
            job_options.checked_name(broken)


def test_resources_are_rays_and_their_amounts_finite_numbers_from_0() -> None:
    assert job_options.checked_resources(None) == {}
    accepted = {"num_gpus": 0.5, "memory": 0, "resources": {"fpga": 1}}
    assert job_options.checked_resources(accepted) == accepted


@pytest.mark.parametrize(
    ("resources", "why"),
    [
        ("gpu", "is a str: accepts a dict"),
        ({"gpus": 1}, "has 'gpus': accepts"),
        ({"num_gpus": -1}, "num_gpus=-1"),
        ({"num_gpus": True}, "num_gpus=True"),
        ({"num_cpus": "2"}, "num_cpus='2'"),
        ({"memory": float("inf")}, "memory=inf"),
        ({"memory": float("nan")}, "memory=nan"),
        ({"resources": {"fpga": -1}}, r"resources\['fpga'\]=-1"),
    ],
)
def test_resources_that_ray_would_refuse_later(resources: Any, why: str) -> None:
    with pytest.raises(ConfigError, match=f"resources_per_worker: .*{why}"):
        job_options.checked_resources(resources)


@pytest.mark.parametrize("option", ["partition_assignment_strategy", "worker_assignor"])
def test_an_unknown_assignor_is_named_by_its_option(option: str) -> None:
    job_options.check_assignors(JobConfig())
    value = ["rnage"] if option == "partition_assignment_strategy" else "rnage"
    with pytest.raises(ConfigError, match=f"{option}: .*rnage"):
        job_options.check_assignors(JobConfig(**{option: value}))  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("options", "why"),
    [
        (
            {"concurrency": 8},
            "concurrency: is 8 with ordering='partition', one call at a time: choose 'key' or",
        ),
        (
            {"ordering": "key", "delivery": "exactly_once", "sink": KafkaSink("s")},
            "ordering: is 'key' with delivery='exactly_",
        ),
        (
            {"ordering": "unordered", "batch_rows": 5, "batch_linger_ms": 10},
            "batch_linger_ms: is 10 with ordering='unordered'",
        ),
        ({"ordering": "keys"}, "ordering: .*'keys'"),
        ({"ordering": "key", "concurrency": 0}, "concurrency: "),
        (
            {"config": {"max.in.flight.records": 9}},
            "max_in_flight_records: is 9 with ordering='partition', where no calls overlap: leave it out",
        ),
        ({"config": {"lanes_per_partition": 64}}, "lanes_per_partition: is 64 with ordering='partition'"),
    ],
)
def test_what_does_not_go_with_an_ordering_is_refused_by_name(options: dict[str, Any], why: str) -> None:
    with pytest.raises(ConfigError, match=why):
        Job(topics="t", group_id="g", bootstrap_servers="a:1", process=print, **options)


def test_options_of_calls_that_overlap_go_where_nobody_gave_them_and_are_remembered_where_somebody_did() -> (
    None
):
    given: dict[str, Any] = {"topics": "t", "group_id": "g", "bootstrap_servers": "a:1", "process": print}
    overlapping = Job(**given, ordering="key", concurrency=64, config={"max_in_flight_records": 9})
    assert overlapping.config.max_in_flight_records == 9, "it is of one partition, and calls are of all"
    assert Job(**given).changed({"retries": 1}).config.lanes_per_partition == 64
    for wrong in ({"lanes_per_partition": 8}, {"max_in_flight_records": 9}):
        (name,) = wrong
        with pytest.raises(ConfigError, match=f"{name}: "):
            Job(**given).changed(wrong)
    with pytest.raises(ConfigError, match="max_in_flight_records: is 9 with ordering='partition'"):
        overlapping.changed({"ordering": "partition", "concurrency": 1})


def test_sinks_of_all_kinds_go_with_any_ordering() -> None:
    for sink in (KafkaSink("s"), ParquetSink("/x"), print):
        job = Job(
            topics="t",
            group_id="g",
            bootstrap_servers="a:1",
            process=print,
            sink=sink,
            ordering="key",
            concurrency=8,
        )
        assert job.config.concurrency == 8
    read = Pipeline.read_kafka("t", group_id="g", bootstrap_servers="a:1").decode_json("id BIGINT")
    both = read.write_kafka("out").write_parquet("/x").on_ray(ordering="key", concurrency=8)
    assert both.job.config.concurrency == 8


def test_waits_between_retries_are_shorter_than_the_time_after_which_a_partition_counts_as_stalled() -> None:
    config = JobConfig(bootstrap_servers=["h:1"], group_id="g", retries=4, max_poll_interval_ms=60_000)
    assert job_options.checked_backoff(None, config) == Backoff()
    fits = Backoff(initial_ms=1_000, max_ms=30_000)
    assert job_options.checked_backoff(fits, config) == fits
    with pytest.raises(ConfigError, match=r"retry_backoff: is 5, an int: accepts a kafka_actors.Backoff"):
        job_options.checked_backoff(5, config)
    said = r"retry_backoff: waits 60,000 ms in 4 retries, .* max_poll_interval_ms \(60,000\) is taken from its worker"
    with pytest.raises(ConfigError, match=said):
        job_options.checked_backoff(Backoff(initial_ms=4_000, max_ms=32_000), config)


def test_retry_topics_go_with_one_topic_whose_records_dont_wait_for_each_other() -> None:
    retries = RetryTopics("r", ("1s",), "dead")
    keyed, whole = (JobConfig(group_id="g", ordering=o) for o in ("key", "partition"))
    assert job_options.checked_retry_topics(retries, keyed, ["t"]).topics == ["r-1s"]
    for config, topics, why in (
        (whole, ["t"], "ordering='partition'.*choose 'key' or 'unordered'"),
        (keyed, ["t", "u"], "with 2 topics: each goes with one topic"),
        (keyed, None, "with a pattern"),
        (keyed, ["r-1s"], "'r-1s', which is read here: records that wait would be processed at once"),
    ):
        with pytest.raises(ConfigError, match=f"on_error: .*{why}"):
            job_options.checked_retry_topics(retries, config, topics)
