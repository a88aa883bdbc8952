"""Counters of a worker's processing, for its reports and for telemetry."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable

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
    """Counts processed records, their latency and time at work. `calls`: the calls in hand, by partition where each has one, and when each
    began."""

    def __init__(self, group: str | None, recorder: Recorder) -> None:
        self._group = group
        self._recorder = recorder
        self.records = 0
        self.value_bytes = 0
        self.latency = LatencyTally()
        self.calls: dict[Hashable, float] = {}
        self._counts: dict[TopicPartition, tuple[Callable[[float], None], Callable[[float], None]]] = {}
        """Functions that count the records and the bytes that were processed, by partition."""
        self._waits: dict[TopicPartition, str] = {}
        self._fails: dict[TopicPartition, str] = {}
        # Seconds at work so far, and since when work goes on: one tuple, because another thread reads them.
        self._work: tuple[float, float | None] = (0.0, None)
        self._items_at_work = 0

    # ------------------------------------------------------------ time at work

    def work_begins(self, now: float) -> None:
        """Takes that work on an item begins. The times of several items at once count as one."""
        if self._items_at_work == 0:
            self._work = (self._work[0], now)
        self._items_at_work += 1

    def work_ends(self, now: float) -> None:
        """Takes that work on an item is over."""
        self._items_at_work -= 1
        if self._items_at_work == 0:
            self._work = (self.work_s(now), None)

    def work_s(self, now: float) -> float:
        """Returns the seconds at work so far: decoding and calls of the user's function."""
        so_far, since = self._work
        return so_far if since is None else so_far + (now - since)

    def busy_s(self, now: float) -> float | None:
        """Returns how long the oldest call in hand has lasted, in seconds; None without one."""
        started = min(tuple(self.calls.values()), default=None)  # a copy: other threads begin and end calls
        return None if started is None else now - started

    # ------------------------------------------------------------ calls

    def waiting(self, partition: TopicPartition, reason: str) -> None:
        """Takes why no call is begun on a partition."""
        self._waits[partition] = reason

    def call_began(self, partition: TopicPartition, now: float, call: Hashable = None) -> None:
        """Takes that a call begins: the partition's only one, unless `call` stands for it."""
        self._waits.pop(partition, None)
        self.calls[call or partition] = now

    def call_ended(
        self, partition: TopicPartition, now: float, failure: CallFailed | None, call: Hashable = None
    ) -> None:
        """Takes the end of a call."""
        if failure is None:
            self._fails.pop(partition, None)
        seconds = now - self.calls.pop(call or partition, now)
        attributes = of_operation("process", self._group, partition.topic, typed=False)
        error = None if failure is None else failure.cause
        self._recorder.record(PROCESS_DURATION, seconds, with_error(attributes, error))

    def retrying(self, partition: TopicPartition, failure: CallFailed) -> None:
        """Takes that a failed call is made again."""
        kind = error_type(failure.cause)
        self._fails[partition] = f"retrying: offset {failure.first}, {kind}"
        self._recorder.add(
            RETRIES,
            1,
            ((GROUP, self._group or ""), (DESTINATION, partition.topic), (ERROR_TYPE, kind)),
        )

    def over(self, partition: TopicPartition) -> None:
        """Takes that a failed call is not made again."""
        self._fails.pop(partition, None)

    def processed(self, partition: TopicPartition, batch: pa.RecordBatch, now_s: float) -> None:
        """Counts records for which the function has returned. `now_s`: seconds since 1970."""
        if not batch.num_rows:
            return
        size = batch["value"].total_values_length
        self.records += batch.num_rows
        self.value_bytes += size
        self.latency.take(_ages_ms(batch, now_s), batch.num_rows)
        count = self._counts.get(partition)
        if count is None:
            count = self._counts[partition] = (
                self._recorder.into(CONSUMED_MESSAGES, of_partition(self._group, *partition, "process")),
                self._recorder.into(PROCESSED_BYTES, of_partition(self._group, *partition)),
            )
        count_records, count_bytes = count
        count_records(batch.num_rows)
        count_bytes(size)

    # ------------------------------------------------------------ why a partition waits

    def blocked(self, partition: TopicPartition) -> str:
        """Returns why no records of a partition are processed: it waits for a call, or a failed call is repeated. Empty for
        other reasons."""
        return self._waits.get(partition) or self._fails.get(partition, "")

    def forget(self, partitions: Iterable[TopicPartition]) -> None:
        """Drops partitions that other workers have now."""
        for partition in partitions:
            self._waits.pop(partition, None)
            self._fails.pop(partition, None)
            self._counts.pop(partition, None)


def _ages_ms(batch: pa.RecordBatch, now_s: float) -> list[float]:
    """Returns the ages of records sampled evenly from the batch, in milliseconds; records without a timestamp are left out."""
    rows = batch.num_rows
    step = max(1, rows // SAMPLES)
    sample = numbers(batch["timestamp"])[step // 2 :: step][:SAMPLES].tolist()
    return [now_s * 1e3 - stamp / 1e3 for stamp in sample if stamp >= 0]
