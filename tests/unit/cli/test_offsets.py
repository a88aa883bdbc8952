"""`kafka-actors offsets`: which partitions it looks up, at which time, and which have a line."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from types import SimpleNamespace
from typing import Any

import pytest

from kafka_actors.admin import PartitionDescription, TopicDescription
from kafka_actors.cli.main import run_command_line
from kafka_actors.types import TopicPartition


class Admin:
    """An `AsyncAdmin` of the topics `t`, `__consumer_offsets` and, once `lost` is set, `offline`, whose partition 1 has no leader.
    The partitions 1 have no record at any time."""

    config = SimpleNamespace(bootstrap_servers=("localhost:9092",))

    def __init__(self) -> None:
        self.wanted: dict[TopicPartition, int] = {}
        self.lost = False

    async def describe_topics(self, scope: Mapping[str, Any] | None) -> dict[str, TopicDescription]:
        def topic(name: str, partitions: int) -> TopicDescription:
            leaders = [None if name == "offline" and p == 1 else 1 for p in range(partitions)]
            described = [
                PartitionDescription(p, leader, 0, (1,), (1,), ()) for p, leader in enumerate(leaders)
            ]
            return TopicDescription(name, None, name.startswith("__"), tuple(described))

        every = {"t": topic("t", 3), "__consumer_offsets": topic("__consumer_offsets", 1)}
        if self.lost:
            every["offline"] = topic("offline", 3)
        return {name: found for name, found in every.items() if scope is None or name in scope}

    async def list_offsets(self, wanted: Mapping[TopicPartition, int]) -> dict[TopicPartition, Any]:
        self.wanted = dict(wanted)
        return {
            tp: SimpleNamespace(
                offset=-1 if tp.partition == 1 else 40 + tp.partition, timestamp=at if at >= 0 else -1
            )
            for tp, at in wanted.items()
        }

    async def close(self) -> None:
        pass


@pytest.fixture
def admin(monkeypatch: pytest.MonkeyPatch) -> Admin:
    made = Admin()
    monkeypatch.setattr("kafka_actors.admin.AsyncAdmin", lambda **config: made)
    return made


@pytest.fixture
def shown(admin: Admin, capsys: pytest.CaptureFixture[str]) -> Callable[..., list[str]]:
    def run(*arguments: str) -> list[str]:
        assert run_command_line(["offsets", *arguments]) == 0
        return capsys.readouterr().out.splitlines()

    return run


def test_offsets_of_all_topics_or_of_some_partitions_without_those_that_have_none(
    admin: Admin, shown: Callable[..., list[str]]
) -> None:
    assert shown() == ["__consumer_offsets:0:40", "t:0:40", "t:2:42"]
    assert set(admin.wanted.values()) == {-1}
    assert shown("--exclude-internal-topics", "--time", "earliest") == ["t:0:40", "t:2:42"]
    assert set(admin.wanted.values()) == {-2}
    assert shown("-t", "t:2", "--time", "60000") == ["t:2:42"]
    assert admin.wanted == {TopicPartition("t", 2): 60_000}


def test_a_document_has_the_time_of_the_record_and_null_where_the_end_of_the_log_has_none(
    shown: Callable[..., list[str]],
) -> None:
    at_a_time = json.loads("".join(shown("-t", "t:2", "--time", "60000", "-o", "json")))
    assert at_a_time == [{"topic": "t", "partition": 2, "offset": 42, "timestamp": 60_000}]
    [at_the_end] = json.loads("".join(shown("-t", "t:2", "-o", "json")))
    assert at_the_end["timestamp"] is None


def test_where_no_partition_has_a_record_the_document_is_an_empty_list(
    shown: Callable[..., list[str]],
) -> None:
    assert shown("-t", "t:1", "-o", "json") == ["[]"]
    assert shown("-t", "t:1") == []


def test_a_partition_that_a_topic_lacks_is_an_error(admin: Admin, capsys: pytest.CaptureFixture[str]) -> None:
    assert run_command_line(["offsets", "-t", "t:0,3"]) == 1
    assert "UNKNOWN_TOPIC_OR_PARTITION" in capsys.readouterr().err
    assert admin.wanted == {}, "nothing is looked up"


def test_a_partition_without_a_leader_is_said_and_the_offsets_of_the_others_are_shown(
    admin: Admin, capsys: pytest.CaptureFixture[str]
) -> None:
    admin.lost = True
    assert run_command_line(["offsets"]) == 1
    out, err = capsys.readouterr()
    assert out.splitlines() == ["__consumer_offsets:0:40", "offline:0:40", "offline:2:42", "t:0:40", "t:2:42"]
    assert err.splitlines() == ["offline-1 has no leader: its offset is left out"]
    assert TopicPartition("offline", 1) not in admin.wanted, "it would be waited for"
    assert run_command_line(["offsets", "-t", "offline:0,2"]) == 0, "it isn't asked for"
    assert capsys.readouterr().err == ""
