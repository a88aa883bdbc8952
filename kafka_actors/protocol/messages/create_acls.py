"""Add ACLs (KIP-140). Results are in the order of the creations."""

from typing import Annotated

from kafka_actors.protocol.api import ApiKey
from kafka_actors.protocol.schema import Element, Int8, Int16, Int32, Request, Response, V, message


class AclCreation(Element):
    resource_type: Int8 = 0
    resource_name: str = ""
    resource_pattern_type: Annotated[Int8, V("1+")] = 3
    principal: str = ""
    host: str = ""
    operation: Int8 = 0
    permission_type: Int8 = 0


@message(ApiKey.CREATE_ACLS, "1-3", flexible="2+")
class CreateAclsRequest(Request["CreateAclsResponse"]):
    creations: list[AclCreation] = []


class AclCreationResult(Element):
    error_code: Int16 = 0
    error_message: Annotated[str | None, V(nullable="0+")] = ""


@message(ApiKey.CREATE_ACLS, "1-3", flexible="2+")
class CreateAclsResponse(Response):
    throttle_time_ms: Int32 = 0
    results: list[AclCreationResult] = []
