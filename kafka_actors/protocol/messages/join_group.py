"""Join a group of the classic protocol. From version 5 on with static membership (KIP-345)."""

from typing import Annotated

from kafka_actors.protocol.api import ApiKey
from kafka_actors.protocol.schema import Element, Int16, Int32, Request, Response, V, message


class JoinGroupRequestProtocol(Element):
    name: str = ""
    metadata: bytes = b""


@message(ApiKey.JOIN_GROUP, "0-9", flexible="6+")
class JoinGroupRequest(Request["JoinGroupResponse"]):
    group_id: str = ""
    session_timeout_ms: Int32 = 0
    rebalance_timeout_ms: Annotated[Int32, V("1+", ignorable=True)] = -1
    member_id: str = ""
    group_instance_id: Annotated[str | None, V("5+", nullable="5+")] = None
    protocol_type: str = ""
    protocols: list[JoinGroupRequestProtocol] = []
    reason: Annotated[str | None, V("8+", nullable="8+", ignorable=True)] = None


class JoinGroupResponseMember(Element):
    member_id: str = ""
    group_instance_id: Annotated[str | None, V("5+", nullable="5+", ignorable=True)] = None
    metadata: bytes = b""


@message(ApiKey.JOIN_GROUP, "0-9", flexible="6+")
class JoinGroupResponse(Response):
    throttle_time_ms: Annotated[Int32, V("2+", ignorable=True)] = 0
    error_code: Int16 = 0
    generation_id: Int32 = -1
    protocol_type: Annotated[str | None, V("7+", nullable="7+", ignorable=True)] = None
    protocol_name: Annotated[str | None, V(nullable="7+")] = ""
    leader: str = ""
    skip_assignment: Annotated[bool, V("9+")] = False
    member_id: str = ""
    members: list[JoinGroupResponseMember] = []
