"""What a worker holds: its partitions, each under an epoch, and how far its function got in each.

    ACTIVE    fetched and processed
    DRAINING  nothing new is begun; what is in hand is finished and committed, then the partition is let go
    HALTED    its function failed here for good: nothing more is begun, the failing offset is committed

A call of the user's function is opened with `begin` and closed with `done`; between the two the partition is
in hand. Only `done` moves the offset that is committed, so nothing is committed before the function returned
for it and for all before it.
"""

from __future__ import annotations

import enum
from collections.abc import Iterable

import msgspec

from kafka_actors.fetch.machines.partition_state import FetchProgress
from kafka_actors.job.messages import CommitEntry, CommitReply, Grant, GrantEpoch, HeldReport, Orders, Version
from kafka_actors.types import TopicPartition

__all__ = ["AssignmentChanges", "HeldPartition", "HeldState", "WorkerAssignment"]


class HeldState(enum.Enum):
    ACTIVE = "active"
    DRAINING = "draining"
    HALTED = "halted"


class HeldPartition(msgspec.Struct):
    """One partition. `processed` and `committed` are next offsets; None while not known.

    `begun_under` is the epoch under which fetching began here; `epoch` is the one to report and commit with,
    which a new coordinator incarnation renews while fetching and processing go on. `resets` counts how often the
    position was reset: what was fetched before is of another log, or of what is not there any more. `topic_id`: of the
    topic that the offsets are of, None if that isn't known.
    """

    partition: TopicPartition
    epoch: GrantEpoch
    begun_under: GrantEpoch
    end_offset: int | None = None
    state: HeldState = HeldState.ACTIVE
    in_hand: bool = False
    processed: int | None = None
    leader_epoch: int = -1
    committed: int | None = None
    rewind: bool = False
    resets: int = 0
    topic_id: bytes | None = None

    @property
    def uncommitted(self) -> bool:
        return self.processed is not None and self.processed != self.committed

    @property
    def finished(self) -> bool:
        """A bounded partition whose records are all processed and committed."""
        at_end = (
            self.end_offset is not None and self.processed is not None and self.processed >= self.end_offset
        )
        return at_end and not self.uncommitted


class AssignmentChanges(msgspec.Struct, frozen=True):
    """What orders change: partitions to begin with, to drain, to drop."""

    begin: list[Grant] = []
    drain: list[TopicPartition] = []
    drop: list[TopicPartition] = []


