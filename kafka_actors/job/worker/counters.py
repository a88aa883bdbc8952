"""What a worker's bench has done and is at, for the worker's reports and for telemetry."""

from __future__ import annotations

from collections.abc import Iterable

import pyarrow as pa

from kafka_actors.base.batches import numbers
from kafka_actors.telemetry.attributes import error_type, of_operation, of_partition, with_error
from kafka_actors.telemetry.instruments import (
    CONSUMED_MESSAGES,
    DESTINATION,
    ERROR_TYPE,
    GROUP,
    PROCESS_DURATION,
    PROCESSED_BYTES,
    RETRIES,
)
from kafka_actors.telemetry.machines.latency import SAMPLES, LatencyTally
from kafka_actors.telemetry.recorder import Recorder
from kafka_actors.types import TopicPartition

from .user_function import CallFailed

__all__ = ["WorkerCounters"]


class WorkerCounters:
    """Counters. `calls` holds the start of each call that is under way."""

    def __init__(self, group: str | None, recorder: Recorder) -> None:
        self._group = group
        self._recorder = recorder
        self.records = 0
        self.value_bytes = 0
        self.latency = LatencyTally()
        self.calls: dict[TopicPartition, float] = {}
        self._waits: dict[TopicPartition, str] = {}
        self._fails: dict[TopicPartition, str] = {}
        # Seconds at work so far, and since when it is again: together, as another thread reads them.
        self._work: tuple[float, float | None] = (0.0, None)
        self._overlapping = 0

    # ------------------------------------------------------------ time at work

    def work_begins(self, now: float) -> None:
        """Bytes are taken up; several at a time are one time of work."""
        if self._overlapping == 0:
            self._work = (self._work[0], now)
        self._overlapping += 1

    def work_ends(self, now: float) -> None:
        """The work on them is over."""
        self._overlapping -= 1
        if self._overlapping == 0:
            self._work = (self.work_s(now), None)

    def work_s(self, now: float) -> float:
        """How many seconds there was something to work on: decoding and the user's function."""
        so_far, since = self._work
        return so_far if since is None else so_far + (now - since)

    def busy_s(self, now: float) -> float | None:
        started = min(self.calls.values(), default=None)
        return None if started is None else now - started

    # ------------------------------------------------------------ calls

    def waits(self, partition: TopicPartition, reason: str) -> None:
        """No call is begun on it, for this reason."""
        self._waits[partition] = reason

    def begins(self, partition: TopicPartition, now: float) -> None:
        self._waits.pop(partition, None)
        self.calls[partition] = now

    def ends(self, partition: TopicPartition, now: float, failure: CallFailed | None) -> None:
        """The call is over."""
        if failure is None:
            self._fails.pop(partition, None)
        seconds = now - self.calls.pop(partition, now)
        attributes = of_operation("process", self._group, partition.topic, typed=False)
        error = None if failure is None else failure.cause
        self._recorder.record(PROCESS_DURATION, seconds, with_error(attributes, error))

    def repeats(self, partition: TopicPartition, failure: CallFailed) -> None:
        """The call that failed is made again."""
        kind = error_type(failure.cause)
        self._fails[partition] = f"retrying: offset {failure.first}, {kind}"
        self._recorder.add(
            RETRIES,
            1,
            ((GROUP, self._group or ""), (DESTINATION, partition.topic), (ERROR_TYPE, kind)),
        )

    def did(self, partition: TopicPartition, batch: pa.RecordBatch, now_s: float) -> None:
        """The function has returned for these records. `now_s`: the time of day, in seconds since 1970."""
        if not batch.num_rows:
            return
        size = batch["value"].total_values_length
        self.records += batch.num_rows
        self.value_bytes += size
        self.latency.take(_ages_ms(batch, now_s), batch.num_rows)
        self._recorder.add(
            CONSUMED_MESSAGES, batch.num_rows, of_partition(self._group, *partition, "process")
        )
        self._recorder.add(PROCESSED_BYTES, size, of_partition(self._group, *partition))

    # ------------------------------------------------------------ why nothing is done

    def blocked(self, partition: TopicPartition) -> str:
        """Why nothing of it is processed; empty where that is not up to the bench. While no call is begun the last
        one's failure doesn't count: it is not repeated either."""
        return self._waits.get(partition) or self._fails.get(partition, "")

    def forget(self, partitions: Iterable[TopicPartition]) -> None:
        """They are others' now."""
        for partition in partitions:
            self._waits.pop(partition, None)
            self._fails.pop(partition, None)


def _ages_ms(batch: pa.RecordBatch, now_s: float) -> list[float]:
    """How old some of the records are that lie evenly in the batch; those that have no timestamp are not among them."""
    rows = batch.num_rows
    step = max(1, rows // SAMPLES)
    sample = numbers(batch["timestamp"])[step // 2 :: step][:SAMPLES].tolist()
    return [now_s * 1e3 - stamp / 1e3 for stamp in sample if stamp >= 0]
