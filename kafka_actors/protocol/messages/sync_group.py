"""Hand in the leader's assignment, and get one's own (classic protocol)."""

from typing import Annotated

from kafka_actors.protocol.api import ApiKey
from kafka_actors.protocol.schema import Element, Int16, Int32, Request, Response, V, message


class SyncGroupRequestAssignment(Element):
    member_id: str = ""
    assignment: bytes = b""


@message(ApiKey.SYNC_GROUP, "0-5", flexible="4+")
class SyncGroupRequest(Request["SyncGroupResponse"]):
    group_id: str = ""
    generation_id: Int32 = 0
    member_id: str = ""
    group_instance_id: Annotated[str | None, V("3+", nullable="3+")] = None
    protocol_type: Annotated[str | None, V("5+", nullable="5+", ignorable=True)] = None
    protocol_name: Annotated[str | None, V("5+", nullable="5+", ignorable=True)] = None
    assignments: list[SyncGroupRequestAssignment] = []


@message(ApiKey.SYNC_GROUP, "0-5", flexible="4+")
class SyncGroupResponse(Response):
    throttle_time_ms: Annotated[Int32, V("1+", ignorable=True)] = 0
    error_code: Int16 = 0
    protocol_type: Annotated[str | None, V("5+", nullable="5+", ignorable=True)] = None
    protocol_name: Annotated[str | None, V("5+", nullable="5+", ignorable=True)] = None
    assignment: bytes = b""
