"""State and members of groups of the classic protocol."""

from typing import Annotated

from kafka_actors.protocol.api import ApiKey
from kafka_actors.protocol.schema import Element, Int16, Int32, Request, Response, V, message


@message(ApiKey.DESCRIBE_GROUPS, "0-6", flexible="5+")
class DescribeGroupsRequest(Request["DescribeGroupsResponse"]):
    groups: list[str] = []
    include_authorized_operations: Annotated[bool, V("3+")] = False


class DescribedGroupMember(Element):
    member_id: str = ""
    group_instance_id: Annotated[str | None, V("4+", nullable="4+", ignorable=True)] = None
    client_id: str = ""
    client_host: str = ""
    member_metadata: bytes = b""
    member_assignment: bytes = b""


class DescribedGroup(Element):
    error_code: Int16 = 0
    error_message: Annotated[str | None, V("6+", nullable="6+")] = None
    group_id: str = ""
    group_state: str = ""
    protocol_type: str = ""
    protocol_data: str = ""
    members: list[DescribedGroupMember] = []
    authorized_operations: Annotated[Int32, V("3+")] = -0x80000000


@message(ApiKey.DESCRIBE_GROUPS, "0-6", flexible="5+")
class DescribeGroupsResponse(Response):
    throttle_time_ms: Annotated[Int32, V("1+", ignorable=True)] = 0
    groups: list[DescribedGroup] = []
