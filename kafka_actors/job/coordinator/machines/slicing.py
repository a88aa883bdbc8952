"""`Slicing`: into how many slices partitions are dealt, and which worker takes which slice of them.

Theory of operation. A job whose records have an order by key, or none, may have more workers than partitions. Then each partition is dealt
in `parts` slices, for all partitions the same number, and the workers in as many teams, of sizes that differ by one at most: team k takes
slice k of every partition. So a worker never has two slices of one partition, and reads it once.

The number is one by which no worker has much more to do than others, and as few workers as possible read each partition. It changes when the number of workers has changed: at
once where all expected workers are up, or where those that are up want `GROWTH` times as many slices: workers of a job that starts, or grows,
come up one after the other, and the others would have nothing to do until the last one. Otherwise, because a worker that died is replaced in
a moment, it changes after `SETTLE_S`. Until then a new worker takes the place of its predecessor of the same role, or goes where a team is smallest.

A partition without a committed offset isn't dealt: two slices that each began by the reset policy could begin at different offsets, and
leave out what lies between.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection

from kafka_actors.job.lanes import Slice, slice_of
from kafka_actors.job.transactions import role_of
from kafka_actors.types import TopicPartition

__all__ = ["Slicing", "parts_for"]

SETTLE_S = 10.0
"""Time without a change of the workers after which partitions are dealt anew, though some workers are missing."""
GROWTH = 2
"""Factor by which the workers that are up have to want more slices, for partitions to be dealt anew before the others are there."""
UNEVEN = 1.2
"""The most that the busiest worker may have, by the number of its slices, compared with an even share."""


def parts_for(workers: int, partitions: int, lanes: int) -> int:
    """Returns the number of slices of each partition."""
    if workers <= partitions or partitions == 0:
        return 1
    reads = {parts: -(-partitions // (workers // parts)) for parts in range(1, min(workers, lanes) + 1)}
    loads = {parts: each / parts for parts, each in reads.items()}
    enough = max(min(loads.values()), UNEVEN * partitions / workers)
    least = next(parts for parts, load in loads.items() if load <= enough)
    return max(parts for parts, each in reads.items() if each == reads[least] and parts >= least)


class Slicing:
    """The number of slices, and the workers' teams. `lanes`: of a partition, 1 where partitions aren't dealt. `begun(partition)`: whether
    the group has committed an offset of it."""

    def __init__(
        self, lanes: int = 1, begun: Callable[[TopicPartition], bool] = lambda partition: True
    ) -> None:
        self.lanes = lanes
        self.parts = 1
        self._begun = begun
        self._teams: dict[str, int] = {}
        self._live: frozenset[str] = frozenset()
        self._changed_at = float("-inf")

    def slices(self, partition: TopicPartition) -> list[TopicPartition]:
        """Returns what a partition is dealt in."""
        if self.parts == 1 or not self._begun(partition):
            return [partition]
        return [slice_of(partition, part, self.parts) for part in range(self.parts)]

    def takes(self, worker: str, partition: TopicPartition) -> bool:
        """Whether a worker may have this slice; any has a partition that isn't dealt."""
        return not isinstance(partition, Slice) or self._teams.get(role_of(worker)) == partition.part

    def adopt(self, worker: str, partition: TopicPartition) -> None:
        """Takes what a worker has from an older incarnation."""
        if isinstance(partition, Slice):
            self.parts = partition.parts
            self._teams[role_of(worker)] = partition.part

    def decide(self, live: Collection[str], expected: int, partitions: int, now: float) -> bool:
        """Decides anew. `live`: workers that can take partitions; `expected`: their number when all are up. Returns whether a worker's
        team or the number of slices is another one now."""
        if frozenset(live) != self._live:
            self._live, self._changed_at = frozenset(live), now
        before = self.parts, dict(self._teams)
        roles = sorted(map(role_of, live))
        wanted = parts_for(len(roles), partitions, self.lanes)
        settled = len(live) >= expected or now >= self._changed_at + SETTLE_S or wanted >= GROWTH * self.parts
        if settled and roles:
            self.parts = wanted
            self._teams = {role: team for role, team in self._teams.items() if role in roles}
        self._teams = _even(self._teams, roles, self.parts, move=settled)
        return before != (self.parts, self._teams)

    def wakes(self, now: float) -> list[float]:
        """Returns when to decide again, if nothing happens until then."""
        until = self._changed_at + SETTLE_S
        return [until] if self.lanes > 1 and now < until else []


def _even(teams: dict[str, int], roles: list[str], parts: int, *, move: bool) -> dict[str, int]:
    """Returns the teams with all roles in them. `move`: roles change teams until sizes differ by one at most; those that are in one stay
    as far as that allows."""
    kept = {role: team for role, team in teams.items() if team < parts}
    sizes = Counter(dict.fromkeys(range(parts), 0))
    sizes.update(kept[role] for role in roles if role in kept)
    for role in roles:
        if role not in kept:
            kept[role] = min(sizes, key=lambda team: (sizes[team], team))
            sizes[kept[role]] += 1
    while move and max(sizes.values()) - min(sizes.values()) > 1:
        largest, smallest = max(sizes, key=lambda team: sizes[team]), min(sizes, key=lambda team: sizes[team])
        role = next(role for role in reversed(roles) if kept[role] == largest)
        kept[role] = smallest
        sizes[largest] -= 1
        sizes[smallest] += 1
    return kept
