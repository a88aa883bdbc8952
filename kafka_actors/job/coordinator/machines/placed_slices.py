"""`PlacedSlices`: the partitions of a job by what they are dealt in, each of which is placed by itself."""

from __future__ import annotations

from collections.abc import Collection, Iterable

from kafka_actors.job.lanes import Slice, slice_of, source
from kafka_actors.job.messages import GrantEpoch
from kafka_actors.types import TopicPartition

from .placed import PlacedPartition, PlacementState
from .slicing import Slicing

__all__ = ["PlacedSlices"]


class PlacedSlices:
    """Keeps `placed`, which has a whole partition, or each of its slices, and deals partitions as `slicing` says. `assigned`: partitions
    that the group assigned to the job."""

    def __init__(self, placed: dict[TopicPartition, PlacedPartition], slicing: Slicing) -> None:
        self.slicing = slicing
        self._placed = placed
        self._slices: dict[TopicPartition, list[TopicPartition]] = {}
        self.assigned: set[TopicPartition] = set()

    def assign(self, partitions: Iterable[TopicPartition]) -> list[TopicPartition]:
        """Takes partitions that the group assigned. Returns what is new to the job."""
        new = list(partitions)
        self.assigned.update(new)
        return [each for partition in new if not self.of(partition) for each in self._dealt(partition)]

    def withdraw(self, partitions: Iterable[TopicPartition]) -> list[PlacedPartition]:
        """Takes that the group has other plans with partitions. Returns what there is of them."""
        gone = list(partitions)
        self.assigned.difference_update(gone)
        return self.of_all(gone)

    def deal(
        self, live: Collection[str], expected: int, now: float, silent: Collection[str] = ()
    ) -> tuple[bool, list[PlacedPartition]]:
        """Deals partitions in as many slices as `Slicing.decide` has decided, as soon as nobody has a former slice. Returns whether anything
        is to be placed otherwise, and the slices that are to be drained first: none of a partition of which a `silent` worker has one."""
        changed = self.slicing.decide(live, expected, len(self.assigned), now)
        drained: list[PlacedPartition] = []
        for partition in sorted(self.assigned):
            there, wanted = self.of(partition), self.slicing.slices(partition)
            if there == wanted or any(self._placed[each].worker in silent for each in there):
                continue
            for placed in [self._placed[each] for each in there]:
                if placed.state is PlacementState.FREE:
                    self.remove(placed.partition)
                else:
                    drained.append(placed)
            if not self.of(partition):
                self._dealt(partition)
                changed = True
        return changed, drained

    def _dealt(self, partition: TopicPartition) -> list[TopicPartition]:
        return [self.add(each).partition for each in self.slicing.slices(partition)]

    def add(self, partition: TopicPartition) -> PlacedPartition:
        """Adds a partition or slice that no worker has yet."""
        if isinstance(partition, Slice):
            self._slices.setdefault(source(partition), []).append(partition)
        self._placed[partition] = placed = PlacedPartition(partition)
        return placed

    def remove(self, partition: TopicPartition) -> None:
        del self._placed[partition]
        if isinstance(partition, Slice):
            slices = self._slices[source(partition)]
            slices.remove(partition)
            if not slices:
                del self._slices[source(partition)]

    def of(self, partition: TopicPartition) -> list[TopicPartition]:
        """Returns what there is of a partition: itself, or slices."""
        found = self._slices.get(partition)
        if found is not None:
            return list(found)
        return [partition] if partition in self._placed else []

    def of_all(self, partitions: Iterable[TopicPartition]) -> list[PlacedPartition]:
        """Returns what there is of several partitions."""
        return [self._placed[each] for partition in partitions for each in self.of(partition)]

    def beside(self, slices: Iterable[TopicPartition]) -> list[PlacedPartition]:
        """Returns the others of the partitions of these slices that workers have."""
        own = set(slices)
        return [
            placed
            for placed in self.of_all(sorted(set(map(source, own))))
            if placed.partition not in own and placed.worker is not None
        ]

    def held(self, worker: str, partition: TopicPartition) -> PlacedPartition | None:
        """Returns what a worker has of a partition, of which it never has two slices."""
        for each in self.of(partition):
            if self._placed[each].worker == worker:
                return self._placed[each]
        return None

    def sources(self) -> set[TopicPartition]:
        """Returns the partitions of which there is anything, and those that are about to be dealt anew."""
        placed = self._placed.keys() if not self._slices else {source(each) for each in self._placed}
        return placed | self.assigned

    def claimed_before(
        self, claim: TopicPartition, worker: str, epoch: GrantEpoch, *, assigned: bool
    ) -> list[PlacedPartition]:
        """Returns what others have, by earlier grants than this `epoch`, of what a worker reports to have; also where it was dealt otherwise
        then, if all of those are earlier."""
        there = [claim] if claim in self._placed or not assigned else self.of(source(claim))
        found = [
            each for each in map(self._placed.get, there) if each is not None and each.worker is not None
        ]
        earlier = [
            each
            for each in found
            if each.worker != worker
            and each.state is PlacementState.GRANTED
            and each.continues is not None
            and each.continues < epoch
        ]
        return earlier if len(earlier) == len(found) else []

    def claimed(self, claim: TopicPartition, *, assigned: bool) -> PlacedPartition | None:
        """Returns the place of what a worker reports to have. What nobody has makes room for how its partition is dealt by that, if the
        group `assigned` it; None where another worker has it dealt otherwise."""
        if claim in self._placed or not assigned:
            return self._placed.get(claim)
        partition = source(claim)
        there = self.of(partition)
        if any(self._placed[each].state is not PlacementState.FREE for each in there):
            return None
        for each in there:
            self.remove(each)
        parts = claim.parts if isinstance(claim, Slice) else 1
        for part in range(parts):
            self.add(slice_of(partition, part, parts))
        return self._placed[claim]
