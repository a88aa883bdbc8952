"""Actions and events of a member's machine (`ClassicMember.poll`): requests to send and their bodies, calls to make, and what happened.

An action that takes time comes back as an input with the token or the object of the action, so that a late end of an earlier one is
known as such. Partitions that are gone (`LosePartitions`) are no longer the member's: nothing is to be waited for, and nothing can be
committed. Those to be given up (`RevokePartitions`) are its own until the deadline.

Theory of operation. The machine's output is of three kinds, and each is for somebody else:

- `GroupRequest`: for the shell's connections. It names its generation, by which an answer that comes late is
  known to be about a membership that is past, and the connection to use (`GroupChannel`): what waits for
  other members must not hold up heartbeats and commits.
- `MemberAction`: for the shell itself, which has to compute, drain, take over or let go. `TakePartitions`
  says all that the member has, beside what is new, so that a shell that missed one can't be wrong for long.
- `MemberEvent`: for observers. Ignoring them changes nothing.

The bodies of requests are made here as well, of the configuration and the generation only, so that each is in
one place, whoever sends it. Reasons (KIP-800) are cut to what brokers take.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING, Any, NamedTuple

from kafka_actors.base.machine import Ready
from kafka_actors.protocol.messages.heartbeat import HeartbeatRequest
from kafka_actors.protocol.messages.join_group import (
    JoinGroupRequest,
    JoinGroupRequestProtocol,
    JoinGroupResponseMember,
)
from kafka_actors.protocol.messages.leave_group import LeaveGroupRequest, MemberIdentity
from kafka_actors.protocol.messages.sync_group import SyncGroupRequest, SyncGroupRequestAssignment
from kafka_actors.types import TopicPartition

from .error_actions import GroupApi

if TYPE_CHECKING:
    from .embedded_protocol import GroupConfig

Partitions = frozenset[TopicPartition]

NO_GENERATION = -1
MAX_REASON = 255
"""Characters to which a reason is cut (KIP-800), as in Java's client."""


class Generation(NamedTuple):
    """A member's place in its group: `id` -1 and `member_id` empty where it has none."""

    id: int = NO_GENERATION
    member_id: str = ""
    protocol: str | None = None


class CoordinatorNode(NamedTuple):
    """The broker that coordinates the group."""

    node_id: int
    host: str
    port: int


class GroupChannel(Enum):
    """The connections of a member to its coordinator.

    A broker carries out the requests of one connection one after the other, and a request without an answer in its
    time closes its connection: what waits long must not hold up heartbeats and commits.
    """

    MAIN = "main"
    """JoinGroup and SyncGroup, which wait for the other members."""
    OFFSETS = "offsets"
    """Heartbeats, commits, and the rest."""
    OFFSET_FETCH = "offset fetch"
    """OffsetFetch, over which a coordinator may take long; open while an answer is wanted."""


_CHANNELS = {
    GroupApi.JOIN: GroupChannel.MAIN,
    GroupApi.SYNC: GroupChannel.MAIN,
    GroupApi.OFFSET_FETCH: GroupChannel.OFFSET_FETCH,
}


@dataclass(frozen=True, slots=True, eq=False)
class GroupRequest:
    """A request to send now. Its answer, or what ended it, goes to `on_response` together with this object.

    `body`: the request, of `GroupApi.CONNECT` the `CoordinatorNode` to open new connections to. `timeout`: seconds.
    """

    api: GroupApi
    body: Any
    timeout: float
    sent_at: float
    generation: Generation

    @property
    def channel(self) -> GroupChannel:
        """The connection that carries the request."""
        return _CHANNELS.get(self.api, GroupChannel.OFFSETS)


@dataclass(frozen=True, slots=True)
class LeavePlan:
    """Deadline and manner of leaving. `ask`: send LeaveGroup; else the session ends by itself (a static member comes back)."""

    deadline: float
    ask: bool
    reason: str


