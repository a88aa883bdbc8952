"""Sticky assignment: balanced as well as possible, and among all such assignments one that moves the fewest partitions.

Java's AbstractStickyAssignor improves an assignment move by move, so it can stop where only a chain of moves would
help, and can move a partition twice. Here both goals are solved exactly:

1. Partitions with the same subscribers and the same racks are interchangeable and form a pool, so that the cost depends
   on members and pools, not on the number of partitions.
2. `balance.fairest` computes how many partitions each member may have, and from which pools.
3. A flow of least cost leads there from what members own now. Giving up an owned partition costs most; assigning one
   away from its replicas' racks costs little, so racks only decide between otherwise equal assignments.
4. The counts become partitions: members give up their highest ones, which are assigned in turn, so that topics spread
   over members.

Each step is finite (see its module), so `assign` ends for any input.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Literal, NamedTuple

from assignors.balance import Fairest, Group, fairest
from assignors.claims import owners
from assignors.flow import UNBOUNDED, Network
from assignors.types import (
    NO_RACKS,
    Assignment,
    Member,
    Racks,
    Topic,
    TopicPartition,
    member_order,
    member_racks,
    replica_racks,
    subscribed_topics,
)


class StickyAssignor:
    """Assigns partitions balanced first, then sticky, then near their replicas (KIP-54, KIP-881), weighted by capacity.

    Balanced means that no reassignment brings the members' numbers of partitions (relative to capacity, if capacities
    differ) closer together. Claims to partitions that don't exist, or whose topic the member doesn't subscribe to, are
    ignored; for contradictory claims see `claims.owners`.
    """

    name = "sticky"
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
        topics = subscribed_topics(partitions, members, order)
        wanted = member_racks(members, order)
        pools = _pools(topics, wanted if racks else [], racks or {})
        groups: dict[tuple[int, ...], int] = {}
        for pool in pools:
            groups[pool.subscribers] = groups.get(pool.subscribers, 0) + len(pool.partitions)
        goal = fairest(
            [Group(subscribers, size) for subscribers, size in groups.items()],
            [members[member_id].capacity for member_id in order],
        )
        takers = dict(zip(groups, goal.takers, strict=True))
        held = owners(members, order)
        position = {member_id: at for at, member_id in enumerate(order)}
        for pool in pools:
            pool.settle(takers[pool.subscribers], held, position)
        _Moves(pools, goal, wanted).decide()
        result: Assignment = {member_id: [] for member_id in order}
        for pool in pools:
            for member, given in pool.deal():
                result[order[member]].extend(given)
        for given in result.values():
            given.sort()
        return result


class CooperativeStickyAssignor(StickyAssignor):
    """Sticky assignor for members that keep their partitions while the group rebalances (KIP-429).

    Like every assignor it assigns all partitions; the group's leader applies `cooperative_adjust` to the result.
    """

    name = "cooperative-sticky"
    protocol: Literal["eager", "cooperative"] = "cooperative"


@dataclass(slots=True)
class _Pool:
    """Interchangeable partitions: exchanging them changes neither balance nor racks."""

    subscribers: tuple[int, ...]
    racks: frozenset[str] | None
    """Racks of its replicas that also have members; None if racks play no part or aren't known."""
    partitions: list[TopicPartition]
    takers: tuple[int, ...] = ()
    owned: dict[int, list[TopicPartition]] = field(default_factory=dict)
    free: list[TopicPartition] = field(default_factory=list)
    given: dict[int, int] = field(default_factory=dict)
    taken: dict[int, int] = field(default_factory=dict)

    def settle(
        self, takers: tuple[int, ...], held: dict[TopicPartition, str], position: dict[str, int]
    ) -> None:
        """Divides the partitions into those that their owner may keep and those that are free."""
        self.takers = takers
        allowed = set(takers)
        for partition in self.partitions:
            owner = held.get(partition)
            if owner is not None and position[owner] in allowed:
                self.owned.setdefault(position[owner], []).append(partition)
            else:
                self.free.append(partition)

    def deal(self) -> Iterable[tuple[int, list[TopicPartition]]]:
        """Yields each member's partitions, after `given` and `taken` were set."""
        free = list(self.free)
        for member, count in self.given.items():
            kept = sorted(self.owned[member], key=lambda tp: (tp[1], tp[0]))
            free += kept[len(kept) - count :]
            self.owned[member] = kept[: len(kept) - count]
        free.sort()
        hands: dict[int, list[TopicPartition]] = {member: [] for member in self.taken}
        rest = iter(free)
        while hands:
            for member in list(hands):
                hands[member].append(next(rest))
                if len(hands[member]) == self.taken[member]:
                    yield member, hands.pop(member)
        yield from self.owned.items()


