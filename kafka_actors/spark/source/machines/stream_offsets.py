"""Offsets of a stream: from the end of one micro-batch to the end of the next, the ranges and losses in between, its lag, and
the offsets that are safe in Spark's checkpoint.

Theory of operation. Spark drives a stream by three questions: where it starts (once), where the next batch ends (each
trigger), and which ranges lie between a start and an end. Spark stores the *end* of each batch in its checkpoint and
passes it back as the start of the next. `StreamOffsets` is that value; `ObservedPartitions` is what brokers say now.

- `advance` decides the next end: all there is, or the share of each partition in `max_offsets`, as Spark's own source
  has it. `capped` limits it to a target (Trigger.AvailableNow, a backfill); `MinOffsetsDelay` holds a batch back.
- `ranges_between` decides what a batch reads. New partitions and topics that were deleted and created again
  (`newcomers`, by topic id, KIP-516) are read from 0.
- A log that was cut by an unclean election may have grown again by the next trigger. So an end has the leaders' epochs, too: all before it is
  of these or earlier ones. Where a new leader's log of them ends before the offset (KIP-320), the batch begins there, and its end says so (`parted`).
- `losses`, `started_late`, `truncated`, `out_of_reach` find records that should be read and can't be. They return
  `DataLossError`s; the caller raises or logs them (`failOnDataLoss`).
- For the first batch Spark asks for a start, and asks again after a crash, when an answer like "latest" would be
  another one. So the end of the first batch carries its start (`start`), and the start is marked (`initial`).
- Spark's own format of offsets has no room for topic ids, epochs and that start; `restored` adds them from the state files.

With `commitOffsets` a consumer group's offsets follow the checkpoint and must never be ahead of it. Spark does not say
what is in the checkpoint: it asks for the next batch, and it calls `commit`. `CheckpointProgress` derives it from the
order of these calls. Spark asks for a batch when the last one has ended, and that end is in the checkpoint then, unless
`asyncProgressTrackingEnabled` makes Spark store one only now and then, and later. `commit` distinguishes the two.
Without that option it comes as a batch begins, with the offsets from which it begins. With it, it comes once the end of a
later batch is stored: so if the last batch began at the offsets of the last `commit`, its own end is in the
checkpoint, too, and if not, only the offsets of `commit` are safe.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from typing import Any

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from kafka_actors.base import decoders
from kafka_actors.errors import ConfigError, DataLossError, StartLostError, TopicRecreatedError
from kafka_actors.types import TopicPartition

from .offset_ranges import TaskRange

# No topic's name has this character, so these keys can be beside topics in Spark's own format of offsets.
_TOPIC_IDS = "@topic_ids"
_START = "@start"
_INITIAL = "@initial"
_LEADER_EPOCHS = "@leader_epochs"
_PARTED = "@parted"
_SCHEMA = "@schema"

Offsets = Mapping[TopicPartition, int]


class KeptSchema(Struct, frozen=True, omit_defaults=True):
    """Schema of a registry by which a stream's values are read since its first start; without a subject it was named by its id."""

    id: int
    subject: str = ""
    version: int | None = None

    def __str__(self) -> str:
        return f"schema {self.id}" + (f" ({self.subject} version {self.version})" if self.subject else "")


