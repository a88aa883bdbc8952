"""Change single settings of topics, brokers and other resources (KIP-339)."""

from typing import Annotated

from kafka_actors.protocol.api import ApiKey
from kafka_actors.protocol.schema import Element, Int8, Int16, Int32, Request, Response, V, message


class AlterableConfig(Element):
    name: str = ""
    config_operation: Int8 = 0
    value: Annotated[str | None, V(nullable="0+")] = ""


class AlterConfigsResource(Element):
    resource_type: Int8 = 0
    resource_name: str = ""
    configs: list[AlterableConfig] = []


@message(ApiKey.INCREMENTAL_ALTER_CONFIGS, "0-1", flexible="1+")
class IncrementalAlterConfigsRequest(Request["IncrementalAlterConfigsResponse"]):
    resources: list[AlterConfigsResource] = []
    validate_only: bool = False


class AlterConfigsResourceResponse(Element):
    error_code: Int16 = 0
    error_message: Annotated[str | None, V(nullable="0+")] = ""
    resource_type: Int8 = 0
    resource_name: str = ""


@message(ApiKey.INCREMENTAL_ALTER_CONFIGS, "0-1", flexible="1+")
class IncrementalAlterConfigsResponse(Response):
    throttle_time_ms: Int32 = 0
    responses: list[AlterConfigsResourceResponse] = []
