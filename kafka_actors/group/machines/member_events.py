"""Actions and events of a member's machine (`ClassicMember.poll`): requests to send, calls to make, and what happened.

An action that takes time comes back as an input with the token or the object of the action, so that a late end of an earlier one is
known as such. Partitions that are gone (`LosePartitions`) are no longer the member's: nothing is to be waited for, and nothing can be
committed. Those to be given up (`RevokePartitions`) are its own until the deadline.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import Any, NamedTuple

from kafka_actors.base.machine import Ready
from kafka_actors.protocol.messages.join_group import JoinGroupResponseMember
from kafka_actors.types import TopicPartition

from .error_actions import GroupApi

Partitions = frozenset[TopicPartition]

NO_GENERATION = -1


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
