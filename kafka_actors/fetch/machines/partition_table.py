"""The worker's partitions: who has them, who leads each, where they stand; without what brokers answer.

Rules that hold throughout: a temporary error never changes a position; only the broker's own word does (an
offset outside the log, a log that diverges, another topic id), and then the options decide, with an event or a
typed error. Nothing that was handed out is taken back.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator

from kafka_actors.cluster.snapshot import ClusterSnapshot
from kafka_actors.errors import UsageError
from kafka_actors.events import Event
from kafka_actors.fetch.messages import Epoch
from kafka_actors.types import TopicPartition

from .partition_state import UNKNOWN, FetchPartition, FetchState, LookupPurpose, PartitionStart, Trigger
from .resets import ResetPolicy, error_of_loss


class PartitionTable:
    """All partitions of one worker. What it decides is left in `dirty`, `void`, `failed`, `events` and
    `refresh_metadata`, which its owner reads and clears. `retry_backoff`: seconds to wait after so many failures in a row."""

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
        self._attention: dict[TopicPartition, FetchPartition] = {}  # what time, or a look-up, will change
        self.dirty: dict[TopicPartition, None] = {}  # what is asked of the brokers may have changed
        self.void: dict[TopicPartition, bool] = {}  # whose fetched records to drop; True: handed out ones too
        self.failed: list[FetchPartition] = []
        self.events: list[Event] = []
        self.refresh_metadata = False

    def __iter__(self) -> Iterator[FetchPartition]:
        return iter(self._partitions.values())

    def __len__(self) -> int:
        return len(self._partitions)

    def __contains__(self, tp: TopicPartition) -> bool:
        return tp in self._partitions

    def get(self, tp: TopicPartition) -> FetchPartition | None:
        return self._partitions.get(tp)

    def require(self, tp: TopicPartition) -> FetchPartition:
        """The partition, or `UsageError` if it isn't assigned."""
        found = self._partitions.get(tp)
        if found is None:
            raise UsageError(f"{tp.topic}-{tp.partition} is not assigned")
        return found

    def touch(self, tp: TopicPartition) -> None:
        """What is asked of the brokers about this partition may have changed."""
        self.dirty[tp] = None

    # ------------------------------------------------------------ what is asked of this worker

    def assign(self, tp: TopicPartition, start: PartitionStart, snapshot: ClusterSnapshot | None) -> None:
        """Takes a partition on. The same epoch again changes nothing: an assignment may arrive twice."""
        known = self._partitions.get(tp)
        if known is not None and known.epoch == start.epoch:
            return
        if known is not None:
            self.revoke(tp)
        partition = self._partitions[tp] = self._attention[tp] = FetchPartition(tp, start)
        if start.offset is not None:
            partition.position_epoch = start.leader_epoch
            self._place(partition, start.offset, Trigger.OFFSET_KNOWN)
        if snapshot is not None:
            self._locate(partition, snapshot)
        if partition.state is FetchState.FETCHING:
            self._validate(partition)
        self.touch(tp)

    def regrant(self, tp: TopicPartition, epoch: Epoch) -> None:
        """The same worker keeps the partition under a new epoch and goes on from its own position."""
        partition = self.require(tp)
        if partition.epoch != epoch:
            partition.epoch = epoch
            self._rewind(partition)

    def revoke(self, tp: TopicPartition) -> None:
        """Forgets the partition, its position and whatever was fetched."""
        self._attention.pop(tp, None)
        if self._partitions.pop(tp, None) is not None:
            self.touch(tp)
            self.void[tp] = True

    def drain(self, tp: TopicPartition) -> None:
        """No more records are fetched or handed out; the position stays readable until it is revoked."""
        partition = self.require(tp)
        if not partition.draining:
            partition.draining = True
            self._rewind(partition)

    def pause(self, tp: TopicPartition) -> None:
        partition = self.require(tp)
        partition.paused = True
        self.touch(tp)

    def resume(self, tp: TopicPartition) -> None:
        partition = self.require(tp)
        partition.paused = False
        self.touch(tp)

    def seek(self, tp: TopicPartition, offset: int, leader_epoch: int = UNKNOWN) -> None:
        """The next record to hand out is the first at or behind `offset`."""
        partition = self.require(tp)
        partition.position_epoch = leader_epoch
        self._place(partition, offset, Trigger.SOUGHT)
        self._validate(partition)

    def seek_to(self, tp: TopicPartition, purpose: LookupPurpose) -> None:
        """The same for an end of the log, which is looked up first."""
        self._lose(self.require(tp), purpose)

    def rewind(self, tp: TopicPartition) -> None:
        """Drops all that is fetched and not consumed; it is fetched again later."""
        partition = self.require(tp)
        partition.delivered = partition.position
        self.void[tp] = True
        self.drop_waiting(tp)

    def drop_waiting(self, tp: TopicPartition) -> None:
        """Drops what is fetched and was not handed out; it is fetched again later."""
        partition = self.require(tp)
        if partition.state is FetchState.AT_END:
            partition.move(Trigger.SOUGHT)
        self._rewind(partition)
        self._check_end(partition)

    # ------------------------------------------------------------ the user's progress

    def consumed(self, partition: FetchPartition, next_offset: int, leader_epoch: int) -> None:
        """The user has everything below `next_offset`."""
        partition.position = next_offset
        if leader_epoch >= 0:
            partition.position_epoch = leader_epoch

    def skip_to(self, partition: FetchPartition, next_offset: int) -> None:
        """Goes on behind records that can't be read; what was handed out before them stays valid."""
        if partition.state is FetchState.AT_END:
            partition.move(Trigger.SOUGHT)  # what was fetched up to the end is dropped, and fetched again
        partition.position = partition.delivered = partition.fetched = next_offset
        partition.retry_at = 0.0
        self.void[partition.tp] = True
        self.touch(partition.tp)
        self._check_end(partition)

    def fail(self, partition: FetchPartition, error: Exception) -> None:
        """Only a seek or a new assignment gets this partition going again."""
        if partition.state is FetchState.FAILED:
            return
        partition.move(Trigger.ERROR)
        partition.error = error
        self.failed.append(partition)
        self.touch(partition.tp)

    # ------------------------------------------------------------ metadata

    def on_snapshot(self, snapshot: ClusterSnapshot) -> None:
        """New metadata: leaders that moved, epochs that rose, topics that were recreated."""
        for partition in self._partitions.values():
            self._locate(partition, snapshot)

    def _locate(self, partition: FetchPartition, snapshot: ClusterSnapshot) -> None:
        known = snapshot.partition(partition.tp)
        if known is None:
            self._led_by(partition, UNKNOWN, partition.leader_epoch)
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
            return  # older than what a broker told us itself
        self._led_by(partition, known.leader, known.leader_epoch)

    def _led_by(self, partition: FetchPartition, leader: int, epoch: int) -> None:
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
        """KIP-320: under a new leader epoch the position is checked before anything more is read."""
        if partition.position_epoch < 0 or partition.leader_epoch <= partition.position_epoch:
            return  # unknown is not a reason to doubt; and the log can't have diverged within its own epoch
        if partition.state in (FetchState.FETCHING, FetchState.VALIDATING):
            partition.move(Trigger.EPOCH_CHANGED)
            self._attention[partition.tp] = partition
            self._rewind(partition)

    def _recreated(self, partition: FetchPartition, old_id: bytes) -> None:
        partition.position_epoch = UNKNOWN
        if partition.state is FetchState.FAILED:
            return
        self._lose(partition, LookupPurpose.RECREATED)
        if self._policy.loss_is_fatal:
            self.fail(partition, error_of_loss(partition, old_id=old_id))

    def leave_replica(self, broker: int) -> bool:
        """Partitions that are read from this follower (KIP-392) go back to their leaders. Whether there were any."""
        left = [p for p in self._partitions.values() if p.replica == broker]
        for partition in left:
            partition.replica = UNKNOWN
            self.touch(partition.tp)
        return bool(left)

    def back_off(self, partition: FetchPartition, trouble: str, now: float) -> None:
        """The next attempt waits; the position stays."""
        partition.failures += 1
        partition.trouble = trouble
        partition.retry_at = now + self._retry_backoff(partition.failures)
        self._attention[partition.tp] = partition
        self.touch(partition.tp)

    # ------------------------------------------------------------ parts

    def tick(self, now: float) -> None:
        """Ends backoffs and preferred replicas (KIP-392: the leader is asked again) whose time has come."""
        for tp, partition in list(self._attention.items()):
            if 0 < partition.retry_at <= now:
                partition.retry_at = 0.0
                self.touch(tp)
            if partition.replica >= 0 and partition.replica_until <= now:
                partition.replica = UNKNOWN
                self.touch(tp)
            waits = partition.retry_at > 0 or partition.replica >= 0
            if not waits and partition.state not in (FetchState.AWAITING_OFFSET, FetchState.VALIDATING):
                del self._attention[tp]

    def wakeup(self) -> float | None:
        """When the next backoff or preferred replica ends, if any."""
        times = [p.retry_at for p in self._attention.values() if 0 < p.retry_at < math.inf]
        times += [p.replica_until for p in self._attention.values() if p.replica >= 0]
        return min(times) if times else None

    def _waiting(self, state: FetchState, now: float) -> Iterable[FetchPartition]:
        return [
            p
            for p in self._attention.values()
            if p.state is state
            and not p.looking_up
            and p.retry_at <= now
            and not p.draining
            and p.leader >= 0
        ]

    def _lose(self, partition: FetchPartition, purpose: LookupPurpose) -> None:
        partition.move(Trigger.OFFSET_LOST)
        partition.purpose = purpose
        partition.proven = False
        partition.error = None
        partition.retry_at = 0.0
        self._attention[partition.tp] = partition
        self._rewind(partition)
        self.void[partition.tp] = True

    def _place(self, partition: FetchPartition, offset: int, happening: Trigger) -> None:
        partition.move(happening)
        partition.position = partition.delivered = partition.fetched = offset
        partition.position_id = partition.topic_id
        partition.purpose = None
        partition.error = None
        partition.failures = 0
        partition.trouble = ""
        partition.retry_at = 0.0
        self.void[partition.tp] = True
        self.touch(partition.tp)
        self._check_end(partition)

    def _rewind(self, partition: FetchPartition) -> None:
        partition.fetched = partition.delivered
        if partition.retry_at == math.inf:
            partition.retry_at = 0.0  # the unreadable records that were to be decoded first are dropped too
        self.void.setdefault(partition.tp, False)
        self.touch(partition.tp)

    def _check_end(self, partition: FetchPartition) -> None:
        end = partition.end_offset
        if end is not None and partition.state is FetchState.FETCHING and partition.fetched >= end:
            partition.move(Trigger.END_REACHED)
            self.touch(partition.tp)
