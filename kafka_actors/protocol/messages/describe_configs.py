"""Configuration of topics and brokers."""

from typing import Annotated

from kafka_actors.protocol.api import ApiKey
from kafka_actors.protocol.schema import Element, Int8, Int16, Int32, Request, Response, V, message


class DescribeConfigsResource(Element):
    resource_type: Int8 = 0
    resource_name: str = ""
    configuration_keys: Annotated[list[str] | None, V(nullable="0+")] = []


@message(ApiKey.DESCRIBE_CONFIGS, "1-4", flexible="4+")
class DescribeConfigsRequest(Request["DescribeConfigsResponse"]):
    resources: list[DescribeConfigsResource] = []
    include_synonyms: Annotated[bool, V("1+")] = False
    include_documentation: Annotated[bool, V("3+")] = False


class DescribeConfigsSynonym(Element):
    name: Annotated[str, V("1+")] = ""
    value: Annotated[str | None, V("1+", nullable="0+")] = ""
    source: Annotated[Int8, V("1+")] = 0


class DescribeConfigsResourceResult(Element):
    name: str = ""
    value: Annotated[str | None, V(nullable="0+")] = ""
    read_only: bool = False
    config_source: Annotated[Int8, V("1+", ignorable=True)] = -1
    is_sensitive: bool = False
    synonyms: Annotated[list[DescribeConfigsSynonym], V("1+", ignorable=True)] = []
    config_type: Annotated[Int8, V("3+", ignorable=True)] = 0
    documentation: Annotated[str | None, V("3+", nullable="0+", ignorable=True)] = ""


class DescribeConfigsResult(Element):
    error_code: Int16 = 0
    error_message: Annotated[str | None, V(nullable="0+")] = ""
    resource_type: Int8 = 0
    resource_name: str = ""
    configs: list[DescribeConfigsResourceResult] = []


@message(ApiKey.DESCRIBE_CONFIGS, "1-4", flexible="4+")
class DescribeConfigsResponse(Response):
    throttle_time_ms: Int32 = 0
    results: list[DescribeConfigsResult] = []
