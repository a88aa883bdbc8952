"""`AsyncAdmin` over a client whose answers are written down: the time of a call, what it leaves out, and several errors at once."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

import pytest
from fakes.answering import AnsweringClient

from kafka_actors import AsyncAdmin
from kafka_actors.admin import AclBinding, AclBindingFilter, ConfigResource, OffsetTarget
from kafka_actors.errors import (
    GroupAuthorizationFailedError,
    KafkaTimeoutError,
    NoBrokersAvailable,
    TopicAuthorizationFailedError,
    UnknownTopicOrPartitionError,
    UsageError,
)
from kafka_actors.protocol import (
    DeleteTopicsResponse,
    DescribeConfigsResponse,
    FindCoordinatorResponse,
    ListGroupsResponse,
    MetadataResponse,
)
from kafka_actors.protocol.messages.delete_acls import (
    DeleteAclsFilterResult,
    DeleteAclsMatchingAcl,
    DeleteAclsResponse,
)
from kafka_actors.protocol.messages.delete_topics import DeletableTopicResult
from kafka_actors.protocol.messages.describe_configs import (
    DescribeConfigsResourceResult,
    DescribeConfigsResult,
)
from kafka_actors.protocol.messages.find_coordinator import Coordinator
from kafka_actors.protocol.messages.metadata import MetadataResponseBroker
from kafka_actors.types import TopicPartition


class Client(AnsweringClient):
    """Connects in `connects_s` seconds of its clock, or raises `unreachable`, and notes the time of each request."""

    def __init__(self, *answers: Any) -> None:
        super().__init__(*answers)
        self.time = 0.0
        self.connects_s = 0.0
        self.connections = self.closed = 0
        self.limits: list[float | None] = []
        self.unreachable: Exception | None = None

    def now(self) -> float:
        return self.time

    async def bootstrap(self, *, timeout_ms: float | None = None) -> None:
        self.connections += 1
        self.limits.append(timeout_ms)
        self.time += self.connects_s
        if self.unreachable is not None:
            raise self.unreachable

    async def send(self, node_id: int, request: Any, *, timeout_ms: float, **more: object) -> Any:
        self.limits.append(timeout_ms)
        return await super().send(node_id, request, **more)

    async def close(self) -> None:
        self.closed += 1

    def trouble(self) -> str:
        return "a:1: connection refused" if self.unreachable else ""


@pytest.fixture
def ask(monkeypatch: pytest.MonkeyPatch) -> Callable[..., Any]:
    """Makes one call of an admin with this client."""

    def run(client: Client, call: Callable[[AsyncAdmin], Coroutine[Any, Any, Any]]) -> Any:
        monkeypatch.setattr("kafka_actors.admin.async_admin.KafkaClient", lambda config: client)
        return asyncio.run(call(AsyncAdmin(bootstrap_servers="a:1,b:2")))

    return run


# ------------------------------------------------------------ time and connections


def test_the_time_to_connect_is_part_of_the_time_of_the_call(ask: Callable[..., Any]) -> None:
    client = Client(MetadataResponse(brokers=[MetadataResponseBroker(1, "b", 9092)]))
    client.connects_s = 0.4
    assert ask(client, lambda admin: admin.list_topics(timeout_ms=500)) == []
    connecting, request = client.limits
    assert connecting == 500
    assert request == pytest.approx(100)


def test_without_a_limit_a_call_has_that_of_a_request(ask: Callable[..., Any]) -> None:
    client = Client(MetadataResponse(brokers=[MetadataResponseBroker(1, "b", 9092)]))
    client.connects_s = 0.25
    ask(client, lambda admin: admin.list_topics())
    assert client.limits[1] == pytest.approx(client.config.request_timeout_ms - 250)


def test_a_context_connects_at_its_begin_and_closes_however_it_ends(ask: Callable[..., Any]) -> None:
    client = Client()

    async def fail(admin: AsyncAdmin) -> None:
        async with admin as entered:
            assert (entered, client.connections) == (admin, 1)
            raise KeyError("of the user")

    with pytest.raises(KeyError, match="of the user"):
        ask(client, fail)
    assert client.closed == 1


def test_where_no_broker_is_reached_the_call_says_so_and_sends_nothing(ask: Callable[..., Any]) -> None:
    client = Client()
    client.unreachable = NoBrokersAvailable("a:1: connection refused")

    async def listed(admin: AsyncAdmin) -> str:
        with pytest.raises(NoBrokersAvailable, match="refused"):
            await admin.list_groups()
        return f"{admin!r}: {admin.trouble()}"

    assert ask(client, listed) == "<AsyncAdmin of a:1,b:2>: a:1: connection refused"
    assert client.asked == []


@pytest.mark.parametrize(
    "call",
    [
        lambda admin: admin.list_groups(states="Stable"),
        lambda admin: admin.describe_topics("orders"),
        lambda admin: admin.create_topics(["orders"]),
        lambda admin: admin.create_acls([AclBinding("TOPIC", "t", "bob", "READ")]),
        lambda admin: admin.delete_acls([AclBindingFilter(operation="READING")]),
        lambda admin: admin.describe_configs([ConfigResource("TOPICS", "t")]),
        lambda admin: admin.list_offsets({"orders": -1}),
        lambda admin: admin.list_offsets([TopicPartition("orders", 0)]),
        lambda admin: admin.list_offsets({TopicPartition("orders", 0): -1}, isolation_level="READ_COMMITTED"),
        lambda admin: admin.lag("g", isolation_level="read-committed"),
        lambda admin: admin.reset_offsets("g", OffsetTarget.earliest(), {"orders": "0"}),
    ],
)
def test_a_wrong_argument_is_refused_before_anything_connects(
    ask: Callable[..., Any], call: Callable[[AsyncAdmin], Any]
) -> None:
    client = Client()
    with pytest.raises((TypeError, UsageError)):
        ask(client, call)
    assert client.connections == 0


def test_of_a_group_without_offsets_to_commit_nothing_is_sent(ask: Callable[..., Any]) -> None:
    client = Client()
    ask(client, lambda admin: admin.alter_consumer_group_offsets("g", {}))
    assert client.asked == []


# ------------------------------------------------------------ answers


def test_settings_of_a_topic_are_those_that_are_no_defaults_of_kafkas_and_secrets_are_none(
    ask: Callable[..., Any],
) -> None:
    configs = [
        DescribeConfigsResourceResult("retention.ms", "1", config_source=1),
        DescribeConfigsResourceResult("cleanup.policy", "delete", config_source=5),
        DescribeConfigsResourceResult("password", None, config_source=4, is_sensitive=True),
    ]
    client = Client(
        DescribeConfigsResponse(
            results=[DescribeConfigsResult(resource_type=2, resource_name="t", configs=configs)]
        )
    )
    found = ask(client, lambda admin: admin.topic_configs(["t"]))
    assert found == {"t": {"retention.ms": "1", "password": None}}


def matching(principal: str) -> DeleteAclsMatchingAcl:
    return DeleteAclsMatchingAcl(
        resource_type=2,
        resource_name="t",
        pattern_type=3,
        principal=principal,
        host="*",
        operation=3,
        permission_type=3,
    )


def test_an_acl_that_several_filters_take_is_returned_once_and_all_are_sorted(
    ask: Callable[..., Any],
) -> None:
    results = [
        DeleteAclsFilterResult(matching_acls=[matching("User:b"), matching("User:a")]),
        DeleteAclsFilterResult(matching_acls=[matching("User:b")]),
    ]
    client = Client(DeleteAclsResponse(filter_results=results))
    filters = [AclBindingFilter("TOPIC"), AclBindingFilter(principal="User:b")]
    found = ask(client, lambda admin: admin.delete_acls(filters))
    assert found == [AclBinding("TOPIC", "t", f"User:{name}", "READ") for name in "ab"]


def test_of_several_errors_the_first_is_raised_with_the_others_as_notes(ask: Callable[..., Any]) -> None:
    results = [
        DeletableTopicResult(name="a", error_code=0),
        DeletableTopicResult(name="b", error_code=UnknownTopicOrPartitionError.code),
        DeletableTopicResult(name="c", error_code=TopicAuthorizationFailedError.code),
    ]
    client = Client(DeleteTopicsResponse(responses=results))
    with pytest.raises(UnknownTopicOrPartitionError, match="for b") as caught:
        ask(client, lambda admin: admin.delete_topics(["a", "b", "c"]))
    [note] = caught.value.__notes__
    assert "TOPIC_AUTHORIZATION_FAILED" in note
    assert "for c" in note


def test_an_error_of_one_broker_hides_no_group_of_another(ask: Callable[..., Any]) -> None:
    """Its groups would be missing from the list, and nobody would know."""
    client = Client(ListGroupsResponse(), KafkaTimeoutError("broker 2 is silent"))
    with pytest.raises(KafkaTimeoutError, match="broker 2 is silent"):
        ask(client, lambda admin: admin.list_groups(timeout_ms=0))


def test_a_group_whose_lag_may_not_be_seen_is_named(ask: Callable[..., Any]) -> None:
    refused = Coordinator("g", -1, "", -1, error_code=GroupAuthorizationFailedError.code)
    client = Client(FindCoordinatorResponse(coordinators=[refused]))
    with pytest.raises(GroupAuthorizationFailedError, match="for g"):
        ask(client, lambda admin: admin.lag("g"))