def _pools(topics: list[Topic], wanted: list[str | None], racks: Racks) -> list[_Pool]:
    known = {rack for rack in wanted if rack is not None}
    pools: dict[tuple[tuple[int, ...], frozenset[str] | None], _Pool] = {}
    for topic in topics:
        for partition in topic.ids:
            tp = (topic.name, partition)
            replicas = replica_racks(racks, tp) if known else NO_RACKS
            near = replicas & known if replicas else None
            key = (topic.subscribers, near)
            if key not in pools:
                pools[key] = _Pool(topic.subscribers, near, [])
            pools[key].partitions.append(tp)
    return list(pools.values())


class _Arc(NamedTuple):
    pool: _Pool
    member: int
    arc: int


class _Moves:
    """Computes by a flow how many partitions of each pool every member gives up or takes.

    The nodes are a source, a sink, a hub, the pools and the members. A partition flows from a pool to the member that
    takes it, and from the member that gives it up to its pool. A member above its upper bound is a supply, one below its
    lower bound a demand; in between it exchanges units with the hub, which stands for the optional slots.
    """

    SOURCE, SINK, HUB = 0, 1, 2

    def __init__(self, pools: list[_Pool], goal: Fairest, wanted: list[str | None]) -> None:
        self._pools = pools
        self._wanted = wanted
        self._members = {m: 3 + i for i, m in enumerate(goal.bounds)}
        self._network = Network(3 + len(self._members) + len(pools))
        # Giving up one partition costs more than assigning all of them to other racks.
        matters = any(pool.racks is not None for pool in pools)
        self._give_up = 1 + sum(len(pool.partitions) for pool in pools) if matters else 1
        self._add_members(goal)
        self._gives: list[_Arc] = []
        self._takes: list[_Arc] = []
        for i, pool in enumerate(pools):
            self._add_pool(3 + len(self._members) + i, pool)

    def decide(self) -> None:
        """Computes the flow and sets `given` and `taken` of each pool."""
        self._network.push(self.SOURCE, self.SINK)
        for pool, member, arc in self._gives:
            if count := self._network.moved(arc):
                pool.given[member] = count
        for pool, member, arc in self._takes:
            if count := self._network.moved(arc):
                pool.taken[member] = count

    def _add_members(self, goal: Fairest) -> None:
        load = dict.fromkeys(self._members, 0)
        for pool in self._pools:
            for member, owned in pool.owned.items():
                load[member] += len(owned)
        unfilled = sum(len(pool.partitions) for pool in self._pools)
        for member, (low, high) in goal.bounds.items():
            node = self._members[member]
            start = min(max(load[member], low), high)
            unfilled -= start
            if low < high:
                self._network.arc(node, self.HUB, high - start, back=start - low)
            if load[member] > start:
                self._network.arc(self.SOURCE, node, load[member] - start)
            elif load[member] < start:
                self._network.arc(node, self.SINK, start - load[member])
        if unfilled > 0:
            self._network.arc(self.HUB, self.SINK, unfilled)
        elif unfilled < 0:
            self._network.arc(self.SOURCE, self.HUB, -unfilled)

    def _add_pool(self, node: int, pool: _Pool) -> None:
        network = self._network
        if pool.free:
            network.arc(self.SOURCE, node, len(pool.free))
        for member in pool.takers:
            far = self._far(pool, member)
            self._takes.append(_Arc(pool, member, network.arc(node, self._members[member], UNBOUNDED, far)))
        for member, owned in pool.owned.items():
            cost = self._give_up - self._far(pool, member)
            self._gives.append(_Arc(pool, member, network.arc(self._members[member], node, len(owned), cost)))

    def _far(self, pool: _Pool, member: int) -> int:
        """1 if the member has a rack and all replicas of the pool are known to be in other racks, else 0."""
        rack = self._wanted[member]
        return int(pool.racks is not None and rack is not None and rack not in pool.racks)
