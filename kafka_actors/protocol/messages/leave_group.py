"""Leave a group of the classic protocol; from version 3 on many members at once."""

from typing import Annotated

from kafka_actors.protocol.api import ApiKey
from kafka_actors.protocol.schema import Element, Int16, Int32, Request, Response, V, message


class MemberIdentity(Element):
    member_id: Annotated[str, V("3+")] = ""
    group_instance_id: Annotated[str | None, V("3+", nullable="3+")] = None
    reason: Annotated[str | None, V("5+", nullable="5+", ignorable=True)] = None


@message(ApiKey.LEAVE_GROUP, "0-5", flexible="4+")
class LeaveGroupRequest(Request["LeaveGroupResponse"]):
    group_id: str = ""
    member_id: Annotated[str, V("0-2")] = ""
    members: Annotated[list[MemberIdentity], V("3+")] = []


class MemberResponse(Element):
    member_id: Annotated[str, V("3+")] = ""
    group_instance_id: Annotated[str | None, V("3+", nullable="3+")] = ""
    error_code: Annotated[Int16, V("3+")] = 0


@message(ApiKey.LEAVE_GROUP, "0-5", flexible="4+")
class LeaveGroupResponse(Response):
    throttle_time_ms: Annotated[Int32, V("1+", ignorable=True)] = 0
    error_code: Int16 = 0
    members: Annotated[list[MemberResponse], V("3+")] = []
