"""Delete the ACLs that match filters (KIP-140). Results are in the order of the filters."""

from typing import Annotated

from kafka_actors.protocol.api import ApiKey
from kafka_actors.protocol.schema import Element, Int8, Int16, Int32, Request, Response, V, message


class DeleteAclsFilter(Element):
    resource_type_filter: Int8 = 0
    resource_name_filter: Annotated[str | None, V(nullable="0+")] = ""
    pattern_type_filter: Annotated[Int8, V("1+")] = 3
    principal_filter: Annotated[str | None, V(nullable="0+")] = ""
    host_filter: Annotated[str | None, V(nullable="0+")] = ""
    operation: Int8 = 0
    permission_type: Int8 = 0


@message(ApiKey.DELETE_ACLS, "1-3", flexible="2+")
class DeleteAclsRequest(Request["DeleteAclsResponse"]):
    filters: list[DeleteAclsFilter] = []


class DeleteAclsMatchingAcl(Element):
    error_code: Int16 = 0
    error_message: Annotated[str | None, V(nullable="0+")] = ""
    resource_type: Int8 = 0
    resource_name: str = ""
    pattern_type: Annotated[Int8, V("1+")] = 3
    principal: str = ""
    host: str = ""
    operation: Int8 = 0
    permission_type: Int8 = 0


class DeleteAclsFilterResult(Element):
    error_code: Int16 = 0
    error_message: Annotated[str | None, V(nullable="0+")] = ""
    matching_acls: list[DeleteAclsMatchingAcl] = []


@message(ApiKey.DELETE_ACLS, "1-3", flexible="2+")
class DeleteAclsResponse(Response):
    throttle_time_ms: Int32 = 0
    filter_results: list[DeleteAclsFilterResult] = []
