"""`kafka-actors lag`: rows of partitions, topics and groups, their sums, and the groups that it is of."""

from __future__ import annotations

import json
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest

from kafka_actors.admin import GroupListing, PartitionLag
from kafka_actors.cli.lag import summed
from kafka_actors.cli.main import run_command_line

Command = Callable[..., list[list[str]]]


class Admin:
    """An `AsyncAdmin` of two groups of consumers and one of Kafka Connect. Each has a member without partitions."""

    config = SimpleNamespace(bootstrap_servers=("localhost:9092",))

    async def list_groups(self, **which: Any) -> list[GroupListing]:
        kinds = {"old": "consumer", "new": "", "connect": "connect"}
        return [GroupListing(name, kind, "Stable", "Classic") for name, kind in kinds.items()]

    async def describe_cluster(self, **which: Any) -> Any:
        return SimpleNamespace(authorized_operations=frozenset({"DESCRIBE"}))

    async def lag(self, group_id: str) -> list[PartitionLag]:
        return [
            PartitionLag(group_id, "t", 0, 3, 5, 9, 4, "m-1", "/h", "c"),
            PartitionLag(group_id, "t", 1, None, None, 9, None, "m-1", "/h", "c"),
            PartitionLag(group_id, "u", 7, 3, 9, 9, 0, "m-1", "/h", "c"),
            PartitionLag(group_id, None, None, None, None, None, None, "m-2", "/h", "c"),
        ]

    async def close(self) -> None:
        pass


@pytest.fixture
def shown(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Command:
    """The words of each line that the command prints."""
    monkeypatch.setattr("kafka_actors.admin.AsyncAdmin", lambda **config: Admin())

    def run(*arguments: str) -> list[list[str]]:
        assert run_command_line(["lag", *arguments]) == 0
        return [line.split() for line in capsys.readouterr().out.splitlines()]

    return run


def test_lag_is_of_partitions_or_summed_and_a_sum_with_an_unknown_part_is_unknown(shown: Command) -> None:
    assert shown("-g", "old") == [
        ["GROUP", "TOPIC", "PARTITION", "CURRENT-OFFSET", "LOG-END-OFFSET", "LAG"],
        ["old", "t", "0", "5", "9", "4"],
        ["old", "t", "1", "-", "9", "-"],
        ["old", "u", "7", "9", "9", "0"],
    ]
    by_topic = shown("-g", "old", "-g", "new", "--by", "topic")
    assert by_topic[:3] == [
        ["GROUP", "TOPIC", "PARTITIONS", "LAG"],
        ["old", "t", "2", "-"],
        ["old", "u", "1", "0"],
    ]
    assert len(by_topic) == 5
    assert shown("-g", "old", "--by", "group") == [["GROUP", "PARTITIONS", "LAG"], ["old", "3", "-"]]


def test_all_groups_are_those_of_consumers_and_each_keeps_its_own_sum(shown: Command) -> None:
    assert shown("--all-groups", "--by", "group")[1:] == [["old", "3", "-"], ["new", "3", "-"]]


@pytest.mark.parametrize(
    ("by", "first"),
    [
        (
            "partition",
            {
                "group_id": "old",
                "topic": "t",
                "partition": 0,
                "current_offset": 5,
                "log_end_offset": 9,
                "lag": 4,
            },
        ),
        ("topic", {"group_id": "old", "topic": "t", "partitions": 2, "lag": None}),
        ("group", {"group_id": "old", "partitions": 3, "lag": None}),
    ],
)
def test_a_document_has_the_columns_as_names_and_unknown_values_as_null(
    shown: Command, capsys: pytest.CaptureFixture[str], by: str, first: dict[str, Any]
) -> None:
    assert run_command_line(["lag", "-g", "old", "--by", by, "-o", "json"]) == 0
    assert json.loads(capsys.readouterr().out)[0] == first


def test_sums_of_lag_with_an_unknown_part_are_unknown() -> None:
    rows = [
        PartitionLag("g", "t", 0, None, 1, 3, 2),
        PartitionLag("g", "t", 1, None, 1, 4, 3),
        PartitionLag("g", "u", 0, None, 1, None, None),
    ]
    assert summed(rows, 2) == [("g", "t", 2, 5), ("g", "u", 1, None)]
    assert summed(rows, 1) == [("g", 3, None)]
    assert summed([], 1) == []
