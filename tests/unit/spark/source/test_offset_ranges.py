"""From a start and an end to exact ranges, what filters leave of them, and their tasks: nothing lost, nothing twice."""

from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyspark.sql.datasource import EqualTo, Filter, GreaterThan, In, IsNotNull, LessThan, Not, StringContains

from kafka_actors.errors import (
    ConfigError,
    DataLossError,
    FetchOffsetOutOfRangeError,
    LogTruncationError,
    TopicRecreatedError,
)
from kafka_actors.spark.source.machines.offset_ranges import (
    SHARED,
    SMALL,
    Bound,
    FilterCondition,
    FilterRange,
    LogEnd,
    LogRange,
    Operator,
    ResolvedRanges,
    SpecificOffsets,
    SpecificTimestamps,
    TaskRange,
    check_named,
    check_order,
    narrowed,
    narrowing_of,
    resolve,
    rest_after,
    tasks_of,
)
from kafka_actors.spark.source.readers import conditions_of
from kafka_actors.types import TopicPartition

A0, A1 = TopicPartition("a", 0), TopicPartition("a", 1)
B0 = TopicPartition("b", 0)


def one(log: LogRange, start: Bound = LogEnd.EARLIEST, end: Bound = LogEnd.LATEST) -> tuple[int, int]:
    found = resolve({A0: log}, start, end)
    assert found.losses == []
    return found.ranges[0].start, found.ranges[0].end


def starting(offset: int) -> SpecificOffsets:
    return SpecificOffsets("startingOffsets", {A0: offset})


def ending(offset: int) -> SpecificOffsets:
    return SpecificOffsets("endingOffsets", {A0: offset})


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
    start, end = SpecificTimestamps("startingTimestamp", 100), SpecificTimestamps("endingTimestamp", 200)
    assert one(LogRange(5, 9, start_match=6, end_match=8), start, end) == (6, 8)
    assert one(LogRange(5, 9, start_match=6), start, end) == (
        6,
        9,
    )  # nothing as young as the end: all there is


def test_a_start_timestamp_without_a_match_is_an_error_or_the_end() -> None:
    start = SpecificTimestamps("startingOffsetsByTimestamp", None, {A0: 100})
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
            SpecificTimestamps("startingTimestamp", 200),
            SpecificTimestamps("endingTimestamp", 100),
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
    check_named(SpecificOffsets("startingOffsets", {A0: 1, A1: 2}), [A1, A0])
    check_named(SpecificTimestamps("startingTimestamp", 5), [A0, A1])
    check_named(LogEnd.LATEST, [A0])
    with pytest.raises(ConfigError, match=r"^startingOffsets: .*lacks a-1$"):
        check_named(starting(1), [A0, A1])
    with pytest.raises(ConfigError, match=r"^endingOffsetsByTimestamp: .*not read: a-1, b-0$"):
        check_named(SpecificTimestamps("endingOffsetsByTimestamp", None, {A0: 1, A1: 1, B0: 1}), [A0])


def test_a_long_list_of_missing_partitions_is_cut() -> None:
    with pytest.raises(ConfigError, match=r"a-1, a-2, a-3, a-4, a-5 and 4 more$"):
        check_named(starting(1), [TopicPartition("a", p) for p in range(10)])


RANGES = [TaskRange("t", p, 10, 100, b"i" * 16) for p in range(3)]


def left(*conditions: FilterCondition, young: dict[int, int] | None = None) -> list[tuple[int, int, int]]:
    found = narrowed(
        RANGES,
        narrowing_of(conditions),
        {TopicPartition("t", p): offset for p, offset in (young or {}).items()},
    )
    return [(r.partition, r.start, r.end) for r in found if r.size]


def test_no_condition_leaves_all() -> None:
    assert narrowed(RANGES, FilterRange(), {}) == RANGES
    assert left(FilterCondition("value", "=", 5)) == [(0, 10, 100), (1, 10, 100), (2, 10, 100)]


def test_partitions() -> None:
    assert left(FilterCondition("partition", "=", 1)) == [(1, 10, 100)]
    two = FilterCondition("partition", "in", [0, 1])
    assert left(two, FilterCondition("partition", "in", [1, 2])) == [(1, 10, 100)]
    assert left(FilterCondition("partition", "=", 7)) == []


