"""Requests of a stream to the brokers at its triggers, for a caller without an event loop."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Collection, Coroutine, Mapping
from functools import cached_property
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

from msgspec.structs import replace

from kafka_actors.admin.requests import CallDeadline
from kafka_actors.base.io_thread import IoThread
from kafka_actors.errors import ConfigError, NonEmptyGroupError
from kafka_actors.types import EARLIEST, LATEST, OffsetAndMetadata, TopicPartition

from .machines.offset_ranges import (
    CommittedBound,
    FixedBound,
    LogEnd,
    ResolvedRanges,
    SpecificOffsets,
    check_named,
    resolve,
)
from .machines.stream_offsets import ObservedPartitions, StreamOffsets, in_doubt, newcomers, truncated
from .options import StreamOptions
from .planning import PlanningBrokers
from .selection import SubscribePattern

if TYPE_CHECKING:
    from kafka_actors.admin.groups import GroupRequests

T = TypeVar("T")

logger = logging.getLogger(__name__)

_METADATA_AGE_S = 1.0
"""Seconds for which metadata are used. An idle query looks for new records a hundred times a second; new partitions may be
    noticed a second late."""


class StreamStart(NamedTuple):
    """Start of a stream: the start of each range, the topics' ids, and the starts of the logs."""

    found: ResolvedRanges
    topic_ids: dict[str, bytes]
    log_starts: dict[TopicPartition, int]


