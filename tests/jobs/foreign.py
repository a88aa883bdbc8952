"""A member of the group that isn't ours: confluent-kafka, in a thread, with a journal of its own."""

from __future__ import annotations

import threading
import time
from collections import defaultdict
from typing import Any

from waiting import slow_s

from kafka_actors.types import TopicPartition


class Foreign(threading.Thread):
    """Joins `group` when started, consumes until `leave`. Commits what it consumed when it is revoked and at the end."""

    def __init__(self, servers: str, topic: str, group: str, assignor: str, **config: Any) -> None:
        super().__init__(name="foreign", daemon=True)
        self._settings = {
            "bootstrap.servers": servers,
            "group.id": group,
            "partition.assignment.strategy": assignor,
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
            "session.timeout.ms": 45_000,
            "heartbeat.interval.ms": 500,
            "fetch.wait.max.ms": 100,
            "log_level": 0,
            **{key.replace("_", "."): value for key, value in config.items()},
        }
        self._topic = topic
        self._end = threading.Event()
        self.assigned: set[TopicPartition] = set()
        self.revoked = 0
        self.first_assigned_at: float | None = None
        self.seen: dict[TopicPartition, set[int]] = defaultdict(set)
        self._next: dict[TopicPartition, int] = {}

    def run(self) -> None:
        from confluent_kafka import Consumer

        consumer = Consumer(self._settings)
        consumer.subscribe(
            [self._topic], on_assign=self._on_assign, on_revoke=self._on_revoke, on_lost=self._on_lost
        )
        try:
            while not self._end.is_set():
                for message in consumer.consume(500, timeout=0.1):
                    if message.error() is None:
                        at = TopicPartition(message.topic(), message.partition())
                        self.seen[at].add(message.offset())
                        self._next[at] = message.offset() + 1
            self._commit(consumer, list(self._next))
        finally:
            consumer.close()

    def leave(self) -> None:
        self._end.set()
        self.join(slow_s(30))
        assert not self.is_alive()

    def _on_assign(self, consumer: Any, partitions: list[Any]) -> None:
        self.assigned |= {TopicPartition(p.topic, p.partition) for p in partitions}
        if partitions and self.first_assigned_at is None:
            self.first_assigned_at = time.monotonic()

    def _on_revoke(self, consumer: Any, partitions: list[Any]) -> None:
        self.revoked += 1
        gone = [TopicPartition(p.topic, p.partition) for p in partitions]
        self._commit(consumer, gone)
        self._drop(gone)

    def _on_lost(self, consumer: Any, partitions: list[Any]) -> None:
        self._drop([TopicPartition(p.topic, p.partition) for p in partitions])

    def _drop(self, partitions: list[TopicPartition]) -> None:
        self.assigned -= set(partitions)
        for partition in partitions:
            self._next.pop(partition, None)

    def _commit(self, consumer: Any, partitions: list[TopicPartition]) -> None:
        from confluent_kafka import TopicPartition as Theirs

        offsets = [Theirs(*p, self._next[p]) for p in partitions if p in self._next]
        if offsets:
            consumer.commit(offsets=offsets, asynchronous=False)