def test_a_timestamp_is_a_start_but_no_end() -> None:
    young = {0: 50, 1: -1, 2: 5}
    assert left(FilterCondition("timestamp", ">=", 1_000), young=young) == [(0, 50, 100), (2, 10, 100)]
    assert left(FilterCondition("timestamp", "<", 1_000)) == [(p, 10, 100) for p in range(3)]


def test_a_time_before_1970_narrows_nothing_because_brokers_take_it_for_something_else() -> None:
    """-1 is the end of a log to them, -2 its start, and others they don't know."""
    for value in (-1, -2, -2_208_988_800_000):
        for operator in (">=", "=", ">", "in"):
            given = [value] if operator == "in" else value - (operator == ">")
            assert narrowing_of([FilterCondition("timestamp", operator, given)]).from_ms is None
    later = [FilterCondition("timestamp", ">=", -5), FilterCondition("timestamp", ">=", 7)]
    assert narrowing_of(later).from_ms == narrowing_of(reversed(later)).from_ms == 7


operators: st.SearchStrategy[Operator] = st.sampled_from(["=", "<", "<=", ">", ">="])


@given(st.lists(st.tuples(operators, st.integers(-5, 120)), max_size=4))
def test_exactly_the_offsets_that_fulfil_all_conditions_are_left(
    compared: list[tuple[Operator, int]],
) -> None:
    python = {
        "=": lambda a, b: a == b,
        "<": lambda a, b: a < b,
        "<=": lambda a, b: a <= b,
        ">": lambda a, b: a > b,
        ">=": lambda a, b: a >= b,
    }
    wanted = [o for o in range(10, 100) if all(python[op](o, value) for op, value in compared)]
    found = narrowed(RANGES[:1], narrowing_of(FilterCondition("offset", op, v) for op, v in compared), {})
    assert [o for r in found for o in range(r.start, r.end)] == wanted


def test_sparks_filters_are_understood_as_far_as_they_narrow() -> None:
    moment = datetime(2026, 1, 1, microsecond=1_999, tzinfo=UTC)
    filters: list[Filter] = [
        IsNotNull(("offset",)),
        GreaterThan(("offset",), 5),
        In(("partition",), (1, 2)),
        LessThan(("timestamp",), moment),
        EqualTo(("topic",), "t"),
        Not(EqualTo(("partition",), 1)),
        StringContains(("topic",), "x"),
        LessThan(("timestamp",), datetime(2026, 1, 1)),  # noqa: DTZ001
    ]
    assert list(conditions_of(filters)) == [
        FilterCondition("offset", ">", 5),
        FilterCondition("partition", "in", [1, 2]),
        FilterCondition("timestamp", "<", 1_767_225_600_001),
    ]


def test_of_decoded_columns_only_kafkas_own_narrow() -> None:
    """A field of an order may have the name of one of them."""
    filters: list[Filter] = [
        GreaterThan(("offset",), 5),
        EqualTo(("partition",), 1),
        GreaterThan(("_kafka", "offset"), 7),
        EqualTo(("order", "partition"), 2),
    ]
    assert list(conditions_of(filters, "_kafka")) == [FilterCondition("offset", ">", 7)]


def ranges(*sizes: int) -> list[TaskRange]:
    return [TaskRange("t", p, 100, 100 + size, b"i" * 16) for p, size in enumerate(sizes)]


def sizes(tasks: list[tuple[TaskRange, ...]]) -> list[list[int]]:
    return [[r.size for r in task] for task in tasks]


def test_a_task_for_each_range_and_none_for_an_empty_one() -> None:
    assert sizes(tasks_of(ranges(50_000, 0, 60_000))) == [[50_000], [60_000]]
    assert tasks_of(ranges(0, 0)) == []


def test_small_ranges_share_a_task() -> None:
    assert sizes(tasks_of(ranges(1, 50_000, 2, 3))) == [[50_000], [1, 2, 3]]
    many = sizes(tasks_of(ranges(*[SMALL] * 25)))
    assert [len(task) for task in many] == [10, 10, 5]
    assert max(sum(task) for task in many) <= SHARED


def test_an_option_says_how_many_so_nothing_is_shared() -> None:
    assert len(tasks_of(ranges(1, 2, 3), min_partitions=1)) == 3
    assert len(tasks_of(ranges(1, 2, 3), max_records_per_partition=1_000)) == 3


