"""The topics of a consumer: which there are, and which of those wanted are missing or not to be read."""

from __future__ import annotations

import logging
from collections.abc import Callable

from kafka_actors.cluster import SubscriptionState
from kafka_actors.config import ConsumerConfig
from kafka_actors.errors import KafkaTimeoutError, UnknownTopicOrPartitionError, error_for_code
from kafka_actors.net import KafkaClient
from kafka_actors.protocol import MetadataRequest
from kafka_actors.types import TopicPartition

from .rebalance import Offsets

logger = logging.getLogger(__name__)


class ConsumerTopics:
    """Asks and watches the cluster's metadata, in the IO thread. `on_error` gets what ends the consumer's work."""

    def __init__(
        self,
        client: KafkaClient,
        config: ConsumerConfig,
        subscription: SubscriptionState,
        *,
        on_error: Callable[[Exception], None],
    ) -> None:
        self._client = client
        self._config = config
        self._subscription = subscription
        self._on_error = on_error
        self._missing: set[str] = set()

    async def partitions_for(self, topic: str) -> set[int] | None:
        """All partition ids of a topic, None if there is no such topic."""
        snapshot = self._client.snapshot
        if not self._client.tracks(topic):
            snapshot = await self._client.fetch_metadata([topic])
        return snapshot.partitions_for_topic(topic)

    async def names(self) -> set[str]:
        """All topics that may be read; internal ones only where `exclude_internal_topics` is off."""
        node = self._client.least_loaded_node()
        if node is None:
            await self._client.update_metadata()
            node = self._client.least_loaded_node()
        if node is None:
            raise KafkaTimeoutError("no broker can be asked for its topics")
        response = await self._client.send(node, MetadataRequest(topics=None))
        skip = self._config.exclude_internal_topics
        return {
            t.name for t in response.topics if t.name and not t.error_code and not (skip and t.is_internal)
        }

    def check(self) -> None:
        """An unknown topic is warned of, once, and waited for, as in Java. One that we may not read is an error."""
        snapshot = self._client.snapshot
        errors = {t: snapshot.topic_error(t) for t in self._subscription.metadata_topics() or []}
        for topic, code in errors.items():
            if code and code != UnknownTopicOrPartitionError.code:
                error = error_for_code(code, request="Metadata", topic=topic)
                if error is not None and not error.retriable:
                    self._on_error(error)
        missing = {t for t, code in errors.items() if code == UnknownTopicOrPartitionError.code}
        for topic in sorted(missing - self._missing):
            logger.warning(
                "there is no topic '%s': nothing is read of it until somebody creates it; check its name",
                topic,
            )
        self._missing = missing

    async def check_partitions(self, offsets: Offsets) -> None:
        """A partition that there isn't would be retried in vain: a coordinator may only not know of it yet."""
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

    def left(self, offsets: Offsets) -> Offsets:
        """Those of partitions that there still are. A commit of others would be tried again until its time is over, and with it
        whatever waits for it: giving partitions up, leaving the group."""
        return {tp: offset for tp, offset in offsets.items() if not self._is_gone(tp)}

    def _is_gone(self, tp: TopicPartition) -> bool:
        topic = self._client.snapshot.topics.get(tp.topic)
        if topic is None:  # deleted, where it would be among all topics
            return self._client.tracks(tp.topic)
        return topic.error_code == UnknownTopicOrPartitionError.code or bool(
            topic.partitions and tp.partition not in topic.partitions
        )

    def _exists(self, tp: TopicPartition) -> bool:
        known = self._client.snapshot.partitions_for_topic(tp.topic)
        return known is None or tp.partition in known
