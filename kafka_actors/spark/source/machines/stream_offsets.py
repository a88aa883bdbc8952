"""How a stream goes on: from the offsets of one micro-batch to those of the next, and what lies between them.

Spark keeps the *end* of each batch in its checkpoint and takes it as the start of the next. For the first batch it
asks for a start, and asks again after a crash: an answer like "latest" would then be another one. So the end of
the first batch carries its start.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from typing import Any

import msgspec
from msgspec import Struct

from kafka_actors.base import decoders
from kafka_actors.errors import ConfigError, DataLossError, StartLostError, TopicRecreatedError
from kafka_actors.types import TopicPartition

from .offset_ranges import TaskRange

# A topic's name can't have this character, so these keys stand beside topics in Spark's own form of the offsets.
_TOPIC_IDS = "@topic_ids"
_START = "@start"
_INITIAL = "@initial"

Offsets = Mapping[TopicPartition, int]


class StreamOffsets(Struct, frozen=True):
    """Where a stream stands: the offset behind the last one read, by partition.

    `topic_ids` has the topics' ids where brokers tell them (from Kafka 2.8 on). `initial` marks what Spark was told as
    the start of the first batch, `start` is the same, in the first batch's end.
    """

    by_partition: dict[TopicPartition, int]
    topic_ids: dict[str, bytes] = {}
    start: dict[TopicPartition, int] | None = None
    initial: bool = False

    def to_json(self) -> dict[str, Any]:
        """For Spark's checkpoint: `{"topic": {"0": 23}}` as Spark's own source has it, and ours beside it. The same
        offsets have the same text, by which Spark tells whether there is anything new."""
        found: dict[str, Any] = nested(self.by_partition)
        if self.topic_ids:
            found[_TOPIC_IDS] = {topic: self.topic_ids[topic].hex() for topic in sorted(self.topic_ids)}
        if self.start is not None:
            found[_START] = nested(self.start)
        if self.initial:
            found[_INITIAL] = True
        return found

    @classmethod
    def from_json(cls, given: Mapping[str, Any]) -> StreamOffsets:
        """Raises `ConfigError` for what is no stream's offsets: another source's checkpoint."""
        try:
            topics = {name: value for name, value in given.items() if not name.startswith("@")}
            ids = decoders.convert(given.get(_TOPIC_IDS, {}), dict[str, str])
            return cls(
                _flat(topics),
                {topic: bytes.fromhex(topic_id) for topic, topic_id in ids.items()},
                _flat(given[_START]) if _START in given else None,
                bool(given.get(_INITIAL, False)),
            )
        except (msgspec.ValidationError, ValueError) as error:
            raise ConfigError(
                "checkpointLocation", f"has offsets that are not this source's: {error}"
            ) from None

    @property
    def has_more_than_spark(self) -> bool:
        """Whether there is anything besides offsets, which Spark's own form of them has no place for."""
        return bool(self.topic_ids) or self.initial or self.start is not None

    def same_topic(self, topic: str, other: StreamOffsets) -> bool:
        """Whether the name stands for the same topic in both, as far as ids tell."""
        mine, theirs = self.topic_ids.get(topic), other.topic_ids.get(topic)
        return mine is None or theirs is None or mine == theirs


def nested(offsets: Offsets) -> dict[str, Any]:
    """`{"topic": {"0": 23}}`, sorted."""
    found: dict[str, dict[str, int]] = {}
    for tp in sorted(offsets):
        found.setdefault(tp.topic, {})[str(tp.partition)] = offsets[tp]
    return dict(found)


def _flat(topics: Any) -> dict[TopicPartition, int]:
    decoded = decoders.convert(topics, dict[str, dict[int, int]], strict=False)
    return {TopicPartition(topic, p): o for topic, numbers in decoded.items() for p, o in numbers.items()}


class ObservedPartitions(Struct, frozen=True):
    """What brokers said: the end of each partition that is there, its topic's id, and the start of its log if it is
    new to the stream (`newcomers`)."""

    ends: dict[TopicPartition, int]
    topic_ids: dict[str, bytes] = {}
    starts: dict[TopicPartition, int] = {}


