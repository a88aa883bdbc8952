"""A worker's assignment: its partitions, each under a grant epoch, and how far the user's function got in each.

Theory of operation. Orders of the coordinator list everything that the worker may hold, under a version; older orders than the newest
seen change nothing, and a partition that isn't listed is dropped. States of a partition:

    ACTIVE    fetched and processed
    DRAINING  no new call begins; the call in hand is finished and committed, then the partition is released
    HALTED    the function failed for good: no new call begins, and the failing offset is committed

A call of the user's function is opened with `begin` and closed with `done` (or `call_failed`); between the two the partition is
in hand. Only `done` moves the offset to commit, so nothing is committed before the function has returned for it and for all records
before it. A partition keeps two epochs: `begun_under`, which fetched bytes carry, and `epoch`, with which to report and commit. A new
coordinator incarnation renews the second, so its predecessor's death disturbs no call in hand.

Inputs come from two threads, under the worker's lock: orders and the coordinator's answers from the event loop, calls from the processing
thread. What ties them together are epochs and counts instead of locks held for long:

- bytes under another epoch than `begun_under` are void, and a call opened under one closes nothing of the next grant;
- `resets` tells records from before a reset from those after it, so a call that was under way doesn't move the new position;
- an answer to a commit counts for the epoch that it was made under.

A released partition's epoch is remembered: late orders that still grant it would otherwise begin it a second time.
"""

from __future__ import annotations

import enum
from collections.abc import Collection

import msgspec

from kafka_actors.fetch.machines.partition_state import FetchProgress
from kafka_actors.group.done_offsets import NOTHING_DONE, DoneOffsets
from kafka_actors.job.lanes import SliceDone
from kafka_actors.job.messages import CommitEntry, CommitReply, Grant, GrantEpoch, HeldReport, Orders, Version
from kafka_actors.job.status import WindowStatus
from kafka_actors.types import TopicPartition

__all__ = ["AssignmentChanges", "HeldPartition", "HeldState", "WorkerAssignment"]


class HeldState(enum.Enum):
    ACTIVE = "active"
    DRAINING = "draining"
    HALTED = "halted"


class HeldPartition(msgspec.Struct):
    """One partition. `processed` and `committed` are next offsets; None while unknown. `leader_epoch`: of the record before `processed`.

    `begun_under`: the epoch under which fetching began. `epoch`: the one to report and commit with. `resets` counts resets of the position:
    bytes fetched before one are of another log, or of deleted records. `rewind`: the next commit may lower the offset. `topic_id`: of the
    offsets' topic, None if unknown; an offset of another topic does not count as committed. `open_results`: results of its records may be in
    a transaction that is not ended; `closed_at`: the offset up to which they are in one that is. `part`, `parts`, `slices`: as in `Grant`.
    `done`: what is done beyond `processed`; `offered_done` and `committed_done`: the same as it was offered for a commit, and as that was
    acknowledged. `offered_resets`: of resets before that. `reset_to`: where the last one went, with its leader epoch. `void`: as in `Drain`."""

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
    open_results: bool = False
    closed_at: int | None = None
    part: int = 0
    parts: int = 1
    slices: list[SliceDone] = []
    done: DoneOffsets = NOTHING_DONE
    committed_done: DoneOffsets = NOTHING_DONE
    offered_done: DoneOffsets = NOTHING_DONE
    offered_resets: int = 0
    reset_to: tuple[int, int] = (0, -1)
    void: bool = False

    @property
    def dealt(self) -> tuple[int, int] | None:
        """The slice that is held, and of how many; None where it is the whole partition."""
        return (self.part, self.parts) if self.parts > 1 else None

    @property
    def repeated(self) -> int:
        """Records, by their offsets, that are processed again if the transaction is aborted."""
        if self.processed is None or self.closed_at is None:
            return 0
        return max(0, self.processed - self.closed_at)

    @property
    def uncommitted(self) -> bool:
        # Values that are the same object when nothing has changed: this is asked often.
        changed = self.processed != self.committed or self.done is not self.committed_done
        return self.processed is not None and changed

    @property
    def finished(self) -> bool:
        """A bounded partition whose records are all processed and committed."""
        end, processed = self.end_offset, self.processed
        return end is not None and processed is not None and processed >= end and not self.uncommitted


