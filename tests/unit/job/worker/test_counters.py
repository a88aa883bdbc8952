"""Counters of a worker: time at work, calls in hand, ages of records, and why a partition waits."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import pyarrow as pa
import pytest
from fakes.telemetry import Kept

from kafka_actors.job.worker.counters import TOGETHER, WorkerCounters
from kafka_actors.job.worker.user_function import CallFailed
from kafka_actors.telemetry.machines.latency import SAMPLES, LatencyTally
from kafka_actors.telemetry.recorder import Recorder
from kafka_actors.types import TopicPartition

P, Q = TopicPartition("t", 0), TopicPartition("t", 1)


def counters(recorder: Recorder | None = None) -> WorkerCounters:
    return WorkerCounters("g", recorder or Recorder())


def batch(*stamps_ms: int, value: bytes | None = b"abc") -> pa.RecordBatch:
    columns = {
        "timestamp": pa.array([stamp * 1000 for stamp in stamps_ms], pa.timestamp("us")),
        "value": pa.array([value] * len(stamps_ms), pa.binary()),
    }
    return pa.record_batch(columns)


def bucket_of(age_ms: float) -> int:
    tally = LatencyTally()
    tally.take([age_ms], 1)
    (bucket,) = tally.counts
    return bucket


def test_time_at_work_of_several_items_at_once_counts_once() -> None:
    made = counters()
    assert made.work_s(99.0) == 0.0
    made.work_begins(10.0)
    made.work_begins(12.0)
    assert made.work_s(15.0) == 5.0
    made.work_ends(16.0)
    assert made.work_s(17.0) == 7.0, "one is still at work"
    made.work_ends(18.0)
    assert (made.work_s(18.0), made.work_s(99.0)) == (8.0, 8.0)
    made.work_begins(100.0)
    assert made.work_s(101.0) == 9.0


def test_a_worker_is_busy_since_its_oldest_call() -> None:
    made = counters()
    assert made.busy_s(5.0) is None
    made.call_began(P, 1.0)
    made.call_began(Q, 3.0)
    assert made.busy_s(5.0) == 4.0
    made.call_ended(P, 5.0, None)
    assert made.busy_s(5.0) == 2.0
    made.call_ended(Q, 5.0, None)
    assert made.busy_s(5.0) is None


def test_the_time_in_which_a_call_waits_for_what_is_no_matter_of_its_own_is_left_out() -> None:
    made, waiting = counters(), {P: "waits for the registry: …"}
    made.call_began(P, 1.0)
    made.call_began(Q, 300.0)
    assert made.busy_s(301.0, lambda partition: waiting.get(partition, "")) == 1.0, "of the other call"
    assert made.busy_s(600.0, lambda partition: waiting.get(partition, "")) == 300.0
    made.call_ended(Q, 600.0, None)
    assert made.busy_s(601.0, lambda partition: waiting.get(partition, "")) == 0.0
    waiting.clear()
    assert made.busy_s(605.0, lambda partition: waiting.get(partition, "")) == 4.0, "it counts anew"
    made.call_ended(P, 605.0, None)
    made.call_began(P, 606.0)
    assert made.busy_s(609.0) == 3.0


def test_a_partition_waits_for_a_call_or_is_retried_and_success_ends_both() -> None:
    made = counters()
    made.waiting(P, "waits for another call")
    assert (made.blocked(P), made.blocked(Q)) == ("waits for another call", "")
    made.call_began(P, 1.0)
    assert made.blocked(P) == ""
    failure = CallFailed(ValueError("no"), 7, 9)
    made.call_ended(P, 2.0, failure)
    made.retrying(P, failure)
    assert made.blocked(P) == "retrying: offset 7, ValueError"
    made.call_began(P, 3.0)
    assert made.blocked(P).startswith("retrying"), "until it has succeeded"
    made.call_ended(P, 4.0, None)
    assert made.blocked(P) == ""


def test_partitions_of_other_workers_wait_for_nothing_here() -> None:
    made = counters()
    made.waiting(P, "waits")
    made.retrying(Q, CallFailed(ValueError("no"), 7, 9))
    made.forget([P, Q])
    assert (made.blocked(P), made.blocked(Q)) == ("", "")


def test_records_and_bytes_of_their_values_are_counted_with_their_age() -> None:
    made = counters()
    made.processed(P, batch(9_000, 9_000, 4_000), now_s=10.0)
    assert (made.records, made.value_bytes) == (3, 9)
    assert sum(made.latency.counts.values()) == 3
    made.processed(P, batch(), now_s=10.0)
    assert made.records == 3


def test_a_record_without_a_timestamp_has_no_age_but_counts() -> None:
    made = counters()
    made.processed(P, batch(-1, -1, value=None), now_s=10.0)
    assert (made.records, made.value_bytes) == (2, 0)


def test_ages_are_those_of_some_records_that_lie_evenly_in_the_batch(monkeypatch: pytest.MonkeyPatch) -> None:
    made, taken = counters(), []
    monkeypatch.setattr(made.latency, "take", lambda ages, rows: taken.append((list(ages), rows)))
    rows = 10 * SAMPLES
    made.processed(P, batch(*range(rows)), now_s=rows / 1000)
    ((ages, counted),) = taken
    assert counted == rows
    assert len(ages) == SAMPLES
    gaps = {round(older - younger) for older, younger in pairwise(ages)}
    assert gaps == {10}, "each tenth record"


def test_the_duration_of_a_call_and_its_error_are_recorded() -> None:
    kept: Any = Kept()
    made = counters(kept)
    made.call_began(P, 1.0)
    made.call_ended(P, 3.5, CallFailed(ValueError("no"), 0, 0))
    made.call_began(P, 4.0)
    made.call_ended(P, 4.5, None)
    found = {dict(attributes).get("error.type"): values for (_, attributes), values in kept.values.items()}
    assert found == {"ValueError": [2.5], None: [0.5]}


def test_time_at_work_is_the_share_of_the_callers_that_have_a_call_where_calls_overlap() -> None:
    """Else a worker of a thousand callers would count as full with the first call."""
    made = WorkerCounters("g", Recorder(), callers=4)
    made.call_began(P, 10.0, "first")
    assert made.work_s(14.0) == 1.0
    made.call_began(P, 14.0, "second")
    made.call_ended(P, 18.0, None, "first")
    assert made.work_s(18.0) == 3.0
    made.call_ended(P, 22.0, None, "second")
    assert (made.work_s(22.0), made.work_s(99.0)) == (4.0, 4.0)


def test_a_worker_that_does_not_get_to_calls_that_could_begin_is_wholly_at_work() -> None:
    """An async function that never waits has one call in hand at a time."""
    made = WorkerCounters("g", Recorder(), callers=1_000)
    made.call_began(P, 10.0, "first", more=True)
    made.call_ended(P, 11.0, None, "first", more=True)
    assert made.work_s(12.0) == 2.0
    made.overlap(12.0, more=False)
    assert made.work_s(99.0) == 2.0


def test_records_of_calls_that_overlap_are_counted_with_the_end_of_their_call() -> None:
    made, records = counters(), batch(1_000, 2_000, 3_000, 4_000).slice(1)
    made.call_done(P, records, [2], now_s=4.0)
    made.call_done(P, records, [0], now_s=10.0)
    made.call_done(Q, batch(-1, value=b"abcdef"), [0], now_s=10.0)
    assert made.records == 0, "few are counted together"
    made.count()
    assert (made.records, made.value_bytes) == (3, 12)
    assert made.latency.counts == {0: 1, bucket_of(8_000): 1}
    made.count()
    assert made.records == 3
    many = batch(*range(TOGETHER))
    made.call_done(P, many, list(range(TOGETHER)), now_s=10.0)
    assert made.records == 3 + TOGETHER
