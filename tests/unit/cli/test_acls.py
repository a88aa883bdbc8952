"""ACLs as the command line names them, and what is told of them where a broker refuses one."""

from __future__ import annotations

from typing import Any

import pytest

from kafka_actors.admin import AclBinding, AclBindingFilter
from kafka_actors.cli.acls import AclChoice
from kafka_actors.cli.main import run_command_line
from kafka_actors.errors import InvalidRequestError, KafkaTimeoutError


def test_an_acl_is_added_for_each_resource_principal_and_operation() -> None:
    choice = AclChoice(
        topics=("orders,clicks",),
        groups=("g",),
        allowed=("User:a",),
        denied=("User:b",),
        operations=("read", "Describe"),
    )
    made = choice.bindings()
    assert len(made) == 3 * 2 * 2
    assert AclBinding("TOPIC", "clicks", "User:b", "DESCRIBE", "DENY") in made
    assert {acl.pattern_type for acl in made} == {"LITERAL"}
    [cluster] = AclChoice(
        cluster=True, allowed=("User:a",), operations=("alter",), hosts=("10.0.0.1",)
    ).bindings()
    assert cluster == AclBinding("CLUSTER", "kafka-cluster", "User:a", "ALTER", host="10.0.0.1")


def test_a_filter_takes_all_of_what_is_not_named() -> None:
    assert AclChoice().filters() == [AclBindingFilter()]
    assert AclChoice(topics=("orders",), pattern_type="any").filters() == [
        AclBindingFilter("TOPIC", "orders")
    ]
    matching = AclChoice(topics=("orders",), operations=("write",), pattern_type="match").filters()
    assert matching == [AclBindingFilter("TOPIC", "orders", operation="WRITE", pattern_type="MATCH")]
    of_user = AclChoice(allowed=("User:a",)).filters()
    assert of_user == [AclBindingFilter(principal="User:a", permission_type="ALLOW")]
    prefixed = AclChoice(allowed=("User:a",), pattern_type="prefixed").filters()
    assert prefixed == [
        AclBindingFilter(principal="User:a", permission_type="ALLOW", pattern_type="PREFIXED")
    ]


def test_a_filter_of_a_named_resource_takes_literal_acls_alone_by_default_as_kafka_acls_does() -> None:
    for choice in (AclChoice(topics=("orders",)), AclChoice(cluster=True), AclChoice(groups=("g",))):
        assert {each.pattern_type for each in choice.filters()} == {"LITERAL"}


@pytest.mark.parametrize("command", ["add", "list", "remove"])
def test_the_help_names_the_default_of_pattern_types(
    command: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run_command_line(["acls", command, "--help"]) == 0
    assert "[default: literal" in " ".join(capsys.readouterr().out.replace("(", "").split())


def test_the_help_of_remove_says_that_any_host_and_operation_match(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert run_command_line(["acls", "remove", "--help"]) == 0
    text = " ".join(capsys.readouterr().out.split())
    assert (
        "Without --operation those of all operations are removed, without --host those of all hosts" in text
    )


class Admin:
    """In place of an `AsyncAdmin`: makes and deletes ACLs one call at a time, and refuses those about the topic `refused`."""

    def __init__(self, config: dict[str, Any]) -> None:
        pass

    def trouble(self) -> str:
        return ""

    async def close(self) -> None:
        pass

    async def create_acls(self, acls: list[AclBinding]) -> None:
        for acl in acls:
            self._check(acl.resource_name)

    async def delete_acls(self, filters: list[AclBindingFilter]) -> list[AclBinding]:
        for each in filters:
            self._check(each.resource_name)
        return [AclBinding("TOPIC", str(each.resource_name), "User:a", "READ") for each in filters]

    @staticmethod
    def _check(topic: str | None) -> None:
        if topic == "refused":
            raise InvalidRequestError("not this one")
        if topic == "silent":
            raise KafkaTimeoutError("no broker answers")


@pytest.fixture(autouse=True)
def _admin(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("kafka_actors.admin.AsyncAdmin", Admin)


TOPICS = ["--topic", "one,refused,two"]
OF_A = ["--allow-principal", "User:a", "--operation", "read"]


def test_of_several_acls_those_are_told_that_were_added_though_one_was_refused(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert run_command_line(["acls", "add", *TOPICS, *OF_A]) == 1
    out, err = capsys.readouterr()
    first, second, error = err.splitlines()
    assert first == "Added ALLOW READ on TOPIC one to User:a from *."
    assert second == "Added ALLOW READ on TOPIC two to User:a from *."
    assert "not this one" in error
    assert out == ""


def test_a_principal_without_a_type_keeps_all_acls_from_being_added(
    capsys: pytest.CaptureFixture[str],
) -> None:
    code = run_command_line(["acls", "add", "--topic", "one", *OF_A, "--allow-principal", "bob"])
    assert (code, capsys.readouterr().err.count("\n")) == (2, 1)


def test_acls_that_were_removed_are_told_though_another_filter_was_refused(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert run_command_line(["acls", "remove", *TOPICS]) == 1
    out, err = capsys.readouterr()
    assert err.splitlines()[:2] == [
        "Removed ALLOW READ on TOPIC one to User:a from *.",
        "Removed ALLOW READ on TOPIC two to User:a from *.",
    ]
    assert out == ""
    assert run_command_line(["acls", "remove", "--topic", "one,two"]) == 0
    assert capsys.readouterr().out.count("User:a") == 2


def test_what_was_refused_before_no_broker_answered_is_told(capsys: pytest.CaptureFixture[str]) -> None:
    assert run_command_line(["acls", "add", "--topic", "one,refused,silent,two", *OF_A]) == 1
    added, refused, error = capsys.readouterr().err.splitlines()
    assert added == "Added ALLOW READ on TOPIC one to User:a from *."
    assert "not this one" in refused
    assert "no broker answers" in error
