"""A pipeline on Spark, run from the shell: its options, how it ends, and what is shown."""

from __future__ import annotations

import io
import json
import logging
import signal
from contextlib import redirect_stderr, redirect_stdout

import click
import pytest

import kafka_actors as ka
from kafka_actors.cli.job_options import job_settings
from kafka_actors.cli.load_target import LoadedTarget
from kafka_actors.cli.main import commands
from kafka_actors.cli.output import Output
from kafka_actors.cli.run import WatchEnd
from kafka_actors.cli.run_on_spark import ProgressView, bound_to_spark, closing_line, watch
from kafka_actors.errors import ConfigError, JobFailed, KafkaTimeoutError
from kafka_actors.pipeline.bound_pipeline import RunProgress
from kafka_actors.pipeline.source import producer_config

pytest.importorskip("pyspark")

READ = ka.Pipeline.read_kafka("orders", group_id="g", bootstrap_servers="a:1", session_timeout_ms=9000)
WRITTEN = READ.decode_json("id BIGINT").write_kafka("scored")


def _bound(found, *pairs, **flags):
    with click.Context(commands):
        settings = job_settings(None, pairs, {}, **flags)
    with settings.named():
        return bound_to_spark(LoadedTarget("shop.py:orders", found, "spark"), settings)


def test_a_pipeline_is_a_streaming_query_with_its_options():
    bound = _bound(
        WRITTEN,
        "topics=returns",
        'spark_options={"maxOffsetsPerTrigger": 5}',
        bootstrap_servers="b:2",
        checkpoint="/c",
    )
    assert bound.is_stream
    options = bound._options(streaming=True)
    assert options["subscribe"] == "returns"
    assert options["kafka.bootstrap.servers"] == "b:2"
    assert options["maxOffsetsPerTrigger"] == "5"
    assert producer_config("scored", bound.pipeline.source, {}).bootstrap_servers == ["b:2"]
    assert bound._trigger == {"processingTime": "0 seconds"}
    assert _bound(WRITTEN, checkpoint="/c", trigger="10 seconds")._trigger == {"processingTime": "10 seconds"}


def test_until_latest_ends_a_stream_and_without_a_checkpoint_it_is_one_batch():
    assert _bound(WRITTEN, checkpoint="/c", until="latest")._trigger == {"availableNow": True}
    assert _bound(WRITTEN, checkpoint="/c", until="latest", trigger="once")._trigger == {"once": True}
    assert not _bound(WRITTEN, until="latest").is_stream
    with pytest.raises(ConfigError, match="trigger: is '10 seconds', which goes on, and until is 'latest'"):
        _bound(WRITTEN, checkpoint="/c", until="latest", trigger="10 seconds")
    with pytest.raises(ConfigError, match=r"checkpoint: is missing: .*--until latest for one batch"):
        _bound(WRITTEN)


def test_an_on_spark_keeps_what_no_option_changes():
    found = WRITTEN.on_spark(
        "session", checkpoint="/c", start="latest", trigger="10 seconds", minOffsetsPerTrigger=7
    )
    bound = _bound(found, 'spark_options={"maxOffsetsPerTrigger": 5}', bootstrap_servers="b:2")
    options = bound._options(streaming=True)
    assert {
        name: options[name] for name in ("startingOffsets", "minOffsetsPerTrigger", "maxOffsetsPerTrigger")
    } == {
        "startingOffsets": "latest",
        "minOffsetsPerTrigger": "7",
        "maxOffsetsPerTrigger": "5",
    }
    assert options["kafka.bootstrap.servers"] == "b:2"
    assert (bound._spark, bound._checkpoint) == ("session", "/c")
    assert bound._trigger == {"processingTime": "10 seconds"}
    assert _bound(found, until="latest")._trigger == {"availableNow": True}
    assert not _bound(WRITTEN.on_spark(None)).is_stream, "a batch stays one"


@pytest.mark.parametrize(
    "found", [WRITTEN, WRITTEN.on_spark(None, checkpoint="/c")], ids=["Pipeline", "OnSpark"]
)
@pytest.mark.parametrize(
    "pair",
    [
        "workers=2",
        'resources_per_worker={"num_cpus": 1}',
        "name=x",
        "dead_letter_topic=x",
        "status=:0",
        "prometheus=:0",
        "session_timeout_ms=9000",
        "drain_timeout_ms=1",
        "worker_assignor=range",
        "batch_linger_ms=5",
    ],
)
def test_options_of_a_job_that_mean_nothing_on_spark_are_refused_by_name(found, pair):
    name = pair.partition("=")[0]
    with pytest.raises(ConfigError, match=f"^{name}: is for a job on Ray, and shop.py:orders runs on Spark"):
        _bound(found, pair, checkpoint="/c")


