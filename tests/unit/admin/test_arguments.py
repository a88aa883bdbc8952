from typing import Any

import numpy as np
import pytest

from kafka_actors.admin import EARLIEST, LATEST, MAX_TIMESTAMP, NewPartitions, NewTopic, OffsetTarget
from kafka_actors.admin.arguments import (
    bounds_of,
    check_isolation,
    new_topics,
    reset_scope,
    text,
    texts,
    totals_of,
    wanted_times,
)
from kafka_actors.errors import UsageError
from kafka_actors.types import TopicPartition

TP = TopicPartition("orders", 1)


def test_names_are_a_list_without_repetitions() -> None:
    assert texts(iter(["a", "b", "a"]), "names") == ["a", "b"]
    assert text("a", "group_id") == "a"


def test_a_number_of_partitions_is_an_int_or_comes_with_an_assignment() -> None:
    grown = NewPartitions(3, [[1], [2]])
    assert totals_of({"a": 12, "b": grown}) == {"a": NewPartitions(12), "b": grown}


@pytest.mark.parametrize("wrong", [0, -1, True, "12", None, 2.0])
def test_what_is_no_number_of_partitions_is_refused(wrong: Any) -> None:
    with pytest.raises(UsageError, match=r"^'orders' is to have .*: give a number from 1 on"):
        totals_of({"orders": wrong})


def test_records_are_deleted_before_an_offset_or_the_high_watermark() -> None:
    assert bounds_of({("orders", 1): 7}) == {TP: 7}  # type: ignore[dict-item]
    assert bounds_of({TP: LATEST}) == {TP: -1}
    with pytest.raises(UsageError, match="can't delete the records of orders-1 at -2: offsets start at 0"):
        bounds_of({TP: -2})


def test_offsets_are_listed_at_special_times_or_milliseconds_since_1970() -> None:
    for at in (EARLIEST, LATEST, MAX_TIMESTAMP, 0, 1_700_000_000_000, np.int64(-1), np.int64(5)):
        assert wanted_times({("orders", 1): at}) == {TP: int(at)}  # type: ignore[dict-item]


def test_an_isolation_level_is_one_of_the_two_that_there_are() -> None:
    for level in ("read_uncommitted", "read_committed"):
        check_isolation(level)
    for wrong in ("READ_COMMITTED", "read-committed", "", None, 1, ["read_committed"]):
        with pytest.raises(
            UsageError, match=r"^isolation_level is .*: give 'read_uncommitted' or 'read_comm"
        ):
            check_isolation(wrong)


def test_a_scope_of_a_reset_has_partitions_as_ints_or_none_for_all() -> None:
    earliest = OffsetTarget.earliest()
    assert reset_scope(earliest, None) is None
    scope = reset_scope(earliest, {"orders": None, "clicks": (p for p in (0, np.int64(1)))})
    assert scope == {"orders": None, "clicks": [0, 1]}


@pytest.mark.parametrize(
    ("check", "value", "says"),
    [
        (
            lambda scope: reset_scope(OffsetTarget.earliest(), scope),
            {"orders": "0"},
            "'0', a str, for 'orders'",
        ),
        (lambda scope: reset_scope(OffsetTarget.earliest(), scope), {"orders": 0}, "0, an int, for 'orders'"),
        (
            lambda scope: reset_scope(OffsetTarget.earliest(), scope),
            {"orders": ["0"]},
            "a partition of 'orders' is '0', a str: give an int",
        ),
        (wanted_times, [TP], "partitions is .*a list: accepts a dict"),
        (wanted_times, {TP: "now"}, "the time for orders-1 is 'now', a str: give an int"),
        (wanted_times, {TP: -9}, "the time for orders-1 is -9, an int: give milliseconds"),
        (lambda names: texts(names, "names"), 5, "names is an int: give a list"),
        (new_topics, NewTopic("a"), "topics is a NewTopic: give a list"),
        (totals_of, ["orders"], r"partitions is \['orders'\], a list: give a dict such as"),
        (totals_of, {7: 1}, "partitions has 7, an int: names are str"),
        (bounds_of, [TP], "offsets is .*a list: accepts a dict"),
        (new_topics, ["orders"], r"topics has 'orders', a str: give NewTopic\(name"),
        (new_topics, [NewTopic("a"), NewTopic("a")], "topics has 'a' more than once"),
    ],
)
def test_a_wrong_argument_is_named(check: Any, value: Any, says: str) -> None:
    with pytest.raises((TypeError, UsageError), match=says):
        check(value)