def newcomers(base: StreamOffsets, seen: ObservedPartitions) -> set[TopicPartition]:
    """The partitions that the stream reads from their start: new ones, and those of topics made anew."""
    now = StreamOffsets({}, seen.topic_ids)
    return {tp for tp in seen.ends if tp not in base.by_partition or not base.same_topic(tp.topic, now)}


def backlog(base: StreamOffsets, seen: ObservedPartitions) -> dict[TopicPartition, tuple[int, int]]:
    """Start and end of what there is to read, by partition."""
    new = newcomers(base, seen)
    return {
        tp: (seen.starts.get(tp, 0) if tp in new else base.by_partition[tp], end)
        for tp, end in seen.ends.items()
    }


def pending(base: StreamOffsets, seen: ObservedPartitions) -> int:
    """How many offsets there are to read."""
    return _length(backlog(base, seen))


def advance(
    base: StreamOffsets,
    seen: ObservedPartitions,
    *,
    max_offsets: int | None = None,
    selects: Callable[[TopicPartition], bool] = lambda _: True,
) -> StreamOffsets:
    """The end of the next batch: all that there is, or about `max_offsets` in proportion to what there is.

    What was read of a topic that isn't there is kept, so that it isn't read again should it only have been out of
    sight; not so where it isn't selected any more or lost a partition.
    """
    ends = {tp: end for tp, (_, end) in _limited(backlog(base, seen), max_offsets).items()}
    topics = {tp.topic for tp in seen.ends}
    kept = {tp: offset for tp, offset in base.by_partition.items() if tp.topic not in topics and selects(tp)}
    ids = {
        **{tp.topic: base.topic_ids[tp.topic] for tp in kept if tp.topic in base.topic_ids},
        **seen.topic_ids,
    }
    start: dict[TopicPartition, int] | None = None
    if base.initial:  # of a topic that was made anew since, the first batch reads all
        new = newcomers(base, seen)
        start = {tp: offset for tp, offset in base.by_partition.items() if tp not in new}
    end = StreamOffsets({**kept, **ends}, ids, start)
    if not base.initial and (end.by_partition, end.topic_ids) == (base.by_partition, base.topic_ids):
        return base
    return end


def _length(found: Mapping[TopicPartition, tuple[int, int]]) -> int:
    return sum(max(end - start, 0) for start, end in found.values())


