"""Look-ups of offsets for the fetch machine, through a client that sends ListOffsets and OffsetForLeaderEpoch."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Mapping
from typing import Literal, Protocol, TypeVar

from kafka_actors.errors import KafkaActorsError
from kafka_actors.types import EARLIEST, LATEST, TopicPartition

from .machines.positions import EpochValidation
from .machines.resets import LookupKind, OffsetLookup

Isolation = Literal["read_uncommitted", "read_committed"]
Found = tuple[int, int] | KafkaActorsError
Timestamps = Mapping[TopicPartition, int]


class OffsetAnswer(Protocol):
    """The answer to ListOffsets for one partition; -1 for an offset or epoch that doesn't exist."""

    @property
    def offset(self) -> int: ...
    @property
    def leader_epoch(self) -> int: ...


class EpochEndAnswer(Protocol):
    """The answer to OffsetForLeaderEpoch for one partition (KIP-320); -1 where the leader doesn't know."""

    @property
    def leader_epoch(self) -> int: ...
    @property
    def end_offset(self) -> int: ...


class LookupClient(Protocol):
    """Requests about offsets, sent to the leader of each partition; errors come per partition."""

    async def list_offsets(
        self,
        partitions: Timestamps,
        *,
        isolation_level: Isolation,
        leader_epochs: Mapping[TopicPartition, int] | None = None,
    ) -> Mapping[TopicPartition, OffsetAnswer | KafkaActorsError]: ...

    async def offsets_for_leader_epoch(
        self, partitions: Mapping[TopicPartition, tuple[int, int]]
    ) -> Mapping[TopicPartition, EpochEndAnswer | KafkaActorsError]: ...


Question = TypeVar("Question", OffsetLookup, EpochValidation)


def by_leader(questions: list[Question]) -> Iterable[list[Question]]:
    """Groups questions by the leaders that they go to."""
    groups: dict[int, list[Question]] = {}
    for each in questions:
        groups.setdefault(each.leader, []).append(each)
    return groups.values()


async def carry_out(
    lookups: list[OffsetLookup], ask: LookupClient, isolation: Isolation, wall_clock: Callable[[], float]
) -> dict[OffsetLookup, Found]:
    """Looks offsets up, all at the same time. `wall_clock` returns seconds since 1970, for durations."""
    bounds = [lookup for lookup in lookups if lookup.kind is LookupKind.BOUNDS]
    single = [lookup for lookup in lookups if lookup.kind is not LookupKind.BOUNDS]
    starts, ends, found = await asyncio.gather(
        _ask(bounds, ask, lambda _: EARLIEST, "read_uncommitted"),
        _ask(bounds, ask, lambda _: LATEST, "read_uncommitted"),
        _ask(single, ask, lambda lookup: _timestamp(lookup, wall_clock), isolation),
    )
    for lookup in bounds:
        found[lookup] = _both(starts[lookup], ends[lookup])
    # No record is as young as the duration says: reading begins at the end of the log then (KIP-1106).
    behind = [
        k
        for k, v in found.items()
        if k.kind is LookupKind.DURATION and not isinstance(v, Exception) and v[0] < 0
    ]
    found.update(await _ask(behind, ask, lambda _: LATEST, isolation))
    return found


async def _ask(
    lookups: list[OffsetLookup],
    ask: LookupClient,
    timestamp: Callable[[OffsetLookup], int],
    isolation: Isolation,
) -> dict[OffsetLookup, Found]:
    if not lookups:
        return {}
    answers = await ask.list_offsets(
        {lookup.tp: timestamp(lookup) for lookup in lookups},
        isolation_level=isolation,
        leader_epochs={lookup.tp: lookup.leader_epoch for lookup in lookups},
    )
    found: dict[OffsetLookup, Found] = {}
    for lookup in lookups:
        answer = answers[lookup.tp]
        found[lookup] = (
            answer if isinstance(answer, KafkaActorsError) else (answer.offset, answer.leader_epoch)
        )
    return found


def _timestamp(lookup: OffsetLookup, wall_clock: Callable[[], float]) -> int:
    if lookup.kind is LookupKind.DURATION:
        return max(0, int((wall_clock() - lookup.seconds) * 1000))
    return EARLIEST if lookup.kind is LookupKind.EARLIEST else LATEST


def _both(start: Found, end: Found) -> Found:
    if isinstance(start, KafkaActorsError):
        return start
    return end if isinstance(end, KafkaActorsError) else (start[0], end[0])
