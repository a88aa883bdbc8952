"""From a start and an end to exact ranges."""

import pytest

from kafka_actors.errors import ConfigError
from kafka_actors.spark.source.machines.offset_ranges import (
    LogRange,
    ResolvedRanges,
    TaskRange,
    check_named,
    check_order,
    resolve,
)
from kafka_actors.spark.source.selection import Bound, GivenOffsets, GivenTimestamps, LogEnd
from kafka_actors.types import TopicPartition

A0, A1 = TopicPartition("a", 0), TopicPartition("a", 1)
B0 = TopicPartition("b", 0)


def one(log: LogRange, start: Bound = LogEnd.EARLIEST, end: Bound = LogEnd.LATEST) -> tuple[int, int]:
    found = resolve({A0: log}, start, end)
    assert found.losses == []
    return found.ranges[0].start, found.ranges[0].end


def starting(offset: int) -> GivenOffsets:
    return GivenOffsets("startingOffsets", {A0: offset})


def ending(offset: int) -> GivenOffsets:
    return GivenOffsets("endingOffsets", {A0: offset})


def lost(log: LogRange, start: Bound = LogEnd.EARLIEST, end: Bound = LogEnd.LATEST) -> ResolvedRanges:
    found = resolve({A0: log}, start, end)
    assert found.losses
    return found


def test_the_whole_log_by_default() -> None:
    ids = {"a": b"1" * 16}
    found = resolve(
        {A1: LogRange(5, 9), B0: LogRange(0, 0), A0: LogRange(0, 3)},
        LogEnd.EARLIEST,
        LogEnd.LATEST,
        topic_ids=ids,
    )
    assert found.losses == []
    assert found.ranges == [
        TaskRange("a", 0, 0, 3, b"1" * 16),
        TaskRange("a", 1, 5, 9, b"1" * 16),
        TaskRange("b", 0, 0, 0, None),
    ]


def test_offsets_and_the_special_ones() -> None:
    assert one(LogRange(5, 9), starting(6), ending(8)) == (6, 8)
    assert one(LogRange(5, 9), starting(-2), ending(-1)) == (5, 9)
    assert one(LogRange(5, 9), starting(9), ending(9)) == (9, 9)


def test_timestamps_by_their_matches() -> None:
    start, end = GivenTimestamps("startingTimestamp", 100), GivenTimestamps("endingTimestamp", 200)
    assert one(LogRange(5, 9, start_match=6, end_match=8), start, end) == (6, 8)
    assert one(LogRange(5, 9, start_match=6), start, end) == (
        6,
        9,
    )  # nothing as young as the end: all there is


def test_a_start_timestamp_without_a_match_is_an_error_or_the_end() -> None:
    start = GivenTimestamps("startingOffsetsByTimestamp", None, {A0: 100})
    with pytest.raises(
        ConfigError, match=r"^startingOffsetsByTimestamp: no record of a-0 is at or after 100;"
    ):
        resolve({A0: LogRange(5, 9)}, start, LogEnd.LATEST)
    assert resolve({A0: LogRange(5, 9)}, start, LogEnd.LATEST, no_match="latest").ranges[0].size == 0


@pytest.mark.parametrize(
    ("start", "end", "offset", "left"),
    [
        (starting(3), LogEnd.LATEST, 3, (5, 9)),
        (starting(10), LogEnd.LATEST, 10, (9, 9)),
        (LogEnd.EARLIEST, ending(10), 10, (5, 9)),
        (LogEnd.EARLIEST, ending(4), 4, (5, 5)),
    ],
)
def test_an_offset_outside_of_the_log_is_a_loss_and_cut(
    start: Bound, end: Bound, offset: int, left: tuple[int, int]
) -> None:
    found = lost(LogRange(5, 9), start, end)
    assert [(loss.topic, loss.partition, loss.offset) for loss in found.losses] == [("a", 0, offset)]
    assert f"a-0 at offset {offset}: " in str(found.losses[0])
    assert "the log holds offsets 5 to 9" in str(found.losses[0])
    assert (found.ranges[0].start, found.ranges[0].end) == left


@pytest.mark.parametrize(
    ("log", "start", "end", "said"),
    [
        (
            LogRange(5, 9, start_match=8, end_match=6),
            GivenTimestamps("startingTimestamp", 200),
            GivenTimestamps("endingTimestamp", 100),
            "endingTimestamp: a-0 would be read from 8 to 6",
        ),
        (LogRange(5, 9), starting(10), LogEnd.LATEST, "startingOffsets: a-0 would be read from 10 to 9"),
        (LogRange(5, 9), LogEnd.EARLIEST, ending(4), "endingOffsets: a-0 would be read from 5 to 4"),
    ],
)
def test_a_start_behind_its_end_is_refused(log: LogRange, start: Bound, end: Bound, said: str) -> None:
    with pytest.raises(ConfigError, match=f"^{said}: the start is behind the end$"):
        check_order({A0: log}, start, end)


def test_what_lies_outside_of_the_log_in_order_is_not_refused() -> None:
    check_order({A0: LogRange(20, 30)}, starting(1), ending(10))
    check_order({A0: LogRange(5, 9)}, starting(7), ending(7))


def test_both_ends_may_be_lost() -> None:
    found = lost(LogRange(20, 30), starting(1), ending(10))
    assert [loss.offset for loss in found.losses] == [1, 10]
    assert found.ranges[0].size == 0


def test_offsets_by_partition_name_all_partitions_and_no_others() -> None:
    check_named(GivenOffsets("startingOffsets", {A0: 1, A1: 2}), [A1, A0])
    check_named(GivenTimestamps("startingTimestamp", 5), [A0, A1])
    check_named(LogEnd.LATEST, [A0])
    with pytest.raises(ConfigError, match=r"^startingOffsets: .*lacks a-1$"):
        check_named(starting(1), [A0, A1])
    with pytest.raises(ConfigError, match=r"^endingOffsetsByTimestamp: .*not read: a-1, b-0$"):
        check_named(GivenTimestamps("endingOffsetsByTimestamp", None, {A0: 1, A1: 1, B0: 1}), [A0])


def test_a_long_list_of_missing_partitions_is_cut() -> None:
    with pytest.raises(ConfigError, match=r"a-1, a-2, a-3, a-4, a-5 and 4 more$"):
        check_named(starting(1), [TopicPartition("a", p) for p in range(10)])
