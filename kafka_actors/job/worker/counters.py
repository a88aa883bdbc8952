"""Counters of a worker's processing, for its reports and for telemetry."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Sequence
from itertools import chain, groupby
from typing import Any

import numpy as np
import numpy.typing as npt
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

TOGETHER = 64
"""Records that are counted at once where calls have few each: by itself each would cost as much as its call."""


class WorkerCounters:
    """Counts processed records, their latency and time at work. `calls`: the partitions of the calls in hand, and when each began, by partition
    where each has one. `callers`: how many calls are made at once where calls overlap."""

    def __init__(self, group: str | None, recorder: Recorder, callers: int | None = None) -> None:
        self._group = group
        self._recorder = recorder
        self._callers = callers
        self.records = 0
        self.value_bytes = 0
        self.latency = LatencyTally()
        self.calls: dict[Hashable, tuple[TopicPartition, float]] = {}
        self._waited_at: dict[TopicPartition, float] = {}
        self._counts: dict[TopicPartition, tuple[Callable[[float], None], Callable[[float], None]]] = {}
        """Functions that count the records and the bytes that were processed, by partition."""
        self._waits: dict[TopicPartition, str] = {}
        self._fails: dict[TopicPartition, str] = {}
        # Seconds at work up to a time, and the share at work since: one tuple, because another thread reads them.
        self._work = (0.0, 0.0, 0.0)
        self._items_at_work = 0
        self._done: list[tuple[TopicPartition, pa.RecordBatch, Sequence[int], float]] = []
        self._rows_done = 0

    # ------------------------------------------------------------ time at work

    def work_begins(self, now: float) -> None:
        """Takes that work on an item begins. The times of several items at once count as one."""
        self._items_at_work += 1
        self._work = (self.work_s(now), now, 1.0)

    def work_ends(self, now: float) -> None:
        """Takes that work on an item is over."""
        self._items_at_work -= 1
        self._work = (self.work_s(now), now, min(1.0, self._items_at_work))

    def overlap(self, now: float, *, more: bool) -> None:
        """Takes how much of the worker is at work from now on, where calls overlap: all of it where more calls could begin, or else the share
        of its callers that have one."""
        if self._callers is not None:
            self._work = (self.work_s(now), now, 1.0 if more else len(self.calls) / self._callers)

    def work_s(self, now: float) -> float:
        """Returns the seconds at work so far: decoding and calls of the user's function."""
        so_far, since, share = self._work
        return so_far + (now - since) * share

    def busy_s(
        self, now: float, waits_for: Callable[[TopicPartition], str] = lambda partition: ""
    ) -> float | None:
        """Returns how long the oldest call in hand has lasted, in seconds; None without one. Calls on a partition that `waits_for` something
        count anew from then on."""
        calls = tuple(self.calls.values())  # a copy: other threads begin and end calls
        self._waited_at |= {partition: now for partition, _ in calls if waits_for(partition)}
        lasts = (now - max(began, self._waited_at.get(partition, began)) for partition, began in calls)
        return max(lasts, default=None)

    # ------------------------------------------------------------ calls

    def waiting(self, partition: TopicPartition, reason: str) -> None:
        """Takes why no call is begun on a partition."""
        self._waits[partition] = reason

    def call_began(
        self, partition: TopicPartition, now: float, call: Hashable = None, *, more: bool = False
    ) -> None:
        """Takes that a call begins: the partition's only one, unless `call` stands for it. `more`: as of `overlap`."""
        self._waits.pop(partition, None)
        self.calls[call or partition] = partition, now
        self.overlap(now, more=more)

    def call_ended(
        self,
        partition: TopicPartition,
        now: float,
        failure: CallFailed | None,
        call: Hashable = None,
        *,
        more: bool = False,
    ) -> None:
        """Takes the end of a call. `more`: as of `overlap`."""
        if failure is None:
            self._fails.pop(partition, None)
        _, began = self.calls.pop(call or partition, (partition, now))
        self.overlap(now, more=more)
        attributes = of_operation("process", self._group, partition.topic, typed=False)
        error = None if failure is None else failure.cause
        self._recorder.record(PROCESS_DURATION, now - began, with_error(attributes, error))

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
        if batch.num_rows:
            stamps = _sampled(numbers(batch["timestamp"]))
            ages = [now_s * 1e3 - stamp / 1e3 for stamp in stamps if stamp >= 0]
            self._count(partition, batch.num_rows, batch["value"].total_values_length, ages)

    def call_done(
        self, partition: TopicPartition, batch: pa.RecordBatch, rows: Sequence[int], now_s: float
    ) -> None:
        """Takes that the function has returned for these rows of a batch, in any order. Few of them are counted together with others, soon:
        see `count`."""
        self._done.append((partition, batch, rows, now_s))
        self._rows_done += len(rows)
        if self._rows_done >= TOGETHER:
            self.count()

    def count(self) -> None:
        """Counts the records that `call_done` took."""
        calls, self._done, self._rows_done = self._done, [], 0
        for (partition, _), together in groupby(calls, key=lambda call: (call[0], id(call[1]))):
            same = list(together)
            batch, rows = same[0][1], np.fromiter(chain.from_iterable(call[2] for call in same), np.int64)
            stamps = _sampled(numbers(batch["timestamp"])[rows])
            ends = _sampled(np.repeat([call[3] for call in same], [len(call[2]) for call in same]))
            ages = [end * 1e3 - stamp / 1e3 for end, stamp in zip(ends, stamps, strict=True) if stamp >= 0]
            self._count(partition, len(rows), _size(batch["value"], rows), ages)

    def _count(self, partition: TopicPartition, records: int, size: int, ages_ms: list[float]) -> None:
        self.records += records
        self.value_bytes += size
        self.latency.take(ages_ms, records)
        count = self._counts.get(partition)
        if count is None:
            count = self._counts[partition] = (
                self._recorder.into(CONSUMED_MESSAGES, of_partition(self._group, *partition, "process")),
                self._recorder.into(PROCESSED_BYTES, of_partition(self._group, *partition)),
            )
        count_records, count_bytes = count
        count_records(records)
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
            self._waited_at.pop(partition, None)


def _sampled(values: npt.NDArray[Any]) -> list[Any]:
    """Returns some values that lie evenly among all."""
    step = max(1, len(values) // SAMPLES)
    found: list[Any] = values[step // 2 :: step][:SAMPLES].tolist()
    return found


def _size(column: pa.BinaryArray, rows: npt.NDArray[np.int64]) -> int:
    """Returns the bytes of some rows."""
    ends = np.frombuffer(column.buffers()[1], np.int32)[column.offset :]
    return int((ends[rows + 1] - ends[rows]).sum())
