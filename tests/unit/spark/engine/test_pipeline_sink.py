"""Rows of a task go to all sinks and files; records that failed before, or that a sink refuses, go where `on_error` says."""

import os
from contextlib import nullcontext

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from fakes.records import records

import kafka_actors as ka
from kafka_actors.errors import DisconnectedError, MessageTooLargeError, SinkError, StageError

pytest.importorskip("pyspark")
from pyspark import cloudpickle

from kafka_actors.events import RecordsSkipped
from kafka_actors.pipeline.fused import FailedRecord
from kafka_actors.pipeline.rows import rows_of
from kafka_actors.pipeline.stages import WriteParquet
from kafka_actors.sinks import Origin
from kafka_actors.sinks import stage as stage_module
from kafka_actors.sinks.stage import OpenSinks
from kafka_actors.spark.engine import pipeline_sink, transactional_sink
from kafka_actors.spark.engine.frames import PipelineFrame
from kafka_actors.spark.engine.parquet_sink import TaskFile, batch_unit
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


READ = ka.Pipeline.read_kafka("orders", group_id="g", bootstrap_servers="a:1")
KEY = "a key of these tests"


def plan_of(pipeline, retries=0, files=()):
    sinks = tuple(s for s in pipeline.check("spark").sinks if not isinstance(s.step.stage, WriteParquet))
    return SinkPlan("p", "run", KEY, pipeline.source, sinks, tuple(files), retries, FRAME, None)


def plan(*on_errors, retries=0, files=()):
    """A plan with a sink of the user's for each policy: `store`, `store #2` …"""
    pipeline = READ.dead_letters("dead")
    for on_error in on_errors or ("fail",):
        pipeline = pipeline.write(print, name="store", on_error=on_error)
    return plan_of(pipeline, retries, files)


@pytest.fixture
def opens(monkeypatch):
    """Has sinks opened as these writers, in turn. `opens.count` is how many were."""

    def opens(*writers):
        left = list(writers)

        def opened(stage, source):
            opens.count += 1
            return left.pop(0)

        for module in (stage_module, transactional_sink):
            monkeypatch.setattr(module, "opened", opened)

    opens.count = 0
    return opens


@pytest.fixture
def task(opens):
    def make(plan, *writers, dead=None, files=()):
        opens(*writers)
        return SinkTask(plan, OpenSinks(plan.sinks, plan.source, plan.retries), files, dead)

    return make


def written(writer):
    return [value for values, _ in writer.written for value in values]


def test_rows_are_written_with_the_records_that_they_are_of(task):
    writer = FakeWriter()
    task(plan(), writer).write(FRAME.pack(ROWS, SOURCE))
    assert writer.written == [([b"1", b"2", b"3"], Origin("orders", 3, 100, 102))]


def test_records_that_failed_before_go_to_the_dead_letters(task):
    dead, writer = FakeDeadLetters(), FakeWriter()
    packed = FRAME.pack_failed([FailedRecord(0, "s", "r")], SOURCE)
    task(plan("dead_letter"), writer, dead=dead).write(packed)
    assert dead.failed == [("row", 1)]
    assert writer.written == []


def test_under_fail_a_row_that_the_sink_refuses_ends_the_task(task):
    with pytest.raises(
        StageError, match="stage store failed on orders-3 offsets 100-102 after 1 attempt: ValueError"
    ):
        task(plan(), FakeWriter(bad=[b"2"])).write(FRAME.pack(ROWS, SOURCE))


def test_under_dead_letter_only_the_refused_row_is_one(task):
    dead, writer = FakeDeadLetters(), FakeWriter(bad=[b"2"])
    task(plan("dead_letter"), writer, dead=dead).write(FRAME.pack(ROWS, SOURCE))
    assert written(writer) == [b"1", b"3"]
    assert dead.failed == [(101, "store", "ValueError: not taken")]


def test_under_skip_the_refused_row_is_an_event(task, monkeypatch):
    events = []
    monkeypatch.setattr(pipeline_sink, "log_event", events.append)
    writer = FakeWriter(bad=[b"3"])
    task(plan("skip"), writer).write(FRAME.pack(ROWS, SOURCE))
    assert written(writer) == [b"1", b"2"]
    assert [(type(event), event.first_offset, event.last_offset) for event in events] == [
        (RecordsSkipped, 102, 102)
    ]


