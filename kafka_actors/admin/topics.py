"""Requests about topics: to list, describe, create, delete and grow them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from kafka_actors.cluster.cluster import metadata_request
from kafka_actors.cluster.metadata import error_of
from kafka_actors.errors import EncodeError, KafkaActorsError, NoBrokersError, error_for_code
from kafka_actors.net import KafkaClient
from kafka_actors.protocol import CreatePartitionsRequest, CreateTopicsRequest, DeleteTopicsRequest
from kafka_actors.protocol.messages.create_partitions import CreatePartitionsAssignment, CreatePartitionsTopic
from kafka_actors.protocol.messages.create_topics import (
    CreatableReplicaAssignment,
    CreatableTopic,
    CreatableTopicConfig,
)
from kafka_actors.protocol.messages.delete_topics import DeleteTopicsResponse, DeleteTopicState
from kafka_actors.protocol.messages.metadata import MetadataResponseTopic

from .machines.advice import refusal
from .machines.answers import topic_description, topic_listing
from .requests import CallDeadline, ask_any, ask_controller, persist, persist_each
from .results import NewPartitions, NewTopic, TopicDescription, TopicListing

__all__ = ["TopicRequests"]

Refusals = dict[str, KafkaActorsError | None]
"""Topics that the controller has dealt with, by name; with the error of one that it refused."""


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
        request = metadata_request(names)

        async def attempt(limit_ms: float) -> list[MetadataResponseTopic]:
            response = await ask_any(self._client, request, limit_ms)
            # A broker that has just started would have no topics.
            if (refused := error_of(response)) is not None:
                self._client.cluster.request_update()  # by which the client looks for others, where that is asked for
                raise NoBrokersError(str(refused)) from refused
            return response.topics

        return await persist(self._client, attempt, deadline)

    async def create(
        self, topics: Iterable[NewTopic], validate_only: bool, deadline: CallDeadline
    ) -> Refusals:
        wanted = {topic.name: _creatable(topic) for topic in topics}

        async def attempt(names: list[str], limit_ms: float) -> Refusals:
            request = CreateTopicsRequest([wanted[name] for name in names], int(limit_ms), validate_only)
            response = await ask_controller(self._client, request, deadline)
            return {
                r.name: refusal(r.error_code, r.error_message, request="CreateTopics", topic=r.name)
                for r in response.topics
            }

        return await persist_each(self._client, wanted, attempt, deadline)

    async def delete(self, topics: Iterable[str], deadline: CallDeadline) -> Refusals:
        async def attempt(names: list[str], limit_ms: float) -> Refusals:
            response = await self._delete(names, int(limit_ms), deadline)
            return {
                r.name: refusal(r.error_code, r.error_message, request="DeleteTopics", topic=r.name)
                for r in response.responses
                if r.name is not None
            }

        return await persist_each(self._client, topics, attempt, deadline)

    async def _delete(self, names: list[str], limit_ms: int, deadline: CallDeadline) -> DeleteTopicsResponse:
        try:
            states = [DeleteTopicState(name) for name in names]
            newer = DeleteTopicsRequest(topics=states, timeout_ms=limit_ms)
            return await ask_controller(self._client, newer, deadline)
        except EncodeError:  # before topics could be deleted by id (KIP-516, Kafka 2.8)
            older = DeleteTopicsRequest(topic_names=names, timeout_ms=limit_ms)
            return await ask_controller(self._client, older, deadline)

    async def create_partitions(
        self, totals: Mapping[str, NewPartitions], validate_only: bool, deadline: CallDeadline
    ) -> Refusals:
        async def attempt(names: list[str], limit_ms: float) -> Refusals:
            topics = [_grown(name, totals[name]) for name in names]
            request = CreatePartitionsRequest(topics, int(limit_ms), validate_only)
            response = await ask_controller(self._client, request, deadline)
            return {
                r.name: refusal(r.error_code, r.error_message, request="CreatePartitions", topic=r.name)
                for r in response.results
            }

        return await persist_each(self._client, totals, attempt, deadline)


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


def _grown(name: str, partitions: NewPartitions) -> CreatePartitionsTopic:
    assigned = partitions.new_assignments
    return CreatePartitionsTopic(
        name,
        partitions.total_count,
        None if assigned is None else [CreatePartitionsAssignment(list(replicas)) for replicas in assigned],
    )
