"""Requests of a hand-over to the brokers: it looks up logs and committed offsets, and commits once."""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Mapping
from functools import partial

from kafka_actors.admin.groups import GroupRequests
from kafka_actors.admin.requests import CallDeadline, fresh_snapshot, persist, raise_first
from kafka_actors.cluster.snapshot import ClusterSnapshot
from kafka_actors.config import ConsumerConfig, resolved
from kafka_actors.errors import (
    TEMPORARY_IN_LOOKUPS,
    ConfigError,
    KafkaActorsError,
    NonEmptyGroupError,
    UnknownTopicOrPartitionError,
    error_for_code,
)
from kafka_actors.net import KafkaClient, ListedOffset, OffsetLookups
from kafka_actors.types import EARLIEST, LATEST, OffsetAndMetadata, TopicPartition

from .machines.handover_plan import LogBounds, ObservedTopics, PlannedRead

_PAUSE_S = 0.5


class HandoverBrokers:
    """Client for the time of a hand-over: `async with HandoverBrokers(…)`. For one event loop."""

    def __init__(self, config: ConsumerConfig, wanted: PlannedRead) -> None:
        self._read = wanted
        self._session_s = config.session_timeout_ms / 1000
        self._client = KafkaClient(resolved(config))
        self._lookups = OffsetLookups(self._client)
        self._groups = GroupRequests(self._client)
        self._isolation_level = config.isolation_level
        self._topic_ids: dict[str, bytes] = {}
        self._partitions: list[TopicPartition] = []

    async def __aenter__(self) -> HandoverBrokers:
        """Connects. Raises as `KafkaClient.bootstrap`."""
        topics = self._read.topics
        self._client.set_topics(None if topics is None else list(topics))
        await self._client.bootstrap()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._client.close()

    async def cluster(self) -> ObservedTopics:
        """The partitions that the pipeline reads, as they are now.

        Raises `UnknownTopicOrPartitionError` for a topic that doesn't exist, `ConfigError` for a pattern that matches
        none, the `KafkaError` of a partition.
        """
        deadline = CallDeadline(self._client)
        snapshot = await persist(self._client, partial(fresh_snapshot, self._client), deadline)
        topics = self._topics(snapshot)
        tps = [TopicPartition(t, p) for t in topics for p in sorted(snapshot.partitions_for_topic(t) or ())]
        starts, ends = await asyncio.gather(
            self._log_ends(tps, EARLIEST, deadline), self._log_ends(tps, LATEST, deadline)
        )
        self._partitions = tps
        ids = {topic: snapshot.topic_id(topic) for topic in topics}
        self._topic_ids = {topic: topic_id for topic, topic_id in ids.items() if topic_id is not None}
        return ObservedTopics(
            snapshot.cluster_id,
            self._topic_ids,
            {tp: LogBounds(starts[tp].offset, ends[tp].offset, ends[tp].leader_epoch) for tp in tps},
        )

    def _topics(self, snapshot: ClusterSnapshot) -> list[str]:
        if self._read.pattern is not None:
            matching = snapshot.topics_matching(self._read.pattern)
            if not matching:
                raise ConfigError("pattern", f"is {self._read.pattern!r}: no topic of the cluster matches it")
            return sorted(matching)
        topics = sorted(self._read.topics or ())
        for topic in topics:
            if not snapshot.partitions_for_topic(topic):
                code = snapshot.topic_error(topic) or UnknownTopicOrPartitionError.code
                raise error_for_code(code, request="Metadata", topic=topic) or UnknownTopicOrPartitionError(
                    topic=topic
                )
        return topics

    async def _log_ends(
        self, tps: Collection[TopicPartition], which: int, deadline: CallDeadline
    ) -> dict[TopicPartition, ListedOffset]:
        answers = await self._lookups.list_offsets(
            dict.fromkeys(tps, which),
            isolation_level=self._isolation_level,
            timeout_ms=deadline.left_ms(),
            temporary=TEMPORARY_IN_LOOKUPS,
        )
        raise_first(answer for answer in answers.values() if isinstance(answer, KafkaActorsError))
        return {tp: answer for tp, answer in answers.items() if isinstance(answer, ListedOffset)}

    # ------------------------------------------------------------ the group

    async def committed(self) -> dict[TopicPartition, OffsetAndMetadata]:
        """The group's committed offsets of the topics that `cluster` has found, once no transaction moves them."""
        return await self._groups.committed(
            self._read.group_id, CallDeadline(self._client), self._topic_ids, stable=self._partitions
        )

    async def check_empty(self) -> None:
        """Raises `NonEmptyGroupError` for a group that has members: they would commit over the hand-over."""
        if members := await self._groups.members_of(self._read.group_id, CallDeadline(self._client)):
            raise self._not_empty(f"has members ({members})")

    async def commit(self, offsets: Mapping[TopicPartition, OffsetAndMetadata], *, patient: bool) -> None:
        """Commits for the group without being a member, which brokers refuse while the group has members.

        Offsets are of the topics that `cluster` has found. `patient`: retries for `session_timeout_ms`, after which a dead
        member has left. Raises `NonEmptyGroupError`.
        """
        until = self._client.now() + (self._session_s if patient else 0.0)
        while True:
            try:
                return await self._groups.commit(
                    self._read.group_id, offsets, CallDeadline(self._client), self._topic_ids
                )
            except NonEmptyGroupError:
                if self._client.now() >= until:
                    raise self._not_empty("has members") from None
            await asyncio.sleep(_PAUSE_S)

    def _not_empty(self, what: str) -> NonEmptyGroupError:
        return NonEmptyGroupError(
            f"group {self._read.group_id!r} {what}, who commit its offsets: stop them first; the hand-over was not made",
            request="OffsetCommit",
        )