def test_a_row_that_several_sinks_refuse_is_one_dead_letter_and_the_others_get_it(task):
    dead, writers = FakeDeadLetters(), [FakeWriter(bad=[b"2"]), FakeWriter(bad=[b"2", b"3"]), FakeWriter()]
    task(plan(*["dead_letter"] * 3), *writers, dead=dead).write(FRAME.pack(ROWS, SOURCE))
    assert [written(writer) for writer in writers] == [[b"1", b"3"], [b"1"], [b"1", b"2", b"3"]]
    assert [(offset, stage) for offset, stage, _ in dead.failed] == [(101, "store"), (102, "store #2")]


def test_the_end_waits_for_all_sinks_and_for_the_dead_letters(task):
    dead, writers = FakeDeadLetters(), [FakeWriter(), FakeWriter()]
    assert task(plan("dead_letter", "fail"), *writers, dead=dead).finish() == []
    assert [writer.flushed for writer in writers] == [1, 1]
    assert dead.flushed == 1


def test_what_a_sink_has_lost_is_an_error_and_dead_letters_are_not_waited_for(task):
    dead = FakeDeadLetters()
    full = FakeWriter(flush_error=OSError("disk full"))
    with pytest.raises(SinkError, match="store #2: OSError: disk full"):
        task(plan("dead_letter", "fail"), FakeWriter(), full, dead=dead).finish()
    assert dead.flushed == 0


# ---------------------------------------------------------------- the writers, as Spark calls them


@pytest.fixture
def writer(opens, monkeypatch):
    """Makes a batch writer whose sinks are the given ones."""

    def make(*writers, kind=PipelineBatchWriter, **more):
        opens(*writers)
        return kind(plan(*["fail"] * len(writers), **more))

    monkeypatch.setattr(pipeline_sink, "traced_task", lambda: nullcontext(False))
    monkeypatch.setattr(pipeline_sink, "freeze_imports", lambda: None)
    yield make
    pipeline_sink._cache.drop(KEY)


def test_the_sinks_are_kept_for_the_next_task(writer, opens):
    sinks = FakeWriter(), FakeWriter()
    for _ in range(2):
        assert writer(*sinks).write(iter([FRAME.pack(ROWS, SOURCE)])).refused is None
    assert opens.count == 2
    assert [(sink.flushed, sink.closed) for sink in sinks] == [(2, 0), (2, 0)]


def test_all_sinks_of_a_task_that_fails_are_closed(writer):
    sinks = FakeWriter(), FakeWriter(bad=[b"1"])
    with pytest.raises(StageError):
        writer(*sinks).write(iter([FRAME.pack(ROWS, SOURCE)]))
    assert [sink.closed for sink in sinks] == [1, 1]


def test_an_error_that_a_retry_would_repeat_is_raised_at_the_commit(writer):
    batch = writer(FakeWriter(flush_error=MessageTooLargeError()))
    commit = batch.write(iter([]))
    assert isinstance(commit.refused, SinkError)
    with pytest.raises(SinkError):
        batch.commit([None, commit])
    stream = writer(FakeWriter(), kind=PipelineStreamWriter)
    with pytest.raises(SinkError):
        stream.commit([commit], 7)
    stream.commit([None, writer(FakeWriter()).write(iter([]))], 8)


def test_an_error_that_may_pass_is_raised_in_the_task(writer):
    with pytest.raises(SinkError):
        writer(FakeWriter(flush_error=DisconnectedError("gone"))).write(iter([]))


def names(directory, hidden=False):
    return sorted(
        name
        for path, _, files in os.walk(directory)
        for name in files
        if hidden or not os.path.basename(path).startswith(".")
    )


@pytest.fixture
def files(tmp_path):
    """Two Parquet sinks, the second with `_kafka`."""
    return [
        WriteParquet(name="files", path=str(tmp_path / "plain")),
        WriteParquet(name="files #2", path=str(tmp_path / "hidden"), kafka=True),
    ]


