"""Metrics of a consumer: records handed out, polls, and the progress of its partitions."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator

import pyarrow as pa

from kafka_actors.errors import UsageError
from kafka_actors.fetch import Fetcher
from kafka_actors.telemetry.attributes import kind_of_reason, of_group, of_operation, of_partition
from kafka_actors.telemetry.gauges import gauges
from kafka_actors.telemetry.instruments import (
    ASSIGNED,
    BLOCKED,
    BUFFER_LIMIT,
    BUFFER_USAGE,
    CONSUMED_MESSAGES,
    CURRENT_OFFSET,
    LAG,
    LAG_TIME,
    OPERATION_DURATION,
    POSITION,
)
from kafka_actors.telemetry.machines.lag_time import LagTimes
from kafka_actors.telemetry.recorder import GroupRecorder, Recorder, metered
from kafka_actors.telemetry.spans import received, tracing
from kafka_actors.telemetry.tally import TallyPoint
from kafka_actors.types import TopicPartition


class ConsumerTelemetry:
    """Records the metrics of one consumer. `delivered` and `polled` are called in the user's thread, once a batch."""

    def __init__(
        self,
        group_id: str | None,
        client_id: str,
        buffer_bytes: int,
        recorder: Recorder | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._group_id = group_id
        self._client_id = client_id
        self._buffer_bytes = buffer_bytes
        self._clock = clock
        self._lag_times = LagTimes()
        self.recorder = GroupRecorder(recorder or metered(), group_id)
        self._poll_seconds = self.recorder.into(OPERATION_DURATION, of_operation("poll", group_id))
        self._records: dict[TopicPartition, Callable[[float], None]] = {}

    def delivered(self, partition: TopicPartition, records: int) -> None:
        """Counts a batch that is handed out."""
        count = self._records.get(partition)
        if count is None:
            attributes = of_partition(self._group_id, *partition, "poll")
            count = self._records[partition] = self.recorder.into(CONSUMED_MESSAGES, attributes)
        count(records)

    def polled(self, began: float, batch: pa.RecordBatch | None) -> None:
        """Records a poll that began at `began`, with its batch if there is one."""
        seconds = time.monotonic() - began
        self._poll_seconds(seconds)
        if batch is not None and tracing():
            received(self._group_id, self._client_id, batch, seconds)

    def follow(self, fetcher: Fetcher) -> Callable[[], None]:
        """Registers gauges of the fetcher's partitions. Returns a function that removes them."""
        return gauges().register(lambda: self.points(fetcher))

    def points(self, fetcher: Fetcher) -> Iterator[TallyPoint]:
        """Yields the present values of the gauges."""
        group, partitions = self._group_id, fetcher.partitions
        yield TallyPoint(ASSIGNED.name, of_group(group), len(partitions))
        client = of_group(group, worker=self._client_id)
        yield TallyPoint(BUFFER_USAGE.name, client, fetcher.buffered)
        yield TallyPoint(BUFFER_LIMIT.name, client, self._buffer_bytes)
        try:
            progress = fetcher.progress(partitions)
        except UsageError:
            return  # one of them was revoked meanwhile
        now = self._clock()
        for tp, (position, end, reason, _) in progress.items():
            where = of_group(group, topic=tp.topic, partition=tp.partition)
            if end is not None:
                yield TallyPoint(CURRENT_OFFSET.name, where, end)
                self._lag_times.observe(tp, end, now)
            if position is not None:
                yield TallyPoint(POSITION.name, where, position)
            if position is not None and end is not None:
                yield TallyPoint(LAG.name, where, max(0, end - position))
                behind = self._lag_times.behind(tp, position, now)
                if behind is not None:
                    yield TallyPoint(LAG_TIME.name, where, behind)
            if kind := kind_of_reason(reason):
                yield TallyPoint(BLOCKED.name, (*where, ("reason", kind)), 1)
