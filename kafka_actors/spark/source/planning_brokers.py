"""What the brokers say about the topics that a query reads: asked where the query is planned."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Collection, Iterable, Mapping
from functools import partial

from kafka_actors.admin.requests import CallDeadline, fresh_snapshot, persist
from kafka_actors.cluster.snapshot import ClusterSnapshot
from kafka_actors.errors import ConfigError, UnknownTopicOrPartitionError, error_for_code
from kafka_actors.net import KafkaClient, ListedOffset, OffsetLookups
from kafka_actors.types import TopicPartition

from .options import ReadOptions
from .selection import AssignPartitions, SubscribePattern, SubscribeTopics


class PlanningBrokers:
    """A connection for planning, by the options of a query. Coroutines, for one event loop."""

    def __init__(self, options: ReadOptions, clock: Callable[[], float] = time.monotonic) -> None:
        self._options = options
        config = options.consumer
        self._isolation_level = config.isolation_level
        self.client = KafkaClient(config)
        self._lookups = OffsetLookups(self.client)
        self._clock = clock
        self._asked = float("-inf")

    async def connect(self) -> None:
        """Connects, if it isn't. Raises as `KafkaClient.bootstrap`."""
        if not self.client.snapshot.brokers:
            self.client.set_topics(self._topics())
            self._asked = self._clock()
            await self.client.bootstrap()

    async def close(self) -> None:
        """Closes the connections."""
        await self.client.close()

    async def refresh(self, since: float | None = None) -> None:
        """Asks about the topics again, unless that was done after `since`. Raises `KafkaTimeoutError` where no broker
        answered for `request_timeout_ms`."""
        asked = self._clock()
        if since is None or self._asked <= since:
            await persist(self.client, partial(fresh_snapshot, self.client), CallDeadline(self.client))
            self._asked = asked

    def _topics(self) -> list[str] | None:
        """What the client has to know: None for all topics of the cluster."""
        selection = self._options.selection
        if isinstance(selection, SubscribeTopics):
            return list(selection.topics)
        if isinstance(selection, AssignPartitions):
            return sorted({tp.topic for tp in selection.partitions})
        return None

    # ------------------------------------------------------------ partitions

    async def partitions(self) -> list[TopicPartition]:
        """The partitions selected. A topic that was just made may be unknown for a moment, so that is asked again.

        Raises `ConfigError` for a topic or partition that is named and not there, `KafkaError` for one that may not
        be described.
        """
        for _ in range(self._options.lookup_retries):
            try:
                return _selected(self.client.snapshot, self._options)
            except ConfigError:
                await asyncio.sleep(self._options.lookup_retry_interval_ms / 1000)
                await self.refresh()
        return _selected(self.client.snapshot, self._options)

    def present(self) -> list[TopicPartition]:
        """Those of the selected partitions that are there."""
        snapshot, selection = self.client.snapshot, self._options.selection
        if isinstance(selection, AssignPartitions):
            return [
                tp
                for tp in selection.partitions
                if tp.partition in (snapshot.partitions_for_topic(tp.topic) or ())
            ]
        if isinstance(selection, SubscribePattern):
            topics: Collection[str] = snapshot.topics_matching(selection.pattern)
        else:
            topics = selection.topics
        return [
            TopicPartition(topic, p)
            for topic in sorted(topics)
            for p in sorted(snapshot.partitions_for_topic(topic) or ())
        ]

    def topic_ids(self, partitions: Iterable[TopicPartition]) -> dict[str, bytes]:
        """The ids of their topics, as far as brokers have them (from Kafka 2.8 on)."""
        ids = {topic: self.client.snapshot.topic_id(topic) for topic in {tp.topic for tp in partitions}}
        return {topic: topic_id for topic, topic_id in ids.items() if topic_id is not None}

    # ------------------------------------------------------------ offsets

    async def offsets(self, timestamps: Mapping[TopicPartition, int]) -> dict[TopicPartition, int]:
        """The first offset at or after a time, -1 where no record is as young; `EARLIEST` and `LATEST` as well.

        Tries again as `fetchOffset.numRetries` says. Raises the error of a partition.
        """
        found: dict[TopicPartition, int] = {}
        left = dict(timestamps)
        for attempt in range(self._options.lookup_retries + 1):
            if not left:
                break
            if attempt:
                await asyncio.sleep(self._options.lookup_retry_interval_ms / 1000)
            last = attempt == self._options.lookup_retries
            answers = await self._lookups.list_offsets(left, isolation_level=self._isolation_level)
            for tp, answer in answers.items():
                if isinstance(answer, ListedOffset):
                    found[tp] = answer.offset
                    del left[tp]
                elif last or not answer.retriable:
                    raise answer
        return found

    async def offsets_while_there(
        self, timestamps: Mapping[TopicPartition, int]
    ) -> dict[TopicPartition, int] | None:
        """As `offsets`, but None once metadata says that a partition is not there any more: a topic was deleted, and nobody
        would answer for it."""
        gone = asyncio.Event()

        def look(_: object) -> None:
            if not timestamps.keys() <= set(self.present()):
                gone.set()

        asking = asyncio.ensure_future(self.offsets(timestamps))
        waiting = asyncio.ensure_future(gone.wait())
        self.client.cluster.add_listener(look)
        try:
            await asyncio.wait({asking, waiting}, return_when=asyncio.FIRST_COMPLETED)
            return asking.result() if asking.done() else None
        finally:
            self.client.cluster.remove_listener(look)
            for task in (asking, waiting):
                task.cancel()


def _selected(snapshot: ClusterSnapshot, options: ReadOptions) -> list[TopicPartition]:
    selection = options.selection
    if isinstance(selection, SubscribePattern):
        topics: Collection[str] = snapshot.topics_matching(selection.pattern)
        if not topics:
            raise ConfigError(
                selection.option, f"is {selection.pattern!r}: no topic of the cluster has such a name"
            )
    elif isinstance(selection, SubscribeTopics):
        topics = selection.topics
    else:
        topics = {tp.topic for tp in selection.partitions}
    there = {topic: _partitions_of(snapshot, topic, selection.option) for topic in sorted(topics)}
    if not isinstance(selection, AssignPartitions):
        return [TopicPartition(topic, p) for topic, partitions in there.items() for p in sorted(partitions)]
    for tp in selection.partitions:
        if tp.partition not in there[tp.topic]:
            raise ConfigError(selection.option, f"has {tp.topic}-{tp.partition}: there is no such partition")
    return list(selection.partitions)


def _partitions_of(snapshot: ClusterSnapshot, topic: str, option: str) -> set[int]:
    partitions = snapshot.partitions_for_topic(topic)
    if partitions:
        return partitions
    code = snapshot.topic_error(topic)
    if code and code != UnknownTopicOrPartitionError.code:
        error = error_for_code(code, request="Metadata", topic=topic)
        if error is not None:
            raise error
    raise ConfigError(option, f"there is no topic {topic!r} in the cluster")
