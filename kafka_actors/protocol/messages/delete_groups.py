"""Delete empty groups."""

from kafka_actors.protocol.api import ApiKey
from kafka_actors.protocol.schema import Element, Int16, Int32, Request, Response, message


@message(ApiKey.DELETE_GROUPS, "0-2", flexible="2+")
class DeleteGroupsRequest(Request["DeleteGroupsResponse"]):
    groups_names: list[str] = []


class DeletableGroupResult(Element):
    group_id: str = ""
    error_code: Int16 = 0


@message(ApiKey.DELETE_GROUPS, "0-2", flexible="2+")
class DeleteGroupsResponse(Response):
    throttle_time_ms: Int32 = 0
    results: list[DeletableGroupResult] = []
