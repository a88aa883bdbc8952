"""Keep a membership of the classic protocol alive."""

from typing import Annotated

from kafka_actors.protocol.api import ApiKey
from kafka_actors.protocol.schema import Int16, Int32, Request, Response, V, message


@message(ApiKey.HEARTBEAT, "0-4", flexible="4+")
class HeartbeatRequest(Request["HeartbeatResponse"]):
    group_id: str = ""
    generation_id: Int32 = 0
    member_id: str = ""
    group_instance_id: Annotated[str | None, V("3+", nullable="3+")] = None


@message(ApiKey.HEARTBEAT, "0-4", flexible="4+")
class HeartbeatResponse(Response):
    throttle_time_ms: Annotated[Int32, V("1+", ignorable=True)] = 0
    error_code: Int16 = 0
