"""The cluster's id, brokers and controller (KIP-700)."""

from typing import Annotated

from kafka_actors.protocol.api import ApiKey
from kafka_actors.protocol.schema import Element, Int8, Int16, Int32, Request, Response, V, message


@message(ApiKey.DESCRIBE_CLUSTER, "0-2", flexible="0+")
class DescribeClusterRequest(Request["DescribeClusterResponse"]):
    include_cluster_authorized_operations: bool = False
    endpoint_type: Annotated[Int8, V("1+")] = 1
    include_fenced_brokers: Annotated[bool, V("2+")] = False


class DescribeClusterBroker(Element):
    broker_id: Int32 = 0
    host: str = ""
    port: Int32 = 0
    rack: Annotated[str | None, V(nullable="0+")] = None
    is_fenced: Annotated[bool, V("2+")] = False


@message(ApiKey.DESCRIBE_CLUSTER, "0-2", flexible="0+")
class DescribeClusterResponse(Response):
    throttle_time_ms: Int32 = 0
    error_code: Int16 = 0
    error_message: Annotated[str | None, V(nullable="0+")] = None
    endpoint_type: Annotated[Int8, V("1+")] = 1
    cluster_id: str = ""
    controller_id: Int32 = -1
    brokers: list[DescribeClusterBroker] = []
    cluster_authorized_operations: Int32 = -0x80000000