class StreamOffsets(Struct, frozen=True):
    """Position of a stream: by partition the offset behind the last one that was read.

    `topic_ids` are the ids of topics, where brokers have them (from Kafka 2.8 on). `initial` marks the start of the first
    batch; `start` is that start, in the end of the first batch. `schema`: where values are decoded by a registry's. `leader_epochs` are
    of when the offsets were looked up. `parted`: in the end of a batch, where truncated logs part from what was read.
    """

    by_partition: dict[TopicPartition, int]
    topic_ids: dict[str, bytes] = {}
    start: dict[TopicPartition, int] | None = None
    initial: bool = False
    schema: KeptSchema | None = None
    leader_epochs: dict[TopicPartition, int] = {}
    parted: dict[TopicPartition, int] = {}

    def to_json(self) -> dict[str, Any]:
        """Writes Spark's checkpoint format: `{"topic": {"0": 23}}` as Spark's own source does, and more keys beside it. Equal
        offsets have equal text, by which Spark finds whether there is anything new."""
        found: dict[str, Any] = nested(self.by_partition)
        if self.topic_ids:
            found[_TOPIC_IDS] = {topic: self.topic_ids[topic].hex() for topic in sorted(self.topic_ids)}
        if self.start is not None:
            found[_START] = nested(self.start)
        if self.initial:
            found[_INITIAL] = True
        if self.schema is not None:
            found[_SCHEMA] = msgspec.to_builtins(self.schema)
        if self.leader_epochs:
            found[_LEADER_EPOCHS] = nested(self.leader_epochs)
        if self.parted:
            found[_PARTED] = nested(self.parted)
        return found

    @classmethod
    def from_json(cls, document: Mapping[str, Any]) -> StreamOffsets:
        """Reads Spark's checkpoint format. Raises `ConfigError` for offsets of another source."""
        try:
            topics = {name: value for name, value in document.items() if not name.startswith("@")}
            ids = decoders.convert(document.get(_TOPIC_IDS, {}), dict[str, str])
            return cls(
                _flat(topics),
                {topic: bytes.fromhex(topic_id) for topic, topic_id in ids.items()},
                _flat(document[_START]) if _START in document else None,
                bool(document.get(_INITIAL, False)),
                decoders.convert(document[_SCHEMA], KeptSchema) if _SCHEMA in document else None,
                _flat(document.get(_LEADER_EPOCHS, {})),
                _flat(document.get(_PARTED, {})),
            )
        except (*decoders.UNREADABLE, ValueError) as error:
            raise ConfigError(
                "checkpointLocation", f"has offsets that are not this source's: {error}"
            ) from None

    @property
    def has_more_than_spark(self) -> bool:
        """Whether there is more than offsets, for which Spark's own format has no place."""
        return self != StreamOffsets(self.by_partition)

    def same_topic(self, topic: str, other: StreamOffsets) -> bool:
        """Whether a name is the same topic in both: false only for two different ids."""
        mine, theirs = self.topic_ids.get(topic), other.topic_ids.get(topic)
        return mine is None or theirs is None or mine == theirs


def nested(offsets: Offsets) -> dict[str, Any]:
    """Offsets in Spark's own format, `{"topic": {"0": 23}}`, sorted."""
    found: dict[str, dict[str, int]] = {}
    for tp in sorted(offsets):
        found.setdefault(tp.topic, {})[str(tp.partition)] = offsets[tp]
    return dict(found)


def _flat(topics: Any) -> dict[TopicPartition, int]:
    decoded = decoders.convert(topics, dict[str, dict[int, int]], strict=False)
    return {TopicPartition(topic, p): o for topic, numbers in decoded.items() for p, o in numbers.items()}


class ObservedPartitions(Struct, frozen=True):
    """Partitions as brokers describe them: the end of each one's log, its topic's id, the start of its log if the partition is new to the
    stream (`newcomers`), its leader's epoch if that is known, and, if it was truncated, where its log parts from what was read."""

    ends: dict[TopicPartition, int]
    topic_ids: dict[str, bytes] = {}
    starts: dict[TopicPartition, int] = {}
    leader_epochs: dict[TopicPartition, int] = {}
    parted: dict[TopicPartition, int] = {}


def newcomers(base: StreamOffsets, observed: ObservedPartitions) -> set[TopicPartition]:
    """Partitions that the stream reads from their start: new ones, and those of topics that were created again."""
    now = StreamOffsets({}, observed.topic_ids)
    return {tp for tp in observed.ends if tp not in base.by_partition or not base.same_topic(tp.topic, now)}


def backlog(base: StreamOffsets, observed: ObservedPartitions) -> dict[TopicPartition, tuple[int, int]]:
    """The start and end of the offsets to read, by partition."""
    new = newcomers(base, observed)
    begins = {**base.by_partition, **observed.parted, **{tp: observed.starts.get(tp, 0) for tp in new}}
    return {tp: (begins[tp], end) for tp, end in observed.ends.items()}


def pending(base: StreamOffsets, observed: ObservedPartitions) -> int:
    """The number of offsets to read."""
    return _length(backlog(base, observed))


