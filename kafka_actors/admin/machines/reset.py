"""Where a reset would put a group, by the rules of `kafka-consumer-groups.sh --reset-offsets` (KIP-122)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Literal

from msgspec import Struct

from kafka_actors.admin.results import OffsetReset
from kafka_actors.base.arguments import partition_of
from kafka_actors.errors import UsageError
from kafka_actors.types import OffsetAndMetadata, TopicPartition

__all__ = ["OffsetTarget", "plan_reset"]

Kind = Literal["earliest", "latest", "current", "offset", "shift_by", "timestamp", "explicit"]


class OffsetTarget(Struct, frozen=True):
    """Where to reset to. Made by its class methods."""

    kind: Kind
    value: int = 0
    offsets: Mapping[TopicPartition, int] = {}

    @classmethod
    def earliest(cls) -> OffsetTarget:
        """The start of each partition's log."""
        return cls("earliest")

    @classmethod
    def latest(cls) -> OffsetTarget:
        """The end of each partition's log."""
        return cls("latest")

    @classmethod
    def current(cls) -> OffsetTarget:
        """What is committed now; the end of the log where nothing is."""
        return cls("current")

    @classmethod
    def offset(cls, offset: int) -> OffsetTarget:
        """This offset, moved into what the log holds."""
        return cls("offset", offset)

    @classmethod
    def shift_by(cls, by: int) -> OffsetTarget:
        """So many offsets forth, or back where negative, moved into what the log holds."""
        return cls("shift_by", by)

    @classmethod
    def timestamp(cls, milliseconds: int) -> OffsetTarget:
        """The first record at or after a time (milliseconds since 1970); the end of the log where there is none."""
        return cls("timestamp", milliseconds)

    @classmethod
    def explicit(cls, offsets: Mapping[TopicPartition, int]) -> OffsetTarget:
        """These offsets, moved into what the logs hold."""
        return cls("explicit", 0, {partition_of(tp): offset for tp, offset in offsets.items()})


def plan_reset(
    group_id: str,
    target: OffsetTarget,
    partitions: Iterable[TopicPartition],
    *,
    committed: Mapping[TopicPartition, OffsetAndMetadata],
    starts: Mapping[TopicPartition, int],
    ends: Mapping[TopicPartition, int],
    by_time: Mapping[TopicPartition, int],
) -> list[OffsetReset]:
    """Where each partition goes. `starts` and `ends` are the bounds of the logs, `by_time` what was found by
    timestamp, without those that have no record so young.

    Raises `UsageError` where a partition without a committed offset is to be shifted.
    """
    resets = []
    for tp in sorted(partitions):
        current = committed[tp].offset if tp in committed else None
        new, note = _goal(target, tp, current, starts[tp], ends[tp], by_time)
        resets.append(OffsetReset(group_id, tp.topic, tp.partition, current, new, note))
    return resets


def _goal(
    target: OffsetTarget,
    tp: TopicPartition,
    current: int | None,
    start: int,
    end: int,
    by_time: Mapping[TopicPartition, int],
) -> tuple[int, str | None]:
    if target.kind == "earliest":
        return start, None
    if target.kind == "latest":
        return end, None
    if target.kind == "timestamp":
        found = by_time.get(tp)
        return (end, "no record is as young as that: the end of the log") if found is None else (found, None)
    if target.kind == "current":
        return (end, "nothing is committed: the end of the log") if current is None else (current, None)
    if target.kind == "shift_by":
        if current is None:
            raise UsageError(
                f"{tp.topic}-{tp.partition} can't be shifted: the group has no committed offset there"
            )
        return _within(current + target.value, start, end)
    return _within(target.offsets[tp] if target.kind == "explicit" else target.value, start, end)


def _within(offset: int, start: int, end: int) -> tuple[int, str | None]:
    if offset < start:
        return start, f"{offset} is before the start of the log"
    if offset > end:
        return end, f"{offset} is behind the end of the log"
    return offset, None
