"""Runs on Spark: the error of a failed task, and how far a query is, by Spark's own reports."""

import threading
from collections import deque

import pytest

from kafka_actors.errors import JobFailed, SinkError, StageError

pytest.importorskip("pyspark")
from kafka_actors.spark.engine.pipeline_source import SourceNames
from kafka_actors.spark.engine.runs import QueryProgress, StreamRun, failed
from kafka_actors.types import TopicPartition

# ---------------------------------------------------------------- what it was


def test_what_a_task_raised_is_the_cause_and_sparks_report_behind_it():
    for error in (
        StageError("map_batches(f)", "or-ders", 3, 5, 9, 2, "ValueError: no"),
        StageError("score", "orders", 3, 5, 5, 1, "odd"),
        StageError("score", "", -1, -1, -1, 1, "odd"),
        SinkError("write_kafka(x)", "KafkaTimeoutError: too late"),
    ):
        report = RuntimeError(
            f"[STREAM_FAILED] Traceback …\nkafka_actors.errors.{type(error).__name__}: {error}\n\n  at x"
        )
        found = failed(report)
        assert isinstance(found, JobFailed)
        assert str(found) == f"the run failed: {error}"
        assert type(found.cause) is type(error)
        assert vars(found.cause) == vars(error)
        assert found.cause.__cause__ is report


def test_other_errors_are_told_in_a_line():
    report = RuntimeError("x\nkafka_actors.errors.DataLossError: orders-0: offset 5 is gone\n")
    assert str(failed(report)) == "the run failed: DataLossError: orders-0: offset 5 is gone"
    assert failed(report).cause is report
    assert str(failed(ValueError("one\ntwo"))) == "the run failed: one"


RAISED = """Traceback (most recent call last):
  File "/app/source.py", line 104, in _read
    yield from fusion.run(batch)
               ^^^^^^^^^^^^^^^^^
"""


@pytest.mark.parametrize(
    ("report", "said"),
    [
        (f"from the Python worker:\n{RAISED}ZeroDivisionError: by zero\n", "ZeroDivisionError: by zero"),
        (f"Job aborted: {RAISED}KeyError: 'a'\n\n\tat org.apache.spark.x\n", "KeyError: 'a'"),
        (f"{RAISED}a.B\n\nDuring handling of it:\n\n{RAISED}c.D: e\n\tat x", "c.D: e"),
        (
            f"{RAISED}OSError: no model\nraised when stage score was made\n\n\tat x",
            "OSError: no model (raised when stage score was made)",
        ),
        (
            f"{RAISED}OSError: no model\nraised by the constructor of M (m.py, line 3)\nraised when stage s was made\n\tat x",
            "OSError: no model (raised by the constructor of M (m.py, line 3), raised when stage s was made)",
        ),
    ],
)
def test_of_what_a_python_worker_raised_its_last_line_is_told(report, said):
    assert str(failed(RuntimeError(report))) == f"the run failed: {said}"


def progress(batch, start, end, latest=None):
    source = {"startOffset": start, "endOffset": end, "latestOffset": latest}
    return {
        "batchId": batch,
        "sources": [{"startOffset": None, "endOffset": "5", "latestOffset": None}, source],
    }


def test_records_and_lag_are_counted_in_offsets():
    reckoning = QueryProgress(lambda topic: topic == "t")
    reckoning.observe(
        progress(3, None, '{"t": {"0": 10}, "@start": {"t": {"0": 4}}}', '{"t": {"0": 25}, "@metrics": {}}')
    )
    assert reckoning.counts == (6, 15, 3)
    again = progress(4, '{"t": {"0": 10}}', '{"t": {"0": 20, "1": 3}}')
    for _ in range(2):
        reckoning.observe(again)
    assert reckoning.counts == (19, None, 4), "of a partition that is new all"
    assert reckoning.end == {"t": {"0": 20, "1": 3}}
    reckoning.observe(progress(5, '{"other": {"0": 1}}', '{"other": {"0": 2}}'))
    reckoning.observe(progress(2, None, '{"t": {"0": 10}}'))
    assert reckoning.counts == (19, None, 4)


def test_the_first_batch_is_counted_from_the_kept_start_where_the_progress_does_not_say_it():
    reckoning = QueryProgress(lambda topic: topic == "t", lambda: {TopicPartition("t", 0): 4})
    reckoning.observe(progress(0, "null", '{"t": {"0": 10}}', '{"t": {"0": 25}}'))
    assert reckoning.counts == (6, 15, 0)


def test_progress_of_pyspark_4_1_has_offsets_in_pythons_text():
    reckoning = QueryProgress(lambda topic: topic == "t")
    end = {"t": {"0": 10}, "@start": {"t": {"0": 4}}, "@initial": True}
    reckoning.observe(progress(3, "None", str(end), "None"))
    assert reckoning.counts == (6, None, 3)
    assert reckoning.end == end
    reckoning.observe(progress(4, "KafkaV2[Subscribe[t]]", "neither {"))
    assert reckoning.counts == (6, None, 3)


def test_records_are_counted_from_the_first_batch_though_spark_keeps_the_last_hundred():
    """Asked for a status only after 150 batches. A partition came in one that nobody saw."""
    query = Query()
    query.add(progress(0, '{"t": {"0": 0}}', '{"t": {"0": 10}}'))
    run = StreamRun(query, QueryProgress(lambda topic: topic == "t"), lambda end: None, SourceNames(query))
    query.seen.wait(10)
    for batch in range(1, 150):
        ends = f'{{"t": {{"0": {batch * 10 + 10}, "1": {batch}}}}}'
        query.add(progress(batch, f'{{"t": {{"0": {batch * 10}, "1": {batch - 1}}}}}', ends))
    assert run.status().records == 1500 + 149
    run.stop()


def test_a_query_that_runs_is_handed_out_where_the_system_gives_no_thread_to_watch_it(monkeypatch):
    """It ran on, and nobody could stop it."""

    def refuse(_):
        raise RuntimeError("can't start new thread")

    query = Query()
    query.add(progress(0, '{"t": {"0": 0}}', '{"t": {"0": 10}}'))
    monkeypatch.setattr(threading.Thread, "start", refuse)
    run = StreamRun(query, QueryProgress(lambda topic: topic == "t"), lambda end: None, SourceNames(query))
    assert run.status().records == 10
    run.stop()
    assert not query.isActive


class Query:
    """A streaming query of Spark's, as far as its progress goes."""

    def __init__(self):
        self.isActive = True
        self.seen = threading.Event()
        self._last = deque(maxlen=100)

    def add(self, progress):
        self._last.append(progress)

    @property
    def recentProgress(self):
        self.seen.set()
        return list(self._last)

    def stop(self):
        self.isActive = False

    def exception(self):
        return None
