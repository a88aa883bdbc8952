"""DescribeConfigs and IncrementalAlterConfigs for topics, and DescribeCluster.

Theory of operation. Arrives: a request about the settings of some resources. Decided: for each resource its
settings or an error of its own, since one resource that can't be described or changed does not concern the
others.

- Only topics have settings here. Those of brokers are fixed when a cluster is made (`FakeBrokerSettings`),
  and what asks for them is refused with INVALID_REQUEST and says why.
- A topic keeps only what was set for it. What it doesn't have comes from Kafka's defaults and is told with
  that source, so a client can tell the two apart.
- A change is carried out on a copy of the topic's settings: SET and DELETE put a value and take it away,
  APPEND and SUBTRACT change a list. The copy takes their place only if all changes to that resource are good,
  and if the request isn't `validate_only`.

New settings hold from the next append on, as on a real broker; what is in the log stays. DescribeCluster
tells the brokers that are alive, and one of them at random as controller: under KRaft any broker passes on
what is for the controller.

Source: `ConfigHelper`, `ConfigurationControlManager`, `KafkaApis.handleDescribeCluster`; KIP-226, KIP-339,
KIP-700.
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
from .settings import TOPIC_CONFIGS, check_topic_configs, config_type
from .topic_requests import CLUSTER_OPERATIONS

_TOPIC = 2
_TOPIC_SOURCE, _BROKER_SOURCE, _DEFAULT_SOURCE = 1, 4, 5
_BROKER_ENDPOINT, _CONTROLLER_ENDPOINT = 1, 2


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
        """Returns the topic that a resource names.

        Raises `Refused` for other types of resources and for topics that aren't there.
        """
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
        """Describes the settings of one resource: those that are named, or all."""
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
        """Describes one setting: its value, and whether it was set for the topic or is Kafka's default.

        Synonyms are listed if they are asked for; the default isn't among them, as on a broker whose own file
        names none.
        """
        is_set = name in topic.configs
        default = topic.defaults.get(name, TOPIC_CONFIGS[name])
        value = topic.configs.get(name, default)
        source = _DEFAULT_SOURCE if default == TOPIC_CONFIGS[name] else _BROKER_SOURCE
        others = [DescribeConfigsSynonym(name, value, _TOPIC_SOURCE)] if is_set and synonyms else []
        return DescribeConfigsResourceResult(
            name,
            value,
            False,
            _TOPIC_SOURCE if is_set else source,
            False,
            others,
            config_type(name),
            None,
        )

    def _alter(self, call: BrokerCall) -> IncrementalAlterConfigsResponse:
        """Changes resources one after the other, each as a whole or not at all."""
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
        """Changes the settings of one topic on a copy, which takes their place if all are good. Raises `Refused`."""
        known = self._state.topics.get(resource.resource_name)
        configs = dict(known.configs) if known is not None else {}
        for change in resource.configs:
            listed = configs.get(change.name, TOPIC_CONFIGS.get(change.name, "")).split(",")
            items = (change.value or "").split(",")
            match change.config_operation:
                case 0:
                    check_topic_configs({change.name: change.value})
                    configs[change.name] = change.value or ""
                case 1:
                    configs.pop(change.name, None)
                case 2:
                    configs[change.name] = ",".join(dict.fromkeys(item for item in (*listed, *items) if item))
                case 3:
                    configs[change.name] = ",".join(item for item in listed if item and item not in items)
                case _:
                    raise Refused(errors.InvalidRequestError)
        check_topic_configs(configs)
        topic = self._topic(resource.resource_type, resource.resource_name)
        if not validate_only:
            topic.configs = configs

    def _cluster(self, call: BrokerCall) -> DescribeClusterResponse:
        """Describes the brokers.

        Controllers have an endpoint of their own (KIP-919), which these brokers don't have.
        """
        request: DescribeClusterRequest = call.request
        if call.version >= 1 and request.endpoint_type != _BROKER_ENDPOINT:
            of_controllers = request.endpoint_type == _CONTROLLER_ENDPOINT
            error = (
                errors.MismatchedEndpointTypeError if of_controllers else errors.UnsupportedEndpointTypeError
            )
            return DescribeClusterResponse(error_code=error.code)
        wants_operations = request.include_cluster_authorized_operations
        live = self._state.live
        return DescribeClusterResponse(
            cluster_id=self._state.cluster_id,
            controller_id=self._state.random.choice(live).node_id if live else -1,
            brokers=[DescribeClusterBroker(n.node_id, n.host, n.port, n.rack) for n in live],
            cluster_authorized_operations=CLUSTER_OPERATIONS if wants_operations else -0x80000000,
        )