class StreamBrokers:
    """Client of a stream's planning, which stays connected between triggers, on an event loop in a thread of its own."""

    def __init__(self, options: StreamOptions, clock: Callable[[], float] = time.monotonic) -> None:
        self._options = options
        self._clock = clock
        self._brokers = PlanningBrokers(options, clock)
        self._io = IoThread("kafka-stream")
        self._validated: dict[TopicPartition, tuple[int, int, int]] = {}
        """Positions that were compared with the log of a newer leader: its epoch, the one that they were of, and the offset."""
        self._recreated: set[tuple[str, bytes, bytes]] = set()
        """Topics whose metadata stayed with another id than the stream's: names, the stream's ids, and the present ones."""
        self._gone: set[TopicPartition] = set()
        """Partitions of the stream that metadata lacked although they were waited for."""

    @cached_property
    def _groups(self) -> GroupRequests:
        """Requests for the group, imported on first use: most streams have no group."""
        from kafka_actors.admin.groups import GroupRequests

        return GroupRequests(self._brokers.client)

    def close(self) -> None:
        """Closes the connections and ends the thread."""
        try:
            self._run(self._brokers.close())
        finally:
            self._io.stop()

    def _run(self, work: Coroutine[Any, Any, T]) -> T:
        return self._io.run(work)

    # ------------------------------------------------------------ offsets

    def start(self) -> StreamStart:
        """Resolves the start of the stream.

        Raises as `planning.plan`, except that a pattern may match no topic yet.
        """
        return self._run(self._start())

    async def _start(self) -> StreamStart:
        brokers, options = self._brokers, self._options
        await brokers.connect()
        try:
            partitions = await brokers.partitions()
        except ConfigError as error:
            if not isinstance(options.selection, SubscribePattern):
                raise
            logger.warning("%s; the stream waits for one", error)
            return StreamStart(ResolvedRanges([], []), {}, {})
        bound = await self._bound(partitions)
        check_named(bound, partitions)
        logs = await brokers.logs(partitions, bound, LogEnd.LATEST)
        found = resolve(logs, bound, LogEnd.LATEST, no_match=options.no_match)
        return StreamStart(found, brokers.topic_ids(partitions), {tp: log.start for tp, log in logs.items()})

    async def _bound(self, partitions: list[TopicPartition]) -> FixedBound:
        """The start as options say, with `committed` resolved to offsets. A partition without a committed offset is read from its
        start, so that nothing is lost."""
        if not isinstance(self._options.start, CommittedBound):
            return self._options.start
        ids = self._brokers.topic_ids(partitions)  # offsets of a deleted topic of the same name don't count
        deadline = CallDeadline(self._brokers.client)
        committed = await self._groups.committed(self._group_id, deadline, ids, stable=partitions)
        offsets = {tp: committed[tp].offset if tp in committed else EARLIEST for tp in partitions}
        without = sum(offset == EARLIEST for offset in offsets.values())
        if without:
            logger.warning(
                "group %s has committed nothing for %d of %d partitions: these start at their earliest offset",
                self._group_id,
                without,
                len(partitions),
            )
        return SpecificOffsets("startingOffsets", offsets)

    def observed(self, base: StreamOffsets, *, since: float | None = None) -> ObservedPartitions:
        """Looks up the selected partitions and the ends of their logs. `since`: metadata have to be newer than that time.

        Raises `NoBrokersAvailable`, a `KafkaError` of a partition.
        """
        return self._run(self._observed(base, self._clock() - _METADATA_AGE_S if since is None else since))

    async def _observed(self, base: StreamOffsets, since: float) -> ObservedPartitions:
        brokers = self._brokers
        await brokers.connect()
        await brokers.refresh(since)
        wanted = base.by_partition.keys() | self._fixed_ends.keys()
        if not wanted <= self._gone | set(brokers.present()):
            await self._wait_for(wanted)
        self._gone = wanted - set(brokers.present())
        observed = await self._ends(base)
        for _ in range(self._options.lookup_retries):
            if not self._behind(base, observed):
                break
            await asyncio.sleep(self._options.lookup_retry_interval_ms / 1000)
            await brokers.refresh()
            observed = await self._ends(base)
        brokers.check_described()
        self._recreated |= _other_ids(base, observed)
        starts = await brokers.listed_while_there(dict.fromkeys(newcomers(base, observed), EARLIEST))
        if starts is None:
            return await self._observed(base, self._clock())
        return replace(observed, starts={tp: listed.offset for tp, listed in starts.items()})

    def _behind(self, base: StreamOffsets, observed: ObservedPartitions) -> bool:
        """Whether brokers may not have heard yet of what the stream knows: their logs end before it, or a topic has another id, such as that
        of one that was deleted before."""
        if truncated(base, observed) or truncated(StreamOffsets(self._fixed_ends), observed):
            return True
        return not _other_ids(base, observed) <= self._recreated

    @property
    def _fixed_ends(self) -> dict[TopicPartition, int]:
        return {} if self._options.ends is None else self._options.ends.by_partition

    async def _wait_for(self, wanted: Collection[TopicPartition]) -> None:
        """Requests metadata again for missing partitions, which may only be unknown to the broker that answered."""
        for _ in range(self._options.lookup_retries):
            await asyncio.sleep(self._options.lookup_retry_interval_ms / 1000)
            await self._brokers.refresh()
            if set(wanted) <= set(self._brokers.present()):
                return

    async def _ends(self, base: StreamOffsets) -> ObservedPartitions:
        while True:
            partitions = self._brokers.present()
            topic_ids = self._brokers.topic_ids(partitions)
            # A leader of before takes the log for shorter than what the stream has read of it. Without ids the topic may be another.
            known = {
                tp: epoch for tp, epoch in base.leader_epochs.items() if _is_here(tp.topic, base, topic_ids)
            }
            found = await self._brokers.listed_while_there(dict.fromkeys(partitions, LATEST), known)
            if found is not None:
                observed = ObservedPartitions(
                    {tp: listed.offset for tp, listed in found.items()},
                    topic_ids,
                    leader_epochs={
                        tp: one.leader_epoch for tp, one in found.items() if one.leader_epoch >= 0
                    },
                )
                return replace(observed, parted=await self._parted(base, observed))
            await self._wait_for(partitions)

    async def _parted(self, base: StreamOffsets, observed: ObservedPartitions) -> dict[TopicPartition, int]:
        """Looks up where truncated logs part from what the stream has read."""
        doubts = in_doubt(base, observed)
        asked = {tp: d for tp, d in doubts.items() if self._validated.get(tp) != (*d, base.by_partition[tp])}
        ends = await self._brokers.epoch_ends(asked) if asked else {}
        parted = {tp: end for tp, end in ends.items() if 0 <= end < base.by_partition[tp]}
        for tp in asked.keys() - parted.keys():
            self._validated[tp] = (*asked[tp], base.by_partition[tp])
        return parted

    # ------------------------------------------------------------ the group

    @property
    def _group_id(self) -> str:
        assert self._options.group_id is not None  # the options are checked together
        return self._options.group_id

    def check_group(self) -> None:
        """Raises `NonEmptyGroupError` for a group with members, which commit its offsets; and the broker's error for a group that
        may not be described."""
        self._run(self._check_group())

    async def _check_group(self) -> None:
        await self._brokers.connect()
        if members := await self._groups.members_of(self._group_id, CallDeadline(self._brokers.client)):
            raise NonEmptyGroupError(
                f"commitOffsets: group {self._group_id!r} has members ({members}), who commit its offsets: "
                "stop them, or name another group in kafka.group.id"
            )

    def commit(self, offsets: Mapping[TopicPartition, int], topic_ids: Mapping[str, bytes]) -> None:
        """Commits offsets for the group without being a member, of the topics with these ids. Raises `NonEmptyGroupError`, and
        other errors that keep it from committing."""
        to_commit = {tp: OffsetAndMetadata(offset) for tp, offset in offsets.items()}
        self._run(
            self._groups.commit(self._group_id, to_commit, CallDeadline(self._brokers.client), topic_ids)
        )


def _is_here(topic: str, base: StreamOffsets, topic_ids: Mapping[str, bytes]) -> bool:
    """Whether the topic that the stream has read is the one of this name, as far as ids say so."""
    return topic in base.topic_ids and base.topic_ids[topic] == topic_ids.get(topic)


def _other_ids(base: StreamOffsets, observed: ObservedPartitions) -> set[tuple[str, bytes, bytes]]:
    """Topics that have another id than the stream's, with both."""
    return {
        (topic, known, observed.topic_ids[topic])
        for topic, known in base.topic_ids.items()
        if observed.topic_ids.get(topic, known) != known
    }
