"""The one request of a member of the new group protocol (KIP-848).

Null means unchanged since the last heartbeat. Version 1 brings regular expressions, and member ids made by
the client (KIP-1082).
"""

from typing import Annotated

from kafka_actors.protocol.api import ApiKey
from kafka_actors.protocol.schema import ZERO_UUID, Element, Int16, Int32, Request, Response, Uuid, V, message


class TopicPartitions(Element):
    topic_id: Uuid = ZERO_UUID
    partitions: list[Int32] = []


@message(ApiKey.CONSUMER_GROUP_HEARTBEAT, "0-1", flexible="0+")
class ConsumerGroupHeartbeatRequest(Request["ConsumerGroupHeartbeatResponse"]):
    group_id: str = ""
    member_id: str = ""
    member_epoch: Int32 = 0
    instance_id: Annotated[str | None, V(nullable="0+")] = None
    rack_id: Annotated[str | None, V(nullable="0+")] = None
    rebalance_timeout_ms: Int32 = -1
    subscribed_topic_names: Annotated[list[str] | None, V(nullable="0+")] = None
    subscribed_topic_regex: Annotated[str | None, V("1+", nullable="1+")] = None
    server_assignor: Annotated[str | None, V(nullable="0+")] = None
    topic_partitions: Annotated[list[TopicPartitions] | None, V(nullable="0+")] = None


class Assignment(Element):
    topic_partitions: list[TopicPartitions] = []


@message(ApiKey.CONSUMER_GROUP_HEARTBEAT, "0-1", flexible="0+")
class ConsumerGroupHeartbeatResponse(Response):
    throttle_time_ms: Int32 = 0
    error_code: Int16 = 0
    error_message: Annotated[str | None, V(nullable="0+")] = None
    member_id: Annotated[str | None, V(nullable="0+")] = None
    member_epoch: Int32 = 0
    heartbeat_interval_ms: Int32 = 0
    assignment: Annotated[Assignment | None, V(nullable="0+")] = None
