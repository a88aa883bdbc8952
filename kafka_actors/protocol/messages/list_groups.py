"""Groups that a broker coordinates; from version 4 on by state (KIP-518), from 5 on by type (KIP-848)."""

from typing import Annotated

from kafka_actors.protocol.api import ApiKey
from kafka_actors.protocol.schema import Element, Int16, Int32, Request, Response, V, message


@message(ApiKey.LIST_GROUPS, "0-5", flexible="3+")
class ListGroupsRequest(Request["ListGroupsResponse"]):
    states_filter: Annotated[list[str], V("4+")] = []
    types_filter: Annotated[list[str], V("5+")] = []


class ListedGroup(Element):
    group_id: str = ""
    protocol_type: str = ""
    group_state: Annotated[str, V("4+", ignorable=True)] = ""
    group_type: Annotated[str, V("5+", ignorable=True)] = ""


@message(ApiKey.LIST_GROUPS, "0-5", flexible="3+")
class ListGroupsResponse(Response):
    throttle_time_ms: Annotated[Int32, V("1+", ignorable=True)] = 0
    error_code: Int16 = 0
    groups: list[ListedGroup] = []
