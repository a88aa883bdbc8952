"""From a start and an end to exact offset ranges: what Spark's `KafkaOffsetReader` decides."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

from msgspec import Struct

from kafka_actors.errors import ConfigError, DataLossError
from kafka_actors.spark.source.offset_json import Fixed, GivenOffsets, GivenTimestamps, LogEnd, at
from kafka_actors.types import EARLIEST, LATEST, TopicPartition


class TaskRange(Struct, frozen=True, array_like=True):
    """Offsets `start` to `end` (exclusive) of one partition, and the topic's id when the range was planned."""

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
        """Offsets, not records: compaction and transactions leave gaps."""
        return self.end - self.start


class LogRange(Struct, frozen=True):
    """What a partition's log holds: offsets from `start` to `end` (exclusive; under read_committed the last
    stable offset). `start_match` and `end_match` answer a look-up by timestamp: -1 where no record is as young."""

    start: int
    end: int
    start_match: int = -1
    end_match: int = -1


class ResolvedRanges(Struct, frozen=True):
    """The ranges, one for each partition, empty ones included; and what the user asked for that the log hasn't."""

    ranges: list[TaskRange]
    losses: list[DataLossError]


def check_named(bound: Fixed, partitions: Iterable[TopicPartition]) -> None:
    """Offsets or timestamps by partition have to name all partitions that are read, and no others, as in Spark.

    Raises `ConfigError` with the partitions that are missing or too many.
    """
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
    """The ranges of all partitions in `logs`, sorted.

    An offset outside of the log is a loss, and its range is cut to what is there. `no_match`: what a start
    timestamp does that no record matches, "error" (`ConfigError`) or "latest".
    """
    ids = topic_ids or {}
    ranges: list[TaskRange] = []
    losses: list[DataLossError] = []
    for tp, log, first, last in _asked(logs, start, end, no_match):
        for asked, what in ((first, "start"), (last, "end")):
            if not log.start <= asked <= log.end:
                holds = f"the log holds offsets {log.start} to {log.end}"
                losses.append(DataLossError(*tp, asked, f"the {what} of the range is gone: {holds}"))
        first, last = (min(max(offset, log.start), log.end) for offset in (first, last))
        ranges.append(TaskRange(tp.topic, tp.partition, first, max(first, last), ids.get(tp.topic)))
    return ResolvedRanges(ranges, losses)


def check_order(
    logs: Mapping[TopicPartition, LogRange], start: Fixed, end: Fixed, *, no_match: str = "error"
) -> None:
    """Raises `ConfigError` for a range of a batch whose start lies behind its end, whether or not the log has them; so does
    Spark, also where `failOnDataLoss` is false."""
    for tp, _, first, last in _asked(logs, start, end, no_match):
        if first > last:
            option = next((bound.option for bound in (end, start) if not isinstance(bound, LogEnd)), "")
            raise ConfigError(
                option, f"{at(tp)} would be read from {first} to {last}: the start is behind the end"
            )


def _asked(
    logs: Mapping[TopicPartition, LogRange], start: Fixed, end: Fixed, no_match: str
) -> Iterator[tuple[TopicPartition, LogRange, int, int]]:
    """Start and end of each partition as the options mean them."""
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
    # A record at the timestamp itself isn't read: the end is exclusive. No match is the end of the log.
    return log.end if log.end_match < 0 else log.end_match


def _list(partitions: list[TopicPartition]) -> str:
    shown = ", ".join(map(at, partitions[:5]))
    return shown + (f" and {len(partitions) - 5} more" if len(partitions) > 5 else "")
