"""`EmbeddedProtocol`: the border between membership (`ClassicMember`) and what the group shares out (partitions, or anything else).

`ConsumerCoordinator` has `Ownership` behind it, which owns partitions; `BaseCoordinator` has `OpaqueAssignment`, an assignment
whose bytes only the user's subclass can read.

Theory of operation. Joining a group is the same whatever it shares out: `ClassicMember` asks for metadata
before JoinGroup and hands over what came back, and never looks into either. What it has to know is only what
is owned, what has to be given up before it may go on, and what a new assignment changes. So the protocol's
answers are sets: what to release now (`before_join`, `release_all`), what was added and revoked
(`on_synced`), and what is lost at once (`lose`). The member does the waiting: it has partitions drained, and
reports the end (`released`). An implementation has state but no time, and must not wait or do IO.

The names follow Kafka: the bytes within JoinGroup and SyncGroup are the *embedded protocol* of the group
protocol.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

from kafka_actors.protocol.messages.describe_groups import DescribedGroup
from kafka_actors.protocol.messages.join_group import JoinGroupResponseMember
from kafka_actors.types import TopicPartition

from .member_events import Generation, Partitions


@dataclass(frozen=True, slots=True)
class GroupConfig:
    """A member's options. Times are seconds.

    `revoke_timeout`: how long a drain may take before the member goes on without it. `max_poll_interval`:
    None where nobody reports progress. `describe_strategy`: what the errors of a misfit group should name. `incarnation`: of a
    dynamic member whose id passes from process to process, the number of this process, from 1 on. Each gets a generation of its own,
    since its metadata is another; the one that finds the group gone on without it leaves the id to its successor.
    """

    group_id: str
    group_instance_id: str | None = None
    protocol_type: str = "consumer"
    session_timeout: float = 45.0
    heartbeat_interval: float = 3.0
    heartbeat_timeout: float = 9.0
    rebalance_timeout: float = 60.0
    revoke_timeout: float = 30.0
    request_timeout: float = 30.0
    retry_backoff: float = 0.1
    retry_backoff_max: float = 1.0
    max_poll_interval: float | None = None
    describe_strategy: str = ""
    incarnation: int | None = None


@dataclass(frozen=True, slots=True)
class AssignmentChange:
    """The difference that a new assignment makes for a member. `rejoin`: why the group has to rebalance again, if so."""

    added: Partitions = frozenset()
    revoked: Partitions = frozenset()
    rejoin: str | None = None


class EmbeddedProtocol(Protocol):
    """The embedded protocol's side of a membership: what is owned, and what has to be given up when. No call may wait or do IO."""

    def protocols(self) -> list[tuple[str, bytes]]:
        """Returns (name, metadata) of each supported protocol for JoinGroup, the most preferred first."""

    def owned(self) -> Partitions:
        """Returns what this member has now and is not giving up."""

    def before_join(self) -> Partitions:
        """Returns what must be given up before JoinGroup; it no longer counts as owned."""

    def release_all(self) -> Partitions:
        """Returns everything owned, which from now on is being given up."""

    def released(self, partitions: Partitions) -> None:
        """Notes that these have been given up."""

    def lose(self) -> Partitions:
        """Returns everything owned or being given up, which is neither from now on."""

    def on_joined(
        self, generation: Generation, leader: bool, members: tuple[JoinGroupResponseMember, ...]
    ) -> None:
        """Takes the result of JoinGroup. `members` is empty unless this member leads."""

    def on_synced(self, generation: Generation, assignment: bytes) -> AssignmentChange:
        """Takes the assignment that SyncGroup brought. Raises `DecodeError` for bytes that are no assignment."""

    def on_described(self, group: DescribedGroup | None) -> None:
        """Takes the group as it was before a static member comes back to it; None where that can't be known."""


_ASSIGNMENT: Partitions = frozenset({TopicPartition("", -1)})
_NOTHING: Partitions = frozenset()


class OpaqueAssignment:
    """An `EmbeddedProtocol` for opaque assignments: each is owned as one thing, and given up before the next JoinGroup (eager).

    protocols: (name, metadata) of each, the most preferred first.
    """

    def __init__(self, protocols: Callable[[], list[tuple[str, bytes]]]) -> None:
        self._protocols = protocols
        self._owned = _NOTHING
        self._releasing = _NOTHING
        self.assignment = b""
        """The bytes that the leader assigned to this member last."""

    def protocols(self) -> list[tuple[str, bytes]]:
        return self._protocols()

    def owned(self) -> Partitions:
        return self._owned

    def before_join(self) -> Partitions:
        return self.release_all()

    def release_all(self) -> Partitions:
        released, self._owned = self._owned, _NOTHING
        self._releasing |= released
        return released

    def released(self, partitions: Partitions) -> None:
        self._releasing -= partitions

    def lose(self) -> Partitions:
        lost = self._owned | self._releasing
        self._owned = self._releasing = _NOTHING
        return lost

    def on_joined(
        self, generation: Generation, leader: bool, members: tuple[JoinGroupResponseMember, ...]
    ) -> None:
        """Nothing to do: only an assignment changes what is owned."""

    def on_synced(self, generation: Generation, assignment: bytes) -> AssignmentChange:
        self.assignment = assignment
        self._owned = _ASSIGNMENT
        return AssignmentChange(added=_ASSIGNMENT)

    def on_described(self, group: DescribedGroup | None) -> None:
        """Nothing to compare: a static member takes what it is given back."""
