"""Reading of one task's ranges in the executor's Python worker: fetch, decode, return to Spark."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterator

import pyarrow as pa

from kafka_actors.errors import DataLossError, KafkaTimeoutError
from kafka_actors.fetch import FetchedBytes, PartitionStart
from kafka_actors.spark.worker_cache import IdlePool
from kafka_actors.types import TopicPartition

from .machines.offset_ranges import TaskRange
from .machines.tasks import go_on_at
from .options import ReadOptions
from .read_session import ReadSession
from .spark_calls import freeze_imports

logger = logging.getLogger(__name__)


def read_ranges(
    options: ReadOptions, ranges: tuple[TaskRange, ...], clock: Callable[[], float] = time.monotonic
) -> Iterator[pa.RecordBatch]:
    """Reads all records of the ranges, each partition in order, in batches of one partition with all columns.

    A range ends when the position has reached its end: the last records may be compacted away, aborted or control
    records. Raises `KafkaTimeoutError` after `kafkaConsumer.pollTimeoutMs` without progress, `RecordError` (of it
    `MalformedTimestampError` for what Spark names KAFKA_MALFORMED_RECORD_TIMESTAMP), `KafkaError`, and with `failOnDataLoss` `DataLossError`.
    """
    freeze_imports()
    topics = {r.topic for r in ranges}
    with sessions.lend(options.client.key, lambda: ReadSession(options.consumer, topics)) as session:
        session.begin(r.tp for r in ranges)
        yield from _TaskRead(session, options, ranges, clock).batches()
        session.end()


sessions: IdlePool[tuple[tuple[str, str], ...], ReadSession] = IdlePool(ReadSession.close, lambda s: s.works)
"""Sessions that are kept for the worker process's next task, which may be of the next micro-batch."""


class _TaskRead:
    """Read of one task: the ranges that are not read to their end, and the position in each."""

    def __init__(
        self,
        session: ReadSession,
        options: ReadOptions,
        ranges: tuple[TaskRange, ...],
        clock: Callable[[], float],
    ) -> None:
        self._session = session
        self._fetcher = session.fetcher
        self._options = options
        self._left = {r.tp: r for r in ranges}
        self._positions = {r.tp: r.start for r in ranges}  # behind the last record that was returned
        self._clock = clock

    def batches(self) -> Iterator[pa.RecordBatch]:
        self._refresh_topic_ids()
        self._fetcher.assign({tp: _start(r, r.start) for tp, r in self._left.items()})
        timeout_s = self._options.poll_timeout_ms / 1000
        deadline = self._clock() + timeout_s
        while self._left:
            try:
                item = self._session.take(max(deadline - self._clock(), 0.0))
            except DataLossError as loss:
                self._lost(loss)
                deadline = self._clock() + timeout_s
                continue
            if item is not None:
                yield from self._decoded(item)
                deadline = self._clock() + timeout_s
            elif self._clock() >= deadline:
                self._stalled()

    def _decoded(self, item: FetchedBytes) -> Iterator[pa.RecordBatch]:
        tp = item.partition
        for chunk in self._fetcher.decode(item):
            self._positions[tp] = chunk.next_offset
            if chunk.batch.num_rows:
                yield chunk.batch
        if self._fetcher.consumed(item) and self._fetcher.end_reached(tp):
            self._done(tp)

    def _done(self, tp: TopicPartition) -> None:
        del self._left[tp]
        self._fetcher.revoke([tp])

    def _refresh_topic_ids(self) -> None:
        """Requests metadata where a topic's id differs from the planned one: metadata of an earlier task may be older than the
        plan, and the fetcher would report the topic as recreated."""
        known = self._session.client.snapshot
        if any(
            r.topic_id is not None and known.topic_id(r.topic) not in (None, r.topic_id)
            for r in self._left.values()
        ):
            self._session.refresh()

    def _lost(self, loss: DataLossError) -> None:
        if self._options.fail_on_data_loss:
            raise loss
        logger.warning("%s; going on, because failOnDataLoss is false", loss)
        tp = TopicPartition(loss.topic, loss.partition)
        r = self._left[tp]
        following = go_on_at(loss, self._positions[tp], r)
        if following is None:
            self._done(tp)
        else:
            self._positions[tp] = following
            self._fetcher.revoke([tp])
            self._fetcher.assign({tp: _start(r, following)})

    def _stalled(self) -> None:
        """Ends a wait of `kafkaConsumer.pollTimeoutMs` without records: records are lost where the topic is gone or the log ends
        before the range; otherwise raises `KafkaTimeoutError`."""
        losses = [loss for tp in self._left if (loss := self._loss(tp)) is not None]
        for loss in losses:
            self._lost(loss)
        if losses:
            return
        tp, r = next(iter(self._left.items()))
        reason = self._fetcher.reason(tp) or "the brokers sent nothing"
        raise KafkaTimeoutError(
            f"{tp.topic}-{tp.partition}: no records from offset {self._positions[tp]} on (of {r.start} to {r.end}) within "
            f"kafkaConsumer.pollTimeoutMs ({self._options.poll_timeout_ms}): {reason}"
        )

    def _loss(self, tp: TopicPartition) -> DataLossError | None:
        if self._session.client.snapshot.partitions_for_topic(tp.topic) is None:
            return DataLossError(*tp, self._positions[tp], "the topic is gone")
        end, wanted = self._fetcher.end(tp), self._left[tp].end
        if end is not None and end < wanted:
            return DataLossError(
                *tp, self._positions[tp], f"the log ends at {end}, before the end of the range, {wanted}"
            )
        return None


def _start(r: TaskRange, offset: int) -> PartitionStart:
    # With the id the fetcher notices a topic that is created again, in which these offsets are other records.
    return PartitionStart(offset=offset, end_offset=r.end, topic_id=r.topic_id)
