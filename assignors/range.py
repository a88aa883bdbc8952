"""Kafka's RangeAssignor, with its rack matching (KIP-881)."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator, Mapping
from itertools import islice
from typing import Literal

from assignors.types import (
    NO_RACKS,
    Assignment,
    Member,
    Racks,
    Topic,
    member_order,
    member_racks,
    replica_racks,
    subscribed_topics,
    worth_matching,
)


class RangeAssignor:
    """Assigns each subscriber of a topic a range of its partitions; the first ones get one more if the division has a rest.

    The result equals that of org.apache.kafka.clients.consumer.RangeAssignor, racks included. Owned partitions and
    capacities play no part.
    """

    name = "range"
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
        assignments = [_TopicAssignment(topic) for topic in subscribed_topics(partitions, members, order)]
        if racks is not None:
            _match_racks(assignments, member_racks(members, order), racks)
        result: Assignment = {member_id: [] for member_id in order}
        for assignment in assignments:
            assignment.deal_ranges()
            for position, ids in assignment.given.items():
                result[order[position]].extend(
                    (assignment.topic.name, partition) for partition in sorted(ids)
                )
        return result


class _TopicAssignment:
    """Partitions of one topic that are assigned so far, and how many more each subscriber may get."""

    def __init__(self, topic: Topic) -> None:
        self.topic = topic
        self.given: dict[int, list[int]] = {}
        self.replicas: dict[int, frozenset[str]] = {}
        self._placed: set[int] = set()
        self._each, self._extra = divmod(len(topic.ids), len(topic.subscribers))

    def room(self, member: int) -> int:
        return max(0, self._each + (self._extra > 0) - len(self.given.get(member, ())))

    def give(self, member: int, ids: list[int]) -> None:
        if not ids:
            return
        held = self.given.setdefault(member, [])
        held.extend(ids)
        self._placed.update(ids)
        if len(held) > self._each:
            self._extra -= 1

    def deal_ranges(self) -> None:
        rest = iter([p for p in self.topic.ids if p not in self._placed])
        for member in self.topic.subscribers:
            if len(self._placed) == len(self.topic.ids):
                break
            self.give(member, list(islice(rest, self.room(member))))

    def deal_near(self, wanted: list[str | None]) -> None:
        """Gives each member, in order, partitions with a replica in its rack; a member without a rack takes any."""
        streams: dict[str | None, Iterator[int]] = {}
        for member in self.topic.subscribers:
            rack = wanted[member]
            # One iterator for each rack, never rewound; it skips partitions that were assigned meanwhile.
            stream = streams.setdefault(rack, self._unplaced(rack))
            self.give(member, list(islice(stream, self.room(member))))

    def _unplaced(self, rack: str | None) -> Iterator[int]:
        for partition in self.topic.ids:
            if partition not in self._placed and (rack is None or rack in self.replicas[partition]):
                yield partition


def _match_racks(assignments: list[_TopicAssignment], wanted: list[str | None], racks: Racks) -> None:
    """Assigns partitions to members in a replica's rack where possible, without changing any member's number of partitions."""
    needy: set[str] = set()
    alike: dict[tuple[tuple[int, ...], tuple[int, ...]], list[_TopicAssignment]] = {}
    for assignment in assignments:
        topic = assignment.topic
        near = {rack for rack in (wanted[member] for member in topic.subscribers) if rack is not None}
        if not near:
            continue
        assignment.replicas = {p: replica_racks(racks, (topic.name, p)) for p in topic.ids}
        if worth_matching(near, assignment.replicas.values()):
            needy.add(topic.name)
        alike.setdefault((topic.subscribers, tuple(topic.ids)), []).append(assignment)
    if not needy:
        return
    for together in alike.values():
        if len(together) > 1:
            _deal_together(together, wanted)
        elif together[0].topic.name in needy:
            together[0].deal_near(wanted)


def _deal_together(assignments: list[_TopicAssignment], wanted: list[str | None]) -> None:
    """Keeps topics with the same partitions and subscribers co-partitioned: partition p of all of them goes to one member."""
    first = assignments[0]
    waiting: dict[str | None, deque[int]] = {}
    for member in first.topic.subscribers:
        waiting.setdefault(wanted[member], deque()).append(member)
    for partition in first.topic.ids:
        shared = first.replicas[partition].intersection(*(s.replicas[partition] for s in assignments[1:]))
        heads: list[int] = []
        for rack in (None, *(shared or NO_RACKS)):
            queue = waiting.get(rack, deque())
            # These topics are assigned in step, so the first one's room is that of all; it never grows.
            while queue and first.room(queue[0]) == 0:
                queue.popleft()
            heads.extend(islice(queue, 1))
        if heads:
            for assignment in assignments:
                assignment.give(min(heads), [partition])
