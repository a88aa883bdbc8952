"""Ranges to tasks: nothing lost, nothing twice, as many as asked for."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kafka_actors.errors import (
    DataLossError,
    FetchOffsetOutOfRangeError,
    LogTruncationError,
    TopicRecreatedError,
)
from kafka_actors.spark.source.machines.offset_ranges import TaskRange
from kafka_actors.spark.source.machines.tasks import SHARED, SMALL, go_on_at, tasks_of


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
    assert go_on_at(loss, 20, RANGE) == expected
