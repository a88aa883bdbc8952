"""Kafka's RoundRobinAssignor."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Mapping
from typing import Literal

from assignors.types import Assignment, Member, Racks, member_order, subscribed_topics


class RoundRobinAssignor:
    """Assigns the partitions of all topics, in order, to the members in turn, skipping members that don't subscribe.

    The result equals that of org.apache.kafka.clients.consumer.RoundRobinAssignor. Racks, owned partitions and capacities
    play no part.
    """

    name = "roundrobin"
    protocol: Literal["eager", "cooperative"] = "eager"

    def assign(
        self,
        partitions: Mapping[str, Iterable[int]],
        members: Mapping[str, Member],
        *,
        racks: Racks | None = None,
    ) -> Assignment:
        """Implements `Assignor.assign`; lists are sorted by topic and partition."""
        order = member_order(members)
        result: Assignment = {member_id: [] for member_id in order}
        turn = 0
        for topic in subscribed_topics(partitions, members, order):
            subscribers = topic.subscribers
            # The search replaces Java's iteration over members that don't subscribe to this topic.
            at = bisect_left(subscribers, turn)
            for partition in topic.ids:
                at %= len(subscribers)
                result[order[subscribers[at]]].append((topic.name, partition))
                at += 1
            turn = (subscribers[at - 1] + 1) % len(order)
        return result
