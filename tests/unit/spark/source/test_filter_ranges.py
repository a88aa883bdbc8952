"""What filters leave to be read."""

from datetime import UTC, datetime

from hypothesis import given
from hypothesis import strategies as st
from pyspark.sql.datasource import EqualTo, Filter, GreaterThan, In, IsNotNull, LessThan, Not, StringContains

from kafka_actors.spark.source.batch_reader import conditions_of
from kafka_actors.spark.source.machines.filter_ranges import (
    FilterCondition,
    FilterRange,
    Operator,
    narrowed,
    narrowing_of,
)
from kafka_actors.spark.source.machines.offset_ranges import TaskRange
from kafka_actors.types import TopicPartition

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
