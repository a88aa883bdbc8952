"""Second level of assignment: the group assigns partitions to the job's member, `Placement` spreads them over the workers.

Theory of operation. Inputs are the group's assignment, the supervisor's workers, and the workers' reports. The worker assignor
(sticky by default) computes the wanted holders; a free partition is granted, one with another holder is drained first. States of
a partition: see `placed`. A worker's orders are derived from this state as a whole, under a version that rises with each
change, so a lost, repeated or late message does no harm.

- **Epochs.** Each grant has an epoch (incarnation of the coordinator actor, n), never used twice. Commits under any other epoch
  are refused, so a worker that lost a partition can't move its offset.
- **Drains.** A drain ends with a report that has seen the order and lacks the partition, or at its deadline. Nothing waits for a
  worker.
- **Dead and silent workers.** Partitions of a dead worker are free at once. Of a silent one (no message, or its node is called
  dead after a silence) they stay until its lease has ended: it may still call the user's function.
- **Start.** Workers come up one after the other. For `GATHER_S` after the first one, nothing that has a holder moves to
  newcomers, so that the first isn't granted what is taken from it a moment later.
- **Recovery.** A new incarnation grants nothing until the group has assigned partitions, and every worker of the older one has
  reported under this incarnation, is dead, or can have no lease any more. What a worker reports stays with it, under a new
  epoch that continues the old one (`adopt`), so its calls in hand go on.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Never

from assignors import Assignor, Member
from kafka_actors.base.machine import Ready
from kafka_actors.job.messages import GrantEpoch, HeldReport, Version
from kafka_actors.types import TopicPartition

from .placed import DrainEnd, Gathering, PlacedPartition, PlacedWorker, PlacementState, Recovery, Withdrawal

__all__ = ["DrainEnd", "PlacedPartition", "Placement", "PlacementEvent", "PlacementState", "Withdrawal"]

PlacementEvent = Withdrawal | DrainEnd


class Placement:
    """Decides which worker holds which partition; its events say why one leaves a worker, and how drains end."""

    def __init__(self, incarnation: int, assignor: Assignor, drain_timeout_s: float) -> None:
        self.incarnation = incarnation
        self.assignor = assignor
        self.drain_timeout_s = drain_timeout_s
        self.partitions: dict[TopicPartition, PlacedPartition] = {}
        self.workers: dict[str, PlacedWorker] = {}
        self._leased: dict[str, float] = {}  # silent workers that the plan lacks: when their leases end
        self.held_back = False  # grants nothing yet: more workers are about to come
        self.gathering = Gathering()
        self.recovery = Recovery()
        self.moves = 0
        self._events: list[PlacementEvent] = []
        self.changes = 0
        self._epochs = 0
        self._assignor_due = False  # something changed since the worker assignor ran

    # ------------------------------------------------------------ recovery of a new incarnation

    def adopt(
        self,
        worker: str,
        seen: Version,
        holdings: Iterable[HeldReport],
        partitions: Iterable[TopicPartition],
    ) -> None:
        """Takes a worker's first report to a new incarnation: what it holds stays with it, under a new epoch, if it is among
        the group's `partitions`.

        Only a report that has `seen` this incarnation counts: before, late orders of the old one may still change what the
        worker holds. If two workers claim a partition, the later grant counts: the other one had not released it in time.
        """
        if seen[0] != self.incarnation:
            return
        assigned = set(partitions)
        self._assignor_due = True
        for holding in holdings:
            placed = self.partitions.get(holding.partition)
            if placed is None and holding.partition in assigned:
                placed = self.partitions[holding.partition] = PlacedPartition(holding.partition)
            if placed is None or worker not in self.workers or placed.worker == worker:
                continue
            if (
                placed.state is PlacementState.GRANTED
                and placed.continues is not None
                and placed.continues < holding.epoch
            ):
                self._leaves(placed, "conflict")
                self._free(placed)
            if placed.state is PlacementState.FREE:
                self._grant(placed, worker, continues=holding.epoch)
        self.recovery.settled(worker)

    # ------------------------------------------------------------ the group's assignment

    def assign(self, partitions: Iterable[TopicPartition]) -> None:
        """Takes partitions that the group assigned, in addition to earlier ones."""
        self._assignor_due = self.recovery.assigned = True
        for partition in partitions:
            self.partitions.setdefault(partition, PlacedPartition(partition))

    def revoke(self, partitions: Iterable[TopicPartition], deadline: float) -> None:
        """Takes that the group revokes partitions: they are drained by the deadline and then forgotten."""
        self._assignor_due = True
        for partition in partitions:
            placed = self.partitions.get(partition)
            if placed is None:
                continue
            if placed.state is PlacementState.FREE:
                del self.partitions[partition]
            elif placed.state is not PlacementState.LEAVING:
                self._leaves(placed, "group_revoked")
                self._drain(placed, PlacementState.LEAVING, deadline)

    def lose(self, partitions: Iterable[TopicPartition]) -> None:
        """Takes that the group has assigned partitions to another member already: drops them at once, without a drain."""
        self._assignor_due = True
        for partition in partitions:
            placed = self.partitions.pop(partition, None)
            if placed is not None and placed.worker is not None:
                self._leaves(placed, "group_lost")
                self._touch(placed.worker)

    def regrant(self, partition: TopicPartition, now: float) -> None:
        """Drains a stalled partition, to be granted again under another epoch."""
        placed = self.partitions.get(partition)
        if placed is not None and placed.state is PlacementState.GRANTED:
            self._leaves(placed, "stalled")
            self._drain(placed, PlacementState.DRAINING, now + self.drain_timeout_s)

    def still_leaving(self, partitions: Iterable[TopicPartition]) -> bool:
        return any(
            p in self.partitions and self.partitions[p].state is PlacementState.LEAVING for p in partitions
        )

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
        """Takes what the supervisor knows of a worker: as in `PlacedWorker`. A new one takes part once it is ready."""
        known = self.workers.setdefault(worker, PlacedWorker())
        if known.connected != connected:
            known.connected = connected
            self._assignor_due = True
            self.gathering.open |= known.takes_part
        if (known.capacity, known.retiring, known.silent) != (capacity, retiring, silent):
            known.capacity, known.retiring, known.silent = capacity, retiring, silent
            self._assignor_due = True

    def leased(self, worker: str, until: float) -> None:
        """Records until when the worker may go on without being heard."""
        if (known := self.workers.get(worker)) is not None:
            known.leased_until = max(known.leased_until, until)
        self.recovery.leased(worker, until)

    def worker_ready(self, worker: str) -> None:
        """Takes that a worker has reported itself ready."""
        if worker in self.workers and not self.workers[worker].ready:
            self.workers[worker].ready = True
            self._assignor_due = True
            self.gathering.open |= self.workers[worker].takes_part

    def remove_worker(self, worker: str, *, silent: bool = False) -> None:
        """Takes that a worker is dead or gone: its partitions are free at once. A `silent` one may only be cut off: its
        partitions wait for its lease to end, and so does a recovery."""
        known = self.workers.pop(worker, None)
        self._assignor_due = True
        if known is not None and silent:
            self._leased[worker] = known.leased_until
        else:
            self.recovery.settled(worker)
            self._take_from(worker, "worker_died")

    def _take_from(self, worker: str, cause: str) -> None:
        """Frees all that a worker has, without a drain: it is gone, or may do nothing any more."""
        for placed in [s for s in self.partitions.values() if s.worker == worker]:
            self._leaves(placed, cause)
            self._free(placed)

    def _silent(self) -> dict[str, float]:
        """Silent workers, and when their leases end."""
        silent = {name: known.leased_until for name, known in self.workers.items() if known.silent}
        return {**self._leased, **silent}

    def retired(self, worker: str) -> bool:
        """Whether a retiring worker holds no partitions any more."""
        known = self.workers.get(worker)
        return (
            known is not None
            and known.retiring
            and not any(s.worker == worker for s in self.partitions.values())
        )

    # ------------------------------------------------------------ steps

    def reported(self, worker: str, seen: Version, holdings: Iterable[HeldReport]) -> None:
        """Takes a worker's report. A partition that it lacks, though its orders were seen, is released.

        That ends a drain; also one that an older incarnation began, and this one didn't know of when it left the partition
        with its worker.
        """
        held = {h.partition: h.epoch for h in holdings}
        for placed in [s for s in self.partitions.values() if s.worker == worker]:
            if held.get(placed.partition) == placed.epoch:
                if not self.recovery.active:  # until then somebody may claim it under a later one
                    placed.continues = None
            elif seen >= placed.ordered_at:
                if placed.state in (PlacementState.DRAINING, PlacementState.LEAVING):
                    self._events.append(DrainEnd(placed.partition, worker, "released"))
                self._free(placed)

    def poll(self, now: float) -> Ready[Never, PlacementEvent]:
        """Ends overdue drains, then moves and grants what the worker assignor wants; orders say the rest."""
        wake = self._advance(now)
        events, self._events = tuple(self._events), []
        return Ready(events=events, next_wake=wake)

    def _advance(self, now: float) -> float | None:
        for placed in list(self.partitions.values()):
            if placed.state in (PlacementState.DRAINING, PlacementState.LEAVING) and now >= placed.deadline:
                self._events.append(DrainEnd(placed.partition, placed.worker or "", "forced"))
                self._free(placed)
        if not self.recovery.over(now):
            return min([*self.recovery.wakes(now), *self._deadlines()], default=None)
        silent = self._silent()
        for worker in [w for w, until in silent.items() if now >= until]:
            self._take_from(worker, "worker_silent")
            self._leased.pop(worker, None)
            del silent[worker]
        if self.gathering.over(self.workers.values(), now):
            self._assignor_due = True
        if self._assignor_due and not self.held_back:
            self._assignor_due = False
            self._place(now)
        return min([*self._deadlines(), *silent.values(), *self.gathering.wakes()], default=None)

    def _deadlines(self) -> list[float]:
        return [s.deadline for s in self.partitions.values() if s.deadline != float("inf")]

    def _place(self, now: float) -> None:
        live = {w: k for w, k in self.workers.items() if k.takes_part and not (k.retiring or k.silent)}
        wanted, silent, first = self._wanted(live), self._silent(), self._epochs == 0
        gathering = self.gathering.open
        for placed in self.partitions.values():
            target = wanted.get(placed.partition)
            if placed.worker in silent:
                continue  # no order to drain could reach it
            if placed.state is PlacementState.FREE and target is not None:
                if not (gathering and first):
                    self._grant(placed, target)
            elif (
                placed.state is PlacementState.GRANTED
                and target != placed.worker
                and self._must_move(placed, target)
            ):
                if gathering and not self.workers[placed.worker or ""].retiring:
                    continue
                self._leaves(placed, "worker_retired" if self._retires(placed) else "balance")
                self._drain(placed, PlacementState.DRAINING, now + self.drain_timeout_s)
                self.moves += 1

    def _must_move(self, placed: PlacedPartition, target: str | None) -> bool:
        # With nobody to take it over, a partition stays, unless its own worker is to retire.
        return target is not None or self._retires(placed)

    def _retires(self, placed: PlacedPartition) -> bool:
        holder = self.workers.get(placed.worker or "")
        return holder is not None and holder.retiring

    def _leaves(self, placed: PlacedPartition, cause: str) -> None:
        """Reports that a worker loses a granted partition; one that drains already has its cause."""
        if placed.state is PlacementState.GRANTED:
            self._events.append(Withdrawal(placed.partition, placed.worker or "", cause))

    def _wanted(self, live: Mapping[str, PlacedWorker]) -> dict[TopicPartition, str]:
        """Has the worker assignor spread the partitions that stay with the job."""
        staying = [s for s in self.partitions.values() if s.state is not PlacementState.LEAVING]
        if not live or not staying:
            return {}
        topics: dict[str, list[int]] = {}
        owned: dict[str, list[tuple[str, int]]] = {w: [] for w in live}
        for placed in staying:
            topics.setdefault(placed.partition.topic, []).append(placed.partition.partition)
            if placed.worker in owned and placed.state is PlacementState.GRANTED:
                owned[placed.worker].append(placed.partition)
        members = {
            worker: Member(topics=frozenset(topics), owned=tuple(owned[worker]), capacity=known.capacity)
            for worker, known in live.items()
        }
        assigned = self.assignor.assign(topics, members)
        return {TopicPartition(*tp): worker for worker, tps in assigned.items() for tp in tps}

    def _grant(self, placed: PlacedPartition, worker: str, continues: GrantEpoch | None = None) -> None:
        """Gives a free partition to a worker under a new epoch. `continues`: the older incarnation's, whose calls go on."""
        placed.become(PlacementState.GRANTED)
        self._epochs += 1
        placed.worker, placed.epoch, placed.continues = worker, (self.incarnation, self._epochs), continues
        self._touch(worker)
        placed.ordered_at = self._version(worker)

    def _drain(self, placed: PlacedPartition, state: PlacementState, deadline: float) -> None:
        """Begins a drain, which the worker's next orders list. One under way keeps its deadline if that is earlier."""
        placed.become(state)
        assert placed.worker is not None  # only what is granted is drained
        self._touch(placed.worker)
        placed.ordered_at = self._version(placed.worker)
        placed.deadline = min(placed.deadline, deadline)

    def _free(self, placed: PlacedPartition) -> None:
        """Takes a partition from its worker, whose commits are refused from now on."""
        self._assignor_due = True
        if placed.worker is not None:
            self._touch(placed.worker)
        if placed.state is PlacementState.LEAVING:
            del self.partitions[placed.partition]
            return
        placed.become(PlacementState.FREE)
        placed.worker = placed.epoch = placed.continues = None
        placed.deadline = float("inf")

    def _touch(self, worker: str) -> None:
        """Raises the version of the worker's orders: what it may hold has changed."""
        self.changes += 1
        if worker in self.workers:
            self.workers[worker].version += 1

    # ------------------------------------------------------------ queries

    def holder(self, worker: str, partition: TopicPartition) -> GrantEpoch | None:
        """Returns the epoch under which the worker holds the partition, draining included; None if it doesn't."""
        placed = self.partitions.get(partition)
        return placed.epoch if placed is not None and placed.worker == worker else None

    def served(self) -> frozenset[TopicPartition]:
        """Returns the partitions that a worker has; all, while no worker can take them or it is too early."""
        able = any(known.ready and not known.retiring for known in self.workers.values())
        waits = self.recovery.active or self.held_back or not able
        return frozenset(p for p, placed in self.partitions.items() if waits or placed.worker is not None)

    def version(self, worker: str) -> Version:
        """Returns the version of the worker's orders, which rises with each change of what it may hold."""
        if self.recovery.awaits(worker):
            return self.incarnation, 0
        return self._version(worker)

    def _version(self, worker: str) -> Version:
        known = self.workers.get(worker)
        return self.incarnation, known.version if known else 0

    def held(self, worker: str, states: frozenset[PlacementState]) -> list[PlacedPartition]:
        return [s for s in self.partitions.values() if s.worker == worker and s.state in states]

    def __repr__(self) -> str:
        counts = {state.value: 0 for state in PlacementState}
        for placed in self.partitions.values():
            counts[placed.state.value] += 1
        return f"<Placement {counts} workers={sorted(self.workers)} moves={self.moves}>"
