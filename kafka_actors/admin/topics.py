"""Requests about topics: to list, describe and create them, and for their settings."""

from __future__ import annotations

from collections.abc import Iterable

from kafka_actors.errors import KafkaActorsError, NotControllerError, error_for_code
from kafka_actors.net import KafkaClient
from kafka_actors.protocol import CreateTopicsRequest, DescribeConfigsRequest, MetadataRequest
from kafka_actors.protocol.messages.create_topics import (
    CreatableReplicaAssignment,
    CreatableTopic,
    CreatableTopicConfig,
)
from kafka_actors.protocol.messages.describe_configs import DescribeConfigsResource
from kafka_actors.protocol.messages.metadata import MetadataRequestTopic, MetadataResponseTopic

from .machines.answers import topic_description, topic_listing
from .requests import CallDeadline, ask_any, ask_node, fresh_snapshot, persist, raise_first
from .results import NewTopic, TopicDescription, TopicListing

__all__ = ["TopicRequests"]

TOPIC_RESOURCE = 2
DEFAULT_CONFIG = 5
"""Code of `ConfigSource` for a value that is Kafka's own default."""


class TopicRequests:
    """Requests behind the calls of `AsyncAdmin` about topics; the calls there say what each does."""

    def __init__(self, client: KafkaClient) -> None:
        self._client = client

    async def listed(self, exclude_internal: bool, deadline: CallDeadline) -> list[TopicListing]:
        topics = [topic_listing(topic) for topic in await self._metadata(None, deadline)]
        return sorted(
            (t for t in topics if not (exclude_internal and t.is_internal)), key=lambda topic: topic.name
        )

    async def describe(
        self, names: Iterable[str] | None, deadline: CallDeadline
    ) -> dict[str, TopicDescription | KafkaActorsError]:
        wanted = None if names is None else sorted(set(names))
        described: dict[str, TopicDescription | KafkaActorsError] = {}
        for topic in await self._metadata(wanted, deadline):
            error = error_for_code(topic.error_code, request="Metadata", topic=topic.name)
            described[topic.name or ""] = error or topic_description(topic)
        return dict(sorted(described.items()))

    async def _metadata(self, names: list[str] | None, deadline: CallDeadline) -> list[MetadataResponseTopic]:
        """Metadata of topics from a broker; the client's own may be minutes old."""
        if names == []:
            return []
        asked = None if names is None else [MetadataRequestTopic(name=name) for name in names]
        request = MetadataRequest(topics=asked, allow_auto_topic_creation=False)

        async def attempt(limit_ms: float) -> list[MetadataResponseTopic]:
            return (await ask_any(self._client, request, limit_ms)).topics

        return await persist(self._client, attempt, deadline)

    async def configs(self, names: Iterable[str], deadline: CallDeadline) -> dict[str, dict[str, str | None]]:
        resources = [DescribeConfigsResource(TOPIC_RESOURCE, name, None) for name in sorted(set(names))]
        if not resources:
            return {}

        async def attempt(limit_ms: float) -> dict[str, dict[str, str | None]]:
            response = await ask_any(self._client, DescribeConfigsRequest(resources), limit_ms)
            errors = (
                error_for_code(
                    r.error_code, r.error_message, request="DescribeConfigs", topic=r.resource_name
                )
                for r in response.results
            )
            raise_first(error for error in errors if error is not None)
            return {
                r.resource_name: {c.name: c.value for c in r.configs if c.config_source != DEFAULT_CONFIG}
                for r in response.results
            }

        return await persist(self._client, attempt, deadline)

    async def create(
        self, topics: Iterable[NewTopic], validate_only: bool, deadline: CallDeadline
    ) -> dict[str, KafkaActorsError | None]:
        wanted = {topic.name: _creatable(topic) for topic in topics}
        answers: dict[str, KafkaActorsError | None] = {}

        async def attempt(limit_ms: float) -> None:
            left = [topic for name, topic in wanted.items() if name not in answers]
            if not left:
                return
            request = CreateTopicsRequest(left, int(limit_ms), validate_only)
            controller = await self._controller(limit_ms)
            response = await ask_node(self._client, controller, request, deadline.left_ms())
            passing = None
            for result in response.topics:
                error = error_for_code(
                    result.error_code, result.error_message, request="CreateTopics", topic=result.name
                )
                if error is not None and error.retriable:
                    passing = error
                else:
                    answers[result.name] = error
            if passing is not None:
                raise passing

        await persist(self._client, attempt, deadline)
        return answers

    async def _controller(self, limit_ms: float) -> int:
        """Broker to send CreateTopics to: the controller, or under KRaft any broker, which passes the request on."""
        snapshot = await fresh_snapshot(self._client, limit_ms)
        if snapshot.controller_id not in snapshot.brokers:
            raise NotControllerError("no broker is the controller now", request="Metadata")
        assert snapshot.controller_id is not None
        return snapshot.controller_id


def _creatable(topic: NewTopic) -> CreatableTopic:
    assignment = topic.replica_assignment
    unset = -1
    return CreatableTopic(
        name=topic.name,
        num_partitions=unset if topic.num_partitions is None else topic.num_partitions,
        replication_factor=unset if topic.replication_factor is None else topic.replication_factor,
        assignments=[
            CreatableReplicaAssignment(partition, list(replicas))
            for partition, replicas in enumerate(assignment or ())
        ],
        configs=[CreatableTopicConfig(name, value) for name, value in topic.configs.items()],
    )
