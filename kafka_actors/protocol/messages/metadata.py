"""Brokers, topics, partitions and their leaders.

No topics (null) asks for all of them from version 1 on; in version 0 an empty list does. Version 10 brings
topic ids, version 13 the rebootstrap error (KIP-1102).
"""

from typing import Annotated

from kafka_actors.protocol.api import ApiKey
from kafka_actors.protocol.schema import ZERO_UUID, Element, Int16, Int32, Request, Response, Uuid, V, message


class MetadataRequestTopic(Element):
    topic_id: Annotated[Uuid, V("10+", ignorable=True)] = ZERO_UUID
    name: Annotated[str | None, V(nullable="10+")] = ""


@message(ApiKey.METADATA, "0-13", flexible="9+")
class MetadataRequest(Request["MetadataResponse"]):
    topics: Annotated[list[MetadataRequestTopic] | None, V(nullable="1+")] = []
    allow_auto_topic_creation: Annotated[bool, V("4+")] = True
    include_cluster_authorized_operations: Annotated[bool, V("8-10")] = False
    include_topic_authorized_operations: Annotated[bool, V("8+")] = False


class MetadataResponseBroker(Element):
    node_id: Int32 = 0
    host: str = ""
    port: Int32 = 0
    rack: Annotated[str | None, V("1+", nullable="1+", ignorable=True)] = None


class MetadataResponsePartition(Element):
    error_code: Int16 = 0
    partition_index: Int32 = 0
    leader_id: Int32 = 0
    leader_epoch: Annotated[Int32, V("7+", ignorable=True)] = -1
    replica_nodes: list[Int32] = []
    isr_nodes: list[Int32] = []
    offline_replicas: Annotated[list[Int32], V("5+", ignorable=True)] = []


class MetadataResponseTopic(Element):
    error_code: Int16 = 0
    name: Annotated[str | None, V(nullable="12+")] = ""
    topic_id: Annotated[Uuid, V("10+", ignorable=True)] = ZERO_UUID
    is_internal: Annotated[bool, V("1+", ignorable=True)] = False
    partitions: list[MetadataResponsePartition] = []
    topic_authorized_operations: Annotated[Int32, V("8+")] = -0x80000000


@message(ApiKey.METADATA, "0-13", flexible="9+")
class MetadataResponse(Response):
    throttle_time_ms: Annotated[Int32, V("3+", ignorable=True)] = 0
    brokers: list[MetadataResponseBroker] = []
    cluster_id: Annotated[str | None, V("2+", nullable="2+", ignorable=True)] = None
    controller_id: Annotated[Int32, V("1+", ignorable=True)] = -1
    topics: list[MetadataResponseTopic] = []
    cluster_authorized_operations: Annotated[Int32, V("8-10")] = -0x80000000
    error_code: Annotated[Int16, V("13+", ignorable=True)] = 0
