"""Planning of a query: looks up its topics and offsets at the brokers, and fixes the offset ranges of a batch."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import AsyncIterator, Callable, Collection, Iterable, Mapping
from functools import partial
from typing import Any, TypeVar

from kafka_actors.admin.requests import CallDeadline, ask_node, fresh_snapshot, persist, raise_first
from kafka_actors.cluster.cluster import metadata_request
from kafka_actors.cluster.snapshot import ClusterSnapshot
from kafka_actors.errors import (
    TEMPORARY_IN_LOOKUPS,
    ConfigError,
    KafkaActorsError,
)
from kafka_actors.net import KafkaClient, ListedOffset, OffsetLookups
from kafka_actors.types import EARLIEST, LATEST, TopicPartition

from .machines.offset_ranges import (
    EVERYTHING,
    CommittedBound,
    FilterRange,
    FixedBound,
    LogRange,
    SpecificTimestamps,
    TaskRange,
    check_named,
    check_order,
    narrowed,
    resolve,
)
from .options import BatchOptions, ReadOptions
from .selection import AssignPartitions, SubscribePattern, SubscribeTopics, error_of_topic

T = TypeVar("T")
A = TypeVar("A")

logger = logging.getLogger(__name__)

_OTHERS_MS = 2_000
"""Milliseconds within which other brokers are to answer, whose metadata are compared with those of the first one."""


class PlanningBrokers:
    """Client for the planning of a query. For one event loop."""

    def __init__(self, options: ReadOptions, clock: Callable[[], float] = time.monotonic) -> None:
        self._options = options
        config = options.consumer
        self._isolation_level = config.isolation_level
        self.client = KafkaClient(config)
        self._lookups = OffsetLookups(self.client)
        self._clock = clock
        self._requested_at = float("-inf")
        self._missing: set[str] = set()

    async def connect(self) -> None:
        """Connects, unless connected. Raises as `KafkaClient.bootstrap`."""
        if not self.client.snapshot.brokers:
            self.client.set_topics(self._topics())
            self._requested_at = self._clock()
            await self.client.bootstrap()

    async def close(self) -> None:
        """Closes the connections."""
        await self.client.close()

    async def refresh(self, since: float | None = None) -> None:
        """Requests metadata, unless that was done after `since`. Without it they are believed, whichever ids topics had before. Raises
        `KafkaTimeoutError` where no broker answered for as many times `request_timeout_ms` as `fetchOffset.numRetries` allows tries."""
        requested_at = self._clock()
        if since is None:
            self.client.cluster.forget_former_ids()
        if since is None or self._requested_at <= since:
            limit_ms = self.client.config.request_timeout_ms * (self._options.lookup_retries + 1)
            deadline = CallDeadline(self.client, limit_ms)
            await persist(self.client, partial(fresh_snapshot, self.client), deadline)
            self._requested_at = requested_at

    def _topics(self) -> list[str] | None:
        """Topics whose metadata the client requests: None for all topics of the cluster."""
        selection = self._options.selection
        if isinstance(selection, SubscribeTopics):
            return list(selection.topics)
        if isinstance(selection, AssignPartitions):
            return sorted({tp.topic for tp in selection.partitions})
        return None

    # ------------------------------------------------------------ partitions

    async def partitions(self) -> list[TopicPartition]:
        """The selected partitions. Metadata is requested again for missing ones, as a topic that was just created may be
        unknown for a moment, and while other brokers name other ids of their topics.

        Raises `ConfigError` for a topic or partition that doesn't exist, `KafkaError` for one that may not be described.
        """
        for _ in range(self._options.lookup_retries):
            try:
                selected = _selected(self.client.snapshot, self._options)
            except ConfigError:
                selected = None
            if selected is not None and await self._others_agree(selected):
                return selected
            await asyncio.sleep(self._options.lookup_retry_interval_ms / 1000)
            await self.refresh()
        return _selected(self.client.snapshot, self._options)

    async def _others_agree(self, partitions: Collection[TopicPartition]) -> bool:
        """Whether two brokers name the ids of the partitions' topics that metadata have, which may be of one that lags behind and still has a
        topic that was deleted. One of the two at least is another one; leaders come first, since they are asked for offsets as well."""
        snapshot, known = self.client.snapshot, self.topic_ids(partitions)
        if not known or len(snapshot.brokers) < 2:
            return True
        leaders = (snapshot.leader(tp) for tp in partitions)
        nodes = [n for n in dict.fromkeys((*leaders, *snapshot.brokers)) if n in snapshot.brokers][:2]
        named = await asyncio.gather(*(self._named(node, known) for node in nodes))
        return all(known[topic] == other for ids in named for topic, other in ids.items())

    async def _named(self, node: int, topics: Iterable[str]) -> dict[str, bytes]:
        """The ids of topics by the metadata of one broker; none where it doesn't answer."""
        try:
            found = await ask_node(self.client, node, metadata_request(sorted(topics)), _OTHERS_MS)
        except KafkaActorsError:
            return {}
        return {t.name: t.topic_id.bytes for t in found.topics if t.name is not None and t.topic_id.int}

    def present(self) -> list[TopicPartition]:
        """The selected partitions that exist, by the present metadata."""
        snapshot, selection = self.client.snapshot, self._options.selection
        if isinstance(selection, AssignPartitions):
            return [tp for tp in selection.partitions if snapshot.partition(tp) is not None]
        if isinstance(selection, SubscribePattern):
            topics: Collection[str] = snapshot.topics_matching(selection.pattern)
        else:
            topics = selection.topics
        return [
            TopicPartition(topic, p)
            for topic in sorted(topics)
            for p in sorted(snapshot.partitions_for_topic(topic) or ())
        ]

    def check_described(self) -> None:
        """Raises the error of a topic by name that may not be described, which isn't gone. Warns of each that isn't there once."""
        snapshot = self.client.snapshot
        missing: set[str] = set()
        for topic in self._topics() or ():
            if (error := error_of_topic(snapshot, topic)) is None:
                if not snapshot.partitions_for_topic(topic):
                    missing.add(topic)
            elif not error.retriable:
                raise error
        for topic in sorted(missing - self._missing):
            logger.warning("there is no topic %r: nothing is read of it until somebody creates it", topic)
        self._missing = missing

    def topic_ids(self, partitions: Iterable[TopicPartition]) -> dict[str, bytes]:
        """The ids of the partitions' topics, where brokers have them (from Kafka 2.8 on)."""
        ids = {topic: self.client.snapshot.topic_id(topic) for topic in {tp.topic for tp in partitions}}
        return {topic: topic_id for topic, topic_id in ids.items() if topic_id is not None}

    # ------------------------------------------------------------ offsets

    async def offsets(self, timestamps: Mapping[TopicPartition, int]) -> dict[TopicPartition, int]:
        """Looks up the first offset at or after a timestamp, -1 without one; or the offsets `EARLIEST` and `LATEST`.

        Retries as `fetchOffset.numRetries` says. Raises the error of a partition.
        """
        return {tp: listed.offset for tp, listed in (await self._listed(timestamps)).items()}

    async def _listed(
        self, timestamps: Mapping[TopicPartition, int], epochs: Mapping[TopicPartition, int] | None = None
    ) -> dict[TopicPartition, ListedOffset]:
        found: dict[TopicPartition, ListedOffset] = {}
        async for left, last in self._attempts(timestamps):
            answers = await self._lookups.list_offsets(
                left, isolation_level=self._isolation_level, leader_epochs=epochs
            )
            found |= _taken(answers, left, last)
        return found

    async def _attempts(
        self, wanted: Mapping[TopicPartition, T]
    ) -> AsyncIterator[tuple[dict[TopicPartition, T], bool]]:
        """Yields what is left to look up, from which its caller removes what it found, and whether that is the last attempt."""
        left, retries = dict(wanted), self._options.lookup_retries
        for attempt in range(retries + 1):
            if not left:
                return
            if attempt:
                await asyncio.sleep(self._options.lookup_retry_interval_ms / 1000)
            yield left, attempt == retries

    async def listed_while_there(
        self, timestamps: Mapping[TopicPartition, int], epochs: Mapping[TopicPartition, int] | None = None
    ) -> dict[TopicPartition, ListedOffset] | None:
        """Looks up offsets as `offsets` does, with leader epochs; None once metadata lacks one of the partitions: its topic was deleted, so no
        broker would answer. `epochs`: those that are known, a leader of an older one isn't believed."""
        deletion = asyncio.Event()

        def check_present(_: object) -> None:
            if not timestamps.keys() <= set(self.present()):
                deletion.set()

        lookup = asyncio.ensure_future(self._listed(timestamps, epochs))
        deleted = asyncio.ensure_future(deletion.wait())
        self.client.cluster.add_listener(check_present)
        try:
            await asyncio.wait({lookup, deleted}, return_when=asyncio.FIRST_COMPLETED)
            return lookup.result() if lookup.done() else None
        finally:
            self.client.cluster.remove_listener(check_present)
            for task in (lookup, deleted):
                task.cancel()

    async def epoch_ends(self, epochs: Mapping[TopicPartition, tuple[int, int]]) -> dict[TopicPartition, int]:
        """Looks up where the leaders' logs of epochs end (KIP-320), -1 where they don't know: by partition the present epoch and the one in
        question. Retries and raises as `offsets`."""
        found: dict[TopicPartition, int] = {}
        async for left, last in self._attempts(epochs):
            answers = await self._lookups.offsets_for_leader_epoch(left)
            found |= {tp: answer.end_offset for tp, answer in _taken(answers, left, last).items()}
        return found

    async def logs(
        self, partitions: Iterable[TopicPartition], start: FixedBound, end: FixedBound
    ) -> dict[TopicPartition, LogRange]:
        """Looks up the logs of partitions, with the offsets that match the timestamps of `start` and `end`. Raises as `offsets`."""
        tps = list(partitions)
        first, last, start_match, end_match = await asyncio.gather(
            self.offsets(dict.fromkeys(tps, EARLIEST)),
            self.offsets(dict.fromkeys(tps, LATEST)),
            self.offsets(_timestamps(start, tps)),
            self.offsets(_timestamps(end, tps)),
        )
        return {
            # Between two answers retention may delete records, and producers may append.
            tp: LogRange(
                start=first[tp],
                end=max(first[tp], last[tp], start_match.get(tp, -1), end_match.get(tp, -1)),
                start_match=start_match.get(tp, -1),
                end_match=end_match.get(tp, -1),
            )
            for tp in tps
        }


