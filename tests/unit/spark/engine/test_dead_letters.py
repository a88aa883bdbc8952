"""Dead letters of a task: which records are sent with which reasons, what is logged of them, and when they are waited for."""

import pyarrow as pa
import pytest
from fakes.records import records

import kafka_actors as ka
from kafka_actors.errors import SinkError

pytest.importorskip("pyspark")

from kafka_actors.events import RecordsDeadLettered
from kafka_actors.pipeline.fused import FailedRecord
from kafka_actors.spark.engine import dead_letters
from kafka_actors.spark.engine.dead_letters import TaskDeadLetters, dead_letter_plan
from kafka_actors.spark.engine.frames import PipelineFrame
from kafka_actors.spark.source.arrow_types import ERROR

SOURCE = records([b"a", b"b", b"c"])
FAILED = [FailedRecord(0, "decode", "no JSON"), FailedRecord(2, "score", "too large")]


class FakeDeadLetters:
    topic = "dead"

    def __init__(self, error=None):
        self.written = []
        self.flushed = self.closed = 0
        self._error = error

    def write(self, batch, stages, reasons):
        self.written += zip(batch["offset"].to_pylist(), stages, reasons, strict=True)

    def flush(self):
        self.flushed += 1
        if self._error is not None:
            raise self._error

    def close(self):
        self.closed += 1


@pytest.fixture
def logged(monkeypatch):
    events = []
    monkeypatch.setattr(dead_letters, "log_event", events.append)
    return events


def test_records_are_sent_with_stage_and_reason_and_logged(logged):
    target = FakeDeadLetters()
    TaskDeadLetters(target).write(FAILED, SOURCE)
    assert target.written == [(100, "decode", "no JSON"), (102, "score", "too large")]
    assert [(type(e), e.first_offset, e.records, e.dead_letter_topic) for e in logged] == [
        (RecordsDeadLettered, 100, 1, "dead"),
        (RecordsDeadLettered, 102, 1, "dead"),
    ]


def test_rows_that_failed_before_are_sent_from_their_column(logged):
    frame = PipelineFrame(pa.schema({"id": pa.int64()}), errors=True)
    target = FakeDeadLetters()
    packed = frame.pack_failed(FAILED, SOURCE)
    assert ERROR in packed.schema.names
    TaskDeadLetters(target).write_failed(packed)
    assert target.written == [(100, "decode", "no JSON"), (102, "score", "too large")]
    assert len(logged) == 2


def test_what_nothing_was_sent_of_is_not_waited_for(logged):
    target = FakeDeadLetters()
    task = TaskDeadLetters(target)
    task.flush()
    assert target.flushed == 0
    task.write(FAILED, SOURCE)
    task.flush()
    assert target.flushed == 1


def test_letters_that_do_not_arrive_are_an_error_of_the_sink(logged):
    task = TaskDeadLetters(FakeDeadLetters(OSError("gone")))
    task.write(FAILED, SOURCE)
    with pytest.raises(SinkError, match="dead_letters: OSError: gone"):
        task.flush()


def test_a_pipeline_without_a_topic_for_them_has_no_plan():
    read = ka.Pipeline.read_kafka("orders", group_id="g", bootstrap_servers="a:1")
    assert dead_letter_plan("k", read) is None
    plan = dead_letter_plan("k", read.dead_letters("dead", linger_ms=5))
    assert (plan.topic, plan.key, plan.options) == ("dead", "k", {"linger_ms": 5})


def test_the_producer_is_kept_for_the_next_task_unless_one_fails(monkeypatch):
    made = []

    def open_target(config, topic, group):
        assert (topic, group, config.bootstrap_servers) == ("dead", "g", ["a:1"])
        made.append(FakeDeadLetters())
        return made[-1]

    monkeypatch.setattr(dead_letters, "DeadLetters", open_target)
    read = ka.Pipeline.read_kafka("orders", group_id="g", bootstrap_servers="a:1").dead_letters("dead")
    plan = dead_letter_plan("a key of this test", read)
    try:
        for _ in range(2):
            with plan.task():
                pass
        assert len(made) == 1
        with pytest.raises(ValueError, match="fails"), plan.task():
            raise ValueError("fails")
        with plan.task():
            pass
        assert len(made) == 2
    finally:
        dead_letters._cache.drop("a key of this test")
