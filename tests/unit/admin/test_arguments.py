from typing import Any

import pytest

from kafka_actors.admin import LATEST, NewPartitions, NewTopic
from kafka_actors.admin.arguments import bounds_of, new_topics, text, texts, totals_of
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


@pytest.mark.parametrize(
    ("check", "value", "says"),
    [
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
