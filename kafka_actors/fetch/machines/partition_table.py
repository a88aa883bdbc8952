"""The partitions that a fetcher reads: who leads each, how far it is read, and which changes its owner has to act on.

Theory of operation. Arrives: assignments, seeks and pauses of the user, metadata, and the user's progress. The brokers'
answers come through `fetch_results` and `positions`, which change partitions only by the methods here. Each partition is in
one state of `partition_state.TRANSITIONS`; this module moves it and keeps its three offsets consistent.

Decided: nothing is sent from here. Each call leaves its consequences in fields that the owner reads and clears:

- `dirty`: partitions whose pulls may have to change; the owner compares each with the stream that it is in.
- `discard`: partitions whose fetched records are void, and whether records that were handed out are void as well.
- `failures()`, `events`: errors and events for the user. `refresh_metadata`, `needs_plan`: work for the next plan.

Three rules hold throughout. A temporary error never changes a position: only a broker's own word does (an offset outside
the log, a log that diverges, another topic id), and then `auto_offset_reset` and `on_data_loss` decide, with an event or
a typed error. Records that were handed out are not taken back, unless the position moves, or the owner gives them up
(`revoke`, `rewind`). Under a new leader epoch a position is validated before anything more is read (KIP-320,
`SubscriptionState.maybeValidatePositionForCurrentLeader` in Java's client).

A plan costs nothing for partitions that only read: those that wait for an answer are listed apart (`watch`), and the ends of backoffs
and of preferred replicas, which each partition may have, are a heap. An entry that a partition no longer waits for is passed over.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from heapq import heappop, heappush

from kafka_actors.cluster.snapshot import ClusterSnapshot
from kafka_actors.errors import UsageError
from kafka_actors.events import Event, OffsetReset
from kafka_actors.fetch.messages import Epoch
from kafka_actors.types import TopicPartition

from .partition_state import (
    UNKNOWN,
    CommitPosition,
    FetchPartition,
    FetchState,
    LookupPurpose,
    PartitionStart,
    Trigger,
)
from .resets import ResetPolicy, error_of_loss


class PartitionTable:
    """All partitions of one fetcher. `retry_backoff`: seconds to wait after so many failures in a row;
    `replica_lifetime_s`: seconds until a preferred replica is left and the leader asked again (KIP-392)."""

    def __init__(
        self,
        policy: ResetPolicy,
        retry_backoff: Callable[[int], float],
        *,
        read_committed: bool = False,
        replica_lifetime_s: float = 300.0,
    ) -> None:
        self._policy = policy
        self._retry_backoff = retry_backoff
        self._replica_lifetime_s = replica_lifetime_s
        self.read_committed = read_committed
        self._partitions: dict[TopicPartition, FetchPartition] = {}
        self.watched: dict[TopicPartition, FetchPartition] = {}  # partitions that wait for a look-up
        self._timers: list[tuple[float, TopicPartition]] = []
        self.dirty: dict[TopicPartition, None] = {}
        self.discard: dict[TopicPartition, bool] = {}  # True: records that were handed out, too
        self._failed: dict[TopicPartition, FetchPartition] = {}
        self.events: list[Event] = []
        self.refresh_metadata = False
        self.needs_plan = False

    def __iter__(self) -> Iterator[FetchPartition]:
        return iter(self._partitions.values())

    def __len__(self) -> int:
        return len(self._partitions)

    def __contains__(self, tp: TopicPartition) -> bool:
        return tp in self._partitions

    def get(self, tp: TopicPartition) -> FetchPartition | None:
        """Returns the partition, None if it isn't assigned."""
        return self._partitions.get(tp)

    def require(self, tp: TopicPartition) -> FetchPartition:
        """Returns the partition; raises `UsageError` if it isn't assigned."""
        found = self._partitions.get(tp)
        if found is None:
            raise UsageError(f"{tp.topic}-{tp.partition} is not assigned")
        return found

    def touch(self, tp: TopicPartition) -> None:
        """Notes that the pulls of this partition may have to change."""
        self.dirty[tp] = None

    def watch(self, partition: FetchPartition) -> None:
        """Lists a partition that waits for a look-up; `tick` takes it off the list."""
        self.watched[partition.tp] = partition

    # ------------------------------------------------------------ assignment and the user's calls

    def assign(self, tp: TopicPartition, start: PartitionStart, snapshot: ClusterSnapshot | None) -> None:
        """Adds a partition. The same epoch again changes nothing: an assignment may arrive twice."""
        known = self._partitions.get(tp)
        if known is not None and known.epoch == start.epoch:
            return
        if known is not None:
            self.revoke(tp)
        partition = self._partitions[tp] = self.watched[tp] = FetchPartition(tp, start)
        if start.offset is not None:
            partition.position_epoch = start.leader_epoch
            self.set_position(partition, start.offset, Trigger.OFFSET_KNOWN)
        if snapshot is not None:
            self._apply_metadata(partition, snapshot)
        if partition.state is FetchState.FETCHING:
            self._validate(partition)
        self.touch(tp)

    def regrant(self, tp: TopicPartition, epoch: Epoch) -> None:
        """Keeps the partition under a new epoch; reading goes on from its own position.

        Records on their way or in the buffer are of the old epoch: they are fetched again. Those that were handed out stay valid.
        """
        partition = self.require(tp)
        if partition.epoch != epoch:
            partition.epoch = epoch
            self._refetch(partition)

    def revoke(self, tp: TopicPartition) -> None:
        """Removes the partition, its position and all of its records."""
        self.watched.pop(tp, None)
        if self._partitions.pop(tp, None) is not None:
            self.touch(tp)
            self.discard[tp] = True

    def drain(self, tp: TopicPartition) -> None:
        """Stops fetching and handing out; the position stays readable until the partition is revoked."""
        partition = self.require(tp)
        if not partition.draining:
            partition.draining = True
            self._refetch(partition)

    def pause(self, tp: TopicPartition) -> None:
        """Stops fetching until `resume`; records that are fetched stay. Those on their way are dropped, and fetched again then."""
        partition = self.require(tp)
        partition.paused = True
        self.touch(tp)

    def resume(self, tp: TopicPartition) -> None:
        """Ends `pause`."""
        partition = self.require(tp)
        partition.paused = False
        self.touch(tp)

    def seek(self, tp: TopicPartition, offset: int, leader_epoch: int = UNKNOWN) -> None:
        """Moves the position: the next record to hand out is the first at or behind `offset`."""
        partition = self.require(tp)
        partition.position_epoch = leader_epoch
        self.set_position(partition, offset, Trigger.SOUGHT)
        self._validate(partition)

    def seek_to(self, tp: TopicPartition, purpose: LookupPurpose) -> None:
        """Moves the position to an end of the log, which has to be looked up first."""
        self.lose_position(self.require(tp), purpose)

    def rewind(self, tp: TopicPartition) -> None:
        """Discards all records that are fetched and not consumed; they are fetched again later."""
        partition = self.require(tp)
        partition.delivered = partition.position
        self.discard[tp] = True
        self.drop_waiting(tp)

    def drop_waiting(self, tp: TopicPartition) -> None:
        """Discards the records that are fetched and were not handed out; they are fetched again later."""
        partition = self.require(tp)
        if partition.state is FetchState.AT_END:
            partition.move(Trigger.SOUGHT)
        self._refetch(partition)
        self.check_end(partition)

    def consumed(self, partition: FetchPartition, next_offset: int, leader_epoch: int) -> None:
        """Moves the position behind records that the user is done with."""
        partition.position = next_offset
        if leader_epoch >= 0:
            partition.position_epoch = leader_epoch

    def skip_to(self, partition: FetchPartition, next_offset: int) -> None:
        """Goes on behind records that can't be read. All before them have been handed out: the position moves past those, too.

        Everything that is fetched of the partition becomes invalid, in the buffer and in hand; what follows is fetched again.
        """
        if partition.state is FetchState.AT_END:
            partition.move(Trigger.SOUGHT)  # records up to the end are discarded, and fetched again
        partition.position = partition.delivered = partition.fetched = next_offset
        partition.retry_at = 0.0
        self.discard[partition.tp] = True
        self.touch(partition.tp)
        self.check_end(partition)

    def fail(self, partition: FetchPartition, error: Exception) -> None:
        """Stops the partition with an error; only a seek or a new assignment ends that. The first error stays. Records that are
        fetched, and still valid, are handed out before it."""
        if partition.state is FetchState.FAILED:
            return
        partition.move(Trigger.ERROR)
        partition.error = error
        self._failed[partition.tp] = partition
        self.touch(partition.tp)

    def failures(self) -> list[FetchPartition]:
        """Returns the partitions that failed, but for those that the user has paused."""
        if not self._failed:
            return []
        self._failed = {
            tp: p
            for tp, p in self._failed.items()
            if p.state is FetchState.FAILED and self._partitions.get(tp) is p
        }
        return [p for p in self._failed.values() if not p.paused]

    # ------------------------------------------------------------ metadata

    def on_snapshot(self, snapshot: ClusterSnapshot) -> None:
        """Applies new metadata: leaders that moved, epochs that rose, topics that were recreated."""
        for partition in self._partitions.values():
            self._apply_metadata(partition, snapshot)

    def _apply_metadata(self, partition: FetchPartition, snapshot: ClusterSnapshot) -> None:
        """Takes over what metadata says of one partition. The topic id comes first: epochs of two topics can't be compared.

        A topic that metadata lacks loses its leader here, not its position: a broker that has just started may not know it yet.
        """
        known = snapshot.partition(partition.tp)
        if known is None:
            self.set_leader(partition, UNKNOWN, partition.leader_epoch)
            return
        topic_id = snapshot.topic_id(partition.tp.topic)
        old_id, partition.topic_id = partition.topic_id, topic_id or partition.topic_id
        if old_id is None:
            partition.position_id = topic_id
        elif topic_id is not None and old_id != topic_id:
            self._recreated(partition, old_id)
            partition.leader_epoch = UNKNOWN
        if partition.replica >= 0 and partition.replica not in snapshot.brokers:
            partition.replica = UNKNOWN
            self.touch(partition.tp)
        if 0 <= known.leader_epoch < partition.leader_epoch:
            return  # older than a broker's own answer
        self.set_leader(partition, known.leader, known.leader_epoch)

    def set_leader(self, partition: FetchPartition, leader: int, epoch: int) -> None:
        """Takes over a leader and its epoch, from metadata or from a broker's answer (KIP-951)."""
        newer = epoch > partition.leader_epoch
        if leader == partition.leader and not newer:
            return
        if leader != partition.leader:
            partition.retry_at = 0.0
            partition.replica = UNKNOWN
        partition.leader = leader
        partition.leader_epoch = max(epoch, partition.leader_epoch)
        self.touch(partition.tp)
        if newer:
            self._validate(partition)

    def _validate(self, partition: FetchPartition) -> None:
        """Has the position checked, or the end, if the leader epoch is newer than the one that they are of (KIP-320)."""
        if partition.leader_epoch <= partition.known_epoch:
            return  # a log can't diverge within its own epoch
        if partition.known_epoch < 0 and partition.fetched <= partition.position:
            return  # an unknown epoch is no reason to doubt where nothing was read, either
        if partition.state in (FetchState.FETCHING, FetchState.VALIDATING):
            partition.move(Trigger.EPOCH_CHANGED)
            self.watch(partition)
            self._refetch(partition)

    def _recreated(self, partition: FetchPartition, old_id: bytes) -> None:
        """Gives up the position in a topic that was deleted, under whose name there is another one now (KIP-516).

        No topic gets an id of before. So one that comes back was there all the time, metadata in between came from a broker that
        lagged behind, and reading goes on where it was.
        """
        left = partition.left
        if partition.position >= 0 and partition.position_id == old_id:
            partition.left = CommitPosition(partition.position, partition.position_epoch, old_id)
        partition.position_epoch = UNKNOWN
        if partition.state is FetchState.FAILED:
            return
        if left is not None and left.topic_id == partition.topic_id:
            old, new = partition.position, left.offset
            self.events.append(OffsetReset(*partition.tp, old, new, LookupPurpose.RECREATED.value, 0))
            partition.position_epoch = left.leader_epoch
            self.set_position(partition, new, Trigger.SOUGHT)
            return
        self.lose_position(partition, LookupPurpose.RECREATED)
        if self._policy.loss_is_fatal:
            self.fail(partition, error_of_loss(partition, old_id=old_id))

    def prefer_replica(self, partition: FetchPartition, replica: int, now: float) -> None:
        """Reads from the follower that the leader named, for `replica_lifetime_s` (KIP-392)."""
        partition.replica = replica
        partition.replica_until = now + self._replica_lifetime_s
        heappush(self._timers, (partition.replica_until, partition.tp))
        self.touch(partition.tp)

    def leave_replica(self, broker: int) -> bool:
        """Sends partitions that are read from this follower back to their leaders. Returns whether there were any."""
        left = [p for p in self._partitions.values() if p.replica == broker]
        for partition in left:
            partition.replica = UNKNOWN
            self.touch(partition.tp)
        return bool(left)

    # ------------------------------------------------------------ time

    def back_off(self, partition: FetchPartition, trouble: str, now: float) -> None:
        """Delays the next attempt; the position stays. Failures in a row make the delay grow, until a success."""
        partition.failures += 1
        partition.trouble = trouble
        partition.retry_at = now + self._retry_backoff(partition.failures)
        heappush(self._timers, (partition.retry_at, partition.tp))
        self.touch(partition.tp)

    def tick(self, now: float) -> None:
        """Ends backoffs and preferred replicas whose time is over."""
        while self._timers and self._timers[0][0] <= now:
            partition = self._partitions.get(heappop(self._timers)[1])
            if partition is not None and 0 < partition.retry_at <= now:
                partition.retry_at = 0.0
                self.touch(partition.tp)
            if partition is not None and partition.replica >= 0 and partition.replica_until <= now:
                partition.replica = UNKNOWN
                self.touch(partition.tp)
        for tp, partition in list(self.watched.items()):
            if partition.state not in (FetchState.AWAITING_OFFSET, FetchState.VALIDATING):
                del self.watched[tp]

    def wakeup(self) -> float | None:
        """Returns when the next backoff or preferred replica ends, None for never."""
        while self._timers:
            until, tp = self._timers[0]
            if tp in self._partitions and self._partitions[tp].waits_until(until):
                return until
            heappop(self._timers)
        return None

    def to_ask(self, state: FetchState, now: float) -> list[FetchPartition]:
        """Returns the partitions in this state whose leader can be asked now, and is not being asked."""
        return [p for p in self.watched.values() if p.state is state and p.may_look_up(now)]

    # ------------------------------------------------------------ positions

    def set_position(self, partition: FetchPartition, offset: int, trigger: Trigger) -> None:
        """Goes on from `offset`; all that was fetched before is void."""
        partition.move(trigger)
        partition.position = partition.delivered = partition.fetched = offset
        partition.position_id = partition.topic_id
        partition.purpose = None
        partition.error = None
        partition.failures = 0
        partition.trouble = ""
        partition.retry_at = 0.0
        self.discard[partition.tp] = True
        self.touch(partition.tp)
        self.check_end(partition)

    def lose_position(self, partition: FetchPartition, purpose: LookupPurpose) -> None:
        """Has a position looked up; all that was fetched before is void."""
        partition.move(Trigger.OFFSET_LOST)
        partition.purpose = purpose
        partition.proven = False
        partition.doubted_since = None
        partition.error = None
        partition.retry_at = 0.0
        self.watch(partition)
        self._refetch(partition)
        self.discard[partition.tp] = True

    def _refetch(self, partition: FetchPartition) -> None:
        """Fetches again from behind the records that were handed out."""
        partition.fetched = partition.delivered
        if partition.retry_at == math.inf:
            partition.retry_at = 0.0  # the unreadable records that were to be decoded first are discarded too
        self.discard.setdefault(partition.tp, False)
        self.touch(partition.tp)

    def check_end(self, partition: FetchPartition) -> None:
        """Stops a bounded partition that is fetched up to its end offset."""
        end = partition.end_offset
        if end is not None and partition.state is FetchState.FETCHING and partition.fetched >= end:
            partition.move(Trigger.END_REACHED)
            self.touch(partition.tp)
