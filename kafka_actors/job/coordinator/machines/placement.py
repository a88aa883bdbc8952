"""The second level of assignment: the member's partitions spread over the job's workers.

What a worker should hold is derived from that as a whole (`orders`), so a lost or repeated message changes
nothing. An epoch is (incarnation of the coordinator actor, n) and is never used twice.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Never

from assignors import Assignor, Member
from kafka_actors.base.machine import Ready
from kafka_actors.job.messages import GrantEpoch, HeldReport, Version
from kafka_actors.types import TopicPartition

from .placed import DrainEnd, PlacedPartition, PlacedWorker, PlacementState, Withdrawal

__all__ = ["DrainEnd", "PlacedPartition", "Placement", "PlacementEvent", "PlacementState", "Withdrawal"]

GATHER_S = 3.0

PlacementEvent = Withdrawal | DrainEnd


class Placement:
    """Decides which worker holds which partition; its events say why one leaves a worker, and how drains end."""

    def __init__(self, incarnation: int, assignor: Assignor, drain_timeout_s: float) -> None:
        self.incarnation = incarnation
        self.assignor = assignor
        self.drain_timeout_s = drain_timeout_s
        self.slots: dict[TopicPartition, PlacedPartition] = {}
        self.workers: dict[str, PlacedWorker] = {}
        self._leased: dict[
            str, float
        ] = {}  # silent workers that are in no plan any more: when their leases end
        self.held_back = False  # nothing is granted yet: more workers are about to come
        self.expected = 0  # so many workers there are to be, retiring ones apart
        self.moves = 0
        self._events: list[PlacementEvent] = []
        self.changes = 0
        self._epochs = 0
        self.recovering = False
        self._expected: dict[
            str, float
        ] = {}  # workers that may hold what an older incarnation granted: until when they are waited for
        self._given = False
        self._unplaced = False  # something changed since the worker assignor ran
        self._newcomers = False  # new workers got ready, the first of them at that moment:
        self._newcomer_at: float | None = None

    # ------------------------------------------------------------ recovery of a new incarnation

    def recover(self, expected: Mapping[str, float]) -> None:
        """Begins as a new incarnation beside workers of an older one: nothing is granted until the group has given
        partitions, and each of the `expected` workers has registered, is dead, or is waited for no longer: its value is
        the moment at which its lease under the older incarnation has ended for certain."""
        self._expected = dict(expected)
        self.recovering = bool(expected)

    def awaits(self, worker: str) -> bool:
        """Whether the worker goes on with what it has, because a new incarnation doesn't know yet what that is."""
        return self.recovering and (not self._given or worker in self._expected)

    def adopt(
        self,
        worker: str,
        seen: Version,
        holdings: Iterable[HeldReport],
        partitions: Iterable[TopicPartition],
    ) -> None:
        """What a worker held under the old incarnation stays with it, under a new epoch, if the group gives it.

        Only a report that has `seen` this incarnation counts: until then, late orders of the old one may still
        change what the worker holds. Where two claim a partition, the one with the later grant has it: the other had
        not let go in time.
        """
        if seen[0] != self.incarnation:
            return
        given = set(partitions)
        self._unplaced = True
        for holding in holdings:
            slot = self.slots.get(holding.partition)
            if slot is None and holding.partition in given:
                slot = self.slots[holding.partition] = PlacedPartition(holding.partition)
            if slot is None or worker not in self.workers or slot.worker == worker:
                continue
            if (
                slot.state is PlacementState.GRANTED
                and slot.continues is not None
                and slot.continues < holding.epoch
            ):
                self._leaves(slot, "conflict")
                self._free(slot)
            if slot.state is PlacementState.FREE:
                self._grant(slot, worker, continues=holding.epoch)
        self._expected.pop(worker, None)

    # ------------------------------------------------------------ the group's share

    def give(self, partitions: Iterable[TopicPartition]) -> None:
        """The group assigned these to the job, in addition to what it has."""
        self._given = self._unplaced = True
        for partition in partitions:
            self.slots.setdefault(partition, PlacedPartition(partition))

    def take_away(self, partitions: Iterable[TopicPartition], deadline: float) -> None:
        """The group revokes these: they are drained by the deadline and then forgotten."""
        self._unplaced = True
        for partition in partitions:
            slot = self.slots.get(partition)
            if slot is None:
                continue
            if slot.state is PlacementState.FREE:
                del self.slots[partition]
            elif slot.state is not PlacementState.LEAVING:
                self._leaves(slot, "group_revoked")
                self._drain(slot, PlacementState.LEAVING, deadline)

    def lose(self, partitions: Iterable[TopicPartition]) -> None:
        """The group gave these to somebody else already: dropped at once, without a drain."""
        self._unplaced = True
        for partition in partitions:
            slot = self.slots.pop(partition, None)
            if slot is not None and slot.worker is not None:
                self._leaves(slot, "group_lost")
                self._touch(slot.worker)

    def move_on(self, partition: TopicPartition, now: float) -> None:
        """Nothing happens on this partition: it is drained and granted anew, under another epoch."""
        slot = self.slots.get(partition)
        if slot is not None and slot.state is PlacementState.GRANTED:
            self._leaves(slot, "stalled")
            self._drain(slot, PlacementState.DRAINING, now + self.drain_timeout_s)

    def still_leaving(self, partitions: Iterable[TopicPartition]) -> bool:
        return any(p in self.slots and self.slots[p].state is PlacementState.LEAVING for p in partitions)

    # ------------------------------------------------------------ workers

    def set_worker(
        self,
        worker: str,
        *,
        capacity: float = 1.0,
        retiring: bool = False,
        silent: bool = False,
        connected: bool = True,
    ) -> None:
        known = self.workers.setdefault(worker, PlacedWorker())
        if known.connected != connected:
            known.connected = connected
            self._unplaced = True
            self._newcomers = self._newcomers or known.takes_part
        if (known.capacity, known.retiring, known.silent) != (capacity, retiring, silent):
            known.capacity, known.retiring, known.silent = capacity, retiring, silent
            self._unplaced = True

    def leased(self, worker: str, until: float) -> None:
        """The worker may go on until then without being heard."""
        if (known := self.workers.get(worker)) is not None:
            known.leased_until = max(known.leased_until, until)
        if worker in self._expected:
            self._expected[worker] = max(self._expected[worker], until)

    def worker_ready(self, worker: str) -> None:
        if worker in self.workers and not self.workers[worker].ready:
            self.workers[worker].ready = True
            self._unplaced = True
            self._newcomers = self._newcomers or self.workers[worker].takes_part

    def remove_worker(self, worker: str, *, silent: bool = False) -> None:
        """The worker is dead or gone: what it held is free at once. One that is `silent`, and was given up as dead, may only
        be cut off: it has its lease, and a recovery goes on waiting for one that an older incarnation gave it."""
        known = self.workers.pop(worker, None)
        self._unplaced = True
        if known is not None and silent:
            self._leased[worker] = known.leased_until
        else:
            self._expected.pop(worker, None)
            self._take_from(worker, "worker_died")

    def _take_from(self, worker: str, cause: str) -> None:
        for slot in [s for s in self.slots.values() if s.worker == worker]:
            self._leaves(slot, cause)
            self._free(slot)

    def _silent(self) -> dict[str, float]:
        """The workers of which nothing is heard, and when their leases end."""
        silent = {name: known.leased_until for name, known in self.workers.items() if known.silent}
        return {**self._leased, **silent}

    def retired(self, worker: str) -> bool:
        """Whether a retiring worker holds nothing any more."""
        known = self.workers.get(worker)
        return (
            known is not None and known.retiring and not any(s.worker == worker for s in self.slots.values())
        )

    # ------------------------------------------------------------ steps

    def reported(self, worker: str, seen: Version, holdings: Iterable[HeldReport]) -> None:
        """A worker's report: what it has been told of and holds no more is released.

        That is the end of a drain; or of one that an older incarnation began, and this one had not heard of when
        it left the partition with its worker.
        """
        held = {h.partition: h.epoch for h in holdings}
        for slot in [s for s in self.slots.values() if s.worker == worker]:
            if held.get(slot.partition) == slot.epoch:
                if not self.recovering:  # until then somebody may claim it under a later one
                    slot.continues = None
            elif seen >= slot.ordered_at:
                if slot.state in (PlacementState.DRAINING, PlacementState.LEAVING):
                    self._events.append(DrainEnd(slot.partition, worker, "released"))
                self._free(slot)

    def poll(self, now: float) -> Ready[Never, PlacementEvent]:
        """Ends overdue drains, then moves and grants what the worker assignor wants; orders say the rest."""
        wake = self._advance(now)
        events, self._events = self._events, []
        return Ready(events=tuple(events), next_wake=wake)

    def _advance(self, now: float) -> float | None:
        for slot in list(self.slots.values()):
            if slot.state in (PlacementState.DRAINING, PlacementState.LEAVING) and now >= slot.deadline:
                self._events.append(DrainEnd(slot.partition, slot.worker or "", "forced"))
                self._free(slot)
        if self.recovering:
            until = max(self._expected.values(), default=now)
            if not self._given or now < until:
                return min([*([until] if now < until else []), *self._deadlines()], default=None)
            self.recovering = False
        silent = self._silent()
        for worker in [w for w, until in silent.items() if now >= until]:
            self._take_from(worker, "worker_silent")
            self._leased.pop(worker, None)
            del silent[worker]
        gathered = self._gathering_until(now)
        if self._unplaced and not self.held_back:
            self._unplaced = False
            self._place(now, gathering=gathered is not None)
        gathering = [] if gathered is None else [gathered]
        return min([*self._deadlines(), *silent.values(), *gathering], default=None)

    def _deadlines(self) -> list[float]:
        return [s.deadline for s in self.slots.values() if s.deadline != float("inf")]

    def _gathering_until(self, now: float) -> float | None:
        """Workers that are started together come up one after the other. The first would be given what is taken from
        it again for the others: so what has a worker stays there until all are up, or for a moment."""
        if not self._newcomers:
            return None
        if self._newcomer_at is None:
            self._newcomer_at = now
        coming = [w for w in self.workers.values() if not w.retiring]
        until = self._newcomer_at + GATHER_S
        if now < until and not (all(w.takes_part for w in coming) and len(coming) >= self.expected):
            return until
        self._newcomers, self._newcomer_at = False, None
        self._unplaced = True
        return None

    def _place(self, now: float, *, gathering: bool) -> None:
        live = {w: k for w, k in self.workers.items() if k.takes_part and not (k.retiring or k.silent)}
        wanted, silent, first = self._wanted(live), self._silent(), self._epochs == 0
        for slot in self.slots.values():
            target = wanted.get(slot.partition)
            if slot.worker in silent:
                continue  # nobody could tell it to drain
            if slot.state is PlacementState.FREE and target is not None:
                if not (gathering and first):
                    self._grant(slot, target)
            elif (
                slot.state is PlacementState.GRANTED
                and target != slot.worker
                and self._must_move(slot, target)
            ):
                if gathering and not self.workers[slot.worker or ""].retiring:
                    continue
                self._leaves(slot, "worker_retired" if self._retires(slot) else "balance")
                self._drain(slot, PlacementState.DRAINING, now + self.drain_timeout_s)
                self.moves += 1

    def _must_move(self, slot: PlacedPartition, target: str | None) -> bool:
        # With nobody to take it over, a partition stays, unless its own worker is to retire.
        return target is not None or self._retires(slot)

    def _retires(self, slot: PlacedPartition) -> bool:
        holder = self.workers.get(slot.worker or "")
        return holder is not None and holder.retiring

    def _leaves(self, slot: PlacedPartition, cause: str) -> None:
        """A worker is to lose a partition; one that is on its way out already has its cause."""
        if slot.state is PlacementState.GRANTED:
            self._events.append(Withdrawal(slot.partition, slot.worker or "", cause))

    def _wanted(self, live: Mapping[str, PlacedWorker]) -> dict[TopicPartition, str]:
        """What the worker assignor makes of the partitions that stay with the job."""
        staying = [s for s in self.slots.values() if s.state is not PlacementState.LEAVING]
        if not live or not staying:
            return {}
        topics: dict[str, list[int]] = {}
        owned: dict[str, list[tuple[str, int]]] = {w: [] for w in live}
        for slot in staying:
            topics.setdefault(slot.partition.topic, []).append(slot.partition.partition)
            if slot.worker in owned and slot.state is PlacementState.GRANTED:
                owned[slot.worker].append(slot.partition)
        members = {
            worker: Member(topics=frozenset(topics), owned=tuple(owned[worker]), capacity=known.capacity)
            for worker, known in live.items()
        }
        assigned = self.assignor.assign(topics, members)
        return {TopicPartition(*tp): worker for worker, tps in assigned.items() for tp in tps}

    def _grant(self, slot: PlacedPartition, worker: str, continues: GrantEpoch | None = None) -> None:
        slot.become(PlacementState.GRANTED)
        self._epochs += 1
        slot.worker, slot.epoch, slot.continues = worker, (self.incarnation, self._epochs), continues
        self._touch(worker)
        slot.ordered_at = self._version(worker)

    def _drain(self, slot: PlacedPartition, state: PlacementState, deadline: float) -> None:
        slot.become(state)
        assert slot.worker is not None  # only what is granted is drained
        self._touch(slot.worker)
        slot.ordered_at = self._version(slot.worker)
        slot.deadline = min(slot.deadline, deadline)

    def _free(self, slot: PlacedPartition) -> None:
        """Ends a worker's hold: from here on its commits are refused."""
        self._unplaced = True
        if slot.worker is not None:
            self._touch(slot.worker)
        if slot.state is PlacementState.LEAVING:
            del self.slots[slot.partition]
            return
        slot.become(PlacementState.FREE)
        slot.worker = slot.epoch = slot.continues = None
        slot.deadline = float("inf")

    def _touch(self, worker: str) -> None:
        self.changes += 1
        if worker in self.workers:
            self.workers[worker].version += 1

    # ------------------------------------------------------------ what it says

    def holder(self, worker: str, partition: TopicPartition) -> GrantEpoch | None:
        """The epoch under which the worker holds the partition, draining included; None if it does not."""
        slot = self.slots.get(partition)
        return slot.epoch if slot is not None and slot.worker == worker else None

    def served(self) -> frozenset[TopicPartition]:
        """Partitions that a worker has; all, while there is no worker to give them to or it is too early to."""
        able = any(known.ready and not known.retiring for known in self.workers.values())
        waits = self.recovering or self.held_back or not able
        return frozenset(p for p, slot in self.slots.items() if waits or slot.worker is not None)

    def version(self, worker: str) -> Version:
        """Rises with each change of what the worker may hold. A new incarnation says nothing before it knows what it has."""
        if self.awaits(worker):
            return self.incarnation, 0
        return self._version(worker)

    def _version(self, worker: str) -> Version:
        known = self.workers.get(worker)
        return self.incarnation, known.version if known else 0

    def held(self, worker: str, states: frozenset[PlacementState]) -> list[PlacedPartition]:
        return [s for s in self.slots.values() if s.worker == worker and s.state in states]

    def __repr__(self) -> str:
        counts = {state.value: 0 for state in PlacementState}
        for slot in self.slots.values():
            counts[slot.state.value] += 1
        return f"<Placement {counts} workers={sorted(self.workers)} moves={self.moves}>"
