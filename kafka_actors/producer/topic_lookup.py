"""Topics that records wait for: asked for until they are in the cluster's metadata, or the call's time is over.

A new one is asked for at once, and alone, as Java's producer does; those that come meanwhile are asked for together, next. The client's
own updates, of all topics, wait for `retry_backoff_ms` since the last one: they are for topics that brokers didn't know at first.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable

from kafka_actors.base.tasks import warned_when_slow
from kafka_actors.errors import (
    KafkaActorsError,
    KafkaTimeoutError,
    UnknownTopicOrPartitionError,
    error_for_code,
)
from kafka_actors.net import KafkaClient

logger = logging.getLogger(__name__)


class TopicLookup:
    """Waits in `client`'s loop for topics. `max_block_ms`: what the errors name as the limit. `missing_s`: seconds for which a topic that
    brokers don't know may be on its way to them; None leaves that to the deadline. `refused()` returns the error of a producer
    that has ended, None before.
    """

    def __init__(
        self,
        client: KafkaClient,
        max_block_ms: float,
        missing_s: float | None,
        refused: Callable[[], KafkaActorsError | None],
    ) -> None:
        self._client = client
        self._max_block_ms = max_block_ms
        self._missing_s = missing_s
        self._refused = refused
        self._missing: dict[str, float] = {}
        self._waited_for: set[str] = set()
        self._new: set[str] = set()
        """Topics that brokers are yet to be asked for, or are being asked for."""
        self._one_request = asyncio.Lock()

    async def learn(self, topic: str, deadline: float, partition: int = 0) -> None:
        """Waits until the topic's partitions are known; if this one is not among them, until metadata was asked for again.
        Raises the topic's error, `KafkaTimeoutError` at the deadline (of the client's clock)."""
        if topic in self._waited_for:  # another call warns
            return await self._learn(topic, deadline, partition)
        self._waited_for.add(topic)
        try:
            with warned_when_slow(
                logger,
                lambda: self._unknown(
                    topic, "is not in the cluster's metadata yet, and waited for until max_block_ms"
                ),
            ):
                await self._learn(topic, deadline, partition)
        finally:
            self._waited_for.discard(topic)

    async def _learn(self, topic: str, deadline: float, partition: int) -> None:
        client, cluster = self._client, self._client.cluster
        known = cluster.partitions_for_topic(topic)
        refreshed, began = False, client.now()
        if began < self._missing.get(topic, began):
            raise _no_such(topic)
        while not known or (partition not in known and not refreshed):
            refreshed = True
            if (ended := self._refused()) is not None:
                raise ended
            if not client.tracks(topic):
                client.add_topic(topic)
                self._new.add(topic)
            try:
                async with asyncio.timeout(max(deadline - client.now(), 0.0)):
                    await (self._ask(topic) if topic in self._new else cluster.request_update())
            except TimeoutError:
                if known:
                    return
                raise KafkaTimeoutError(
                    self._unknown(topic, "is not in the cluster's metadata within max_block_ms")
                ) from None
            except KafkaActorsError as failure:
                logger.debug("no metadata of %s: %s", topic, failure)
            self._raise_error(topic, began)
            known = cluster.partitions_for_topic(topic)
        self._missing.pop(topic, None)

    async def _ask(self, topic: str) -> None:
        """Returns when brokers were asked for a new topic, with all others that are new."""
        async with self._one_request:
            if topic in self._new:  # the request before was not for it
                asked = sorted(self._new)
                try:
                    await self._client.fetch_metadata(asked)
                finally:
                    self._new.difference_update(asked)

    def _raise_error(self, topic: str, began: float) -> None:
        """Raises the topic's error if no waiting mends it, or if it has been missing for `missing_s` since `began`, or before."""
        code = self._client.snapshot.topic_error(topic)
        error = error_for_code(code, request="Metadata", topic=topic)
        if error is not None and not error.retriable:
            raise error
        if isinstance(error, UnknownTopicOrPartitionError) and self._missing_s is not None:
            now = self._client.now()
            if now >= began + self._missing_s or topic in self._missing:
                self._missing[topic] = now + self._missing_s
                raise _no_such(topic)

    def _unknown(self, topic: str, what: str) -> str:
        return f"topic {topic!r} {what} ({self._max_block_ms}): create it, or check its name"


def _no_such(topic: str) -> UnknownTopicOrPartitionError:
    return UnknownTopicOrPartitionError(
        "there is no such topic, and none is made by writing: create it, or check its name",
        topic=topic,
        request="Metadata",
    )
