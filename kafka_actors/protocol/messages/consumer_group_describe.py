"""State and members of groups of the new protocol (KIP-848)."""

from typing import Annotated

from kafka_actors.protocol.api import ApiKey
from kafka_actors.protocol.schema import (
    ZERO_UUID,
    Element,
    Int8,
    Int16,
    Int32,
    Request,
    Response,
    Uuid,
    V,
    message,
)


@message(ApiKey.CONSUMER_GROUP_DESCRIBE, "0-1", flexible="0+")
class ConsumerGroupDescribeRequest(Request["ConsumerGroupDescribeResponse"]):
    group_ids: list[str] = []
    include_authorized_operations: bool = False


class TopicPartitions(Element):
    topic_id: Uuid = ZERO_UUID
    topic_name: str = ""
    partitions: list[Int32] = []


class Assignment(Element):
    topic_partitions: list[TopicPartitions] = []


class Member(Element):
    member_id: str = ""
    instance_id: Annotated[str | None, V(nullable="0+")] = None
    rack_id: Annotated[str | None, V(nullable="0+")] = None
    member_epoch: Int32 = 0
    client_id: str = ""
    client_host: str = ""
    subscribed_topic_names: list[str] = []
    subscribed_topic_regex: Annotated[str | None, V(nullable="0+")] = None
    assignment: Assignment = Assignment()
    target_assignment: Assignment = Assignment()
    member_type: Annotated[Int8, V("1+", ignorable=True)] = -1


class DescribedGroup(Element):
    error_code: Int16 = 0
    error_message: Annotated[str | None, V(nullable="0+")] = None
    group_id: str = ""
    group_state: str = ""
    group_epoch: Int32 = 0
    assignment_epoch: Int32 = 0
    assignor_name: str = ""
    members: list[Member] = []
    authorized_operations: Int32 = -0x80000000


@message(ApiKey.CONSUMER_GROUP_DESCRIBE, "0-1", flexible="0+")
class ConsumerGroupDescribeResponse(Response):
    throttle_time_ms: Int32 = 0
    groups: list[DescribedGroup] = []