def advance(
    base: StreamOffsets,
    observed: ObservedPartitions,
    *,
    max_offsets: int | None = None,
    selects: Callable[[TopicPartition], bool] = lambda _: True,
) -> StreamOffsets:
    """The end of the next batch: the ends of all logs, or about `max_offsets` further, shared out in proportion to backlogs.

    Offsets of a missing topic are kept, so that it isn't read again if its metadata was missing only for a moment; not
    so for partitions that are no longer selected, or are missing from a topic that exists.
    """
    ends = {tp: end for tp, (_, end) in _limited(backlog(base, observed), max_offsets).items()}
    topics = {tp.topic for tp in observed.ends}
    kept = {tp: offset for tp, offset in base.by_partition.items() if tp.topic not in topics and selects(tp)}
    ids = {
        **{tp.topic: base.topic_ids[tp.topic] for tp in kept if tp.topic in base.topic_ids},
        **observed.topic_ids,
    }
    start: dict[TopicPartition, int] | None = None
    if base.initial:  # the first batch reads all of a topic that was created again since
        new = newcomers(base, observed)
        start = {tp: offset for tp, offset in base.by_partition.items() if tp not in new}
    epochs = {tp: base.leader_epochs[tp] for tp in kept if tp in base.leader_epochs} | observed.leader_epochs
    parted = {tp: offset for tp, offset in observed.parted.items() if tp in ends}
    end = StreamOffsets({**kept, **ends}, ids, start, leader_epochs=epochs, parted=parted)
    unchanged = (end.by_partition, end.topic_ids) == (base.by_partition, base.topic_ids)
    if unchanged and not base.initial and not parted:
        return base
    return end


def _length(found: Mapping[TopicPartition, tuple[int, int]]) -> int:
    return sum(max(end - start, 0) for start, end in found.values())


