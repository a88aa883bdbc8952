"""The APIs and versions that a broker speaks.

The response's header is always version 0, and a broker that doesn't know the request's version answers with
version 0 and UNSUPPORTED_VERSION (KIP-511).
"""

from typing import Annotated

from kafka_actors.protocol.api import ApiKey
from kafka_actors.protocol.schema import Element, Int16, Int32, Int64, Request, Response, V, message


@message(ApiKey.API_VERSIONS, "0-4", flexible="3+")
class ApiVersionsRequest(Request["ApiVersionsResponse"]):
    client_software_name: Annotated[str, V("3+", ignorable=True)] = ""
    client_software_version: Annotated[str, V("3+", ignorable=True)] = ""


class ApiVersion(Element):
    api_key: Int16 = 0
    min_version: Int16 = 0
    max_version: Int16 = 0


class SupportedFeatureKey(Element):
    name: Annotated[str, V("3+")] = ""
    min_version: Annotated[Int16, V("3+")] = 0
    max_version: Annotated[Int16, V("3+")] = 0


class FinalizedFeatureKey(Element):
    name: Annotated[str, V("3+")] = ""
    max_version_level: Annotated[Int16, V("3+")] = 0
    min_version_level: Annotated[Int16, V("3+")] = 0


@message(ApiKey.API_VERSIONS, "0-4", flexible="3+")
class ApiVersionsResponse(Response):
    error_code: Int16 = 0
    api_keys: list[ApiVersion] = []
    throttle_time_ms: Annotated[Int32, V("1+", ignorable=True)] = 0
    supported_features: Annotated[list[SupportedFeatureKey], V("3+", tag=0, ignorable=True)] = []
    finalized_features_epoch: Annotated[Int64, V("3+", tag=1, ignorable=True)] = -1
    finalized_features: Annotated[list[FinalizedFeatureKey], V("3+", tag=2, ignorable=True)] = []
    zk_migration_ready: Annotated[bool, V("3+", tag=3, ignorable=True)] = False