def test_files_beside_a_sink_have_its_rows_and_appear_at_the_commit(writer, files):
    sink = FakeWriter()
    batch = writer(sink, files=files)
    message = batch.write(iter([FRAME.pack(ROWS, SOURCE)]))
    assert (written(sink), sink.flushed) == ([b"1", b"2", b"3"], 1)
    assert [names(stage.path) for stage in files] == [[], []]
    batch.commit([message, None])
    plain, hidden = (pq.read_table(stage.path) for stage in files)
    assert plain.to_pydict() == {"value": [b"1", b"2", b"3"]}
    assert hidden["value"].to_pylist() == [b"1", b"2", b"3"]
    assert [row["offset"] for row in hidden["_kafka"].to_pylist()] == [100, 101, 102]


@pytest.mark.parametrize(
    "error", [MessageTooLargeError(), DisconnectedError("gone")], ids=["final", "passing"]
)
def test_no_file_appears_where_the_sink_beside_it_fails(writer, files, error):
    """Neither of the task that failed nor of the others, whether or not Spark would try the task again."""
    sound = writer(FakeWriter(), files=files)
    messages = [sound.write(iter([FRAME.pack(ROWS, SOURCE)]))]
    pipeline_sink._cache.drop(KEY)
    batch = writer(FakeWriter(flush_error=error), files=files)
    with pytest.raises(SinkError, match=r"^store: "):
        batch.commit([*messages, batch.write(iter([FRAME.pack(ROWS, SOURCE)]))])
    if error.retriable:
        batch.abort(messages)  # Spark does so when its tries are over
    assert [names(stage.path, hidden=True) for stage in files] == [[], []]


def test_where_files_cannot_be_written_their_sink_is_named(writer, files, tmp_path):
    (tmp_path / "hidden").touch()
    sink = FakeWriter()
    with pytest.raises(SinkError, match=r"^files #2: ") as raised:
        writer(sink, files=files).write(iter([FRAME.pack(ROWS, SOURCE)]))
    assert raised.value.sink == "files #2"
    assert names(tmp_path / "plain", hidden=True) == []
    assert (sink.flushed, sink.closed) == (0, 1)


def test_the_session_of_spark_leaves_no_time_zone_in_the_files(files):
    frame = PipelineFrame(pa.schema([("at", pa.timestamp("us", tz="UTC"))]))
    made = TaskFile(files[0], batch_unit("query", 3), 0)
    rows = pa.record_batch({"at": pa.array([1_000_000], pa.timestamp("us", tz="Europe/Berlin"))})
    task = SinkTask(
        msgspec.structs.replace(plan_of(READ, files=files), before=frame),
        OpenSinks((), READ.source, 0),
        [made],
    )
    task.write(rows)
    [hidden] = task.finish()[0].values()
    assert pq.read_schema(hidden).field("at").type == pa.timestamp("us", tz="UTC")
    assert pq.read_table(hidden)["at"].cast(pa.int64()).to_pylist() == [1_000_000]


def test_failed_records_are_in_no_file(task, files):
    dead = FakeDeadLetters()
    unit = batch_unit("query", 3)
    made = [TaskFile(stage, unit, 0) for stage in files]
    written_to = task(plan(files=files), FakeWriter(), dead=dead, files=made)
    written_to.write(FRAME.pack_failed([FailedRecord(0, "s", "r")], SOURCE))
    assert written_to.finish() == [{}, {}]
    assert (dead.failed, dead.flushed) == ([("row", 1)], 1)


def test_topics_are_looked_up_where_the_write_is_planned(monkeypatch):
    checked = []
    monkeypatch.setattr(
        transactional_sink, "check_target", lambda config, topic, what: checked.append((topic, what))
    )
    PipelineBatchWriter(plan_of(READ.raw().write_kafka("scored").write_parquet("x").write_kafka("other")))
    assert checked == [("scored", "the sink's topic"), ("other", "the sink's topic")]


def test_a_writer_that_only_ends_a_micro_batch_looks_at_no_topic(monkeypatch):
    checked = []
    monkeypatch.setattr(transactional_sink, "check_target", lambda *told: checked.append(told))
    source = sink_of(plan_of(READ.raw().write_kafka("scored")))({})
    source.streamWriter(None, overwrite=False)
    assert len(checked) == 1
    cloudpickle.loads(cloudpickle.dumps(source)).streamWriter(None, overwrite=False).commit([], 0)
    assert len(checked) == 1


def test_the_class_for_a_session_is_bound_to_its_plan():
    first, second = sink_of(plan()), sink_of(plan())
    assert first.name() == "p"
    assert first.bound is not second.bound
