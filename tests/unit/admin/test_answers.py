import uuid

import pytest

from kafka_actors.admin import GroupDescription
from kafka_actors.admin.machines.answers import (
    classic_group,
    consumer_group,
    group_listing,
    topic_description,
    topic_id_text,
)
from kafka_actors.cluster.snapshot import BrokerMetadata
from kafka_actors.errors import DecodeError, GroupAuthorizationFailedError, GroupIdNotFoundError
from kafka_actors.protocol import ZERO_UUID, ConsumerProtocolAssignment, encode_consumer_protocol
from kafka_actors.protocol.messages import consumer_group_describe as newer
from kafka_actors.protocol.messages import describe_groups as classic
from kafka_actors.protocol.messages.consumer_protocol_assignment import TopicPartition as Assigned
from kafka_actors.protocol.messages.list_groups import ListedGroup
from kafka_actors.protocol.messages.metadata import MetadataResponsePartition, MetadataResponseTopic
from kafka_actors.types import TopicPartition

NODE = BrokerMetadata(3, "b", 9092)
BLOB = encode_consumer_protocol(ConsumerProtocolAssignment([Assigned("u", [1]), Assigned("t", [2, 0])]))


def _classic(**fields: object) -> classic.DescribedGroup:
    member = classic.DescribedGroupMember("m", "i", "app", "/h", b"", BLOB)
    given = {"group_id": "g", "group_state": "Stable", "protocol_type": "consumer", "members": [member]}
    return classic.DescribedGroup(**{**given, **fields})  # type: ignore[arg-type]


def test_a_classic_member_has_the_partitions_of_its_blob() -> None:
    group = classic_group(_classic(protocol_data="range"), NODE)
    assert isinstance(group, GroupDescription)
    assert (group.type, group.state, group.assignor, group.coordinator) == (
        "Classic",
        "Stable",
        "range",
        NODE,
    )
    [member] = group.members
    assert member.assignment == (
        TopicPartition("t", 0),
        TopicPartition("t", 2),
        TopicPartition("u", 1),
    )
    assert (member.group_instance_id, member.target_assignment) == ("i", None)


def test_blobs_of_other_protocols_are_not_read() -> None:
    group = classic_group(_classic(protocol_type="connect"), NODE)
    assert isinstance(group, GroupDescription)
    assert group.members[0].assignment == ()


def test_a_blob_that_cannot_be_read_is_an_error_not_an_idle_member() -> None:
    broken = classic.DescribedGroupMember("m", None, "app", "/h", b"", BLOB[:-3])
    assert isinstance(classic_group(_classic(members=[broken]), NODE), DecodeError)


@pytest.mark.parametrize(
    "answer",
    [_classic(group_state="Dead", members=[]), _classic(error_code=69, error_message="Group g not found.")],
    ids=["before version 6", "from version 6 on"],
)
def test_an_unknown_group_is_the_same_error_in_all_versions(answer: classic.DescribedGroup) -> None:
    error = classic_group(answer, NODE)
    assert isinstance(error, GroupIdNotFoundError)
    assert str(error) == "GROUP_ID_NOT_FOUND (69): group 'g' does not exist"


def test_what_was_refused_is_its_error() -> None:
    assert isinstance(classic_group(_classic(error_code=30), NODE), GroupAuthorizationFailedError)
    assert isinstance(
        consumer_group(newer.DescribedGroup(error_code=30), NODE), GroupAuthorizationFailedError
    )


def test_a_group_of_the_newer_protocol_has_epochs_and_targets() -> None:
    topic = uuid.uuid4()
    now = newer.Assignment([newer.TopicPartitions(topic, "t", [1, 0])])
    target = newer.Assignment([newer.TopicPartitions(topic, "t", [0])])
    member = newer.Member(
        "m", None, "rack", 4, "app", "/h", ["t"], None, assignment=now, target_assignment=target
    )
    group = consumer_group(
        newer.DescribedGroup(
            group_id="g", group_state="Reconciling", group_epoch=5, assignment_epoch=5, members=[member]
        ),
        NODE,
    )
    assert isinstance(group, GroupDescription)
    assert (group.type, group.group_epoch, group.target_assignment_epoch) == ("Consumer", 5, 5)
    assert group.members[0].assignment == (TopicPartition("t", 0), TopicPartition("t", 1))
    assert group.members[0].target_assignment == (TopicPartition("t", 0),)
    assert (group.members[0].member_epoch, group.members[0].rack_id) == (4, "rack")


def test_brokers_that_tell_no_type_have_classic_groups() -> None:
    assert group_listing(ListedGroup("g", "consumer", "Stable")).type == "Classic"
    assert group_listing(ListedGroup("g", "consumer", "Stable", "consumer")).type == "Consumer"


def test_a_partition_without_a_leader_has_none() -> None:
    partitions = [
        MetadataResponsePartition(5, 1, -1, -1, [1, 2], [2], [1]),
        MetadataResponsePartition(0, 0, 2, 7, [2], [2]),
    ]
    topic = topic_description(MetadataResponseTopic(0, "t", ZERO_UUID, False, partitions))
    assert [(p.partition, p.leader, p.leader_epoch) for p in topic.partitions] == [(0, 2, 7), (1, None, None)]
    assert topic.partitions[1].offline_replicas == (1,)
    assert topic.topic_id is None


def test_topic_ids_are_written_as_kafka_writes_them() -> None:
    # Uuid.METADATA_TOPIC_ID of Kafka's own source.
    assert topic_id_text(uuid.UUID(int=1)) == "AAAAAAAAAAAAAAAAAAAAAQ"