def test_a_pipelines_own_policies_are_refused_too():
    with pytest.raises(ConfigError, match="retries: is no option of the source"):
        _bound(WRITTEN, "retries=2", checkpoint="/c")


class Run:
    """Run of a query: `ends` after so many waits, or a signal comes at one of them, or it fails."""

    def __init__(self, ends=10**9, signal_at=None, fails_at=None):
        self.waits = 0
        self.ends, self.signal_at, self.fails_at = ends, signal_at, fails_at
        self.seen = []

    def start(self):
        self.seen.append("start")

    def progress(self):
        return RunProgress(title="a → b", state="running", elapsed_s=self.waits, records=1, records_per_s=1.0)

    def wait(self, *, timeout):
        self.waits += 1
        if self.waits == self.signal_at:
            signal.raise_signal(signal.SIGTERM)
        if self.waits == self.fails_at:
            raise JobFailed(ValueError("no"))
        if self.waits <= self.ends:
            raise KafkaTimeoutError("goes on")

    def stop(self):
        self.seen.append("stop")


class View:
    def __init__(self):
        self.notes = []

    def show(self, progress):
        pass

    def note(self, text):
        self.notes.append(text)


def test_a_run_ends_by_itself_or_by_a_signal_and_is_stopped():
    run, view = Run(ends=3), View()
    assert watch(run, view) is WatchEnd.FINISHED
    assert (run.seen, view.notes) == (["start", "stop"], [])
    before = signal.getsignal(signal.SIGTERM)
    for fails_at in (None, 2):  # Ctrl-C reaches Spark's Python workers, too
        run, view = Run(signal_at=2, fails_at=fails_at), View()
        assert watch(run, view) is WatchEnd.STOPPED
        assert (run.seen, view.notes) == (["start", "stop"], ["SIGTERM: stopping; once more ends at once"])
    assert signal.getsignal(signal.SIGTERM) is before
    run = Run(fails_at=2)
    with pytest.raises(JobFailed):
        watch(run, View())
    assert run.seen == ["start", "stop"]


def _progress(at, records=10, batch=None, **more):
    values = {"state": "running", "records_per_s": 2.0, "lag": 5, **more}
    return RunProgress(title="a → b", elapsed_s=at, records=records, batch=batch, **values)


def _shown(log_format, *progress):
    out, err = io.StringIO(), io.StringIO()
    with (
        redirect_stdout(out),
        redirect_stderr(err),
        Output(log_format) as output,
        ProgressView(output, 3.0) as view,
    ):
        for each in progress:
            view.show(each)
        view.note("stopping")
    logging.getLogger("kafka_actors.cli.run_on_spark").setLevel(logging.NOTSET)
    return out.getvalue().splitlines(), err.getvalue().splitlines()


def test_there_is_a_line_every_few_seconds_and_at_each_batch():
    out, err = _shown(
        "text",
        _progress(0),
        _progress(1),
        _progress(2, batch=0),
        _progress(4, batch=0),
        _progress(5.5, batch=0),
    )
    assert [line.split("  ")[1] for line in out[:-1]] == ["running 0 s", "running 2 s", "running 6 s"]
    assert out[1] == "a → b  running 2 s  10 records  2/s  lag 5  batch 0"
    assert (out[-1], err) == ("stopping", [])


def test_in_a_json_log_progress_is_a_record_with_fields():
    out, err = _shown("json", _progress(0.12345, batch=3), _progress(9, records=None, tasks=(1, 2), lag=None))
    assert out == []
    first, second, last = map(json.loads, err)
    assert (first["message"], last["message"]) == ("progress", "stopping")
    assert {
        name: first[name]
        for name in ("title", "state", "elapsed_s", "records", "records_per_s", "lag", "batch")
    } == {
        "title": "a → b",
        "state": "running",
        "elapsed_s": 0.123,
        "records": 10,
        "records_per_s": 2.0,
        "lag": 5,
        "batch": 3,
    }
    assert second["tasks"] == [1, 2]
    assert not {"records", "records_per_s", "lag", "workers", "waits_for"} & second.keys()


def test_the_last_line_says_how_it_ended():
    assert closing_line(WatchEnd.FINISHED, _progress(4)) == "done: 10 records in 4.0 s (2/s)"
    assert closing_line(WatchEnd.STOPPED, _progress(4, records=1)) == "stopped: 1 record in 4.0 s (0/s)"
    assert closing_line(WatchEnd.FINISHED, _progress(4, records=None)) == "done: in 4.0 s"