def _limited(
    found: Mapping[TopicPartition, tuple[int, int]], limit: int | None
) -> dict[TopicPartition, tuple[int, int]]:
    """Ends cut as Spark's source does: each partition has its share of `limit`, and at least one offset."""
    total = _length(found)
    if limit is None or total <= limit:
        return dict(found)
    return {
        tp: (start, min(end, start + max(limit * (end - start) // total, 1)) if end > start else end)
        for tp, (start, end) in found.items()
    }


def capped(seen: ObservedPartitions, target: Offsets) -> ObservedPartitions:
    """What there was at `target`, and nothing newer (Trigger.AvailableNow)."""
    ends = {tp: min(end, target[tp]) for tp, end in seen.ends.items() if tp in target}
    topics = {tp.topic for tp in ends}
    return ObservedPartitions(ends, {t: i for t, i in seen.topic_ids.items() if t in topics}, seen.starts)


def limited_to(start: StreamOffsets, ends: StreamOffsets, log_starts: Offsets) -> StreamOffsets:
    """The start of a stream that reads only the partitions of `ends`.

    Who starts later than a partition's end, by a time for example, reads nothing of it. Where the log itself begins
    behind the end the position stays: what was before is lost, and `out_of_reach` says so.
    """
    found = {
        tp: min(offset, ends.by_partition[tp]) if offset > log_starts.get(tp, 0) else offset
        for tp, offset in start.by_partition.items()
        if tp in ends.by_partition
    }
    topics = {tp.topic for tp in found}
    ids = {topic: topic_id for topic, topic_id in start.topic_ids.items() if topic in topics}
    return StreamOffsets(found, ids, start.start, start.initial)


def out_of_reach(base: StreamOffsets, seen: ObservedPartitions, ends: StreamOffsets) -> list[DataLossError]:
    """What keeps a stream at `base` from ending exactly at `ends`."""
    now = StreamOffsets(seen.ends, seen.topic_ids)
    found: list[DataLossError] = []
    for tp, end in sorted(ends.by_partition.items()):
        position = base.by_partition.get(tp, 0)
        if not ends.same_topic(tp.topic, now):
            old, new = ends.topic_ids[tp.topic].hex(), now.topic_ids[tp.topic].hex()
            found.append(TopicRecreatedError(*tp, position, old, new))
        elif position > end and base.initial:
            found.append(StartLostError(*tp, end, position))
        elif position > end:
            found.append(DataLossError(*tp, position, f"is behind the end of the stream, {end}"))
        elif tp not in seen.ends and position < end:
            found.append(DataLossError(*tp, position, f"the partition is gone before its end, {end}"))
        elif tp in seen.ends and seen.ends[tp] < end:
            found.append(DataLossError(*tp, position, f"the log ends at {seen.ends[tp]}, before {end}"))
    return found


def losses(
    start: StreamOffsets, end: StreamOffsets, gone: Collection[TopicPartition] = ()
) -> list[DataLossError]:
    """What can't be read between two offsets; `gone` are partitions whose topic isn't there."""
    start = _resumed(start, end)
    topics = {tp.topic for tp in end.by_partition}
    found: list[DataLossError] = []
    for tp, offset in sorted(start.by_partition.items()):
        until = end.by_partition.get(tp)
        if tp in gone or tp.topic not in topics:
            found.append(DataLossError(*tp, offset, "the topic is gone, or is no longer read"))
        elif not start.same_topic(tp.topic, end):
            old, new = start.topic_ids[tp.topic].hex(), end.topic_ids[tp.topic].hex()
            found.append(TopicRecreatedError(*tp, offset, old, new))
        elif until is None:
            found.append(DataLossError(*tp, offset, "the partition is gone, or is no longer read"))
        elif until < offset:
            found.append(DataLossError(*tp, offset, f"the log ends at {until}: it was truncated"))
    return found


def truncated(base: StreamOffsets, seen: ObservedPartitions) -> set[TopicPartition]:
    """Partitions whose log seems to end before what was read: a new leader may say that for a moment."""
    return {tp for tp, (start, end) in backlog(base, seen).items() if end < start}


def started_late(base: StreamOffsets, seen: ObservedPartitions) -> list[DataLossError]:
    """New partitions whose first records are gone already."""
    return [
        DataLossError(*tp, 0, f"the partition is new to the stream, and its log starts at {seen.starts[tp]}")
        for tp in sorted(newcomers(base, seen))
        if seen.starts.get(tp, 0) > 0
    ]


def ranges_between(start: StreamOffsets, end: StreamOffsets) -> list[TaskRange]:
    """The ranges of a micro-batch, by partition; none where there is nothing to read. A partition that is new in
    `end`, or whose topic was made anew, begins at 0."""
    start = _resumed(start, end)
    ranges = []
    for tp, until in sorted(end.by_partition.items()):
        begin = start.by_partition.get(tp, 0) if start.same_topic(tp.topic, end) else 0
        if until > begin:
            ranges.append(TaskRange(*tp, begin, until, end.topic_ids.get(tp.topic)))
    return ranges


def _resumed(start: StreamOffsets, end: StreamOffsets) -> StreamOffsets:
    """The start of the first batch is what its end says: asked again after a crash, it may be another one."""
    if start.initial and end.start is not None:
        return StreamOffsets(end.start, end.topic_ids, initial=True)
    return start


class MinOffsetsDelay:
    """Waits for `min_offsets`, up to `max_delay` seconds after the last batch; the first isn't held back."""

    def __init__(self, min_offsets: int | None, max_delay: float) -> None:
        self._min_offsets = min_offsets
        self._max_delay = max_delay
        self._last: float | None = None

    def holds(self, pending: int, now: float) -> bool:
        """Whether so many offsets are too few for a batch now; if not, one begins now."""
        if self._min_offsets is None:
            return False
        if self._last is not None and now - self._last < self._max_delay and pending < self._min_offsets:
            return True
        self._last = now
        return False
