"""`SubscriptionState`: the topics that a consumer subscribes to, and the partitions that are assigned to it."""

from __future__ import annotations

import re
from collections.abc import Iterable
from enum import Enum

from kafka_actors.base.topics import check_pattern, check_topics
from kafka_actors.errors import ConfigError, UsageError
from kafka_actors.types import TopicPartition

from .snapshot import ClusterSnapshot

__all__ = ["SubscriptionMode", "SubscriptionState"]


class SubscriptionMode(Enum):
    """The ways to choose partitions."""

    NONE = "none"
    TOPICS = "topics"
    PATTERN = "pattern"
    MANUAL = "manual"


class SubscriptionState:
    """A subscription to topics by name, to topics by pattern, or partitions assigned by hand. No IO.

    The three exclude each other until `unsubscribe`, as in Java's `SubscriptionState`.
    """

    def __init__(self, *, exclude_internal_topics: bool = True) -> None:
        self.exclude_internal_topics = exclude_internal_topics
        self.mode = SubscriptionMode.NONE
        self._topics: frozenset[str] = frozenset()
        self._pattern: re.Pattern[str] | None = None
        self._assigned: frozenset[TopicPartition] = frozenset()

    @property
    def topics(self) -> frozenset[str]:
        """The topics subscribed to by name."""
        return self._topics

    @property
    def pattern(self) -> str | None:
        """The pattern subscribed to."""
        return None if self._pattern is None else self._pattern.pattern

    @property
    def assigned(self) -> frozenset[TopicPartition]:
        """The partitions that are this consumer's, from its user or from its group."""
        return self._assigned

    @property
    def uses_group(self) -> bool:
        """Whether the group assigns the partitions."""
        return self.mode in (SubscriptionMode.TOPICS, SubscriptionMode.PATTERN)

    def subscribe(
        self, topics: Iterable[str] | None = None, pattern: str | re.Pattern[str] | None = None
    ) -> None:
        """Subscribes to topics, by name or by a pattern that a topic's whole name must match.

        Replaces an earlier subscription of the same kind; no topics at all is `unsubscribe`. Raises
        `ConfigError` for both or neither, an invalid name or pattern, `UsageError` if another mode is in use.
        """
        if (topics is None) == (pattern is None):
            raise ConfigError("topics", "give either topics or pattern")
        if pattern is not None:
            compiled = check_pattern(pattern)
            self._enter(SubscriptionMode.PATTERN)
            self._pattern = compiled
            return
        names = check_topics(topics)
        if not names:
            self.unsubscribe()
            return
        self._enter(SubscriptionMode.TOPICS)
        self._topics = names

    def assign_from_user(self, partitions: Iterable[TopicPartition]) -> None:
        """Takes these partitions without a group. An empty list is `unsubscribe`. Raises as `subscribe`."""
        chosen = frozenset(TopicPartition(*p) for p in partitions)
        check_topics(tp.topic for tp in chosen)
        negative = next((tp for tp in chosen if tp.partition < 0), None)
        if negative is not None:
            raise ConfigError("partitions", f"has {negative.topic}-{negative.partition}: ids start at 0")
        if not chosen:
            self.unsubscribe()
            return
        self._enter(SubscriptionMode.MANUAL)
        self._assigned = chosen

    def assign_from_group(self, partitions: Iterable[TopicPartition]) -> None:
        """Takes the partitions that the group assigned. Raises `UsageError` where the partitions are chosen by hand."""
        if not self.uses_group:
            raise UsageError("a group can't assign partitions: nothing is subscribed to")
        self._assigned = frozenset(partitions)

    def unsubscribe(self) -> None:
        """Ends the subscription, and drops the assignment."""
        self.mode = SubscriptionMode.NONE
        self._topics, self._pattern, self._assigned = frozenset(), None, frozenset()

    def matching(self, snapshot: ClusterSnapshot) -> frozenset[str]:
        """The topics subscribed to: by name whether they exist or not, by pattern those of the snapshot."""
        if self._pattern is not None:
            return frozenset(snapshot.topics_matching(self._pattern, self.exclude_internal_topics))
        if self.mode is SubscriptionMode.MANUAL:
            return frozenset(tp.topic for tp in self._assigned)
        return self._topics

    def metadata_topics(self) -> list[str] | None:
        """The topics whose metadata is needed; None for all, as a pattern needs."""
        if self.mode is SubscriptionMode.PATTERN:
            return None
        return sorted(self._topics or {tp.topic for tp in self._assigned})

    def _enter(self, mode: SubscriptionMode) -> None:
        if self.mode not in (SubscriptionMode.NONE, mode):
            raise UsageError(
                f"subscription to topics, partitions and pattern are mutually exclusive: "
                f"{self.mode.value} is in use, unsubscribe first"
            )
        self.mode = mode
