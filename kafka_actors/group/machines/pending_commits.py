"""Inputs, actions and requests of the queue of commits (`commits.CommitQueue`), and the errors that it gives by itself.

Theory of operation. `CommitEligibility` is the member as far as commits go: the queue gets it before each of its steps, so that
neither of the two machines knows the other. A commit of several partitions (`PendingCommit`) is taken apart into offsets of the queue
(`QueuedOffset`), since each partition may have another outcome, and is done when the last of them has one.

`ClassicGroup.validateOffsetCommit` of Kafka says who may commit: members in the present generation, also while the group prepares a
rebalance, but not while it completes one (SYNCING here); and anybody without a generation in a group without members.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Never

from kafka_actors.base.machine import Ready
from kafka_actors.errors import IllegalGenerationError, KafkaActorsError, TopicRecreatedError, UsageError
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


class GenerationRefusal:
    """The generation whose commits the group no longer takes, because it rebalances: what waits goes with the next one."""

    def __init__(self) -> None:
        self._generation: Generation | None = None
        self._joining = False
        """Whether the member was not through with JoinGroup and SyncGroup when it heard so: it may come out in the same
        generation, because a JoinGroup that is repeated while the group waits for SyncGroup brings no new one."""

    def refused(self, generation: Generation, member: CommitEligibility) -> None:
        """Takes that the group refused a commit of this generation."""
        self._generation = generation
        self._joining = not (member.settled and member.may_commit)

    def holds_back(self, member: CommitEligibility) -> bool:
        """Whether a commit of the member would be refused again."""
        return member.generation == self._generation and not (self._joining and member.settled)

    def clear(self) -> None:
        self._generation = None


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
