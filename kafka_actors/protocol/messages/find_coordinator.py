"""The broker that coordinates a group or a transactional id; from version 4 on of many keys (KIP-699)."""

from typing import Annotated

from kafka_actors.protocol.api import ApiKey
from kafka_actors.protocol.schema import Element, Int8, Int16, Int32, Request, Response, V, message


@message(ApiKey.FIND_COORDINATOR, "0-6", flexible="3+")
class FindCoordinatorRequest(Request["FindCoordinatorResponse"]):
    key: Annotated[str, V("0-3")] = ""
    key_type: Annotated[Int8, V("1+")] = 0
    coordinator_keys: Annotated[list[str], V("4+")] = []


class Coordinator(Element):
    key: Annotated[str, V("4+")] = ""
    node_id: Annotated[Int32, V("4+")] = 0
    host: Annotated[str, V("4+")] = ""
    port: Annotated[Int32, V("4+")] = 0
    error_code: Annotated[Int16, V("4+")] = 0
    error_message: Annotated[str | None, V("4+", nullable="4+", ignorable=True)] = ""


@message(ApiKey.FIND_COORDINATOR, "0-6", flexible="3+")
class FindCoordinatorResponse(Response):
    throttle_time_ms: Annotated[Int32, V("1+", ignorable=True)] = 0
    error_code: Annotated[Int16, V("0-3")] = 0
    error_message: Annotated[str | None, V("1-3", nullable="1-3", ignorable=True)] = ""
    node_id: Annotated[Int32, V("0-3")] = 0
    host: Annotated[str, V("0-3")] = ""
    port: Annotated[Int32, V("0-3")] = 0
    coordinators: Annotated[list[Coordinator], V("4+")] = []
