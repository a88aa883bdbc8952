"""Rows of a task go to the sink; records that failed before, or that the sink refuses, go where `on_error` says."""

from contextlib import nullcontext

import pyarrow as pa
import pytest
from fakes.records import records

import kafka_actors as ka
from kafka_actors.errors import DisconnectedError, MessageTooLargeError, SinkError, StageError

pytest.importorskip("pyspark")

from kafka_actors.events import RecordsSkipped
from kafka_actors.pipeline.fused import FailedRecord
from kafka_actors.pipeline.rows import rows_of
from kafka_actors.sinks import Origin
from kafka_actors.spark.engine import pipeline_sink
from kafka_actors.spark.engine.frames import PipelineFrame
from kafka_actors.spark.engine.pipeline_sink import (
    PipelineBatchWriter,
    PipelineStreamWriter,
    SinkPlan,
    SinkTask,
    sink_of,
)

SOURCE = records([b"1", b"2", b"3"])
COLUMNS = pa.schema({"value": pa.binary()})
FRAME = PipelineFrame(COLUMNS, kafka=True, errors=True)
ROWS = rows_of(SOURCE)._replace(batch=SOURCE.select(["value"]))


class FakeWriter:
    """A sink that refuses batches with one of the values `bad`."""

    def __init__(self, *, bad=(), flush_error=None):
        self.written = []
        self.flushed = self.closed = 0
        self._bad = bad
        self._flush_error = flush_error

    def write(self, batch, origin):
        values = batch.column("value").to_pylist()
        if set(values) & set(self._bad):
            raise ValueError("not taken")
        self.written.append((values, origin))

    def flush(self):
        self.flushed += 1
        if self._flush_error is not None:
            raise self._flush_error

    def close(self):
        self.closed += 1


class FakeDeadLetters:
    def __init__(self):
        self.failed = []
        self.flushed = 0

    def write(self, failed, source):
        self.failed += [(source["offset"][f.record].as_py(), f.stage, f.reason) for f in failed]

    def write_failed(self, failed):
        self.failed += [("row", failed.num_rows)]

    def flush(self):
        self.flushed += 1


def plan(on_error="fail", retries=0, key="k"):
    pipeline = (
        ka.Pipeline.read_kafka("orders", group_id="g", bootstrap_servers="a:1")
        .dead_letters("dead")
        .write(print, name="store", on_error=on_error)
    )
    return SinkPlan("p", key, pipeline.source, pipeline.check("spark"), retries, FRAME, None)


def written(writer):
    return [value for values, _ in writer.written for value in values]


def test_rows_are_written_with_the_records_that_they_are_of():
    writer = FakeWriter()
    SinkTask(plan(), writer, None).write(FRAME.pack(ROWS, SOURCE))
    assert writer.written == [([b"1", b"2", b"3"], Origin("orders", 3, 100, 102))]


def test_records_that_failed_before_go_to_the_dead_letters():
    dead, writer = FakeDeadLetters(), FakeWriter()
    packed = FRAME.pack_failed([FailedRecord(0, "s", "r")], SOURCE)
    SinkTask(plan("dead_letter"), writer, dead).write(packed)
    assert dead.failed == [("row", 1)]
    assert writer.written == []


def test_under_fail_a_row_that_the_sink_refuses_ends_the_task():
    with pytest.raises(
        StageError, match="stage store failed on orders-3 offsets 100-102 after 1 attempt: ValueError"
    ):
        SinkTask(plan(), FakeWriter(bad=[b"2"]), None).write(FRAME.pack(ROWS, SOURCE))


def test_under_dead_letter_only_the_refused_row_is_one():
    dead, writer = FakeDeadLetters(), FakeWriter(bad=[b"2"])
    SinkTask(plan("dead_letter"), writer, dead).write(FRAME.pack(ROWS, SOURCE))
    assert written(writer) == [b"1", b"3"]
    assert dead.failed == [(101, "store", "ValueError: not taken")]


