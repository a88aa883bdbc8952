"""Commands on topics, settings and ACLs: their calls of an admin, which is a stand-in here, and their lines."""

from __future__ import annotations

import json
from typing import Any

import pytest

from kafka_actors.admin import AclBinding, AclBindingFilter, AlterConfigOp, ConfigEntry, ConfigResource
from kafka_actors.cli.main import run_command_line
from kafka_actors.errors import UnknownTopicOrPartitionError

ORDERS = ConfigResource("TOPIC", "orders")
READ = AclBinding("TOPIC", "orders", "User:a", "READ")


class StandIn:
    """An admin that writes down its calls; the topic "gone" doesn't exist."""

    requests: list[tuple[Any, ...]]

    def __init__(self, **options: Any) -> None:
        pass

    async def create_partitions(self, partitions: Any, *, validate_only: bool) -> None:
        self.requests.append((partitions, validate_only))
        self._refuse_gone(partitions)

    async def delete_topics(self, names: list[str]) -> None:
        self.requests.append(tuple(names))
        self._refuse_gone(names)

    @staticmethod
    def _refuse_gone(names: Any) -> None:
        if "gone" in names:
            raise UnknownTopicOrPartitionError(topic="gone")

    async def describe_configs(self, resources: Any) -> Any:
        entries = (
            ConfigEntry("a", "1", "DYNAMIC_TOPIC_CONFIG", "INT", False, False),
            ConfigEntry("b", "2", "DEFAULT_CONFIG", "INT", False, False),
            ConfigEntry("c", None, "STATIC_BROKER_CONFIG", "PASSWORD", False, True),
        )
        return {resource: {entry.name: entry for entry in entries} for resource in resources}

    async def incremental_alter_configs(self, changes: Any, *, validate_only: bool) -> None:
        self.requests.append((changes, validate_only))
        self._refuse_gone([resource.name for resource in changes])

    async def describe_acls(self, acl_filter: AclBindingFilter) -> list[AclBinding]:
        self.requests.append((acl_filter,))
        return [READ]

    async def create_acls(self, acls: list[AclBinding]) -> None:
        self.requests.append(tuple(acls))

    async def delete_acls(self, filters: list[AclBindingFilter]) -> list[AclBinding]:
        self.requests.append(tuple(filters))
        return [READ]

    def trouble(self) -> str:
        return ""

    async def close(self) -> None:
        pass


@pytest.fixture
def requests(monkeypatch: pytest.MonkeyPatch) -> list[tuple[Any, ...]]:
    monkeypatch.setattr("kafka_actors.admin.AsyncAdmin", StandIn)
    monkeypatch.setattr(StandIn, "requests", [], raising=False)
    return StandIn.requests


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str]) -> Any:
    def run(*arguments: str) -> tuple[int, str, str]:
        code = run_command_line(list(arguments))
        return code, *capsys.readouterr()

    return run


def test_topics_grow(requests: list[Any], run: Any) -> None:
    said = "Topic orders has 12 partitions.\nTopic clicks has 12 partitions.\n"
    assert run("topics", "alter", "-t", "orders,clicks", "--partitions", "12") == (0, said, "")
    assert requests == [({"orders": 12}, False), ({"clicks": 12}, False)]
    code, out, _ = run(
        "topics", "alter", "-t", "orders", "--partitions", "2", "--validate-only", "-o", "json"
    )
    assert (code, json.loads(out)) == (0, [{"name": "orders", "partitions": 2, "altered": False}])


def test_topics_are_deleted_one_by_one(requests: list[Any], run: Any) -> None:
    code, out, err = run("topics", "delete", "-t", "orders", "-t", "gone", "--if-exists")
    assert (code, out, err) == (0, "Deleted topic orders.\n", "Topic gone does not exist.\n")
    assert requests == [("orders",), ("gone",)]
    code, out, err = run("topics", "delete", "-t", "gone")
    assert (code, out) == (1, "")
    assert err == "kafka-actors: error: UNKNOWN_TOPIC_OR_PARTITION (3) for gone\n"


def test_what_was_changed_beside_an_error_is_told(requests: list[Any], run: Any) -> None:
    error = "kafka-actors: error: UNKNOWN_TOPIC_OR_PARTITION (3) for gone\n"
    three = ("-t", "orders", "-t", "gone", "-t", "clicks")
    assert run("topics", "delete", *three) == (
        1,
        "",
        "Deleted topic orders.\nDeleted topic clicks.\n" + error,
    )
    grown = run("topics", "alter", *three, "--partitions", "12")
    assert grown == (1, "", "Topic orders has 12 partitions.\nTopic clicks has 12 partitions.\n" + error)
    changed = run("configs", "alter", *three, "--add-config", "a=1")
    lines = "Settings of TOPIC orders changed.\nSettings of TOPIC clicks changed.\n"
    assert changed == (1, "", lines + error)


@pytest.mark.parametrize(
    "arguments",
    [
        ("alter", "--partitions", "2147483648"),
        ("create", "--partitions", "2147483648"),
        ("create", "--replica-assignment", "1:2147483648"),
        ("create", "--replica-assignment", "1:-1"),
    ],
)
def test_a_number_that_no_request_can_hold_is_wrong_usage(
    requests: list[Any], run: Any, arguments: tuple[str, ...]
) -> None:
    code, out, err = run("topics", *arguments, "-t", "orders")
    assert (code, out, requests) == (2, "", [])
    assert arguments[1] in err


def test_settings_that_are_no_defaults_are_shown_and_secrets_are_not(requests: list[Any], run: Any) -> None:
    code, out, _ = run("configs", "describe", "-t", "orders")
    assert code == 0
    assert [line.split() for line in out.splitlines()[1:]] == [
        ["TOPIC", "orders", "a", "1", "DYNAMIC_TOPIC_CONFIG"],
        ["TOPIC", "orders", "c", "(secret)", "STATIC_BROKER_CONFIG"],
    ]
    [document] = json.loads(run("configs", "describe", "-t", "orders", "--all", "-o", "json")[1])
    assert [entry["name"] for entry in document["configs"]] == ["a", "b", "c"]


def test_settings_are_changed(requests: list[Any], run: Any) -> None:
    changed = run("configs", "alter", "-t", "orders", "--add-config", "a=1", "--delete-config", "b")
    assert changed == (0, "Settings of TOPIC orders changed.\n", "")
    assert requests == [({ORDERS: [AlterConfigOp("a", "1"), AlterConfigOp("b", None, "DELETE")]}, False)]


def test_acls_are_added_listed_and_removed(requests: list[Any], run: Any) -> None:
    row = ["TOPIC", "orders", "LITERAL", "User:a", "*", "READ", "ALLOW"]
    choice = ["--allow-principal", "User:a", "--operation", "read", "--topic", "orders"]
    for command in ("add", "list", "remove"):
        code, out, _ = run("acls", command, *choice)
        assert (code, out.splitlines()[1].split()) == (0, row)
    chosen = AclBindingFilter("TOPIC", "orders", "User:a", "READ", "ALLOW", "LITERAL")
    assert requests == [(READ,), (chosen,), (chosen,)]
    assert run("acls", "remove", "--all")[0] == 0
    assert requests[-1] == (AclBindingFilter(),)
