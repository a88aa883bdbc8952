"""Create topics."""

from typing import Annotated

from kafka_actors.protocol.api import ApiKey
from kafka_actors.protocol.schema import (
    ZERO_UUID,
    Element,
    Int8,
    Int16,
    Int32,
    Request,
    Response,
    Uuid,
    V,
    message,
)


class CreatableReplicaAssignment(Element):
    partition_index: Int32 = 0
    broker_ids: list[Int32] = []


class CreatableTopicConfig(Element):
    name: str = ""
    value: Annotated[str | None, V(nullable="0+")] = ""


class CreatableTopic(Element):
    name: str = ""
    num_partitions: Int32 = 0
    replication_factor: Int16 = 0
    assignments: list[CreatableReplicaAssignment] = []
    configs: list[CreatableTopicConfig] = []


@message(ApiKey.CREATE_TOPICS, "2-7", flexible="5+")
class CreateTopicsRequest(Request["CreateTopicsResponse"]):
    topics: list[CreatableTopic] = []
    timeout_ms: Int32 = 60000
    validate_only: Annotated[bool, V("1+")] = False


class CreatableTopicConfigs(Element):
    name: Annotated[str, V("5+")] = ""
    value: Annotated[str | None, V("5+", nullable="5+")] = ""
    read_only: Annotated[bool, V("5+")] = False
    config_source: Annotated[Int8, V("5+", ignorable=True)] = -1
    is_sensitive: Annotated[bool, V("5+")] = False


class CreatableTopicResult(Element):
    name: str = ""
    topic_id: Annotated[Uuid, V("7+", ignorable=True)] = ZERO_UUID
    error_code: Int16 = 0
    error_message: Annotated[str | None, V("1+", nullable="0+", ignorable=True)] = ""
    topic_config_error_code: Annotated[Int16, V("5+", tag=0, ignorable=True)] = 0
    num_partitions: Annotated[Int32, V("5+", ignorable=True)] = -1
    replication_factor: Annotated[Int16, V("5+", ignorable=True)] = -1
    configs: Annotated[list[CreatableTopicConfigs] | None, V("5+", nullable="5+", ignorable=True)] = []


@message(ApiKey.CREATE_TOPICS, "2-7", flexible="5+")
class CreateTopicsResponse(Response):
    throttle_time_ms: Annotated[Int32, V("2+", ignorable=True)] = 0
    topics: list[CreatableTopicResult] = []
