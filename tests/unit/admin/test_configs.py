"""Settings in requests and responses, and whom the admin asks, with a client whose answers are written down."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from fakes.answering import AnsweringClient

from kafka_actors.admin import AlterConfigOp, ConfigEntry, ConfigResource, ConfigSynonym
from kafka_actors.admin.configs import ConfigRequests
from kafka_actors.admin.machines.configs import alterations_of, broker_of, config_entry, resources_of
from kafka_actors.admin.requests import CallDeadline
from kafka_actors.errors import (
    ClusterAuthorizationFailedError,
    InvalidConfigError,
    KafkaActorsError,
    UnknownTopicOrPartitionError,
    UsageError,
)
from kafka_actors.protocol import DescribeConfigsResponse, IncrementalAlterConfigsResponse
from kafka_actors.protocol.messages.describe_configs import (
    DescribeConfigsResourceResult,
    DescribeConfigsResult,
    DescribeConfigsSynonym,
)
from kafka_actors.protocol.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    AlterConfigsResourceResponse,
)

ORDERS = ConfigResource("TOPIC", "orders")
BROKER = ConfigResource("BROKER", "1")
BROKERS = ConfigResource("BROKER", "")


def test_changes_have_javas_codes() -> None:
    changes = {
        ORDERS: [AlterConfigOp("retention.ms", "1"), AlterConfigOp("cleanup.policy", op="DELETE")],
        BROKERS: [AlterConfigOp("log.retention.ms", "2", "APPEND")],
    }
    assert alterations_of(changes) == {
        ORDERS: AlterConfigsResource(
            2, "orders", [AlterableConfig("retention.ms", 0, "1"), AlterableConfig("cleanup.policy", 1, None)]
        ),
        BROKERS: AlterConfigsResource(4, "", [AlterableConfig("log.retention.ms", 2, "2")]),
    }


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({ORDERS: [AlterConfigOp("a", 1)]}, "the value of 'a' is 1, an int: settings are str"),  # type: ignore[arg-type]
        ({ORDERS: [AlterConfigOp("a")]}, "the value of 'a' is None, None: .*op='DELETE' gives"),
        ({ORDERS: [AlterConfigOp("a", "1", "DELETE")]}, "'a' has a value, which op='DELETE' doesn't take"),
        (
            {ORDERS: [AlterConfigOp("a", "1", "set")]},
            "op of 'a' is 'set', a str: accepts SET, DELETE, APPEND",
        ),
        ({ORDERS: ["a=1"]}, r"'a=1', a str, is no change: give AlterConfigOp"),
        ({"orders": []}, "'orders', a str, is no resource: give ConfigResource"),
        ({ConfigResource("BROKER", "b1"): []}, "BROKER b1 is no broker: give its id"),
        ({ConfigResource("BROKER_LOGGER", ""): []}, "BROKER_LOGGER default is no broker: give its id"),
        ({ConfigResource("topic", "a"): []}, "type of a ConfigResource is 'topic', a str: accepts TOPIC"),
        ([ORDERS], "changes is .*, a list: give a dict by ConfigResource"),
    ],
)
def test_what_cannot_be_a_change_is_named(changes: Any, says: str) -> None:
    with pytest.raises((TypeError, UsageError), match=says):
        alterations_of(changes)


def test_one_resource_is_no_list_of_them() -> None:
    with pytest.raises(TypeError, match="resources is a ConfigResource: give a list"):
        resources_of(ORDERS)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("resource", "broker"),
    [(ORDERS, None), (BROKER, 1), (BROKERS, None), (ConfigResource("BROKER_LOGGER", "2"), 2)],
)
def test_a_broker_is_asked_about_itself_alone(resource: ConfigResource, broker: int | None) -> None:
    assert broker_of(resource) == broker


def test_a_setting_says_where_its_value_is_from() -> None:
    told = DescribeConfigsResourceResult(
        "retention.ms", "5", False, 1, False, [DescribeConfigsSynonym("log.retention.ms", "7", 4)], 5
    )
    synonym = ConfigSynonym("log.retention.ms", "7", "STATIC_BROKER_CONFIG")
    entry = config_entry(told)
    assert entry == ConfigEntry("retention.ms", "5", "DYNAMIC_TOPIC_CONFIG", "LONG", False, False, (synonym,))
    assert not entry.is_default
    assert config_entry(DescribeConfigsResourceResult("a", "1", config_source=5)).is_default


# ---------------------------------------------------------------- requests


def _describe(client: Any, *resources: ConfigResource) -> dict[ConfigResource, Any]:
    requests = ConfigRequests(client)
    return asyncio.run(requests.describe(resources_of(resources), False, CallDeadline(client)))


def test_each_broker_is_asked_about_its_own_settings_and_any_about_a_topics() -> None:
    config = DescribeConfigsResourceResult("a", "1", config_source=5)
    client = AnsweringClient(
        DescribeConfigsResponse(results=[DescribeConfigsResult(0, None, 2, "orders", [config])]),
        DescribeConfigsResponse(results=[DescribeConfigsResult(31, None, 4, "1")]),
    )
    found = _describe(client, ORDERS, BROKER)
    assert client.nodes == [2, 1]
    assert found[ORDERS] == {"a": config_entry(config)}
    assert isinstance(found[BROKER], ClusterAuthorizationFailedError)
    assert str(found[BROKER]).endswith(
        "BROKER 1: refused: the principal needs the right DescribeConfigs on cluster"
    )


def test_a_broker_that_is_not_there_is_named_with_those_that_are() -> None:
    found = _describe(AnsweringClient(), ConfigResource("BROKER", "9"))
    [error] = found.values()
    assert isinstance(error, UsageError)
    assert str(error) == "the cluster has no broker 9 now: give the id of one of 1, 2"


def test_a_change_that_is_refused_names_its_resource() -> None:
    missing = ConfigResource("TOPIC", "gone")
    client = AnsweringClient(
        IncrementalAlterConfigsResponse(
            responses=[
                AlterConfigsResourceResponse(40, "Unknown topic config name: a", 2, "orders"),
                AlterConfigsResourceResponse(3, "The topic 'gone' does not exist.", 2, "gone"),
            ]
        )
    )
    changes = alterations_of({key: [AlterConfigOp("a", "1")] for key in (ORDERS, missing)})
    answers: dict[ConfigResource, KafkaActorsError | None] = asyncio.run(
        ConfigRequests(client).alter(changes, True, CallDeadline(client))  # type: ignore[arg-type]
    )
    assert client.asked[0].validate_only
    assert isinstance(answers[ORDERS], InvalidConfigError)
    assert str(answers[ORDERS]).endswith("for orders: Unknown topic config name: a")
    assert isinstance(answers[missing], UnknownTopicOrPartitionError)
    assert "for gone: The topic 'gone' does not exist: list_topics names" in str(answers[missing])
