"""Metadata, and requests that change topics."""

from __future__ import annotations

from typing import Any

import pytest
from fakes.fake_wire import Wire, record_batch

from kafka_actors import errors
from kafka_actors.protocol import (
    ZERO_UUID,
    CreatePartitionsRequest,
    CreateTopicsRequest,
    DeleteRecordsRequest,
    DeleteTopicsRequest,
    MetadataRequest,
)
from kafka_actors.protocol.messages.create_partitions import CreatePartitionsAssignment, CreatePartitionsTopic
from kafka_actors.protocol.messages.create_topics import (
    CreatableReplicaAssignment,
    CreatableTopic,
    CreatableTopicConfig,
)
from kafka_actors.protocol.messages.delete_records import DeleteRecordsPartition, DeleteRecordsTopic
from kafka_actors.protocol.messages.delete_topics import DeleteTopicState
from kafka_actors.protocol.messages.metadata import MetadataRequestTopic
from kafka_actors.testing.fake_kafka.machines.partition_log import LogLimits
from kafka_actors.testing.fake_kafka.machines.record_batches import parse


def named(*names: str, creates: bool = False) -> MetadataRequest:
    return MetadataRequest(
        topics=[MetadataRequestTopic(name=name) for name in names], allow_auto_topic_creation=creates
    )


def test_metadata_has_live_brokers_leaders_and_replicas_that_are_away() -> None:
    wire = Wire(2)
    wire.state.create_topic("t", [[1, 2], [2]])
    wire.state.set_alive(2, False)
    answer = wire.ask(named("t"), 12)
    assert [b.node_id for b in answer.brokers] == [1]
    assert answer.controller_id == 1
    first, second = answer.topics[0].partitions
    assert (first.leader_id, first.isr_nodes, first.offline_replicas) == (1, [1], [2])
    assert (second.error_code, second.leader_id) == (errors.LeaderNotAvailableError.code, -1)


def test_metadata_of_all_topics_of_some_and_by_id() -> None:
    wire = Wire(topics={"a": 1, "b": 2})
    assert [t.name for t in wire.ask(MetadataRequest(topics=None), 9).topics] == ["a", "b"]
    assert [t.name for t in wire.ask(MetadataRequest(topics=[]), 0).topics] == ["a", "b"]
    assert wire.ask(MetadataRequest(topics=[]), 9).topics == []
    topic_id = wire.state.topics["b"].topic_id
    other = wire.state.new_uuid()
    asked = [MetadataRequestTopic(topic_id=i, name=None) for i in (topic_id, other)]
    unknown, known = wire.ask(MetadataRequest(topics=asked), 12).topics
    assert (known.name, len(known.partitions)) == ("b", 2)
    assert (unknown.error_code, unknown.name) == (errors.UnknownTopicIdError.code, None)


def test_topics_that_are_not_there_are_created_only_where_broker_and_client_want_it() -> None:
    for configured, wanted, there in [(True, True, True), (True, False, False), (False, True, False)]:
        wire = Wire(config={"auto.create.topics.enable": configured, "num.partitions": 3})
        (topic,) = wire.ask(named("new", creates=wanted), 9).topics
        assert topic.error_code == errors.UnknownTopicOrPartitionError.code
        assert ("new" in wire.state.topics) == there
    assert wire.ask(named("not legal"), 9).topics[0].error_code == errors.InvalidTopicError.code


def test_brokers_before_2_8_have_no_topic_ids() -> None:
    wire = Wire(release=(2, 7), topics={"t": 1})
    assert wire.ask(named("t"), 9).topics[0].topic_id == ZERO_UUID


def created(wire: Wire, *topics: CreatableTopic, validate_only: bool = False) -> list[Any]:
    found: list[Any] = wire.ask(
        CreateTopicsRequest(topics=list(topics), validate_only=validate_only), 7
    ).topics
    return found


def test_a_topic_is_created_with_its_settings() -> None:
    wire = Wire(2)
    (made,) = created(wire, CreatableTopic("t", 3, 2, [], [CreatableTopicConfig("retention.ms", "5")]))
    topic = wire.state.topics["t"]
    assert (made.error_code, made.topic_id, made.num_partitions, made.replication_factor) == (
        0,
        topic.topic_id,
        3,
        2,
    )
    assert {(c.name, c.value, c.config_source) for c in made.configs} >= {
        ("retention.ms", "5", 1),
        ("cleanup.policy", "delete", 5),
    }
    assert created(wire, CreatableTopic("d", -1, -1))[0].num_partitions == 1
    assert created(wire, CreatableTopic("v", 1, 1), validate_only=True)[0].error_code == 0
    assert "v" not in wire.state.topics


@pytest.mark.parametrize(
    ("topic", "error"),
    [
        (CreatableTopic("t", 0, 1), errors.InvalidPartitionsError),
        (CreatableTopic("t", 1, 0), errors.InvalidReplicationFactorError),
        (CreatableTopic("t", 1, 9), errors.InvalidReplicationFactorError),
        (CreatableTopic("a/b", 1, 1), errors.InvalidTopicError),
        (CreatableTopic("t", 1, 1, [], [CreatableTopicConfig("no.such", "1")]), errors.InvalidConfigError),
        (CreatableTopic("t", 1, -1, [CreatableReplicaAssignment(0, [1])]), errors.InvalidRequestError),
        (
            CreatableTopic("t", -1, -1, [CreatableReplicaAssignment(1, [1])]),
            errors.InvalidReplicaAssignmentError,
        ),
        (
            CreatableTopic("t", -1, -1, [CreatableReplicaAssignment(0, [5])]),
            errors.InvalidReplicaAssignmentError,
        ),
    ],
)
def test_topics_that_can_not_be(topic: CreatableTopic, error: type[errors.KafkaError]) -> None:
    wire = Wire()
    assert created(wire, topic)[0].error_code == error.code
    assert not wire.state.topics