@dataclass(frozen=True, slots=True)
class MemberAction:
    """Something else than a request that the shell has to carry out."""


@dataclass(frozen=True, slots=True)
class Disconnect(MemberAction):
    """The coordinator is lost: its connections are to be closed; what was in flight there has failed."""

    reason: str


@dataclass(frozen=True, slots=True)
class ComputeAssignment(MemberAction):
    """This member leads: `on_assignment(token, …)` wants everybody's assignment."""

    token: int
    protocol: str
    members: tuple[JoinGroupResponseMember, ...]


@dataclass(frozen=True, slots=True)
class TakePartitions(MemberAction):
    """A new assignment has come: `added` are new here, `partitions` all of them without those being revoked."""

    generation: int
    added: Partitions
    partitions: Partitions


@dataclass(frozen=True, slots=True)
class RevokePartitions(MemberAction):
    """Drain and commit these, then `on_released(token)`; at `deadline` the machine goes on without."""

    token: int
    partitions: Partitions
    deadline: float


@dataclass(frozen=True, slots=True)
class LosePartitions(MemberAction):
    """These are no longer this member's: nothing about them may be committed any more."""

    partitions: Partitions
    reason: str


@dataclass(frozen=True, slots=True)
class MemberEvent:
    """Something that happened to the membership, for observers."""


@dataclass(frozen=True, slots=True)
class CoordinatorFound(MemberEvent):
    """The coordinator is known and connected."""

    node: CoordinatorNode


@dataclass(frozen=True, slots=True)
class RejoinStarted(MemberEvent):
    """The member is about to send JoinGroup."""

    reason: str


@dataclass(frozen=True, slots=True)
class MemberFailed(MemberEvent):
    """The member has ended: `FATAL`."""

    error: Exception


@dataclass(frozen=True, slots=True)
class MemberLeft(MemberEvent):
    """The member has ended: `LEFT`."""


MemberReady = Ready[GroupRequest | MemberAction, MemberEvent]


# ---------------------------------------------------------------- bodies of requests


def join_request(
    config: GroupConfig, generation: Generation, protocols: Iterable[tuple[str, bytes]], reason: str
) -> JoinGroupRequest:
    """Returns JoinGroup of a member that supports these protocols, the most preferred first, with their metadata."""
    return JoinGroupRequest(
        group_id=config.group_id,
        session_timeout_ms=round(config.session_timeout * 1000),
        rebalance_timeout_ms=round(config.rebalance_timeout * 1000),
        member_id=generation.member_id,
        group_instance_id=config.group_instance_id,
        protocol_type=config.protocol_type,
        protocols=[JoinGroupRequestProtocol(name=name, metadata=metadata) for name, metadata in protocols],
        reason=reason[:MAX_REASON] or None,
    )


def sync_request(
    config: GroupConfig, generation: Generation, assignments: Sequence[SyncGroupRequestAssignment]
) -> SyncGroupRequest:
    """Returns SyncGroup, with everybody's assignment where the member leads."""
    return SyncGroupRequest(
        group_id=config.group_id,
        generation_id=generation.id,
        member_id=generation.member_id,
        group_instance_id=config.group_instance_id,
        protocol_type=config.protocol_type,
        protocol_name=generation.protocol,
        assignments=list(assignments),
    )


def heartbeat_request(config: GroupConfig, generation: Generation) -> HeartbeatRequest:
    return HeartbeatRequest(
        group_id=config.group_id,
        generation_id=generation.id,
        member_id=generation.member_id,
        group_instance_id=config.group_instance_id,
    )


def leave_request(config: GroupConfig, generation: Generation, reason: str) -> LeaveGroupRequest:
    identity = MemberIdentity(
        member_id=generation.member_id,
        group_instance_id=config.group_instance_id,
        reason=reason[:MAX_REASON],
    )
    return LeaveGroupRequest(group_id=config.group_id, members=[identity])