def test_min_partitions_splits_by_size() -> None:
    assert sizes(tasks_of(ranges(100, 100), min_partitions=4)) == [[50], [50], [50], [50]]
    assert sizes(tasks_of(ranges(300, 100), min_partitions=4)) == [[100], [100], [100], [100]]


def test_min_partitions_is_reached_beside_many_small_ranges() -> None:
    # Spark splits the large one into what the small ones leave: they don't dilute its share.
    tasks = tasks_of(ranges(1, 1, 1, 1_000_000), min_partitions=10)
    assert len(tasks) == 10


def test_max_records_bounds_each_task_and_comes_first() -> None:
    assert sizes(tasks_of(ranges(10, 25), max_records_per_partition=10)) == [[10], [8], [8], [9]]
    both = tasks_of(ranges(10, 25), max_records_per_partition=10, min_partitions=8)
    assert len(both) >= 8
    assert max(r.size for (r,) in both) <= 10


@given(
    st.lists(st.integers(0, 200_000), min_size=1, max_size=20),
    st.none() | st.integers(1, 50),
    st.none() | st.integers(1_000, 500_000),
)
def test_each_offset_is_in_exactly_one_task(lengths: list[int], least: int | None, most: int | None) -> None:
    given_ranges = ranges(*lengths)
    tasks = tasks_of(given_ranges, min_partitions=least, max_records_per_partition=most)
    parts: dict[int, list[tuple[int, int]]] = {}
    for task in tasks:
        assert task
        assert len({r.partition for r in task}) == len(task)
        for r in task:
            assert r.size > 0
            assert r.topic_id == b"i" * 16
            parts.setdefault(r.partition, []).append((r.start, r.end))
            if most is not None:
                assert r.size <= most
    for r in given_ranges:
        at = r.start
        for start, end in sorted(parts.get(r.partition, [])):
            assert start == at
            at = end
        assert at == r.end


@given(st.lists(st.integers(1, 10_000_000), min_size=1, max_size=20), st.integers(1, 100))
def test_min_partitions_is_about_reached(lengths: list[int], least: int) -> None:
    tasks = tasks_of(ranges(*lengths), min_partitions=least)
    assert len(tasks) >= min(least, sum(lengths)) - len(lengths)
    assert len(tasks) <= max(least, 0) + len(lengths)


RANGE = TaskRange("t", 0, 10, 100)


def out_of_range(start: int | None, end: int | None) -> FetchOffsetOutOfRangeError:
    return FetchOffsetOutOfRangeError("t", 0, 20, start, end)


@pytest.mark.parametrize(
    ("loss", "expected"),
    [
        (out_of_range(50, 200), 50),  # retention passed by
        (out_of_range(99, 200), 99),
        (out_of_range(100, 200), None),  # past the whole range
        (out_of_range(150, 200), None),
        (out_of_range(0, 15), None),  # the log ends before the position: not from its start
        (out_of_range(20, 20), None),
        (out_of_range(None, None), None),
        (LogTruncationError("t", 0, 20, 12, 3), 20),
        (TopicRecreatedError("t", 0, 20, "a", "b"), None),
        (DataLossError("t", 0, 20, "the topic is gone"), None),
    ],
)
def test_where_to_go_on(loss: DataLossError, expected: int | None) -> None:
    rest = rest_after(loss, 20, RANGE)
    assert rest == (None if expected is None else TaskRange("t", 0, expected, 100))


@pytest.mark.parametrize(("parts", "end"), [(60, 60), (100, 100), (20, None), (12, None), (None, 100)])
def test_a_stream_reads_a_truncated_log_only_up_to_where_it_parts_from_the_planned_one(
    parts: int | None, end: int | None
) -> None:
    planned = TaskRange("t", 0, 10, 100, b"i" * 16, leader_epoch=3)
    rest = rest_after(LogTruncationError("t", 0, 100, parts, 2), 20, planned)
    assert rest == (None if end is None else TaskRange("t", 0, 20, end, b"i" * 16, leader_epoch=3))


def test_the_parts_of_a_range_are_of_the_same_topic_and_epoch() -> None:
    planned = TaskRange("t", 0, 10, 100, b"i" * 16, leader_epoch=3)
    parts = [part for (part,) in tasks_of([planned], min_partitions=3)]
    assert [(part.start, part.end) for part in parts] == [(10, 40), (40, 70), (70, 100)]
    assert {(part.topic_id, part.leader_epoch) for part in parts} == {(b"i" * 16, 3)}
