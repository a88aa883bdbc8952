"""Offsets that wait for a commit or were sent (`QueuedOffsets`): the part of `commits.CommitQueue` beside its requests. Also the
queue's inputs, actions and requests, and the errors that it gives by itself.

Theory of operation. `CommitEligibility` is the member as far as commits go: the queue gets it before each of its steps, so that
neither of the two machines knows the other. A commit of several partitions (`PendingCommit`) is taken apart into offsets of the queue
(`QueuedOffset`), since each partition may have another outcome, and is done when the last of them has one.

A partition whose offset is under way when it is taken from this member is *void*: the request can't be taken back, so its outcome
still counts, but the offset doesn't wait again. A commit whose time is over is forgotten by its offsets: one that waits for nobody
else isn't sent any more, and one that was sent is kept, because the next commit has to know whether it landed.

`ClassicGroup.validateOffsetCommit` of Kafka says who may commit: members in the present generation, also while the group prepares a
rebalance, but not while it completes one (SYNCING here); and anybody without a generation in a group without members.

`QueuedOffsets` keeps no time but deadlines, and sends nothing: so its rules are tested without a coordinator.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Never

from kafka_actors.base.machine import Ready
from kafka_actors.errors import (
    IllegalGenerationError,
    KafkaActorsError,
    KafkaTimeoutError,
    TopicRecreatedError,
    UsageError,
)
from kafka_actors.group.commit_metadata import MOST_DONE, at_once, record_bytes, unpack, with_less_done
from kafka_actors.protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from kafka_actors.types import OffsetAndMetadata, TopicPartition

from .embedded_protocol import GroupConfig
from .error_actions import ErrorAction
from .member import ClassicMember
from .member_core import MemberState
from .member_events import NO_GENERATION, Generation, GroupRequest, Partitions

Results = dict[TopicPartition, KafkaActorsError | None]

NO_MEMBERSHIP = Generation()
FAILS_AT_ONCE = (
    ErrorAction.RESET_GENERATION,
    ErrorAction.RESET_MEMBER,
    ErrorAction.FATAL,
    ErrorAction.PARTITION,
)
"""Meanings of an error after which an offset is not sent again."""
MAX_METADATA_BYTES = 32_767


@dataclass(frozen=True, slots=True)
class CommitEligibility:
    """State of the member that decides what may be committed.

    `connected`: the coordinator is known. `may_commit`: it would take a commit of `generation`. `settled`: an
    error about `generation` is about the membership itself, since no newer one is on its way. `owned`: what may
    be committed; None where partitions are chosen by hand. `ended`: why nothing will ever be committed again. `topic_id`:
    the id that a topic has now, None if it isn't known. `heard_at`: when the last request was sent that the coordinator
    acknowledged as a member's.
    """

    connected: bool
    may_commit: bool
    settled: bool = True
    generation: Generation = NO_MEMBERSHIP
    owned: Partitions | None = None
    ended: Exception | None = None
    topic_id: Callable[[str], bytes | None] = lambda _: None
    heard_at: float = -math.inf


@dataclass(slots=True, eq=False)
class PendingCommit:
    """A commit that was asked for. Done when `results` covers all of `wanted`.

    `refused`: the error that ended it as a whole, where no partition was committed.
    """

    wanted: Mapping[TopicPartition, OffsetAndMetadata]
    deadline: float
    results: Results = field(default_factory=dict)
    refused: Exception | None = None

    @property
    def done(self) -> bool:
        return len(self.results) == len(self.wanted)


@dataclass(slots=True)
class QueuedOffset:
    """One partition of the queue: the offset to commit, and the commits that wait for its outcome.

    `topic_id`: the topic's when the offset was processed, None if the commit's metadata has none. `refused`: why it was not taken
    when it was sent last.
    """

    offset: OffsetAndMetadata
    commits: list[PendingCommit]
    topic_id: bytes | None
    refused: Exception | None = None


class QueuedOffsets:
    """Offsets that wait to be committed, those that were sent, and the commits that wait for their outcomes.

    A partition is *waiting* (asked for, not sent), *sent* (in the request in flight, or of unknown outcome), or both. `begin` moves
    what waits, or as much as fits, to what is sent; from there `settle` ends an offset, or has it wait again. `finished` takes each commit that
    is done, once.
    """

    def __init__(self, finished: Callable[[PendingCommit], None]) -> None:
        self.waiting: dict[TopicPartition, QueuedOffset] = {}
        self.sent: dict[TopicPartition, QueuedOffset] = {}
        self.commits: list[PendingCommit] = []
        """Commits that are not done."""
        self._finished = finished
        self._void: set[TopicPartition] = set()
        """Partitions of `sent` that have been taken from this member since."""
        self._most_done = MOST_DONE
        """Characters of what is done beyond an offset, as far as is known that the broker takes them."""

    def put(self, commit: PendingCommit) -> None:
        """Takes a commit. Its offset takes the place of one that waits for the same partition, whose commits share the outcome."""
        for tp, wanted in commit.wanted.items():
            offset = wanted._replace(metadata=with_less_done(wanted.metadata, self._most_done))
            earlier = self.waiting.get(tp)
            commits = earlier.commits if earlier else []
            self.waiting[tp] = QueuedOffset(offset, [*commits, commit], unpack(offset.metadata).topic_id)
        if commit.done:
            self._finished(commit)
        else:
            self.commits.append(commit)

    def begin(self, most_bytes: float = math.inf) -> dict[TopicPartition, OffsetAndMetadata]:
        """Moves what has waited for longest to what is sent, and returns it: at least one offset, else as many as the coordinator keeps in
        `most_bytes`."""
        for tp in at_once({tp: entry.offset for tp, entry in self.waiting.items()}, most_bytes):
            self.sent[tp] = self.waiting.pop(tp)
        return {tp: entry.offset for tp, entry in self.sent.items()}

    def bytes_sent(self) -> int:
        """Returns about how many bytes the coordinator keeps of what was sent."""
        return sum(record_bytes(tp, entry.offset) for tp, entry in self.sent.items())

    def settle(self, tp: TopicPartition, error: Exception | None, verdict: ErrorAction | None) -> None:
        """Ends a sent entry, or has it wait again where the error is worth another try."""
        if error is not None and verdict not in FAILS_AT_ONCE:
            self.sent[tp].refused = error
            self.requeue(tp)
            return
        entry = self.sent.pop(tp)
        self._void.discard(tp)
        self._report(tp, entry, error, with_request=verdict is not ErrorAction.PARTITION)

    def requeue(self, tp: TopicPartition) -> None:
        """Has a sent entry wait again, unless something newer waits, the partition has gone, or nobody waits for it."""
        entry = self.sent.pop(tp)
        if tp in self._void:
            self._void.discard(tp)
            self._report(tp, entry, not_owned(tp))
            return
        newer = self.waiting.get(tp)
        if newer is not None:
            newer.commits = [*entry.commits, *newer.commits]
            newer.refused = entry.refused
        elif entry.commits:
            self.waiting[tp] = entry

    def put_again(self, offsets: Mapping[TopicPartition, OffsetAndMetadata]) -> None:
        """Takes offsets that were committed and undone. Nobody waits for them; something newer takes their place."""
        for tp, offset in offsets.items():
            self.waiting.setdefault(tp, QueuedOffset(offset, [], unpack(offset.metadata).topic_id))

    def strip(self, tp: TopicPartition) -> bool:
        """Has a sent offset wait with less metadata, for a broker that takes less than usual: with half of what is done beyond it, from
        now on for all; where that is none, with the user's own text alone. Returns False where there was no more."""
        entry = self.sent[tp]
        own = unpack(entry.offset.metadata)
        if own.done:
            self._most_done = min(self._most_done, len(own.done) // 2)
            metadata = with_less_done(entry.offset.metadata, self._most_done)
        elif own.topic_id is not None:
            metadata = own.text
        else:
            return False
        entry.offset = entry.offset._replace(metadata=metadata)
        self.requeue(tp)
        return True

    def drop(self, partitions: Iterable[TopicPartition]) -> None:
        """Ends what waits for these partitions; what is sent is not sent again."""
        for tp in partitions:
            if tp in self.waiting:
                self._report(tp, self.waiting.pop(tp), not_owned(tp))
            if tp in self.sent:
                self._void.add(tp)

    def keep(self, owned: Partitions) -> None:
        """Gives up offsets of partitions that have gone; of a sent one the outcome is still to come."""
        self._void.update(tp for tp in self.sent if tp not in owned)
        for tp in [tp for tp in self.waiting if tp not in owned]:
            self._report(tp, self.waiting.pop(tp), not_owned(tp))

    def keep_topics(self, topic_id: Callable[[str], bytes | None]) -> None:
        """Gives up offsets of topics that were deleted and made anew."""
        for entries in (self.waiting, self.sent):
            for tp, entry in list(entries.items()):
                now = topic_id(tp.topic)
                if entry.topic_id is None or now is None or entry.topic_id == now:
                    continue
                if entries is self.waiting:
                    error = recreated(tp, entry.offset.offset, entry.topic_id, now)
                    self._report(tp, self.waiting.pop(tp), error)
                else:
                    self._void.add(tp)

    def expire(self, now: float) -> None:
        """Ends the commits whose deadline is over, each with what is known of it."""
        for commit in [t for t in self.commits if now >= t.deadline]:
            error = self._too_late(commit)
            for tp in commit.wanted:
                commit.results.setdefault(tp, error)
            commit.refused = error
            self._finish(commit)
            self._abandon(commit)

    def _too_late(self, commit: PendingCommit) -> KafkaTimeoutError:
        """Returns the error of a commit whose time is over, with the last refusal, and whether it may have landed."""
        left = sorted(tp for tp in commit.wanted if tp not in commit.results)
        first = left[0]
        more = f" and {len(left) - 1} more" if len(left) > 1 else ""
        text = f"{first.topic}-{first.partition}{more} could not be committed in time"
        entry = self.waiting.get(first) or self.sent.get(first)
        if entry is not None and entry.refused is not None:
            text += f": {entry.refused}"
        if any(tp in self.sent for tp in left):
            text += "; whether it was done is unknown"
        return KafkaTimeoutError(text)

    def _abandon(self, commit: PendingCommit) -> None:
        """Forgets a commit that nobody waits for: it is not sent if it has not been, and resolved if it may have been."""
        for entries in (self.waiting, self.sent):
            for tp in [tp for tp in commit.wanted if tp in entries]:
                entry = entries[tp]
                entry.commits = [t for t in entry.commits if t is not commit]
                if not entry.commits and entries is self.waiting:
                    del self.waiting[tp]

    def fail_sent(self, error: Exception) -> None:
        """Ends what was sent, also what may have landed: nobody will find out any more."""
        for tp in list(self.sent):
            self.settle(tp, error, ErrorAction.FATAL)

    def fail(self, error: Exception) -> None:
        """Ends everything: nothing will be committed any more."""
        self.fail_sent(error)
        for tp in list(self.waiting):
            self._report(tp, self.waiting.pop(tp), error, with_request=True)

    def _report(
        self, tp: TopicPartition, entry: QueuedOffset, error: Exception | None, *, with_request: bool = False
    ) -> None:
        for commit in entry.commits:
            commit.results[tp] = as_ours(error)
            if error is not None and with_request:
                commit.refused = error
            if commit.done:
                self._finish(commit)

    def _finish(self, commit: PendingCommit) -> None:
        """Hands a commit back. Where a partition was committed, it was not refused as a whole."""
        if any(error is None for error in commit.results.values()):
            commit.refused = None
        self.commits.remove(commit)
        self._finished(commit)


@dataclass(frozen=True, slots=True)
class MembershipNews:
    """An error in an answer that concerns the membership: for `ClassicMember.on_membership_error`."""

    error: Exception
    verdict: ErrorAction
    generation: Generation


CommitAction = GroupRequest | PendingCommit | MembershipNews
"""A request to send, a commit whose asker is to be answered because it is done, an error to hand on to the membership."""

CommitReady = Ready[CommitAction, Never]


def eligibility_of(
    member: ClassicMember,
    owned: Partitions | None,
    crashed: Exception | None = None,
    topic_id: Callable[[str], bytes | None] = lambda _: None,
) -> CommitEligibility:
    """Returns what a member may commit now. `owned`, `topic_id`: as in `CommitEligibility`. `crashed`: what ended it outside of its
    machine."""
    ended = member.fatal or crashed
    if ended is None and member.state is MemberState.LEFT:
        ended = UsageError(f"the membership in group {member.config.group_id!r} has ended")
    connected = member.coordinator is not None
    if owned is None:
        return CommitEligibility(connected, True, ended=ended, topic_id=topic_id)
    may_commit = _may_commit(member)
    heard_at = member.heartbeat.acknowledged_at
    return CommitEligibility(
        connected,
        may_commit,
        member.settled,
        member.generation,
        owned,
        ended,
        topic_id,
        -math.inf if heard_at is None else heard_at,
    )


def _may_commit(member: ClassicMember) -> bool:
    """Whether the coordinator would take a commit of the member's generation (`ClassicGroup.validateOffsetCommit`)."""
    committing = (MemberState.STABLE, MemberState.REVOKING, MemberState.JOINING)
    return member.generation.id != NO_GENERATION and member.state in committing


def commit_request(
    config: GroupConfig, offsets: Mapping[TopicPartition, OffsetAndMetadata], eligibility: CommitEligibility
) -> OffsetCommitRequest:
    """Returns the request that commits these offsets in the member's generation, or without one."""
    topics: dict[str, list[OffsetCommitRequestPartition]] = {}
    for tp, offset in sorted(offsets.items()):
        partition = OffsetCommitRequestPartition(
            partition_index=tp.partition,
            committed_offset=offset.offset,
            committed_leader_epoch=offset.leader_epoch,
            committed_metadata=offset.metadata,
        )
        topics.setdefault(tp.topic, []).append(partition)
    return OffsetCommitRequest(
        group_id=config.group_id,
        generation_id_or_member_epoch=eligibility.generation.id,
        member_id=eligibility.generation.member_id,
        group_instance_id=None if eligibility.owned is None else config.group_instance_id,
        topics=[OffsetCommitRequestTopic(name=t, partitions=ps) for t, ps in topics.items()],
    )


def check_offset(tp: TopicPartition, offset: OffsetAndMetadata) -> None:
    """Raises `UsageError` for an offset or metadata that no request can carry."""
    where = f"{tp.topic}-{tp.partition}"
    if offset.offset < 0:
        raise UsageError(f"can't commit offset {offset.offset} of {where}")
    if len(offset.metadata.encode()) > MAX_METADATA_BYTES:
        raise UsageError(f"the metadata of the commit of {where} has more than {MAX_METADATA_BYTES} bytes")


def not_owned(tp: TopicPartition) -> IllegalGenerationError:
    """Returns the error of a commit of a partition that is not this member's (any more)."""
    return IllegalGenerationError(
        "the partition is not assigned to this member (any more), so nothing was sent: only its owner can commit it",
        topic=tp.topic,
        partition=tp.partition,
    )


def recreated(tp: TopicPartition, offset: int, old_id: bytes, new_id: bytes) -> TopicRecreatedError:
    """Returns the error of a commit of an offset in a topic that was deleted and made anew since."""
    return TopicRecreatedError(tp.topic, tp.partition, offset, old_id.hex(), new_id.hex())


def as_ours(error: Exception | None) -> KafkaActorsError | None:
    if error is None or isinstance(error, KafkaActorsError):
        return error
    return UsageError(str(error))