class AssignmentChanges(msgspec.Struct, frozen=True):
    """Changes by new orders: partitions to begin, to drain, to drop. `lost`: partitions held no more, or anew, with results in an open
    transaction, and how many records these are of. `applied`: the orders are the newest, and say something."""

    begin: list[Grant] = []
    drain: list[TopicPartition] = []
    drop: list[TopicPartition] = []
    lost: dict[TopicPartition, int] = {}
    applied: bool = False


class WorkerAssignment:
    """Partitions of one worker; see the module's theory of operation."""

    def __init__(self) -> None:
        self.held: dict[TopicPartition, HeldPartition] = {}
        self.seen: Version = (0, 0)
        self.resets = 0  # of all partitions together
        self._released: dict[TopicPartition, GrantEpoch] = {}  # the last epoch of each that was drained
        self._commits_stopped = False

    def apply(self, orders: Orders) -> AssignmentChanges:
        """Makes the assignment what the orders say. Orders older than the newest seen change nothing."""
        if orders.version < self.seen:
            return AssignmentChanges()
        self.seen = orders.version
        if orders.hold:
            return AssignmentChanges()
        begin = []
        before = {partition: held for partition, held in self.held.items() if held.open_results}
        for grant in orders.grants:
            held = self.held.get(grant.partition)
            if held is not None and held.epoch in (grant.epoch, grant.continues):
                # A drain that an older coordinator ordered goes on: it ends with a report that lacks the partition.
                if held.epoch != grant.epoch and held.dealt is not None:
                    held.committed = None  # the new one knows what is committed of all slices, no more
                held.epoch = grant.epoch
            elif grant.continues is not None and orders.producer is not None:
                continue  # where to begin is known once it is settled: a report without it says that it is released
            elif grant.epoch != self._released.get(grant.partition):  # else from before it was released
                self.held[grant.partition] = _begun(grant)
                begin.append(grant)
        drain, drop = self._drain(orders), self._drop(orders)
        lost = {p: held.repeated for p, held in before.items() if self.held.get(p) is not held}
        return AssignmentChanges(begin, drain, drop, lost, applied=True)

    def drop_all(self, but: Collection[TopicPartition] = ()) -> list[TopicPartition]:
        """Drops all partitions, whose results were lost with a transaction, `but` some that have just begun. Only other epochs give them back."""
        dropped = [partition for partition in self.held if partition not in but]
        self._released.update((each, self.held.pop(each).epoch) for each in dropped)
        return dropped

    def _drain(self, orders: Orders) -> list[TopicPartition]:
        """Begins the drains that are ordered. Returns those that are new; one under way only gets the present epoch."""
        drained = []
        for order in orders.draining:
            held = self.held.get(order.partition)
            if held is None or held.epoch not in (order.epoch, order.continues):
                continue
            held.epoch, held.void = order.epoch, held.void or order.void
            if held.state is not HeldState.DRAINING:
                held.state = HeldState.DRAINING
                drained.append(order.partition)
        return drained

    def _drop(self, orders: Orders) -> list[TopicPartition]:
        """Drops, without a commit, what the orders don't list, or list under another epoch: somebody else may have it."""
        listed = {(grant.partition, grant.epoch) for grant in orders.grants}
        listed |= {(order.partition, order.epoch) for order in orders.draining}
        dropped = [p for p, held in self.held.items() if (p, held.epoch) not in listed]
        for partition in dropped:
            del self.held[partition]
        return dropped

    # ------------------------------------------------------------ the user's function

    def _under(self, partition: TopicPartition, epoch: GrantEpoch) -> HeldPartition | None:
        """Returns the partition if it is held since this epoch: bytes that were fetched under an earlier grant are void."""
        held = self.held.get(partition)
        return held if held is not None and held.begun_under == epoch else None

    def active(self, partition: TopicPartition, epoch: GrantEpoch) -> bool:
        """Whether records of this partition, fetched under this epoch, may be worked on."""
        held = self._under(partition, epoch)
        return held is not None and held.state is HeldState.ACTIVE

    def opens_results(self, partition: TopicPartition, epoch: GrantEpoch, resets: int) -> bool:
        """Whether a call's results count: the partition is held since this epoch, and not reset since. If so they are about to be written in
        the open transaction: from now on that can't be committed without the partition."""
        held = self._under(partition, epoch)
        if held is None or held.resets != resets:
            return False
        held.open_results = True
        return True

    def results_are_closed(self) -> None:
        """Takes that the transaction was ended, with all offsets that `commits` returned."""
        for held in self.held.values():
            held.open_results, held.closed_at = False, held.committed

    def repeated(self) -> dict[TopicPartition, int]:
        """Returns how many records of each partition are processed again if the open transaction is aborted."""
        return {partition: held.repeated for partition, held in self.held.items()}

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
        """Closes a call: the function has returned for everything below `next_offset`, or there was nothing to call it with. Moves nothing if
        the records are from before a reset (`resets` differs). Returns whether a bounded partition ended."""
        self.call_failed(partition, epoch)
        return self.advance(partition, epoch, next_offset, leader_epoch, resets)

    def advance(
        self, partition: TopicPartition, epoch: GrantEpoch, next_offset: int, leader_epoch: int, resets: int
    ) -> bool:
        """Moves the offset to commit while calls are in hand. As `done`, but closes nothing."""
        held = self._under(partition, epoch)
        if held is None or held.resets != resets:
            return False
        held.processed, held.leader_epoch = next_offset, leader_epoch
        return held.end_offset is not None and next_offset >= held.end_offset

    def note_done(self, partition: TopicPartition, done: DoneOffsets) -> None:
        """Takes what is done beyond the offset to commit."""
        if (held := self.held.get(partition)) is not None and held.done != done:
            held.done = done

    def call_failed(self, partition: TopicPartition, epoch: GrantEpoch) -> None:
        """Closes a call that failed, or the last of several: no offset moves."""
        if (held := self._under(partition, epoch)) is not None:
            held.in_hand = False

    def halt(self, partition: TopicPartition, epoch: GrantEpoch, offset: int, resets: int = 0) -> None:
        """Halts a partition: the function failed for good at `offset`, which is committed unless the position was reset."""
        if (held := self._under(partition, epoch)) is not None:
            if held.resets == resets and held.processed != offset:
                held.processed, held.leader_epoch = offset, -1
            held.state = HeldState.HALTED if held.state is HeldState.ACTIVE else held.state

    def positioned(
        self,
        partition: TopicPartition,
        offset: int,
        leader_epoch: int = -1,
        *,
        rewind: bool = False,
        topic_id: bytes | None = None,
    ) -> None:
        """Takes where reading starts, or to where it was reset (`rewind`), with the leader epoch before that: the group gets to know it."""
        held = self.held.get(partition)
        if held is not None and (held.processed is None or rewind):
            if held.processed is None:
                held.closed_at = offset
            other = topic_id is not None and topic_id != held.topic_id
            forward = held.processed is not None and held.processed <= offset and not other
            held.rewind = rewind and not (forward and not held.rewind)
            held.processed, held.leader_epoch = held.reset_to = offset, leader_epoch
            if rewind:
                held.done = held.committed_done = NOTHING_DONE
                held.slices = []
            if other:
                held.topic_id, held.committed = topic_id, None
            held.resets += rewind
            self.resets += rewind

    def reset(
        self,
        partition: TopicPartition,
        offset: int,
        topic_id: bytes | None,
        leader_epoch: int = -1,
        *,
        cut: bool,
    ) -> tuple[int, int] | None:
        """Takes that the position of reading was reset. `cut`: the log was cut there. Then records in front of that may not be done, which were
        read before: returns the first of them, with the leader epoch before it, for reading to go on at. None where it goes on at `offset`."""
        held = self.held.get(partition)
        if not cut or held is None or held.processed is None or held.processed >= offset:
            self.positioned(partition, offset, leader_epoch, rewind=True, topic_id=topic_id)
            return None
        held.done = held.done.before(offset)
        held.resets += 1
        self.resets += 1
        return held.processed, held.leader_epoch

    # ------------------------------------------------------------ commits and reports

    def stop_commits(self) -> None:
        """Ends all commits: results were lost, and nobody knows which. The next worker processes them again, so drains wait for no commit."""
        self._commits_stopped = True

    def commits(self) -> list[CommitEntry]:
        """Returns the offsets to commit now."""
        return [self._entry(h) for h in self.held.values() if self._to_commit(h)]

    def _entry(self, held: HeldPartition) -> CommitEntry:
        assert held.processed is not None  # else there is nothing to commit
        if held.done:
            self.note_done(held.partition, held.done.behind(held.processed))
        held.offered_done, held.offered_resets = held.done, held.resets
        at = held.processed, held.leader_epoch
        if held.rewind and held.dealt is not None:
            at, held.offered_done = held.reset_to, NOTHING_DONE  # others begin there, too
        text = held.offered_done.text(at[0]) if held.offered_done else ""
        return CommitEntry(held.partition, held.epoch, *at, held.rewind, held.topic_id, text)

    def _to_commit(self, held: HeldPartition) -> bool:
        return held.uncommitted and not (self._commits_stopped or held.void)

    @property
    def unbegun(self) -> bool:
        """Whether the group has no offset yet of a partition."""
        return any(h.committed is None for h in self.held.values())

    @property
    def draining(self) -> bool:
        return any(h.state is HeldState.DRAINING for h in self.held.values())

    @property
    def drain_waits_for_commit(self) -> bool:
        drained = [h for h in self.held.values() if h.state is HeldState.DRAINING and not h.in_hand]
        return any(map(self._to_commit, drained))

    def committed(self, reply: CommitReply) -> None:
        """Takes the coordinator's answer. Entries of an earlier grant or topic, or refused ones, change nothing. A drain waits for no commit in a
        topic that is gone: who goes on with the partition reads the new one from its start."""
        for entry in (*reply.committed, *reply.gone):
            held = self.held.get(entry.partition)
            if held is not None and held.epoch == entry.epoch and held.topic_id == entry.topic_id:
                if entry in reply.gone and held.state is HeldState.ACTIVE:
                    continue  # reading finds the new one
                held.committed, held.committed_done = entry.offset, held.offered_done
                if entry.rewind and held.offered_resets == held.resets:
                    held.rewind = False

    def release_drained(self) -> list[TopicPartition]:
        """Releases and returns the drained partitions: those without a call in hand or an offset to commit. A partition and its retry
        partitions, of one number under one epoch, are released together: the next worker begins all of them at once."""
        busy = {
            (h.epoch, h.partition.partition)
            for h in self.held.values()
            if h.state is not HeldState.DRAINING or h.in_hand or self._to_commit(h)
        }
        done = [h.partition for h in self.held.values() if (h.epoch, h.partition.partition) not in busy]
        self._released.update((each, self.held.pop(each).epoch) for each in done)
        return done

    @property
    def quiet(self) -> bool:
        """Whether no call is in hand and no offset is left to commit."""
        return not any(h.in_hand or self._to_commit(h) for h in self.held.values())

    def __repr__(self) -> str:
        return f"<WorkerAssignment {len(self.held)} partitions, seen {self.seen}>"


def report_of(
    held: HeldPartition,
    progress: FetchProgress,
    blocked: str = "",
    window: WindowStatus | None = None,
    *,
    commits: bool = False,
) -> HeldReport:
    """Makes the report of one partition. `blocked`: why nothing of it is processed, empty if it only lacks records; `window`: of a job whose
    calls overtake each other; `commits`: the worker commits by itself."""
    return HeldReport(
        held.partition, held.epoch, held.processed, held.leader_epoch,
        progress.position, progress.end, held.finished, blocked or progress.blocked,
        held.committed if commits else None, held.part, held.parts, held.topic_id, window,
    )  # fmt: skip


def _begun(grant: Grant) -> HeldPartition:
    """Makes the partition of a grant, with what earlier holders have done beyond its offset."""
    done = NOTHING_DONE if grant.offset is None else DoneOffsets.of_text(grant.done, grant.offset)
    return HeldPartition(
        grant.partition, grant.epoch, grant.epoch, grant.end_offset,
        committed=grant.offset, closed_at=grant.offset, topic_id=grant.topic_id,
        part=grant.part, parts=grant.parts, slices=grant.slices, done=done, committed_done=done,
    )  # fmt: skip
