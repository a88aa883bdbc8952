"""Second level of assignment: the group assigns partitions to the job's member, `Placement` spreads them over the workers.

Theory of operation. Inputs are the group's assignment, the supervisor's workers, and the workers' reports. The worker assignor (sticky by
default) computes the wanted holders; a free partition is granted, one with another holder is drained first. States of a partition: see
`placed`. A worker's orders are derived from this state as a whole, under a version that rises with each change, so a lost, repeated or
late message does no harm.

- **Epochs.** Each grant has an epoch (incarnation of the coordinator actor, n), never used twice. Commits under any other epoch are refused,
  so a worker that lost a partition can't move its offset.
- **Drains.** A drain ends with a report that has seen the order and lacks the partition, or at its deadline. Nothing waits for a worker.
- **Dead and silent workers.** Partitions of a dead worker are free at once. Of a silent one (no message, or its node is called dead after a
  silence) they stay until its lease has ended, drained or not: it may still call the user's function. Only the group does not wait for that.
- **Start.** Workers come up one after the other. For `GATHER_S` after the first one, nothing that has a holder moves to newcomers, so that
  the first isn't granted what is taken from it a moment later.
- **Exactly once.** With a `Settlement`, a free partition is granted once that has settled it, and to a worker with a session. A worker
  from which one partition is taken by force loses all of them: the fence aborts its whole transaction.
- **Resets.** Slices of a partition are of one log. Where one was reset and its commit is acknowledged, the others are granted anew, to begin
  there (`begin_anew`), as soon as their workers' calls in hand have ended, or they have no lease: each on its own would go on in the log of
  before until it finds that, and its offset would count beside the other's.
- **Recovery.** A new incarnation grants nothing until the group has assigned partitions, and every worker of the older one has reported
  under this incarnation, is dead, or can have no lease any more. What a worker reports stays with it, under a new epoch that continues
  the old one (`adopt`), so its calls in hand go on.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Never

from assignors import Assignor
from kafka_actors.base.machine import Ready
from kafka_actors.job.lanes import slice_of, source
from kafka_actors.job.messages import GrantEpoch, HeldReport, Version
from kafka_actors.types import TopicPartition

from .placed import (
    NEVER,
    DrainEnd,
    Gathering,
    PlacedPartition,
    PlacedWorker,
    PlacementState,
    Recovery,
    Withdrawal,
    live_workers,
    wanted_holders,
)
from .placed_slices import PlacedSlices
from .settlement import NoSettlement, Settlement
from .slicing import Slicing

__all__ = ["DrainEnd", "PlacedPartition", "Placement", "PlacementEvent", "PlacementState", "Withdrawal"]

PlacementEvent = Withdrawal | DrainEnd


class Placement:
    """Decides which worker holds which partition; its events say why one leaves a worker, and how drains end."""

    def __init__(
        self,
        incarnation: int,
        assignor: Assignor,
        drain_timeout_s: float,
        settlement: Settlement | NoSettlement | None = None,
        slicing: Slicing | None = None,
    ) -> None:
        self.incarnation = incarnation
        self.settlement = settlement or NoSettlement()
        self.assignor = assignor
        self.drain_timeout_s = drain_timeout_s
        self.partitions: dict[TopicPartition, PlacedPartition] = {}
        self.slices = PlacedSlices(self.partitions, slicing or Slicing())
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
        self, worker: str, seen: Version, holdings: Iterable[HeldReport], partitions: Iterable[TopicPartition]
    ) -> None:
        """Takes a worker's first report to a new incarnation: what it holds of the group's `partitions` stays with it, under a new epoch.

        Only a report that has `seen` this incarnation counts: before, late orders of the old one may still change what the
        worker holds. If two workers claim a partition, the later grant counts: the other one had not released it in time.
        """
        if seen[0] != self.incarnation:
            return
        assigned = set(partitions)
        self._assignor_due = True
        for holding in holdings if worker in self.workers else ():
            claim = slice_of(holding.partition, holding.part, holding.parts)
            own = holding.partition in assigned
            for earlier in self.slices.claimed_before(claim, worker, holding.epoch, assigned=own):
                self._leaves(earlier, "conflict")
                self._free(earlier, by_force=True)
                self._take_from_the_fenced()
            placed = self.slices.claimed(claim, assigned=own)
            if placed is not None and placed.state is PlacementState.FREE:
                self._grant(placed, worker, continues=holding.epoch)
                self.slices.slicing.adopt(worker, claim)
        self.recovery.settled(worker)

    # ------------------------------------------------------------ the group's assignment

    def assign(self, partitions: Iterable[TopicPartition]) -> None:
        """Takes partitions that the group assigned, in addition to earlier ones."""
        self._assignor_due = self.recovery.assigned = True
        for partition in self.slices.assign(partitions):
            self.settlement.assigned(partition)

    def revoke(self, partitions: Iterable[TopicPartition], deadline: float) -> None:
        """Takes that the group revokes partitions: they are drained by the deadline and then forgotten."""
        self._assignor_due = True
        for placed in self.slices.withdraw(partitions):
            self._revoke(placed, "group_revoked", deadline)

    def _revoke(self, placed: PlacedPartition, cause: str, deadline: float) -> None:
        if placed.state is PlacementState.FREE:
            self._forget(placed.partition)
        elif placed.state is PlacementState.LEAVING:
            placed.deadline = min(placed.deadline, deadline)
        else:
            self._leaves(placed, cause)
            self._drain(placed, PlacementState.LEAVING, deadline)

    def lose(self, partitions: Iterable[TopicPartition]) -> None:
        """Takes that the group has assigned partitions to another member already: drops them at once, without a drain."""
        self._assignor_due = True
        for placed in self.slices.withdraw(partitions):
            if placed.worker is not None:
                self._leaves(placed, "group_lost")
                self._touch(placed.worker)
                self.settlement.freed(placed.partition, placed.worker)
            self._forget(placed.partition)
        self._take_from_the_fenced()

    def _forget(self, partition: TopicPartition) -> None:
        self.slices.remove(partition)
        self.settlement.gone(partition)

    def regrant(self, partition: TopicPartition, now: float) -> None:
        """Drains a stalled partition, to be granted again under another epoch."""
        placed = self.partitions.get(partition)
        if placed is not None and placed.state is PlacementState.GRANTED:
            self._leaves(placed, "stalled")
            self._drain(placed, PlacementState.DRAINING, now + self.drain_timeout_s)

    def begin_anew(self, reset: Iterable[TopicPartition]) -> None:
        """Takes that slices were reset: others of their partitions are granted again, to begin there too."""
        for placed in self.slices.beside(reset):
            self._leaves(placed, "reset")
            self._void(placed)

    def still_leaving(self, partitions: Iterable[TopicPartition]) -> bool:
        return any(placed.state is PlacementState.LEAVING for placed in self.slices.of_all(partitions))

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
        self.settlement.worker_comes(worker)
        self.gathering.open |= known.ready and connected and not known.connected
        before = known.capacity, known.retiring, known.silent, known.connected
        known.capacity, known.retiring, known.silent, known.connected = capacity, retiring, silent, connected
        self._assignor_due |= before != (capacity, retiring, silent, connected)

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
        """Takes that a worker is dead or gone: its partitions are free at once. A `silent` one may only be cut off: they wait for its lease to
        end, and so does a recovery."""
        known = self.workers.pop(worker, None)
        self._assignor_due = True
        if known is not None and silent:
            self._leased[worker] = known.leased_until
        else:
            self.recovery.settled(worker)
            self._take_from(worker, "worker_died")
        self.settlement.worker_goes(worker)

    def transaction_failed(self, worker: str) -> None:
        """Takes that a worker has lost all that it had in its open transaction, and all of its partitions with that."""
        self.settlement.fence(worker)
        self._take_from(worker, "transaction_aborted")

    def _take_from(self, worker: str, cause: str) -> None:
        """Frees all that a worker has, without a drain: it is gone, or may do nothing any more."""
        for placed in [s for s in self.partitions.values() if s.worker == worker]:
            self._leaves(placed, cause)
            self._free(placed, by_force=True)

    def _take_from_the_fenced(self) -> None:
        """Frees all partitions of workers that have lost their session with one of them."""
        fenced = {worker for worker in self.workers if self.settlement.session_of(worker) is None}
        for worker in fenced and fenced & {placed.worker for placed in self.partitions.values()}:
            self._take_from(worker, "fenced")

    def _silent(self) -> dict[str, float]:
        """Silent workers, and when their leases end."""
        silent = {name: known.leased_until for name, known in self.workers.items() if known.silent}
        return {**self._leased, **silent}

    def retired(self, worker: str) -> bool:
        """Whether a retiring worker holds no partitions any more."""
        return self._retires(worker) and all(s.worker != worker for s in self.partitions.values())

    # ------------------------------------------------------------ steps

    def reported(self, worker: str, seen: Version, holdings: Iterable[HeldReport]) -> None:
        """Takes a worker's report. A partition that it lacks, though its orders were seen, is released: that ends a drain, also one that an older
        incarnation began, and this one didn't know of when it left the partition with its worker."""
        held = {h.partition: h.epoch for h in holdings}
        for placed in [s for s in self.partitions.values() if s.worker == worker]:
            if held.get(source(placed.partition)) == placed.epoch:
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
        silent = self._silent()
        for placed in self._draining():
            if source(placed.partition) in self.slices.assigned:  # the group doesn't take it
                placed.deadline = max(placed.deadline, silent.get(placed.worker or "", 0.0))
            if now >= placed.deadline:
                self._events.append(DrainEnd(placed.partition, placed.worker or "", "forced"))
                self._free(placed, by_force=True)
        self._take_from_the_fenced()
        if not self.recovery.over(now):
            return min([*self.recovery.wakes(now), *(s.deadline for s in self._draining())], default=None)
        self.settlement.begin()
        other_sessions, settled = self.settlement.take_changes()
        for worker in other_sessions:
            self._touch(worker)
        self._assignor_due |= settled
        for worker in [w for w, until in silent.items() if now >= until]:
            self._take_from(worker, "worker_silent")
            self._leased.pop(worker, None)
            del silent[worker]
        self._assignor_due |= self.gathering.over(self.workers.values(), now)
        if self.slices.slicing.lanes > 1 and not (self.held_back or self.gathering.open):
            live = live_workers(self.workers)
            changed, drained = self.slices.deal(live, self.gathering.expected, now, silent)
            self._assignor_due |= changed
            for placed in drained:
                self._revoke(placed, "balance", now + self.drain_timeout_s)
        if self._assignor_due and not self.held_back:
            self._assignor_due = False
            self._place(now)
        waits = [*silent.values(), *self.gathering.wakes(), *self.slices.slicing.wakes(now)]
        return min([*waits, *(s.deadline for s in self._draining())], default=None)

    def _draining(self) -> list[PlacedPartition]:
        return [s for s in self.partitions.values() if s.deadline < NEVER]

    def _place(self, now: float) -> None:
        live = live_workers(self.workers)
        wanted = wanted_holders(self.assignor, self.partitions.values(), live, self.slices.slicing)
        silent, first, gathering = self._silent(), self._epochs == 0, self.gathering.open
        for placed in self.partitions.values():
            target = wanted.get(placed.partition)
            if placed.worker in silent:
                continue  # no order to drain could reach it
            if placed.state is PlacementState.FREE and target is not None:
                if not (gathering and first) and self._grantable(placed, target):
                    self._grant(placed, target)
            elif (
                placed.state is PlacementState.GRANTED
                and target != placed.worker
                # With nobody to take it over, a partition stays, unless its own worker is to retire.
                and (target is not None or self._retires(placed.worker))
            ):
                if gathering and not self.workers[placed.worker or ""].retiring:
                    continue
                self._leaves(placed, "worker_retired" if self._retires(placed.worker) else "balance")
                self._drain(placed, PlacementState.DRAINING, now + self.drain_timeout_s)
                self.moves += 1

    def _grantable(self, placed: PlacedPartition, worker: str) -> bool:
        """Whether nobody else can write for a partition any more, and this worker can. It never has two slices of one."""
        if self.slices.held(worker, source(placed.partition)) is not None:
            return False
        return self.settlement.settled(placed.partition) and self.settlement.session_of(worker) is not None

    def _retires(self, worker: str | None) -> bool:
        return (known := self.workers.get(worker or "")) is not None and known.retiring

    def _leaves(self, placed: PlacedPartition, cause: str) -> None:
        """Reports that a worker loses a granted partition; one that drains already has its cause."""
        if placed.state is PlacementState.GRANTED:
            self._events.append(Withdrawal(placed.partition, placed.worker or "", cause))

    def _grant(self, placed: PlacedPartition, worker: str, continues: GrantEpoch | None = None) -> None:
        """Gives a free partition to a worker under a new epoch. `continues`: the older incarnation's, whose calls go on."""
        placed.become(PlacementState.GRANTED)
        if continues is not None:
            self.settlement.held(placed.partition)
        self._epochs += 1
        placed.worker, placed.epoch, placed.continues = worker, (self.incarnation, self._epochs), continues
        self._touch(worker)
        placed.ordered_at = self._version(worker)

    def _drain(self, placed: PlacedPartition, state: PlacementState, deadline: float) -> None:
        """Begins a drain, which the worker's next orders list. One under way keeps its deadline if that is earlier."""
        if placed.state not in (state, PlacementState.LEAVING):
            placed.become(state)
        assert placed.worker is not None  # only what is granted is drained
        self._touch(placed.worker)
        placed.ordered_at = self._version(placed.worker)
        placed.deadline = min(placed.deadline, deadline)

    def _void(self, placed: PlacedPartition) -> None:
        """Drains a slice of which nothing is to be committed any more. After the worker's lease no call with its records begins."""
        known = self.workers.get(worker := placed.worker or "")
        until = self._leased.get(worker, 0.0) if known is None else known.leased_until
        self._drain(placed, PlacementState.DRAINING, until)
        placed.void = True

    def _free(self, placed: PlacedPartition, *, by_force: bool = False) -> None:
        """Takes a partition from its worker, whose commits are refused from now on. `by_force`: the worker has not released it."""
        self._assignor_due = True
        if placed.worker is not None:
            self._touch(placed.worker)
            self.settlement.freed(placed.partition, placed.worker if by_force else None)
        if placed.state is PlacementState.LEAVING:
            self._forget(placed.partition)
            return
        placed.become(PlacementState.FREE)
        placed.worker = placed.epoch = placed.continues = None
        placed.deadline, placed.void = NEVER, False

    def _touch(self, worker: str) -> None:
        """Raises the version of the worker's orders: what it may hold has changed."""
        self.changes += 1
        if worker in self.workers:
            self.workers[worker].version += 1

    # ------------------------------------------------------------ queries

    def holder(self, worker: str, partition: TopicPartition) -> GrantEpoch | None:
        """Returns the epoch under which the worker may commit the partition, draining included; None if it may not."""
        placed = self.slices.held(worker, partition)
        return None if placed is None else placed.commits_under

    def served(self) -> frozenset[TopicPartition]:
        """Returns the partitions that a worker has; all, while no worker can take them or it is too early."""
        able = any(known.ready and not known.retiring for known in self.workers.values())
        if self.recovery.active or self.held_back or not able:
            return frozenset(self.slices.sources())
        free = [p for p, placed in self.partitions.items() if placed.worker is None]
        return frozenset(self.slices.sources() - {source(p) for p in free if self.settlement.settled(p)})

    def version(self, worker: str) -> Version:
        """Returns the version of the worker's orders, which rises with each change of what it may hold."""
        return (self.incarnation, 0) if self.recovery.awaits(worker) else self._version(worker)

    def _version(self, worker: str) -> Version:
        known = self.workers.get(worker)
        return self.incarnation, known.version if known else 0

    def held(self, worker: str, states: frozenset[PlacementState]) -> list[PlacedPartition]:
        """Returns what the worker has in these states."""
        return [s for s in self.partitions.values() if s.worker == worker and s.state in states]