def _taken(
    answers: Mapping[TopicPartition, A | KafkaActorsError], left: dict[TopicPartition, Any], last: bool
) -> dict[TopicPartition, A]:
    """Returns the answers, and removes their partitions from `left`. Raises an error that no attempt will mend."""
    found: dict[TopicPartition, A] = {}
    for tp, answer in answers.items():
        if not isinstance(answer, KafkaActorsError):
            found[tp] = answer
            del left[tp]
        elif last or not (answer.retriable or isinstance(answer, TEMPORARY_IN_LOOKUPS)):
            raise answer
    return found


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
    if (error := error_of_topic(snapshot, topic)) is not None:
        raise error
    raise ConfigError(option, f"there is no topic {topic!r} in the cluster")


def plan(options: BatchOptions, narrowing: FilterRange = EVERYTHING) -> list[TaskRange]:
    """Plans a batch read: the offset range of each partition, narrowed by filters, empty ranges included.

    Raises `NoBrokersAvailable`, `ConfigError` (an unknown topic, a partition without an offset, a timestamp without a
    match, a start behind its end), a `KafkaError` of a partition, and with `failOnDataLoss` a `DataLossError`.
    """
    return asyncio.run(_plan(options, narrowing))


async def _plan(options: BatchOptions, narrowing: FilterRange) -> list[TaskRange]:
    start, end = options.start, options.end
    assert not isinstance(start, CommittedBound)  # a stream's
    brokers = PlanningBrokers(options)
    try:
        await brokers.connect()
        partitions = await brokers.partitions()
        for bound in (start, end):
            check_named(bound, partitions)
        logs = await brokers.logs(partitions, start, end)
        topic_ids = brokers.topic_ids(partitions)
        from_ms = narrowing.from_ms
        from_offsets = {} if from_ms is None else await brokers.offsets(dict.fromkeys(partitions, from_ms))
    finally:
        await brokers.close()
    found = resolve(logs, start, end, no_match=options.no_match, topic_ids=topic_ids)
    if options.fail_on_data_loss:
        raise_first(found.losses)
    check_order(logs, start, end, no_match=options.no_match)
    for loss in found.losses:
        logger.warning("%s; going on without them, because failOnDataLoss is false", loss)
    return narrowed(found.ranges, narrowing, from_offsets)


def _timestamps(bound: FixedBound, partitions: list[TopicPartition]) -> dict[TopicPartition, int]:
    return {tp: bound.of(tp) for tp in partitions} if isinstance(bound, SpecificTimestamps) else {}
