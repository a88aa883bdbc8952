"""The topics, partitions and offsets that options name."""

from typing import Any

import pytest
from fakes.spark_options import BASE, orders, parse, refusal

from kafka_actors.spark.source.machines.offset_ranges import (
    SpecificOffsets,
    SpecificTimestamps,
)
from kafka_actors.spark.source.selection import AssignPartitions, SubscribePattern, SubscribeTopics
from kafka_actors.types import TopicPartition

ORDERS = TopicPartition("orders", 0)


@pytest.mark.parametrize(
    ("options", "selection"),
    [
        ({"subscribe": " b, a ,b,"}, SubscribeTopics(("b", "a"))),
        ({"subscribePattern": "orders-.*"}, SubscribePattern("orders-.*")),
        (
            {"assign": '{"b":[1,0,1],"a":[2]}'},
            AssignPartitions((TopicPartition("a", 2), *[TopicPartition("b", p) for p in (0, 1)])),
        ),
    ],
)
def test_the_three_ways_to_select(options: dict[str, str], selection: Any) -> None:
    assert parse(**options).selection == selection


@pytest.mark.parametrize(
    ("options", "names"),
    [
        ({}, ["subscribe", "subscribePattern", "assign"]),
        ({"subscribe": "a", "assign": '{"a":[0]}'}, ["subscribe", "assign"]),
        ({"subscribe": "a", "subscribepattern": "b"}, ["subscribe", "subscribePattern"]),
    ],
)
def test_exactly_one_of_the_three_is_needed(options: dict[str, str], names: list[str]) -> None:
    assert refusal({**BASE, **options}).option == ", ".join(names)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("subscribe", " , "),
        ("subscribePattern", " "),
        ("subscribePattern", "orders-("),
        ("assign", "orders"),
        ("assign", "{}"),
        ("assign", '{"orders":[]}'),
        ("assign", '{"orders":[-1]}'),
        ("assign", '{"orders":0}'),
        ("assign", '{"orders":[0]'),
    ],
)
def test_a_selection_that_selects_nothing_is_refused(name: str, value: str) -> None:
    assert refusal({**BASE, name: value}).option == name


def test_offsets_as_json() -> None:
    parsed = orders(startingOffsets='{"orders":{"0":23,"1":-2}}', endingOffsets='{"orders":{"0":42,"1":-1}}')
    second = TopicPartition("orders", 1)
    assert parsed.start == SpecificOffsets("startingOffsets", {ORDERS: 23, second: -2})
    assert parsed.end == SpecificOffsets("endingOffsets", {ORDERS: 42, second: -1})


def test_one_timestamp_wins_over_those_by_partition_and_these_over_offsets() -> None:
    by_partition = '{"orders":{"0":7}}'
    both = orders(startingOffsets="earliest", startingOffsetsByTimestamp=by_partition)
    assert both.start == SpecificTimestamps("startingOffsetsByTimestamp", None, {ORDERS: 7})
    assert isinstance(both.start, SpecificTimestamps)
    assert both.start.of(ORDERS) == 7
    all_three = orders(
        startingTimestamp="9", startingOffsetsByTimestamp=by_partition, startingOffsets="earliest"
    )
    assert all_three.start == SpecificTimestamps("startingTimestamp", 9)
    assert isinstance(all_three.start, SpecificTimestamps)
    assert all_three.start.of(ORDERS) == 9
    assert orders(endingTimestamp="9", endingOffsets="latest").end == SpecificTimestamps("endingTimestamp", 9)


@pytest.mark.parametrize(
    ("option", "text"),
    [
        ("subscribe", "a b"),
        ("subscribe", "a, ключ"),
        ("subscribe", "x" * 250),
        ("subscribe", ".."),
        ("assign", '{"a/b": [0]}'),
        ("assign", '{"": [0]}'),
    ],
)
def test_a_name_that_no_topic_has_is_refused_before_a_broker_is_asked(option: str, text: str) -> None:
    error = refusal({**BASE, option: text})
    assert error.option == option
    assert "a topic's name has 1 to 249 of the characters" in error.message