def _limited(
    found: Mapping[TopicPartition, tuple[int, int]], limit: int | None
) -> dict[TopicPartition, tuple[int, int]]:
    """Cuts ends as Spark's own source does: each partition gets its share of `limit`, and at least one offset."""
    total = _length(found)
    if limit is None or total <= limit:
        return dict(found)
    return {
        tp: (start, min(end, start + max(limit * (end - start) // total, 1)) if end > start else end)
        for tp, (start, end) in found.items()
    }


def capped(observed: ObservedPartitions, target: Offsets) -> ObservedPartitions:
    """The partitions and ends up to `target` (Trigger.AvailableNow)."""
    ends = {tp: min(end, target[tp]) for tp, end in observed.ends.items() if tp in target}
    topics = {tp.topic for tp in ends}
    return replace(
        observed,
        ends=ends,
        topic_ids={t: i for t, i in observed.topic_ids.items() if t in topics},
        leader_epochs={tp: epoch for tp, epoch in observed.leader_epochs.items() if tp in ends},
    )


def limited_to(start: StreamOffsets, ends: StreamOffsets, log_starts: Offsets) -> StreamOffsets:
    """The start of a stream that reads only the partitions of `ends`.

    A start behind a partition's end, such as one by timestamp, is moved to the end: nothing of it is read. Where the log
    itself begins behind the end the start stays, so that `out_of_reach` reports the lost records.
    """
    found = {
        tp: min(offset, ends.by_partition[tp]) if offset > log_starts.get(tp, 0) else offset
        for tp, offset in start.by_partition.items()
        if tp in ends.by_partition
    }
    topics = {tp.topic for tp in found}
    ids = {topic: topic_id for topic, topic_id in start.topic_ids.items() if topic in topics}
    return StreamOffsets(found, ids, start.start, start.initial)


def out_of_reach(
    base: StreamOffsets, observed: ObservedPartitions, ends: StreamOffsets
) -> list[DataLossError]:
    """Losses that keep a stream at `base` from ending exactly at `ends`."""
    now = StreamOffsets(observed.ends, observed.topic_ids)
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
        elif tp not in observed.ends and position < end:
            found.append(DataLossError(*tp, position, f"the partition is gone before its end, {end}"))
        elif tp in observed.ends and observed.ends[tp] < end:
            found.append(DataLossError(*tp, position, f"the log ends at {observed.ends[tp]}, before {end}"))
    return found


def losses(
    start: StreamOffsets, end: StreamOffsets, gone: Collection[TopicPartition] = ()
) -> list[DataLossError]:
    """Losses between two positions; `gone` are partitions whose topic is missing."""
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
        elif tp in end.parted and start != end:
            found.append(DataLossError(*tp, offset, f"the log was truncated: it parts at {end.parted[tp]}"))
        elif until < offset:
            found.append(DataLossError(*tp, offset, f"the log ends at {until}: it was truncated"))
    return found


def truncated(base: StreamOffsets, observed: ObservedPartitions) -> set[TopicPartition]:
    """Partitions whose log ends before the stream's position, as a new leader may say for a moment."""
    return {tp for tp, (start, end) in backlog(base, observed).items() if end < start}


def in_doubt(base: StreamOffsets, observed: ObservedPartitions) -> dict[TopicPartition, tuple[int, int]]:
    """Partitions whose leader epoch rose since the stream's position was looked up: the present epoch and the one of then."""
    new, then = newcomers(base, observed), base.leader_epochs
    return {
        tp: (epoch, then[tp])
        for tp, epoch in observed.leader_epochs.items()
        if tp not in new and 0 <= then.get(tp, -1) < epoch
    }


def started_late(base: StreamOffsets, observed: ObservedPartitions) -> list[DataLossError]:
    """Losses of new partitions whose first records are already deleted."""
    return [
        DataLossError(
            *tp, 0, f"the partition is new to the stream, and its log starts at {observed.starts[tp]}"
        )
        for tp in sorted(newcomers(base, observed))
        if observed.starts.get(tp, 0) > 0
    ]


def ranges_between(start: StreamOffsets, end: StreamOffsets) -> list[TaskRange]:
    """The non-empty ranges of a micro-batch; none from an end to itself, as Spark asks at a restart. New partitions and topics begin at 0."""
    start = _resumed(start, end)
    begins = start.by_partition if start == end else {**start.by_partition, **end.parted}
    ranges = []
    for tp, until in sorted(end.by_partition.items()):
        begin = begins.get(tp, 0) if start.same_topic(tp.topic, end) else 0
        if until > begin:
            topic_id, epoch = end.topic_ids.get(tp.topic), end.leader_epochs.get(tp, -1)
            ranges.append(TaskRange(*tp, begin, until, topic_id, epoch))
    return ranges


def _resumed(start: StreamOffsets, end: StreamOffsets) -> StreamOffsets:
    """The start of a batch. For the first batch it is taken from its end, because after a crash it may be resolved differently."""
    if start.initial and end.start is not None:
        return StreamOffsets(end.start, end.topic_ids, initial=True)
    return start


class MinOffsetsDelay:
    """Holds a batch back until there are `min_offsets`, up to `max_delay` seconds after the last one; never the first."""

    def __init__(self, min_offsets: int | None, max_delay: float) -> None:
        self._min_offsets = min_offsets
        self._max_delay = max_delay
        self._last: float | None = None

    def holds(self, pending: int, now: float) -> bool:
        """Whether to wait with `pending` offsets; otherwise a batch begins now."""
        if self._min_offsets is None:
            return False
        if self._last is not None and now - self._last < self._max_delay and pending < self._min_offsets:
            return True
        self._last = now
        return False


def restored(offsets: StreamOffsets, newest_first: Iterable[StreamOffsets]) -> StreamOffsets:
    """Adds topic ids, and the schema, to offsets that Spark passed in its own format. `newest_first` are the stored offsets.

    Offsets that were stored get their own ids. Others were written by Spark's own source, which ran the query in
    between: they get the newest stored ids. If the topic has another id now, nobody knows to which of the two topics the
    offsets belong, so `losses` reports the topic as recreated.
    """
    newest: StreamOffsets | None = None
    for kept in newest_first:
        if kept.by_partition == offsets.by_partition:
            return kept
        newest = newest or kept
    if newest is None:
        return offsets
    topics = {tp.topic for tp in offsets.by_partition}
    ids = {topic: topic_id for topic, topic_id in newest.topic_ids.items() if topic in topics}
    return StreamOffsets(offsets.by_partition, ids, schema=newest.schema)


class CheckpointProgress:
    """Derives the offsets that are in Spark's checkpoint from Spark's calls; see the module."""

    def __init__(self) -> None:
        self._safe: StreamOffsets | None = None
        self._committed: StreamOffsets | None = None
        self._last_base: StreamOffsets | None = None
        self._stored_late = False

    def committed(self, end: StreamOffsets) -> None:
        """Takes the offsets of a `commit` of Spark's."""
        self._committed = self._safe = end

    def safe_at(self, base: StreamOffsets) -> StreamOffsets:
        """The offsets that are known to be in the checkpoint when Spark asks for a batch that begins at `base`. No `commit` has
        the start of the first batch, whose end is always stored."""
        begun, self._last_base = self._last_base, base
        if begun is not None and begun.by_partition != base.by_partition:
            committed = self._committed is not None and self._committed.by_partition == begun.by_partition
            self._stored_late = not (committed or begun.initial)
        if self._safe is None or not self._stored_late:
            self._safe = base
        return self._safe
