"""Settings of topics, and the cluster's brokers."""

from __future__ import annotations

from typing import Any

from fakes.fake_wire import Wire

from kafka_actors import errors
from kafka_actors.protocol import (
    DescribeClusterRequest,
    DescribeConfigsRequest,
    IncrementalAlterConfigsRequest,
)
from kafka_actors.protocol.messages.describe_configs import DescribeConfigsResource
from kafka_actors.protocol.messages.incremental_alter_configs import AlterableConfig, AlterConfigsResource

SET, DELETE, APPEND, SUBTRACT = range(4)


def described(wire: Wire, *names: str, topic: str = "t", kind: int = 2) -> Any:
    resource = DescribeConfigsResource(kind, topic, list(names) or None)
    return wire.ask(DescribeConfigsRequest([resource], include_synonyms=True), 4).results[0]


def alter(
    wire: Wire, *changes: tuple[str, int, str | None], topic: str = "t", validate_only: bool = False
) -> int:
    resource = AlterConfigsResource(2, topic, [AlterableConfig(*c) for c in changes])
    code: int = wire.ask(IncrementalAlterConfigsRequest([resource], validate_only), 1).responses[0].error_code
    return code


def test_settings_are_changed_and_shown_with_where_they_come_from() -> None:
    wire = Wire(topics={"t": 1})
    assert alter(wire, ("retention.ms", SET, "5"), validate_only=True) == 0
    (entry,) = described(wire, "retention.ms").configs
    assert (entry.value, entry.config_source, entry.synonyms) == ("-1", 4, [])
    (entry,) = described(wire, "retention.bytes").configs
    assert (entry.value, entry.config_source, entry.synonyms) == ("-1", 5, [])
    assert alter(wire, ("retention.ms", SET, "5"), ("cleanup.policy", APPEND, "compact")) == 0
    found = {e.name: e for e in described(wire).configs}
    assert (found["retention.ms"].value, found["retention.ms"].config_source) == ("5", 1)
    assert found["cleanup.policy"].value == "delete,compact"
    assert alter(wire, ("cleanup.policy", SUBTRACT, "delete"), ("retention.ms", DELETE, None)) == 0
    assert wire.state.topics["t"].configs == {"cleanup.policy": "compact"}


def test_settings_have_types() -> None:
    wire = Wire(topics={"t": 1})
    names = {
        "preallocate": 1,
        "compression.type": 2,
        "max.message.bytes": 3,
        "compression.gzip.level": 3,
        "min.insync.replicas": 3,
        "retention.ms": 5,
        "min.cleanable.dirty.ratio": 6,
        "cleanup.policy": 7,
        "leader.replication.throttled.replicas": 7,
    }
    assert {c.name: c.config_type for c in described(wire, *names).configs} == names


def test_settings_that_can_not_be() -> None:
    wire = Wire(topics={"t": 1})
    assert alter(wire, ("no.such", SET, "1")) == errors.InvalidConfigError.code
    assert alter(wire, ("retention.ms", SET, "x")) == errors.InvalidConfigError.code
    assert alter(wire, ("retention.ms", 9, "1")) == errors.InvalidRequestError.code
    assert alter(wire, ("retention.ms", SET, "1"), topic="none") == errors.UnknownTopicOrPartitionError.code
    assert alter(wire, ("retention.ms", SET, "x"), topic="none") == errors.InvalidConfigError.code, (
        "the value first"
    )
    assert described(wire, topic="1", kind=4).error_code == errors.InvalidRequestError.code
    assert wire.state.topics["t"].configs == {}


def test_the_cluster_s_brokers() -> None:
    wire = Wire(2)
    wire.state.set_alive(2, False)
    answer = wire.ask(DescribeClusterRequest(True), 1)
    assert [b.broker_id for b in answer.brokers] == [1]
    assert (answer.cluster_id, answer.controller_id) == (wire.state.cluster_id, 1)
    assert answer.cluster_authorized_operations > 0
    for endpoint, code in [(2, 114), (9, 115)]:
        refused = wire.ask(DescribeClusterRequest(endpoint_type=endpoint), 1)
        assert (refused.error_code, refused.endpoint_type) == (code, 1)
