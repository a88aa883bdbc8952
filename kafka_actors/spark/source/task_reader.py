"""Reading of one task's ranges in the executor's Python worker: fetch, decode, return to Spark.

The task's own thread decodes and passes batches to Spark; meanwhile the next fetch request is in flight in the thread of
the `ReadSession`, which runs the client and the fetcher on an event loop.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Iterable, Iterator

import pyarrow as pa
from msgspec.structs import replace

from kafka_actors.base.io_thread import IoThread
from kafka_actors.config import ConsumerConfig
from kafka_actors.errors import (
    DataLossError,
    DisconnectedError,
    KafkaActorsError,
    KafkaTimeoutError,
    TopicRecreatedError,
    UnknownTopicOrPartitionError,
)
from kafka_actors.fetch import FetchedBytes, Fetcher, LocalSources, PartitionStart
from kafka_actors.net import FetchSocket, KafkaClient, OffsetLookups
from kafka_actors.spark.python_worker import IdlePool, freeze_imports
from kafka_actors.types import TopicPartition

from .machines.offset_ranges import TaskRange, rest_after
from .options import ReadOptions
from .selection import error_of_topic


class ReadSession:
    """Client and fetcher of one worker process. The constructor connects and raises as `KafkaClient.bootstrap`; `close`
    ends the thread.

    The docstrings of `client` and `fetcher` say what other threads may call.
    """

    client: KafkaClient
    fetcher: Fetcher

    def __init__(self, config: ConsumerConfig, topics: Iterable[str]) -> None:
        self._config = config
        self._topics = sorted(set(topics))
        self._arrived = threading.Event()
        self._io = IoThread("kafka-read")
        try:
            self._io.run(self._open())
        except BaseException:
            self._io.stop()
            raise

    def __repr__(self) -> str:
        return f"<ReadSession {','.join(self._topics)}>"

    @property
    def works(self) -> bool:
        """Whether its thread runs."""
        return self._io.alive

    def close(self) -> None:
        """Closes the connections and waits for the thread to end. A second call changes nothing."""
        if self._io.alive:
            try:
                self._io.run(self._close())
            finally:
                self._io.stop()

    def begin(self, partitions: Iterable[TopicPartition]) -> None:
        """Prepares for the next task: requests metadata of its partitions, unless an earlier task did. Where no broker answers now they are
        requested on, and the task waits for them as it waits for records."""
        tps = list(partitions)
        topics = sorted({tp.topic for tp in tps})
        try:
            if topics != self._topics:
                self._topics = topics
                self._io.run(self._track(topics))
            elif any(self.client.snapshot.partition(tp) is None for tp in tps):
                self.refresh()
        except KafkaActorsError as error:
            if not error.retriable:
                raise
            logger.warning("%r waits for brokers: %s", self, error)

    def refresh(self) -> None:
        """Requests metadata of the topics again, and believes them, whichever ids topics had before. Raises `NoBrokersError` where no broker
        answers."""
        self._io.run(self._refresh())

    def end(self) -> None:
        """Stops fetching a task's partitions."""
        self.fetcher.revoke(self.fetcher.partitions)

    async def _track(self, topics: list[str]) -> None:
        await self.client.set_topics(topics)

    async def _refresh(self) -> None:
        self.client.cluster.forget_former_ids()
        await self.client.update_metadata()

    def take(self, timeout_s: float) -> FetchedBytes | None:
        """Takes the next fetched records, waiting up to `timeout_s`; None if there are none. Raises as `Fetcher.take`."""
        self._arrived.clear()
        item = self._taken()
        if item is None and self._arrived.wait(timeout_s):
            item = self._taken()
        return item

    def _taken(self) -> FetchedBytes | None:
        if not self._io.alive:
            raise DisconnectedError("the fetching thread ended")
        return self.fetcher.take()

    # ------------------------------------------------------------ in the thread

    async def _open(self) -> None:
        self.client = client = KafkaClient(self._config)
        try:
            client.set_topics(self._topics)
            await client.bootstrap()
            self._sources = LocalSources(
                self._config, locate=lambda broker: client.snapshot.brokers.get(broker), connect=FetchSocket
            )
            self.fetcher = fetcher = Fetcher(
                self._config,
                sources=self._sources.get,
                lookups=OffsetLookups(client),
                request_metadata=lambda: _request_metadata(client),
                on_ready=self._arrived.set,
            )
            client.cluster.add_listener(lambda _: self._on_metadata())
            fetcher.update_metadata(client.snapshot)
            await fetcher.start()
        except BaseException:
            await client.close()
            raise

    def _on_metadata(self) -> None:
        self.fetcher.update_metadata(self.client.snapshot)
        self._sources.follow()

    async def _close(self) -> None:
        try:
            await self.fetcher.close()
            await self._sources.close()
        finally:
            await self.client.close()


