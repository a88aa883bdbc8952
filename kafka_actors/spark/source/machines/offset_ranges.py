"""Offset ranges: resolution of the start and end that the options say to exact offsets.

Theory of operation. Options say where a read starts and ends: at an end of the logs, at offsets, or at timestamps, for all
partitions or by partition. Brokers say where each log starts and ends, and which offsets match the timestamps
(`LogRange`). `resolve` makes a `TaskRange` of each partition. An offset outside of the log is not an error here but
a `DataLossError` in the result, which the caller raises or logs (`failOnDataLoss`), and the range is cut to the log.
`check_named` and `check_order` refuse options that can't be meant. The rules are those of Spark's own
`KafkaOffsetReader`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

from msgspec import Struct

from kafka_actors.errors import ConfigError, DataLossError
from kafka_actors.spark.source.selection import Fixed, GivenOffsets, GivenTimestamps, LogEnd, at
from kafka_actors.types import EARLIEST, LATEST, TopicPartition


class TaskRange(Struct, frozen=True, array_like=True):
    """Offsets from `start` to `end` (exclusive) of one partition, and the topic's id at the time of planning."""

    topic: str
    partition: int
    start: int
    end: int
    topic_id: bytes | None = None

    @property
    def tp(self) -> TopicPartition:
        return TopicPartition(self.topic, self.partition)

    @property
    def size(self) -> int:
        """The number of offsets, of which compaction and transactions may leave fewer records."""
        return self.end - self.start


class LogRange(Struct, frozen=True):
    """Log of a partition: offsets from `start` to `end` (exclusive; under read_committed the last stable offset).
    `start_match` and `end_match` are the results of a look-up by timestamp, -1 where no record matches."""

    start: int
    end: int
    start_match: int = -1
    end_match: int = -1


class ResolvedRanges(Struct, frozen=True):
    """Ranges, one for each partition, empty ones included; and the losses where options name offsets outside of a log."""

    ranges: list[TaskRange]
    losses: list[DataLossError]


def check_named(bound: Fixed, partitions: Iterable[TopicPartition]) -> None:
    """Raises `ConfigError` for offsets or timestamps by partition that don't name exactly the partitions that are read, as in
    Spark. The error names the ones that are missing or too many."""
    if not isinstance(bound, (GivenOffsets, GivenTimestamps)):
        return
    if isinstance(bound, GivenTimestamps) and bound.everywhere is not None:
        return
    wanted, named = set(partitions), set(bound.by_partition)
    if missing := sorted(wanted - named):
        raise ConfigError(
            bound.option, f"has to name all partitions that are read; it lacks {_list(missing)}"
        )
    if extra := sorted(named - wanted):
        raise ConfigError(bound.option, f"names partitions that are not read: {_list(extra)}")


def resolve(
    logs: Mapping[TopicPartition, LogRange],
    start: Fixed,
    end: Fixed,
    *,
    no_match: str = "error",
    topic_ids: Mapping[str, bytes | None] | None = None,
) -> ResolvedRanges:
    """Resolves the ranges of all partitions in `logs`, sorted.

    An offset outside of the log is a loss, and its range is cut to the log. `no_match`: the result for a start timestamp
    that no record matches, "error" (`ConfigError`) or "latest".
    """
    ids = topic_ids or {}
    ranges: list[TaskRange] = []
    losses: list[DataLossError] = []
    for tp, log, first, last in _requested(logs, start, end, no_match):
        for requested, side in ((first, "start"), (last, "end")):
            if not log.start <= requested <= log.end:
                holds = f"the log holds offsets {log.start} to {log.end}"
                losses.append(DataLossError(*tp, requested, f"the {side} of the range is gone: {holds}"))
        first, last = (min(max(offset, log.start), log.end) for offset in (first, last))
        ranges.append(TaskRange(tp.topic, tp.partition, first, max(first, last), ids.get(tp.topic)))
    return ResolvedRanges(ranges, losses)


def check_order(
    logs: Mapping[TopicPartition, LogRange], start: Fixed, end: Fixed, *, no_match: str = "error"
) -> None:
    """Raises `ConfigError` for a range of a batch whose start is behind its end, in the log or not; as Spark does, also where
    `failOnDataLoss` is false."""
    for tp, _, first, last in _requested(logs, start, end, no_match):
        if first > last:
            option = next((bound.option for bound in (end, start) if not isinstance(bound, LogEnd)), "")
            raise ConfigError(
                option, f"{at(tp)} would be read from {first} to {last}: the start is behind the end"
            )


def _requested(
    logs: Mapping[TopicPartition, LogRange], start: Fixed, end: Fixed, no_match: str
) -> Iterator[tuple[TopicPartition, LogRange, int, int]]:
    """The start and end of each partition by the options, before they are cut to the log."""
    for tp, log in sorted(logs.items()):
        yield tp, log, _start(tp, log, start, no_match), _end(tp, log, end)


def _start(tp: TopicPartition, log: LogRange, bound: Fixed, no_match: str) -> int:
    if isinstance(bound, GivenOffsets):
        offset = bound.by_partition[tp]
        return {EARLIEST: log.start, LATEST: log.end}.get(offset, offset)
    if isinstance(bound, LogEnd):
        return log.start if bound is LogEnd.EARLIEST else log.end
    if log.start_match >= 0:
        return log.start_match
    if no_match == "latest":
        return log.end
    raise ConfigError(
        bound.option,
        f"no record of {at(tp)} is at or after {bound.of(tp)}; "
        "startingOffsetsByTimestampStrategy=latest starts such partitions at their end",
    )


def _end(tp: TopicPartition, log: LogRange, bound: Fixed) -> int:
    if isinstance(bound, GivenOffsets):
        offset = bound.by_partition[tp]
        return log.end if offset == LATEST else offset
    if isinstance(bound, LogEnd):
        return log.end if bound is LogEnd.LATEST else log.start
    # The end is exclusive: a record at the timestamp itself isn't read. Without a match the log is read to its end.
    return log.end if log.end_match < 0 else log.end_match


def _list(partitions: list[TopicPartition]) -> str:
    shown = ", ".join(map(at, partitions[:5]))
    return shown + (f" and {len(partitions) - 5} more" if len(partitions) > 5 else "")
