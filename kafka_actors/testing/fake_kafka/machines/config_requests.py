"""DescribeConfigs and IncrementalAlterConfigs for topics, DescribeCluster.

Source: `ConfigHelper`, `ConfigurationControlManager`, `KafkaApis.handleDescribeCluster`; KIP-226, KIP-339, KIP-700.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from kafka_actors import errors
from kafka_actors.protocol import (
    ApiKey,
    DescribeClusterRequest,
    DescribeClusterResponse,
    DescribeConfigsRequest,
    DescribeConfigsResponse,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResponse,
)
from kafka_actors.protocol.messages.describe_cluster import DescribeClusterBroker
from kafka_actors.protocol.messages.describe_configs import (
    DescribeConfigsResource,
    DescribeConfigsResourceResult,
    DescribeConfigsResult,
    DescribeConfigsSynonym,
)
from kafka_actors.protocol.messages.incremental_alter_configs import (
    AlterConfigsResource,
    AlterConfigsResourceResponse,
)

from .calls import BrokerCall
from .cluster_state import ClusterState, FakeTopic
from .error_answers import Refused
from .settings import TOPIC_CONFIGS, check_topic_configs
from .topic_requests import CLUSTER_OPERATIONS

_TOPIC = 2
_TOPIC_SOURCE, _DEFAULT_SOURCE = 1, 5
_BROKER_ENDPOINT = 1


class ConfigHandlers:
    """Reads and changes the settings of topics; tells which brokers there are."""

    def __init__(self, state: ClusterState) -> None:
        self._state = state
        self.handlers: dict[ApiKey, Callable[[BrokerCall], Any]] = {
            ApiKey.DESCRIBE_CONFIGS: self._describe,
            ApiKey.INCREMENTAL_ALTER_CONFIGS: self._alter,
            ApiKey.DESCRIBE_CLUSTER: self._cluster,
        }

    def _topic(self, resource_type: int, name: str) -> FakeTopic:
        if resource_type != _TOPIC:
            raise Refused(errors.InvalidRequestError, "the fake brokers have settings of topics only")
        if name not in self._state.topics:
            raise Refused(errors.UnknownTopicOrPartitionError)
        return self._state.topics[name]

    def _describe(self, call: BrokerCall) -> DescribeConfigsResponse:
        request: DescribeConfigsRequest = call.request
        return DescribeConfigsResponse(
            results=[self._described(r, request.include_synonyms) for r in request.resources]
        )

    def _described(self, resource: DescribeConfigsResource, synonyms: bool) -> DescribeConfigsResult:
        try:
            topic = self._topic(resource.resource_type, resource.resource_name)
        except Refused as refused:
            return DescribeConfigsResult(
                refused.code, refused.text, resource.resource_type, resource.resource_name
            )
        wanted = resource.configuration_keys
        names = [name for name in TOPIC_CONFIGS if not wanted or name in wanted]
        return DescribeConfigsResult(
            0,
            "",
            resource.resource_type,
            resource.resource_name,
            [self._entry(topic, name, synonyms) for name in names],
        )

    def _entry(self, topic: FakeTopic, name: str, synonyms: bool) -> DescribeConfigsResourceResult:
        is_set = name in topic.configs
        value = topic.configs.get(name, TOPIC_CONFIGS[name])
        others = [DescribeConfigsSynonym(name, value, _TOPIC_SOURCE)] if is_set and synonyms else []
        return DescribeConfigsResourceResult(
            name, value, False, _TOPIC_SOURCE if is_set else _DEFAULT_SOURCE, False, others
        )

    def _alter(self, call: BrokerCall) -> IncrementalAlterConfigsResponse:
        request: IncrementalAlterConfigsRequest = call.request
        responses = []
        for resource in request.resources:
            code, text = 0, None
            try:
                self._change(resource, request.validate_only)
            except Refused as refused:
                code, text = refused.code, refused.text
            responses.append(
                AlterConfigsResourceResponse(code, text, resource.resource_type, resource.resource_name)
            )
        return IncrementalAlterConfigsResponse(responses=responses)

    def _change(self, resource: AlterConfigsResource, validate_only: bool) -> None:
        topic = self._topic(resource.resource_type, resource.resource_name)
        configs = dict(topic.configs)
        for change in resource.configs:
            listed = configs.get(change.name, TOPIC_CONFIGS.get(change.name, "")).split(",")
            given = (change.value or "").split(",")
            match change.config_operation:
                case 0:
                    check_topic_configs({change.name: change.value})
                    configs[change.name] = change.value or ""
                case 1:
                    configs.pop(change.name, None)
                case 2:
                    configs[change.name] = ",".join(dict.fromkeys(item for item in (*listed, *given) if item))
                case 3:
                    configs[change.name] = ",".join(item for item in listed if item and item not in given)
                case _:
                    raise Refused(errors.InvalidRequestError)
        check_topic_configs(configs)
        if not validate_only:
            topic.configs = configs

    def _cluster(self, call: BrokerCall) -> DescribeClusterResponse:
        request: DescribeClusterRequest = call.request
        if call.version >= 1 and request.endpoint_type != _BROKER_ENDPOINT:
            code = errors.UnsupportedEndpointTypeError.code
            return DescribeClusterResponse(error_code=code, endpoint_type=request.endpoint_type)
        asked = request.include_cluster_authorized_operations
        live = self._state.live
        return DescribeClusterResponse(
            cluster_id=self._state.cluster_id,
            controller_id=self._state.random.choice(live).node_id if live else -1,
            brokers=[DescribeClusterBroker(n.node_id, n.host, n.port, n.rack) for n in live],
            cluster_authorized_operations=CLUSTER_OPERATIONS if asked else -0x80000000,
        )