class WorkerAssignment:
    """A worker's partitions. Orders come in; calls, commits and reports go out."""

    def __init__(self) -> None:
        self.held: dict[TopicPartition, HeldPartition] = {}
        self.seen: Version = (0, 0)
        self._released: dict[TopicPartition, GrantEpoch] = {}  # the last epoch that ended here by a drain
        self._unsafe = False

    def apply(self, orders: Orders) -> AssignmentChanges:
        """Makes the holdings what the orders say. Orders older than the newest seen change nothing."""
        if orders.version < self.seen:
            return AssignmentChanges()
        self.seen = orders.version
        if orders.hold:
            return AssignmentChanges()
        begin = []
        for grant in orders.grants:
            held = self.held.get(grant.partition)
            if held is not None and held.epoch in (grant.epoch, grant.continues):
                # A drain that an older coordinator began goes on: it ends with a report that lacks the partition.
                held.epoch = grant.epoch
            elif grant.epoch != self._released.get(grant.partition):  # else said before it was let go
                self.held[grant.partition] = HeldPartition(
                    grant.partition,
                    grant.epoch,
                    grant.epoch,
                    grant.end_offset,
                    committed=grant.offset,
                    topic_id=grant.topic_id,
                )
                begin.append(grant)
        return AssignmentChanges(begin, self._drain(orders), self._drop(orders))

    def _drain(self, orders: Orders) -> list[TopicPartition]:
        drained = []
        for order in orders.draining:
            held = self.held.get(order.partition)
            if held is None or held.epoch not in (order.epoch, order.continues):
                continue
            held.epoch = order.epoch
            if held.state is not HeldState.DRAINING:
                held.state = HeldState.DRAINING
                drained.append(order.partition)
        return drained

    def _drop(self, orders: Orders) -> list[TopicPartition]:
        listed = {(grant.partition, grant.epoch) for grant in orders.grants}
        listed |= {(order.partition, order.epoch) for order in orders.draining}
        dropped = [p for p, held in self.held.items() if (p, held.epoch) not in listed]
        for partition in dropped:
            del self.held[partition]
        return dropped

    # ------------------------------------------------------------ the user's function

    def _under(self, partition: TopicPartition, epoch: GrantEpoch) -> HeldPartition | None:
        held = self.held.get(partition)
        return held if held is not None and held.begun_under == epoch else None

    def active(self, partition: TopicPartition, epoch: GrantEpoch) -> bool:
        """Whether records of this partition, fetched under this epoch, may be worked on."""
        held = self._under(partition, epoch)
        return held is not None and held.state is HeldState.ACTIVE

    def begin(self, partition: TopicPartition, epoch: GrantEpoch) -> bool:
        """Opens a call, unless the partition is not to be worked on (any more)."""
        if not self.active(partition, epoch):
            return False
        self.held[partition].in_hand = True
        return True

    def done(
        self,
        partition: TopicPartition,
        epoch: GrantEpoch,
        next_offset: int,
        leader_epoch: int = -1,
        resets: int = 0,
    ) -> bool:
        """The function returned for everything below `next_offset`, or there was nothing to call it for. Moves nothing if
        it was fetched before a reset, which `resets` tells. Returns whether that was the end of a bounded partition."""
        held = self._under(partition, epoch)
        if held is None:
            return False
        held.in_hand = False
        if held.resets != resets:
            return False
        held.processed, held.leader_epoch = next_offset, leader_epoch
        return held.end_offset is not None and next_offset >= held.end_offset

    def given_up(self, partition: TopicPartition, epoch: GrantEpoch) -> None:
        """A call ended without success; nothing moves."""
        held = self._under(partition, epoch)
        if held is not None:
            held.in_hand = False

    def halt(self, partition: TopicPartition, epoch: GrantEpoch, offset: int, resets: int = 0) -> None:
        """The function failed for good at `offset`: that offset is what is committed, unless it was reset meanwhile."""
        held = self._under(partition, epoch)
        if held is not None:
            held.in_hand = False
            if held.resets == resets:
                held.processed = offset
            held.state = HeldState.HALTED if held.state is HeldState.ACTIVE else held.state

    def positioned(
        self, partition: TopicPartition, offset: int, *, rewind: bool = False, topic_id: bytes | None = None
    ) -> None:
        """Where reading starts became known, or was reset (`rewind`), in this topic: committed too, so that the group has
        it."""
        held = self.held.get(partition)
        if held is not None and (held.processed is None or rewind):
            held.processed, held.rewind = offset, rewind
            held.topic_id = topic_id or held.topic_id
            held.resets += rewind

    # ------------------------------------------------------------ commits and reports

    def stop_commits(self) -> None:
        """Results were lost, and nobody knows which: whoever gets the partitions does again what isn't committed, so
        a drain has no commit to wait for."""
        self._unsafe = True

    def commits(self) -> list[CommitEntry]:
        return [
            CommitEntry(h.partition, h.epoch, h.processed, h.leader_epoch, h.rewind, h.topic_id)
            for h in self.held.values()
            if h.processed is not None and self._to_commit(h)
        ]

    def _to_commit(self, held: HeldPartition) -> bool:
        return held.uncommitted and not self._unsafe

    @property
    def draining(self) -> bool:
        return any(h.state is HeldState.DRAINING for h in self.held.values())

    @property
    def drain_waits_for_commit(self) -> bool:
        return any(
            h.state is HeldState.DRAINING and not h.in_hand and self._to_commit(h) for h in self.held.values()
        )

    def committed(self, reply: CommitReply) -> None:
        for entry in reply.committed:
            held = self.held.get(entry.partition)
            if held is not None and held.epoch == entry.epoch:
                held.committed = entry.offset
                held.rewind = held.rewind and held.processed != entry.offset

    def release_drained(self) -> list[TopicPartition]:
        """Lets go of what is drained: nothing in hand, nothing to be committed."""
        done = [
            h.partition
            for h in self.held.values()
            if h.state is HeldState.DRAINING and not h.in_hand and not self._to_commit(h)
        ]
        for partition in done:
            self._released[partition] = self.held.pop(partition).epoch
        return done

    @property
    def quiet(self) -> bool:
        """Nothing is in hand and nothing waits to be committed."""
        return not any(h.in_hand or self._to_commit(h) for h in self.held.values())

    def in_hand(self) -> Iterable[TopicPartition]:
        return [h.partition for h in self.held.values() if h.in_hand]

    def __repr__(self) -> str:
        return (
            f"<Holdings {len(self.held)} partitions, seen {self.seen}, in hand {len(list(self.in_hand()))}>"
        )


def report_of(held: HeldPartition, standing: FetchProgress, blocked: str = "") -> HeldReport:
    """The line of a report for one partition. `blocked`: why nothing of it is processed, if it isn't for want of
    records."""
    return HeldReport(
        held.partition, held.epoch, held.processed, held.leader_epoch,
        standing.position, standing.end, held.finished, blocked or standing.blocked,
    )  # fmt: skip
