"""What a stream asks of the brokers at its triggers, for a caller that has no event loop."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Collection, Coroutine, Mapping
from functools import cached_property
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

from kafka_actors.admin.requests import CallDeadline
from kafka_actors.base.io_thread import IoThread
from kafka_actors.errors import ConfigError, NonEmptyGroupError
from kafka_actors.types import EARLIEST, LATEST, OffsetAndMetadata, TopicPartition

from .batch_planner import logs_of
from .machines.offset_ranges import ResolvedRanges, check_named, resolve
from .machines.stream_offsets import ObservedPartitions, StreamOffsets, newcomers, truncated
from .offset_json import Fixed, GivenCommitted, GivenOffsets, LogEnd
from .options import StreamOptions
from .planning_brokers import PlanningBrokers
from .selection import SubscribePattern

if TYPE_CHECKING:
    from kafka_actors.admin.groups import GroupRequests

T = TypeVar("T")

logger = logging.getLogger(__name__)

_METADATA_AGE_S = 1.0
"""An idle query looks for new records a hundred times a second: new partitions may be a second late."""


class StreamStart(NamedTuple):
    """Where a stream starts: as the start of each range, with the topics' ids; and where the logs begin."""

    found: ResolvedRanges
    topic_ids: dict[str, bytes]
    log_starts: dict[TopicPartition, int]


class StreamBrokers:
    """Connections of a stream's planning, kept open between triggers, in a thread of their own."""

    def __init__(self, options: StreamOptions, clock: Callable[[], float] = time.monotonic) -> None:
        self._options = options
        self._clock = clock
        self._brokers = PlanningBrokers(options, clock)
        self._io = IoThread("kafka-stream")

    @cached_property
    def _groups(self) -> GroupRequests:
        """Most streams have none: they don't wait for its import."""
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
        """Where the stream starts.

        Raises as `planner.plan`, but that a pattern may match nothing so far.
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
        logs = await logs_of(brokers, partitions, bound, LogEnd.LATEST)
        found = resolve(logs, bound, LogEnd.LATEST, no_match=options.no_match)
        return StreamStart(found, brokers.topic_ids(partitions), {tp: log.start for tp, log in logs.items()})

    async def _bound(self, partitions: list[TopicPartition]) -> Fixed:
        """`committed` as offsets. A partition without a commit is read from its start: nothing is lost."""
        if not isinstance(self._options.start, GivenCommitted):
            return self._options.start
        ids = self._brokers.topic_ids(partitions)  # a commit of a topic of before counts for nothing
        committed = await self._groups.committed(self._group_id, CallDeadline(self._brokers.client), ids)
        offsets = {tp: committed[tp].offset if tp in committed else EARLIEST for tp in partitions}
        without = sum(offset == EARLIEST for offset in offsets.values())
        if without:
            logger.warning(
                "group %s has committed nothing for %d of %d partitions: these start at their earliest offset",
                self._group_id,
                without,
                len(partitions),
            )
        return GivenOffsets("startingOffsets", offsets)

    def seen(self, base: StreamOffsets, *, since: float | None = None) -> ObservedPartitions:
        """What there is now, of the topics that are there. `since`: all partitions that there were at that time.

        Raises `NoBrokersAvailable`, a `KafkaError` of a partition.
        """
        return self._run(self._seen(base, self._clock() - _METADATA_AGE_S if since is None else since))

    async def _seen(self, base: StreamOffsets, since: float) -> ObservedPartitions:
        brokers = self._brokers
        await brokers.connect()
        await brokers.refresh(since)
        wanted = {**base.by_partition, **self._given_ends}
        if not wanted.keys() <= set(brokers.present()):
            await self._look_again(wanted)
        seen = await self._ends()
        for _ in range(self._options.lookup_retries):
            if not truncated(base, seen) and not truncated(StreamOffsets(self._given_ends), seen):
                break
            await asyncio.sleep(self._options.lookup_retry_interval_ms / 1000)
            await brokers.refresh()
            seen = await self._ends()
        starts = await brokers.offsets_while_there(dict.fromkeys(newcomers(base, seen), EARLIEST))
        if starts is None:
            return await self._seen(base, self._clock())
        return ObservedPartitions(seen.ends, seen.topic_ids, starts)

    @property
    def _given_ends(self) -> dict[TopicPartition, int]:
        return {} if self._options.ends is None else self._options.ends.by_partition

    async def _look_again(self, wanted: Collection[TopicPartition]) -> None:
        """What seems to be gone may only be unknown to the broker that was asked."""
        for _ in range(self._options.lookup_retries):
            await asyncio.sleep(self._options.lookup_retry_interval_ms / 1000)
            await self._brokers.refresh()
            if set(wanted) <= set(self._brokers.present()):
                return

    async def _ends(self) -> ObservedPartitions:
        while True:
            partitions = self._brokers.present()
            ends = await self._brokers.offsets_while_there(dict.fromkeys(partitions, LATEST))
            if ends is not None:
                return ObservedPartitions(ends, self._brokers.topic_ids(partitions))
            await self._look_again(partitions)

    # ------------------------------------------------------------ the group

    @property
    def _group_id(self) -> str:
        assert self._options.group_id is not None  # the options are checked together
        return self._options.group_id

    def check_group(self) -> None:
        """Raises `NonEmptyGroupError` for a group that has members: its offsets are theirs; and what a broker says of
        a group that may not be described."""
        self._run(self._check_group())

    async def _check_group(self) -> None:
        await self._brokers.connect()
        if members := await self._groups.members_of(self._group_id, CallDeadline(self._brokers.client)):
            raise NonEmptyGroupError(
                f"commitOffsets: group {self._group_id!r} has members ({members}), who commit its offsets: "
                "stop them, or name another group in kafka.group.id"
            )

    def commit(self, offsets: Mapping[TopicPartition, int]) -> None:
        """Commits for the group, as no member of it, offsets of topics as they are now. Raises `NonEmptyGroupError` and what else keeps it from that."""
        made = {tp: OffsetAndMetadata(offset) for tp, offset in offsets.items()}
        ids = self._brokers.topic_ids(offsets)
        self._run(self._groups.commit(self._group_id, made, CallDeadline(self._brokers.client), ids))
