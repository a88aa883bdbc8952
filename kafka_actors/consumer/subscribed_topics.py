"""The topics of a consumer: all that may be read, and those of its subscription that are missing or refused."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable
from contextlib import suppress

from kafka_actors.cluster import SubscriptionMode, SubscriptionState
from kafka_actors.cluster.cluster import metadata_request
from kafka_actors.config import ConsumerConfig
from kafka_actors.errors import (
    KafkaActorsError,
    KafkaTimeoutError,
    UnknownTopicOrPartitionError,
    error_for_code,
)
from kafka_actors.net import KafkaClient
from kafka_actors.types import TopicPartition

from .rebalance import Offsets

logger = logging.getLogger(__name__)

KNOWN_S = 10.0
"""Seconds for which the metadata of other topics is waited for."""


class ConsumerTopics:
    """Checks a consumer's topics against the cluster's metadata, in the IO thread. `on_checked` is called with an error that ends
    the consumer's work, or None where no topic has one (any more)."""

    def __init__(
        self,
        client: KafkaClient,
        config: ConsumerConfig,
        subscription: SubscriptionState,
        *,
        on_checked: Callable[[Exception | None], None],
    ) -> None:
        self._client = client
        self._config = config
        self._subscription = subscription
        self._on_checked = on_checked
        self._missing: set[str] = set()
        self._absent: set[TopicPartition] = set()
        self._first: dict[str, tuple[bytes | None, frozenset[int]]] = {}
        """Ids and partitions of topics as this consumer first knew them: when it subscribed to them, or soon after."""

    async def follow(self, *, until_known: bool) -> None:
        """Has the subscription's topics followed. `until_known`: returns when their metadata is there, or no broker tells it, which is asked
        for again and again then; a member with a pattern would join with none of its topics else, and rebalance the group once more."""
        future = self._client.set_topics(self._subscription.metadata_topics())
        self._note()
        if until_known:
            with suppress(KafkaActorsError, TimeoutError):
                async with asyncio.timeout(KNOWN_S):
                    await future

    def is_new(self, tp: TopicPartition) -> bool:
        """Whether the partition appeared in a topic that was subscribed to already (KIP-1327's problem), whoever reads the topic's other
        partitions, or with another topic of its name."""
        snapshot = self._client.snapshot
        now = snapshot.topic_id(tp.topic)
        if tp.topic not in self._first:  # assigned by a leader that knew of it before this member
            known = frozenset(snapshot.partitions_for_topic(tp.topic) or {tp.partition})
            self._first[tp.topic] = (now, known)
        topic_id, first = self._first[tp.topic]
        return tp.partition not in first or (None not in (topic_id, now) and topic_id != now)

    def _note(self) -> None:
        """Notes the partitions of subscribed topics, also of those of which this member has none: what appears later is read from its
        start, though it be the first that the member is assigned."""
        snapshot = self._client.snapshot
        for topic in self._subscription.matching(snapshot) - self._first.keys():
            if known := snapshot.partitions_for_topic(topic):
                self._first[topic] = (snapshot.topic_id(topic), frozenset(known))

    async def partitions_for(self, topic: str) -> set[int] | None:
        """Returns all partition ids of a topic, None if there is no such topic."""
        snapshot = self._client.snapshot
        if not self._client.tracks(topic):
            snapshot = await self._client.fetch_metadata([topic])
        return snapshot.partitions_for_topic(topic)

    async def names(self) -> set[str]:
        """Returns all topics that may be read; internal ones only where `exclude_internal_topics` is off."""
        node = self._client.least_loaded_node()
        if node is None:
            await self._client.update_metadata()
            node = self._client.least_loaded_node()
        if node is None:
            raise KafkaTimeoutError("no broker can be asked for its topics")
        response = await self._client.send(node, metadata_request(None))
        skip = self._config.exclude_internal_topics
        return {
            t.name for t in response.topics if t.name and not t.error_code and not (skip and t.is_internal)
        }

    def check(self) -> None:
        """Warns of each unknown topic once, and waits for it, as Java does; reports a topic that may not be read as an error, for as long
        as it may not."""
        self._note()
        snapshot = self._client.snapshot
        errors = {t: snapshot.topic_error(t) for t in self._subscription.metadata_topics() or []}
        known = (error_for_code(code, request="Metadata", topic=topic) for topic, code in errors.items())
        self._on_checked(next((error for error in known if error is not None and not error.retriable), None))
        missing = {t for t, code in errors.items() if code == UnknownTopicOrPartitionError.code}
        for topic in sorted(missing - self._missing):
            logger.warning(
                "there is no topic '%s': nothing is read of it until somebody creates it; check its name",
                topic,
            )
        self._missing = missing
        if self._subscription.mode is not SubscriptionMode.MANUAL:
            return
        absent = {tp for tp in self._subscription.assigned if not self._exists(tp)}
        for tp in sorted(absent - self._absent):
            logger.warning(
                "%s: nothing is read of it until somebody adds it; check its number", self.absence(tp)
            )
        self._absent = absent

    def lookup_waits_for(self, partitions: Iterable[TopicPartition]) -> str:
        """Returns what a look-up of offsets waits for, in words."""
        absent = next(filter(None, map(self.absence, sorted(partitions))), None)
        if absent is None:
            return "offsets are waited for until timeout_ms: their leaders have not answered yet"
        return f"{absent}, and is waited for until timeout_ms: create it, or check its name and number"

    def absence(self, tp: TopicPartition) -> str | None:
        """Returns what the cluster's metadata lacks of a partition, in words; None where it has the partition."""
        topic = self._client.snapshot.topics.get(tp.topic)
        if topic is None or not topic.partitions:
            return f"topic '{tp.topic}' is not in the cluster's metadata"
        if tp.partition in topic.partitions:
            return None
        return f"{tp.topic} has no partition {tp.partition}: it has {len(topic.partitions)}"

    async def check_partitions(self, offsets: Offsets) -> None:
        """Raises `UnknownTopicOrPartitionError` for a partition that doesn't exist: its commit would be retried in vain, as if
        the coordinator only didn't know of it yet."""
        unknown = [tp for tp in offsets if not self._exists(tp)]
        if not unknown:
            return
        snapshot = await self._client.fetch_metadata(sorted({tp.topic for tp in unknown}))
        for tp in unknown:
            known = snapshot.partitions_for_topic(tp.topic)
            if known is not None and tp.partition not in known:
                raise UnknownTopicOrPartitionError(
                    f"can't be committed: the topic has {len(known)} partitions",
                    topic=tp.topic,
                    partition=tp.partition,
                )

    def existing(self, offsets: Offsets) -> Offsets:
        """Returns the offsets of partitions that still exist. A commit of others would be retried until its time is over, and
        delay the revocation or the leaving that waits for it."""
        return {tp: offset for tp, offset in offsets.items() if not self._is_gone(tp)}

    def _is_gone(self, tp: TopicPartition) -> bool:
        topic = self._client.snapshot.topics.get(tp.topic)
        if topic is None:  # deleted, where it would be among all topics
            return self._client.tracks(tp.topic)
        return topic.error_code == UnknownTopicOrPartitionError.code or bool(
            topic.partitions and tp.partition not in topic.partitions
        )

    def _exists(self, tp: TopicPartition) -> bool:
        topic = self._client.snapshot.topics.get(tp.topic)
        if topic is None or (topic.error_code and not topic.partitions):
            return True  # it is not known
        return tp.partition in topic.partitions
