"""`kafka-actors groups` on an admin with groups of both protocols: columns, and what is left out."""

from __future__ import annotations

import json
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest

from kafka_actors.admin import (
    GroupDescription,
    GroupListing,
    MemberDescription,
    PartitionLag,
)
from kafka_actors.cli.main import run_command_line
from kafka_actors.cluster.snapshot import BrokerMetadata
from kafka_actors.errors import GroupIdNotFoundError
from kafka_actors.types import TopicPartition

Command = Callable[..., list[list[str]]]
BROKER = BrokerMetadata(1, "b1", 9092)


def tps(topic: str, *partitions: int) -> tuple[TopicPartition, ...]:
    return tuple(TopicPartition(topic, p) for p in partitions)


GROUPS = {
    "old": GroupDescription(
        "old",
        "Classic",
        "Stable",
        "consumer",
        "range",
        BROKER,
        (
            MemberDescription("m-1", "static-1", "c", "/h", (*tps("u", 7), *tps("t", 1, 0))),
            MemberDescription("m-2", None, "c", "/h", ()),
        ),
    ),
    "new": GroupDescription(
        "new",
        "Consumer",
        "Reconciling",
        "consumer",
        "uniform",
        BROKER,
        (MemberDescription("m-3", None, "c", "/h", tps("t", 2), tps("t", 2, 3), 8),),
        9,
        10,
    ),
    "rest": GroupDescription("rest", "Classic", "Empty", "", "", BROKER, ()),
}


class Admin:
    """An `AsyncAdmin` of the groups above, and a group of Kafka Connect."""

    config = SimpleNamespace(bootstrap_servers=("localhost:9092",))
    operations: frozenset[str] | None = frozenset({"DESCRIBE"})

    def __init__(self) -> None:
        self.deleted: list[str] = []
        self.asked: dict[str, Any] = {}

    async def list_groups(self, **which: Any) -> list[GroupListing]:
        self.asked = which
        listed = [GroupListing(g.group_id, g.protocol_type, g.state, g.type) for g in GROUPS.values()]
        return [*listed, GroupListing("connect", "connect", "Stable", "Classic")]

    async def describe_cluster(self, **which: Any) -> Any:
        return SimpleNamespace(authorized_operations=self.operations)

    async def describe_consumer_groups(self, names: list[str]) -> dict[str, GroupDescription]:
        return {name: GROUPS[name] for name in names}

    async def delete_consumer_groups(self, names: list[str]) -> None:
        if "gone" in names:
            raise GroupIdNotFoundError("group 'gone' does not exist")
        self.deleted += names

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
def admin(monkeypatch: pytest.MonkeyPatch) -> Admin:
    made = Admin()
    monkeypatch.setattr("kafka_actors.admin.AsyncAdmin", lambda **config: made)
    return made


@pytest.fixture
def shown(admin: Admin, capsys: pytest.CaptureFixture[str]) -> Command:
    """The words of each line that a command prints; `said` has what it said beside."""

    def run(*arguments: str) -> list[list[str]]:
        assert run_command_line(list(arguments)) == 0
        out, run.said = capsys.readouterr()  # type: ignore[attr-defined]
        return [line.split() for line in out.splitlines()]

    return run


# ------------------------------------------------------------ list


def test_groups_of_consumers_are_listed_with_the_columns_that_are_asked_for(
    admin: Admin, shown: Command
) -> None:
    assert shown("groups", "list") == [["old"], ["new"], ["rest"]]
    assert shown("groups", "list", "--state") == [
        ["GROUP", "STATE"],
        ["old", "Stable"],
        ["new", "Reconciling"],
        ["rest", "Empty"],
    ]
    assert admin.asked == {"states": [], "types": []}
    assert shown("groups", "list", "--type", "--state")[1] == ["old", "Classic", "Stable"]
    shown("groups", "list", "--state", "stable,Empty", "--type", "classic")
    assert admin.asked == {"states": ["stable", "Empty"], "types": ["classic"]}


