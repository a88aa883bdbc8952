"""Conversion of brokers' responses into the results of the admin.

Theory of operation. Arrives: one group or topic of a response. Decided: its description or, for a group, the error that it has
instead. That error is returned and not raised, because one call asks about many groups, and each has an outcome of its own; of a
topic the caller has dealt with the error before. Nothing is kept between calls. Source: `DescribeConsumerGroupsHandler.java`.

- A group is described by one of two requests. ConsumerGroupDescribe (KIP-848) comes first and answers GROUP_ID_NOT_FOUND for a
  classic group as well, so the caller asks again, by DescribeGroups, about those that it doesn't know. That answer's error is final.
- Brokers pass on the assignments of classic members as bytes whose meaning is the group's. They are read where the protocol type is
  "consumer"; those of Kafka Connect and others stay unread, and their members have no partitions here.
- A classic group that is not Stable has no assignor and no assignments: brokers tell both only of a finished generation
  (`ClassicGroup.describe`). So a member without partitions may have some a moment later.
- States and assignors are passed on in the broker's words, since later brokers may have more of them. Numbers by which a broker says
  that it doesn't know, below 0, become None.
"""

from __future__ import annotations

import base64
import uuid
from collections.abc import Iterable

from kafka_actors.admin.results import (
    GroupDescription,
    GroupListing,
    MemberDescription,
    PartitionDescription,
    TopicDescription,
    TopicListing,
)
from kafka_actors.cluster.snapshot import BrokerMetadata
from kafka_actors.errors import DecodeError, GroupIdNotFoundError, KafkaActorsError, error_for_code
from kafka_actors.protocol import ZERO_UUID, ConsumerProtocolAssignment, decode_consumer_protocol
from kafka_actors.protocol.messages import consumer_group_describe, describe_groups
from kafka_actors.protocol.messages.list_groups import ListedGroup
from kafka_actors.protocol.messages.metadata import MetadataResponseTopic
from kafka_actors.types import TopicPartition

CLASSIC, CONSUMER = "Classic", "Consumer"


def group_listing(group: ListedGroup) -> GroupListing:
    """Listing of a group. Brokers give its type in small letters, and before 3.8 not at all: their groups are classic."""
    kind = group.group_type.capitalize() or CLASSIC
    return GroupListing(group.group_id, group.protocol_type, group.group_state, kind)


def classic_group(
    group: describe_groups.DescribedGroup, coordinator: BrokerMetadata
) -> GroupDescription | KafkaActorsError:
    """Description of a group from DescribeGroups, or its error. Before version 6 a group that doesn't exist is "Dead"."""
    error = error_for_code(
        group.error_code, group.error_message, request="DescribeGroups", group=group.group_id
    )
    if error is not None:
        return unknown_group(group.group_id) if isinstance(error, GroupIdNotFoundError) else error
    if group.group_state == "Dead":
        return unknown_group(group.group_id)
    try:
        members = tuple(_classic_member(m, group.protocol_type) for m in group.members)
    except DecodeError as unreadable:
        return unreadable
    return GroupDescription(
        group_id=group.group_id,
        type=CLASSIC,
        state=group.group_state,
        protocol_type=group.protocol_type,
        assignor=group.protocol_data,
        coordinator=coordinator,
        members=members,
    )


def consumer_group(
    group: consumer_group_describe.DescribedGroup, coordinator: BrokerMetadata
) -> GroupDescription | KafkaActorsError:
    """Description of a group from ConsumerGroupDescribe (KIP-848), or its error."""
    error = error_for_code(
        group.error_code, group.error_message, request="ConsumerGroupDescribe", group=group.group_id
    )
    if error is not None:
        return error
    return GroupDescription(
        group_id=group.group_id,
        type=CONSUMER,
        state=group.group_state,
        protocol_type="consumer",
        assignor=group.assignor_name,
        coordinator=coordinator,
        members=tuple(_consumer_member(m) for m in group.members),
        group_epoch=group.group_epoch,
        target_assignment_epoch=group.assignment_epoch,
    )


def unknown_group(group_id: str) -> GroupIdNotFoundError:
    """Error of a group that doesn't exist, with one text, however a broker's version says so: by a code or by the state "Dead"."""
    return GroupIdNotFoundError(f"group {group_id!r} does not exist")


def topic_listing(topic: MetadataResponseTopic) -> TopicListing:
    """Listing of a topic in a Metadata response. Internal is what the broker calls so, such as the topics of offsets and of
    transactions."""
    return TopicListing(topic.name or "", topic_id_text(topic.topic_id), topic.is_internal)


def topic_description(topic: MetadataResponseTopic) -> TopicDescription:
    """Description of a topic in a Metadata response without an error. Brokers list partitions in any order: here they are sorted.

    A partition without a leader is part of it: no replica that may lead is online, or an election is under way.
    """
    partitions = sorted(topic.partitions, key=lambda p: p.partition_index)
    return TopicDescription(
        topic.name or "",
        topic_id_text(topic.topic_id),
        topic.is_internal,
        tuple(
            PartitionDescription(
                partition=p.partition_index,
                leader=p.leader_id if p.leader_id >= 0 else None,
                leader_epoch=p.leader_epoch if p.leader_epoch >= 0 else None,
                replicas=tuple(p.replica_nodes),
                isr=tuple(p.isr_nodes),
                offline_replicas=tuple(p.offline_replicas),
            )
            for p in partitions
        ),
    )


def topic_id_text(topic_id: uuid.UUID) -> str | None:
    """Topic id as Java's `Uuid.toString` writes it: 22 characters of URL-safe base64; None for the zero id."""
    if topic_id == ZERO_UUID:
        return None
    return base64.urlsafe_b64encode(topic_id.bytes).rstrip(b"=").decode()


def _classic_member(member: describe_groups.DescribedGroupMember, protocol_type: str) -> MemberDescription:
    """Description of a classic member. Raises `DecodeError` for an assignment that isn't one, as a faulty leader may send it."""
    assigned: Iterable[TopicPartition] = ()
    if protocol_type == "consumer" and member.member_assignment:
        blob = decode_consumer_protocol(ConsumerProtocolAssignment, member.member_assignment)
        assigned = (TopicPartition(t.topic, p) for t in blob.assigned_partitions for p in t.partitions)
    return MemberDescription(
        member_id=member.member_id,
        group_instance_id=member.group_instance_id,
        client_id=member.client_id,
        host=member.client_host,
        assignment=tuple(sorted(assigned)),
    )


def _consumer_member(member: consumer_group_describe.Member) -> MemberDescription:
    """Description of a member under KIP-848. It has both what it holds and what it is to get: they differ while it gives up
    partitions, or waits for others to do so. Until it has given up all that it must, its epoch stays behind the group's."""
    return MemberDescription(
        member_id=member.member_id,
        group_instance_id=member.instance_id,
        client_id=member.client_id,
        host=member.client_host,
        assignment=_partitions(member.assignment),
        target_assignment=_partitions(member.target_assignment),
        member_epoch=member.member_epoch,
        rack_id=member.rack_id,
    )


def _partitions(assignment: consumer_group_describe.Assignment) -> tuple[TopicPartition, ...]:
    return tuple(
        sorted(TopicPartition(t.topic_name, p) for t in assignment.topic_partitions for p in t.partitions)
    )