def _request_metadata(client: KafkaClient) -> None:
    client.cluster.request_update()


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
        self._planned_ids = {r.topic: r.topic_id for r in ranges}
        self._recreated: set[str] = set()  # topics whose metadata stayed with another id

    def batches(self) -> Iterator[pa.RecordBatch]:
        for topic in self._planned_ids:
            self._check_described(topic)
            self._wait_for_id(topic)
        self._fetcher.assign({tp: _start(r) for tp, r in self._left.items()})
        timeout_s = self._options.poll_timeout_ms / 1000
        deadline = self._clock() + timeout_s
        while self._left:
            try:
                item = self._session.take(max(deadline - self._clock(), 0.0))
            except DataLossError as loss:
                if self._clock() < deadline and self._read_on(loss):
                    continue
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
        self._fetcher.consumed(item)
        if self._fetcher.end_reached(tp):  # also where a skipped bad batch has moved the position
            self._done(tp)

    def _done(self, tp: TopicPartition) -> None:
        del self._left[tp]
        self._fetcher.revoke([tp])

    def _check_described(self, topic: str) -> None:
        """Raises the error with which brokers don't describe a topic to this task, which may have other credentials than the planning."""
        error = error_of_topic(self._session.client.snapshot, topic)
        if error is not None and not error.retriable:
            raise error

    def _wait_for_id(self, topic: str) -> bool:
        """Requests metadata until a topic has its planned id, as often as `fetchOffset.numRetries` says after the first time: those of
        an earlier task, or of a broker that lags behind, may be older than the plan. Returns whether it has."""
        planned, requests = self._planned_ids[topic], 0
        while planned is not None and self._session.client.snapshot.topic_id(topic) not in (None, planned):
            if topic in self._recreated or requests > self._options.lookup_retries:
                self._recreated.add(topic)
                return False
            if requests:
                time.sleep(self._options.lookup_retry_interval_ms / 1000)
            self._session.refresh()
            requests += 1
        return True

    def _read_on(self, loss: DataLossError) -> bool:
        """Goes on with a range whose topic has its planned id after all, and returns whether it does. No topic gets an id of before, so
        the broker that named another one lagged behind."""
        tp = TopicPartition(loss.topic, loss.partition)
        if not isinstance(loss, TopicRecreatedError) or self._planned_ids[tp.topic] is None:
            return False
        if not self._wait_for_id(tp.topic):
            return False
        self._assign_again(replace(self._left[tp], start=self._positions[tp]))
        return True

    def _lost(self, loss: DataLossError) -> None:
        if self._options.fail_on_data_loss:
            raise loss
        logger.warning("%s; going on, because failOnDataLoss is false", loss)
        tp = TopicPartition(loss.topic, loss.partition)
        rest = rest_after(loss, self._positions[tp], self._left[tp])
        if rest is None:
            self._done(tp)
        else:
            self._assign_again(rest)

    def _assign_again(self, r: TaskRange) -> None:
        self._left[r.tp], self._positions[r.tp] = r, r.start
        self._fetcher.revoke([r.tp])
        self._fetcher.assign({r.tp: _start(r)})

    def _stalled(self) -> None:
        """Ends a wait of `kafkaConsumer.pollTimeoutMs` without records: records are lost where the topic is gone or the log ends
        before the range; otherwise raises `KafkaTimeoutError`, or the error of a topic that may not be read any more."""
        for topic in {tp.topic for tp in self._left}:
            self._check_described(topic)
        losses = [loss for tp in self._left if (loss := self._loss(tp)) is not None]
        for loss in losses:
            self._lost(loss)
        if losses:
            return
        tp, r = next(iter(self._left.items()))
        client = self._session.client
        # Where no broker has answered, each says why it couldn't be asked.
        reason = client.trouble() if client.snapshot.partition(tp) is None else ""
        reason = reason or self._fetcher.reason(tp) or "the brokers sent nothing"
        raise KafkaTimeoutError(
            f"{tp.topic}-{tp.partition}: no records from offset {self._positions[tp]} on (of {r.start} to {r.end}) within "
            f"kafkaConsumer.pollTimeoutMs ({self._options.poll_timeout_ms}): {reason}"
        )

    def _loss(self, tp: TopicPartition) -> DataLossError | None:
        # Brokers name each topic of a request. One without an answer may be there.
        if self._session.client.snapshot.topic_error(tp.topic) == UnknownTopicOrPartitionError.code:
            return DataLossError(*tp, self._positions[tp], "the topic is gone")
        end, wanted = self._fetcher.end(tp), self._left[tp].end
        if end is not None and end < wanted:
            return DataLossError(
                *tp, self._positions[tp], f"the log ends at {end}, before the end of the range, {wanted}"
            )
        return None


def _start(r: TaskRange) -> PartitionStart:
    # With the id the fetcher notices a topic that is created again, in which these offsets are other records, and with the epoch a log that
    # was truncated, and may have grown again.
    return PartitionStart(offset=r.start, end_offset=r.end, end_epoch=r.leader_epoch, topic_id=r.topic_id)