def test_groups_with_markers_of_spark_are_listed_only_when_they_are_asked_for_and_all_is_without_them(
    admin: Admin, shown: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    marker = "kafka_actors-6f6c2b0e-7e0b-4d8b-9a55-0d0d3b1c2a11-scored-3"
    monkeypatch.setitem(GROUPS, marker, GroupDescription(marker, "Classic", "Empty", "", "", BROKER, ()))
    assert shown("groups", "list") == [["old"], ["new"], ["rest"]]
    assert shown("groups", "list", "--markers")[3:] == [[marker]]
    shown("groups", "delete", "--all-groups")
    assert admin.deleted == ["old", "new", "rest"]
    shown("groups", "delete", "-g", marker)
    assert admin.deleted[3:] == [marker]


@pytest.mark.parametrize(
    "operations", [frozenset({"DESCRIBE"}), frozenset(), None], ids=["all", "some", "unknown"]
)
def test_that_groups_may_be_missing_from_a_list_is_said(
    admin: Admin, shown: Command, operations: frozenset[str] | None
) -> None:
    admin.operations = operations
    assert len(shown("groups", "list")) == 3
    warned = "groups that you may not describe are left out" in shown.said  # type: ignore[attr-defined]
    assert warned is (operations == frozenset())


# ------------------------------------------------------------ describe


def test_offsets_of_a_group_have_the_columns_of_kafkas_tool(shown: Command) -> None:
    plain, verbose = (
        shown("groups", "describe", "-g", "old"),
        shown("groups", "describe", "-g", "old", "--verbose"),
    )
    assert plain[0] == (
        [
            "GROUP",
            "TOPIC",
            "PARTITION",
            "CURRENT-OFFSET",
            "LOG-END-OFFSET",
            "LAG",
            "CONSUMER-ID",
            "HOST",
            "CLIENT-ID",
        ]
    )
    assert plain[1:3] == [
        ["old", "t", "0", "5", "9", "4", "m-1", "/h", "c"],
        ["old", "t", "1", "-", "9", "-", "m-1", "/h", "c"],
    ]
    assert plain[4] == ["old", "-", "-", "-", "-", "-", "m-2", "/h", "c"], "a member without partitions"
    assert [line[3] for line in verbose[:3]] == ["LEADER-EPOCH", "3", "-"]


def test_members_have_their_static_ids_only_where_there_are_some_and_assignments_as_text(
    shown: Command,
) -> None:
    old = shown("groups", "describe", "-g", "old", "--members", "--verbose")
    assert old[0][2] == "GROUP-INSTANCE-ID"
    assert old[1][1:6] == ["m-1", "static-1", "/h", "c", "3"]
    assert old[1][7] == "t:0,1;u:7"
    assert old[2][1:6] == ["m-2", "-", "/h", "c", "0"]
    assert old[2][7] == "-"
    new = shown("groups", "describe", "-g", "new", "--members", "--verbose")
    assert "GROUP-INSTANCE-ID" not in new[0]
    assert new[1] == ["new", "m-3", "/h", "c", "1", "8", "t:2", "10", "t:2,3"]


def test_states_name_the_coordinator_and_each_group_has_a_table(shown: Command) -> None:
    lines = shown("groups", "describe", "-g", "old", "-g", "rest", "--state")
    assert lines[1] == ["old", "b1:9092", "(1)", "range", "Stable", "2"]
    assert lines[2] == [], "an empty line between the tables"
    assert lines[4] == ["rest", "b1:9092", "(1)", "-", "Empty", "0"]


def test_why_columns_may_be_empty_is_said(shown: Command) -> None:
    shown("groups", "describe", "-g", "old", "-g", "new", "-g", "rest")
    assert shown.said.splitlines() == [  # type: ignore[attr-defined]
        "Warning: Consumer group 'new' is rebalancing.",
        "Consumer group 'rest' has no active members.",
    ]


def test_a_document_has_offsets_only_where_they_were_asked_for(
    shown: Command, capsys: pytest.CaptureFixture[str]
) -> None:
    for view, has in ((["--offsets"], True), (["--state"], False)):
        assert run_command_line(["groups", "describe", "-g", "old", *view, "-o", "json"]) == 0
        [group] = json.loads(capsys.readouterr().out)
        assert group["state"] == "Stable"
        assert ("partitions" in group) is has


def test_groups_are_deleted_once_each(admin: Admin, shown: Command) -> None:
    assert shown("groups", "delete", "-g", "rest", "-g", "old", "-g", "rest")
    assert admin.deleted == ["rest", "old"]


def test_groups_that_were_deleted_beside_an_error_are_told(
    admin: Admin, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run_command_line(["groups", "delete", "-g", "old", "-g", "gone", "-g", "new"]) == 1
    out, err = capsys.readouterr()
    assert (admin.deleted, out) == (["old", "new"], "")
    *done, error = err.splitlines()
    assert done == [
        f"Deletion of requested consumer groups ('{name}') was successful." for name in ("old", "new")
    ]
    assert "'gone' does not exist" in error
