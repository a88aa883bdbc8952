"""Reads the ranges of one task in the executor's Python worker: fetch, decode, hand over."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterator

import pyarrow as pa

from kafka_actors.errors import DataLossError, KafkaTimeoutError
from kafka_actors.fetch import FetchedBytes, PartitionStart
from kafka_actors.types import TopicPartition

from .gc_settings import leave_imports_out
from .machines.loss import go_on_at
from .machines.offset_ranges import TaskRange
from .options import ReadOptions
from .pool import IdlePool
from .read_session import ReadSession

logger = logging.getLogger(__name__)


def read_ranges(
    options: ReadOptions, ranges: tuple[TaskRange, ...], clock: Callable[[], float] = time.monotonic
) -> Iterator[pa.RecordBatch]:
    """Yields all records of the ranges, each partition in order, in batches of one partition with all columns.

    A range ends when the position has reached its end: the last records may be compacted away, aborted or control
    records. Raises `KafkaTimeoutError` after `kafkaConsumer.pollTimeoutMs` without progress, `RecordError` (of it
    `MalformedTimestampError` for what Spark names KAFKA_MALFORMED_RECORD_TIMESTAMP), `KafkaError`, and with `failOnDataLoss` `DataLossError`.
    """
    leave_imports_out()
    topics = {r.topic for r in ranges}
    with sessions.lend(options.client.key, lambda: ReadSession(options.consumer, topics)) as session:
        session.begin(r.tp for r in ranges)
        yield from _TaskRead(session, options, ranges, clock).batches()
        session.end()


sessions: IdlePool[tuple[tuple[str, str], ...], ReadSession] = IdlePool(ReadSession.close, lambda s: s.works)
"""Connections and metadata stay for this worker process's next task, which may belong to the next micro-batch."""


class _TaskRead:
    """The ranges that are not read to their end, and where each of them stands."""

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
        self._at = {r.tp: r.start for r in ranges}  # behind the last record handed over
        self._clock = clock

    def batches(self) -> Iterator[pa.RecordBatch]:
        self._learn_topic_ids()
        self._fetcher.assign({tp: _start(r, r.start) for tp, r in self._left.items()})
        patience = self._options.poll_timeout_ms / 1000
        deadline = self._clock() + patience
        while self._left:
            try:
                item = self._session.take(max(deadline - self._clock(), 0.0))
            except DataLossError as loss:
                self._lost(loss)
                deadline = self._clock() + patience
                continue
            if item is not None:
                yield from self._decoded(item)
                deadline = self._clock() + patience
            elif self._clock() >= deadline:
                self._stalled()

    def _decoded(self, item: FetchedBytes) -> Iterator[pa.RecordBatch]:
        tp = item.partition
        for chunk in self._fetcher.decode(item):
            self._at[tp] = chunk.next_offset
            if chunk.batch.num_rows:
                yield chunk.batch
        if self._fetcher.consumed(item) and self._fetcher.end_reached(tp):
            self._done(tp)

    def _done(self, tp: TopicPartition) -> None:
        del self._left[tp]
        self._fetcher.revoke([tp])

    def _learn_topic_ids(self) -> None:
        """What is known from earlier tasks may be older than the planning: asks again before the fetcher takes a topic for
        one that was made anew since."""
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
        following = go_on_at(loss, self._at[tp], r)
        if following is None:
            self._done(tp)
        else:
            self._at[tp] = following
            self._fetcher.revoke([tp])
            self._fetcher.assign({tp: _start(r, following)})

    def _stalled(self) -> None:
        """Nothing came for `kafkaConsumer.pollTimeoutMs`: it is lost where topic or log end before the range."""
        losses = [loss for tp in self._left if (loss := self._loss(tp)) is not None]
        for loss in losses:
            self._lost(loss)
        if losses:
            return
        tp, r = next(iter(self._left.items()))
        reason = self._fetcher.reason(tp) or "the brokers sent nothing"
        raise KafkaTimeoutError(
            f"{tp.topic}-{tp.partition}: no records from offset {self._at[tp]} on (of {r.start} to {r.end}) within "
            f"kafkaConsumer.pollTimeoutMs ({self._options.poll_timeout_ms}): {reason}"
        )

    def _loss(self, tp: TopicPartition) -> DataLossError | None:
        if self._session.client.snapshot.partitions_for_topic(tp.topic) is None:
            return DataLossError(*tp, self._at[tp], "the topic is gone")
        end, wanted = self._fetcher.end(tp), self._left[tp].end
        if end is not None and end < wanted:
            return DataLossError(
                *tp, self._at[tp], f"the log ends at {end}, before the end of the range, {wanted}"
            )
        return None


def _start(r: TaskRange, offset: int) -> PartitionStart:
    # A topic that is made anew from now on has other records under these offsets.
    return PartitionStart(offset=offset, end_offset=r.end, topic_id=r.topic_id)
