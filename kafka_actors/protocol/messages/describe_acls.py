"""List the ACLs that match a filter (KIP-140); version 1 brings prefixed patterns (KIP-290)."""

from typing import Annotated

from kafka_actors.protocol.api import ApiKey
from kafka_actors.protocol.schema import Element, Int8, Int16, Int32, Request, Response, V, message


@message(ApiKey.DESCRIBE_ACLS, "1-3", flexible="2+")
class DescribeAclsRequest(Request["DescribeAclsResponse"]):
    resource_type_filter: Int8 = 0
    resource_name_filter: Annotated[str | None, V(nullable="0+")] = ""
    pattern_type_filter: Annotated[Int8, V("1+")] = 3
    principal_filter: Annotated[str | None, V(nullable="0+")] = ""
    host_filter: Annotated[str | None, V(nullable="0+")] = ""
    operation: Int8 = 0
    permission_type: Int8 = 0


class AclDescription(Element):
    principal: str = ""
    host: str = ""
    operation: Int8 = 0
    permission_type: Int8 = 0


class DescribeAclsResource(Element):
    resource_type: Int8 = 0
    resource_name: str = ""
    pattern_type: Annotated[Int8, V("1+")] = 3
    acls: list[AclDescription] = []


@message(ApiKey.DESCRIBE_ACLS, "1-3", flexible="2+")
class DescribeAclsResponse(Response):
    throttle_time_ms: Int32 = 0
    error_code: Int16 = 0
    error_message: Annotated[str | None, V(nullable="0+")] = ""
    resources: list[DescribeAclsResource] = []