def test_under_skip_the_refused_row_is_an_event(monkeypatch):
    events = []
    monkeypatch.setattr(pipeline_sink, "log_event", events.append)
    writer = FakeWriter(bad=[b"3"])
    SinkTask(plan("skip"), writer, None).write(FRAME.pack(ROWS, SOURCE))
    assert written(writer) == [b"1", b"2"]
    assert [(type(event), event.first_offset, event.last_offset) for event in events] == [
        (RecordsSkipped, 102, 102)
    ]


def test_the_end_waits_for_the_sink_and_for_the_dead_letters():
    dead, writer = FakeDeadLetters(), FakeWriter()
    SinkTask(plan("dead_letter"), writer, dead).flush()
    assert (writer.flushed, dead.flushed) == (1, 1)


def test_what_the_sink_has_lost_is_an_error_and_dead_letters_are_not_waited_for():
    dead = FakeDeadLetters()
    with pytest.raises(SinkError, match="store: OSError: disk full"):
        SinkTask(plan("dead_letter"), FakeWriter(flush_error=OSError("disk full")), dead).flush()
    assert dead.flushed == 0


@pytest.fixture
def task(monkeypatch):
    """Makes a batch writer whose sink is the given one; the sinks that were opened are in `task.opened`."""

    def make(writer, kind=PipelineBatchWriter, **more):
        def open_sink(step, source):
            make.opened.append(writer)
            return writer

        monkeypatch.setattr(pipeline_sink, "opened", open_sink)
        return kind(plan(key="a key of these tests", **more))

    make.opened = []
    monkeypatch.setattr(pipeline_sink, "traced_task", lambda: nullcontext(False))
    monkeypatch.setattr(pipeline_sink, "freeze_imports", lambda: None)
    yield make
    pipeline_sink._cache.drop("a key of these tests")


def test_the_sink_is_kept_for_the_next_task(task):
    writer = FakeWriter()
    for _ in range(2):
        assert task(writer).write(iter([FRAME.pack(ROWS, SOURCE)])).refused is None
    assert (len(task.opened), writer.flushed, writer.closed) == (1, 2, 0)


def test_the_sink_of_a_task_that_fails_is_closed(task):
    writer = FakeWriter(bad=[b"1"])
    with pytest.raises(StageError):
        task(writer).write(iter([FRAME.pack(ROWS, SOURCE)]))
    assert writer.closed == 1


def test_an_error_that_a_retry_would_repeat_is_raised_at_the_commit(task):
    batch = task(FakeWriter(flush_error=MessageTooLargeError()))
    commit = batch.write(iter([]))
    assert isinstance(commit.refused, SinkError)
    with pytest.raises(SinkError):
        batch.commit([None, commit])
    stream = task(FakeWriter(), PipelineStreamWriter)
    with pytest.raises(SinkError):
        stream.commit([commit], 7)
    stream.commit([None, stream.write(iter([]))], 8)


def test_an_error_that_may_pass_is_raised_in_the_task(task):
    with pytest.raises(SinkError):
        task(FakeWriter(flush_error=DisconnectedError("gone"))).write(iter([]))


def test_topics_are_looked_up_where_the_write_is_planned(monkeypatch):
    checked = []
    monkeypatch.setattr(
        pipeline_sink, "check_target", lambda config, topic, what: checked.append((topic, what))
    )
    pipeline = (
        ka.Pipeline.read_kafka("orders", group_id="g", bootstrap_servers="a:1").raw().write_kafka("scored")
    )
    made = SinkPlan("p", "k", pipeline.source, pipeline.check("spark"), 0, FRAME, None)
    PipelineBatchWriter(made)
    assert checked == [("scored", "the sink's topic")]


def test_the_class_for_a_session_is_bound_to_its_plan():
    first, second = sink_of(plan()), sink_of(plan())
    assert first.name() == "p"
    assert first.bound is not second.bound
