"""Flags whose help is what the declarations of options say."""

from __future__ import annotations

import threading

import click
import pyarrow.compute as pc
import pytest

import kafka_actors as ka
from kafka_actors.cli.job_options import RunConfig, changed, job_settings, meanings
from kafka_actors.cli.load_target import LoadedTarget
from kafka_actors.cli.main import commands, run_command_line
from kafka_actors.errors import ConfigError
from kafka_actors.options import ClientConfig, ConsumerConfig
from kafka_actors.pipeline.source import producer_config


def _help(capsys: pytest.CaptureFixture[str], *command: str) -> str:
    assert run_command_line([*command, "--help"]) == 0
    return " ".join(capsys.readouterr().out.split())


def test_the_help_of_run_is_what_the_declarations_say(capsys: pytest.CaptureFixture[str]) -> None:
    shown = _help(capsys, "run")
    for kind, name in (
        (RunConfig, "workers"),
        (RunConfig, "status"),
        (RunConfig, "otlp"),
        (RunConfig, "prometheus"),
        (RunConfig, "until"),
        (ConsumerConfig, "group_id"),
        (ClientConfig, "bootstrap_servers"),
    ):
        assert meanings(kind)[name].replace("`", "") in shown


def test_a_command_that_asks_a_cluster_says_which_brokers_it_asks_by_default(
    capsys: pytest.CaptureFixture[str],
) -> None:
    shown = _help(capsys, "topics", "list")
    text = meanings(ClientConfig)["bootstrap_servers"].replace("`", "")
    assert f"{text} [default: localhost:9092]" in shown
    assert "Without Kafka's own topics." in shown


READ = ka.Pipeline.read_kafka("orders", group_id="g", bootstrap_servers="a:1", fetch_max_wait_ms=50)
WRITTEN = READ.decode_json("id BIGINT", on_error="dead_letter").write_kafka("scored").dead_letters("dead")


def _job(found: object, *pairs: str, **flags: object) -> ka.Job:
    with click.Context(commands):
        settings = job_settings(None, pairs, {}, **flags)
    return changed(LoadedTarget("shop.py:orders", found, "ray"), settings)  # type: ignore[arg-type]


def _sources(job: ka.Job) -> list[list[str]]:
    """Servers of the job, and those that the sink and the dead letters of its pipeline get in a worker."""
    source = job.plan().spec.target.bound.pipeline.source
    return [job.config.bootstrap_servers, producer_config("scored", source, {}).bootstrap_servers]


def test_a_pipeline_takes_the_options_of_a_run_and_its_sink_goes_to_the_same_cluster() -> None:
    job = _job(
        WRITTEN,
        "topics=returns",
        'resources_per_worker={"num_cpus": 2}',
        "session.timeout.ms=9000",
        "name=scorer",
        bootstrap_servers="b:2",
        group_id="other",
        workers="1..4",
        until="latest",
        status=":0",
    )
    assert _sources(job) == [["b:2"], ["b:2"]]
    assert (job.config.group_id, job.topics, job.until, job.name) == (
        "other",
        ["returns"],
        "latest",
        "scorer",
    )
    assert (job.config.session_timeout_ms, job.config.fetch_max_wait_ms) == (9000, 50)
    assert (str(job.workers), job.resources, job.status_address) == ("1..4", {"num_cpus": 2}, ":0")
    assert job.plan().spec.target.bound.group_id == "other", "dead letters name it"


def test_an_on_ray_keeps_what_no_option_changes() -> None:
    bound = WRITTEN.on_ray(
        workers=3,
        name="scorer",
        batch_rows=10,
        resources_per_worker={"num_gpus": 1},
        config={"client.id": "c"},
    )
    job = _job(bound, 'resources_per_worker={"num_cpus": 2}', "batch_rows=20", bootstrap_servers="b:2")
    assert (job.workers, job.name, job.config.batch_rows, job.config.client_id) == (3, "scorer", 20, "c")
    assert job.resources == {"num_gpus": 1, "num_cpus": 2}
    assert _sources(job) == [["b:2"], ["b:2"]]
    assert _sources(_job(bound)) == [["a:1"], ["a:1"]]
    assert bound.job.config.batch_rows == 10


@pytest.mark.parametrize("found", [WRITTEN, WRITTEN.on_ray()], ids=["Pipeline", "OnRay"])
@pytest.mark.parametrize(
    ("pair", "says"),
    [
        ("on_error=skip", r"on_error: is no option of the source: give it to the pipeline, \.on_error\(…\)"),
        ("retries=5", r"retries: is no option of the source: give it to the pipeline"),
        ("dead_letter_topic=x", r"dead_letter_topic: is the pipeline's: say it there"),
        ("checkpoint=/c", r"checkpoint: is for Spark, and shop\.py:orders runs on Ray: say --engine spark"),
        ("trigger=once", r"trigger: is for Spark"),
        ('spark_options={"a": "b"}', r"spark_options: is for Spark"),
        ("topics=scored", r"scored"),
    ],
)
def test_options_that_a_pipeline_on_ray_has_no_use_for_are_refused_by_name(
    found: object, pair: str, says: str
) -> None:
    with pytest.raises(ConfigError, match=says):
        _job(found, pair)


def test_a_job_takes_no_option_of_spark() -> None:
    job = ka.Job(topics="t", group_id="g", bootstrap_servers="a:1", process=print)
    with pytest.raises(ConfigError, match="checkpoint: is for Spark"):
        _job(job, checkpoint="/c")
    assert _job(job, "retries=5", workers="2").config.retries == 5


def test_a_fragment_and_code_that_can_not_travel_are_named() -> None:
    with pytest.raises(ConfigError, match="pipeline: has no source"):
        _job(ka.Pipeline().filter(pc.field("id") > 0))
    lock = threading.Lock()
    with pytest.raises(ConfigError, match=r"^score: can't be sent to the workers: the variable 'lock'"):
        _job(READ.map_batches(lambda batch: lock, schema="id INT", name="score").write(print))
