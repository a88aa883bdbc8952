"""What of a Spark task is in the resource of its spans, and what happens where nobody traces."""

import logging
import threading

import pytest
from waiting import slow_s

from kafka_actors.errors import UsageError
from kafka_actors.spark.source import task_tracing as tracing
from kafka_actors.telemetry.logs import task_now


class Context:
    """What Spark says of a task."""

    def __init__(self, **properties):
        self.properties = {name.replace("__", "."): value for name, value in properties.items()}

    def stageId(self):
        return 4

    def partitionId(self):
        return 0

    def taskAttemptId(self):
        return 17

    def attemptNumber(self):
        return 1

    def getLocalProperty(self, name):
        return self.properties.get(name)


@pytest.fixture
def task(monkeypatch):
    """Has this process work on a task, with these answers to `begin_task`; what was begun and flushed is kept."""

    class Kept:
        answer = True

        def begin(self, process, task):
            self.begun.append((process, task))
            if isinstance(self.answer, Exception):
                raise self.answer
            return self.answer

    kept = Kept()
    kept.begun, kept.flushed = [], []
    monkeypatch.setattr(tracing, "exports_logs", lambda: False)
    monkeypatch.setattr(tracing, "_lines_on_stderr", lambda: None)
    monkeypatch.setattr(tracing.TaskContext, "get", lambda: Context(spark__app__id="local-1"))
    monkeypatch.setattr(tracing, "begin_task", kept.begin)
    monkeypatch.setattr(tracing, "flush", kept.flushed.append)
    tracing._warn.cache_clear()
    return kept


def test_a_task_is_known_by_its_stage_partition_and_attempt():
    assert tracing.attributes_of(Context()) == {
        "spark.stage.id": 4,
        "spark.partition.id": 0,
        "spark.task.attempt.id": 17,
        "spark.task.attempt.number": 1,
    }
    stream = Context(sql__streaming__queryId="q-1", streaming__sql__batchId="0")
    assert tracing.attributes_of(stream).items() >= {
        ("spark.streaming.query.id", "q-1"),
        ("spark.streaming.batch.id", "0"),
    }


def test_the_application_is_that_of_the_driver_or_of_the_executors_environment(monkeypatch):
    monkeypatch.setenv("SPARK_APPLICATION_ID", "spark-kubernetes")
    known = Context(spark__app__id="app-1", spark__app__name="orders")
    assert tracing.application_of(known) == {
        "spark.application.id": "app-1",
        "spark.application.name": "orders",
    }
    assert tracing.application_of(Context()) == {"spark.application.id": "spark-kubernetes"}
    monkeypatch.delenv("SPARK_APPLICATION_ID")
    assert tracing.application_of(Context()) == {}


def test_outside_of_a_task_nothing_is_set_up(task, monkeypatch):
    monkeypatch.setattr(tracing.TaskContext, "get", lambda: None)
    with tracing.traced_task() as traced:
        assert not traced
    assert (task.begun, task.flushed) == ([], [])


def test_what_is_traced_is_sent_when_the_task_ends_also_where_it_fails(task):
    with tracing.traced_task() as traced:
        assert traced
        assert task.flushed == []
    assert task.begun == [({"spark.application.id": "local-1"}, tracing.attributes_of(Context()))]
    with pytest.raises(ValueError, match="mine"), tracing.traced_task():
        raise ValueError("mine")
    assert len(task.flushed) == 2


def test_where_nobody_traces_nothing_is_sent(task):
    task.answer = False
    with tracing.traced_task() as traced:
        assert not traced
    assert task.flushed == []


def test_telemetry_that_cannot_be_set_up_is_a_warning_said_once_and_the_task_goes_on(task, caplog):
    task.answer = UsageError("opentelemetry.sdk is not installed")
    with caplog.at_level(logging.WARNING, "kafka_actors"):
        for _ in range(3):
            with tracing.traced_task() as traced:
                assert not traced
    assert [record.message for record in caplog.records] == [
        "Spark's tasks are not traced: opentelemetry.sdk is not installed"
    ]


def test_a_collector_that_takes_nothing_holds_up_one_task_and_not_the_next(task, monkeypatch):
    begun, released = threading.Event(), threading.Event()
    monkeypatch.setattr(tracing, "FLUSH_S", 0.01)
    monkeypatch.setattr(
        tracing, "flush", lambda _: (task.flushed.append(1), begun.set(), released.wait(slow_s(30)))
    )
    for _ in range(3):
        with tracing.traced_task():
            pass
    assert begun.wait(slow_s(10))
    assert task.flushed == [1]
    released.set()
    tracing._sending[0].join()
    with tracing.traced_task():
        pass
    tracing._sending[0].join()
    assert len(task.flushed) == 2


def test_a_task_does_not_fail_where_the_system_gives_no_thread_to_send(task, monkeypatch):
    """Its rows were written, and were written again by its next try."""

    def refuse(_):
        raise RuntimeError("can't start new thread")

    with monkeypatch.context() as without:
        without.setattr(threading.Thread, "start", refuse)
        with tracing.traced_task():
            pass
    assert task.flushed == []
    with tracing.traced_task():
        pass
    assert len(task.flushed) == 1


def test_log_lines_of_a_task_name_it_whether_anybody_traces_or_not(task):
    task.answer = False
    with tracing.traced_task():
        assert task_now() == tracing.attributes_of(Context())
    assert task_now() == {}
    task.answer = UsageError("opentelemetry.sdk is not installed")
    with tracing.traced_task():
        assert task_now() == tracing.attributes_of(Context())


def test_lines_are_sent_when_the_task_ends_also_where_nobody_traces(task, monkeypatch):
    task.answer = False
    monkeypatch.setattr(tracing, "exports_logs", lambda: True)
    with tracing.traced_task():
        assert task.flushed == []
    assert len(task.flushed) == 1