def test_a_topic_that_is_named_twice_or_exists() -> None:
    wire = Wire(topics={"there": 1})
    assert [t.error_code for t in created(wire, CreatableTopic("t", 1, 1), CreatableTopic("t", 1, 1))] == [42]
    assert created(wire, CreatableTopic("there", 1, 1))[0].error_code == 36
    (placed,) = created(wire, CreatableTopic("p", -1, -1, [CreatableReplicaAssignment(0, [1])]))
    assert placed.error_code == 0


def test_topics_are_deleted_by_name_or_id() -> None:
    wire = Wire(topics={"a": 1, "b": 1})
    topic_id = wire.state.topics["b"].topic_id
    assert wire.ask(DeleteTopicsRequest(topic_names=["a"]), 5).responses[0].error_code == 0
    by_id = DeleteTopicsRequest(topics=[DeleteTopicState(None, topic_id)])
    assert wire.ask(by_id, 6).responses[0].name == "b"
    assert not wire.state.topics
    assert wire.ask(by_id, 6).responses[0].error_code == errors.UnknownTopicIdError.code
    both = DeleteTopicsRequest(topics=[DeleteTopicState("a", topic_id)])
    assert wire.ask(both, 6).responses[0].error_code == errors.InvalidRequestError.code


@pytest.mark.parametrize("version", [1, 3, 6])
def test_no_topic_is_deleted_where_the_brokers_forbid_it(version: int) -> None:
    wire = Wire(topics={"a": 1}, config={"delete.topic.enable": "false"})
    by_id = DeleteTopicsRequest(topics=[DeleteTopicState(None, wire.state.topics["a"].topic_id)])
    request = by_id if version == 6 else DeleteTopicsRequest(topic_names=["a"])
    error = errors.TopicDeletionDisabledError if version >= 3 else errors.InvalidRequestError
    assert [r.error_code for r in wire.ask(request, version).responses] == [error.code]
    assert list(wire.state.topics) == ["a"]


def test_partitions_are_added() -> None:
    wire = Wire(topics={"t": 1})

    def grow(count: int, *assignments: list[int], name: str = "t", validate_only: bool = False) -> int:
        given = [CreatePartitionsAssignment(a) for a in assignments] or None
        topic = CreatePartitionsTopic(name, count, given)
        request = CreatePartitionsRequest(topics=[topic], validate_only=validate_only)
        code: int = wire.ask(request, 3).results[0].error_code
        return code

    assert grow(3, validate_only=True) == 0
    assert grow(3) == 0
    assert len(wire.state.topics["t"].partitions) == 3
    assert grow(3) == grow(2) == errors.InvalidPartitionsError.code
    assert grow(5, [1]) == errors.InvalidReplicaAssignmentError.code
    assert grow(4, [1]) == 0
    twice = CreatePartitionsRequest(topics=[CreatePartitionsTopic("t", 9, None)] * 2)
    assert [r.error_code for r in wire.ask(twice, 3).results] == [errors.InvalidRequestError.code]
    assert grow(4, name="none") == errors.UnknownTopicOrPartitionError.code


def test_topics_and_partitions_are_made_on_a_broker_that_is_down_too() -> None:
    wire = Wire(3)
    wire.cluster.stop_node(3)
    assert [t.error_code for t in created(wire, CreatableTopic("t", 2, 3))] == [0]
    more = CreatePartitionsRequest(topics=[CreatePartitionsTopic("t", 3, None)])
    assert wire.ask(more, 3).results[0].error_code == 0
    for partition in wire.state.topics["t"].partitions:
        assert sorted(partition.replicas) == [1, 2, 3]
        assert partition.leader == partition.replicas[0]
    for replicas, code in [([3, 1], 0), ([3], errors.InvalidReplicaAssignmentError.code)]:
        chosen = CreatableTopic(f"c{len(replicas)}", -1, -1, [CreatableReplicaAssignment(0, replicas)])
        assert created(wire, chosen)[0].error_code == code


def test_records_are_deleted_up_to_an_offset() -> None:
    wire = Wire(2, topics={"t": 1})
    log = wire.state.topics["t"].partitions[0].log
    log.append(parse(record_batch(b"a", b"b")), 0, LogLimits(), 0)

    def delete(offset: int, on: str = "one", node: int = 1) -> tuple[int, int]:
        request = DeleteRecordsRequest(topics=[DeleteRecordsTopic("t", [DeleteRecordsPartition(0, offset)])])
        (found,) = wire.ask(request, 2, on, node).topics[0].partitions
        return found.error_code, found.low_watermark

    assert delete(1) == (0, 1)
    assert delete(3) == (errors.OffsetOutOfRangeError.code, -1)
    assert delete(0, "two", 2) == (errors.NotLeaderOrFollowerError.code, -1)
    assert delete(-1) == (0, 2)
    wire.state.topics["t"].configs["cleanup.policy"] = "compact"
    assert delete(2)[0] == errors.PolicyViolationError.code
