"""Which topics have been deleted and made anew while they were consumed (KIP-516)."""

from __future__ import annotations

from collections.abc import Mapping

from kafka_actors.types import TopicPartition

from .member_events import Partitions


class TopicIds:
    """The ids that owned topics had when they were assigned, and when they were owned first: those outlive revocations.
    Brokers before 2.8 have none: nothing is noticed."""

    def __init__(self) -> None:
        self._ids: dict[str, bytes] = {}
        self._first: dict[str, bytes] = {}

    def first(self, topic: str) -> bytes | None:
        """The id that the topic had when it was consumed first; None if it never was."""
        return self._first.get(topic)

    def of_owned(self, topic: str) -> bytes | None:
        """The id that an owned topic had when it was assigned, or made anew; None if it isn't owned."""
        return self._ids.get(topic)

    def changed(self, owned: Partitions, ids: Mapping[str, bytes | None]) -> Partitions:
        """Owned partitions whose topic has another id than before; each change is told once."""
        topics = {tp.topic for tp in owned}
        self._ids = {topic: known for topic, known in self._ids.items() if topic in topics}
        recreated: set[str] = set()
        for topic in topics:
            now = ids.get(topic)
            if now is None:
                continue
            self._first.setdefault(topic, now)
            if self._ids.setdefault(topic, now) != now:
                self._ids[topic] = now
                recreated.add(topic)
        return frozenset(tp for tp in owned if tp.topic in recreated) if recreated else frozenset()


def without(owned: Partitions, gone: set[TopicPartition]) -> Partitions:
    """`owned` without what is gone; what is no longer owned is forgotten in `gone`."""
    gone &= owned
    return owned - gone if gone else owned
