"""What a group protocol embeds in the classic one: the border between "which group" and "what is shared out"."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from kafka_actors.protocol.messages.describe_groups import DescribedGroup
from kafka_actors.protocol.messages.join_group import JoinGroupResponseMember

from .member_events import Generation, Partitions


@dataclass(frozen=True, slots=True)
class GroupConfig:
    """A member's options. Times are seconds.

    `revoke_timeout`: how long a drain may take before the member goes on without it. `max_poll_interval`:
    None where nobody reports progress. `describe_strategy`: what the errors of a misfit group should name.
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


@dataclass(frozen=True, slots=True)
class AssignmentChange:
    """What a new assignment means for a member. `rejoin`: why the group has to rebalance again, if so."""

    added: Partitions = frozenset()
    revoked: Partitions = frozenset()
    rejoin: str | None = None


class EmbeddedProtocol(Protocol):
    """The embedded protocol's side of a membership. Pure: no call may wait or do IO."""

    def protocols(self) -> list[tuple[str, bytes]]:
        """(name, metadata) of each supported protocol, the most preferred first. Marks the join's state."""

    def owned(self) -> Partitions:
        """What this member has now and is not giving up."""

    def before_join(self) -> Partitions:
        """What must be given up before JoinGroup; it no longer counts as owned."""

    def give_up(self) -> Partitions:
        """Everything owned, which from now on is being given up."""

    def released(self, partitions: Partitions) -> None:
        """These have been given up."""

    def lose(self) -> Partitions:
        """Everything owned or being given up, which is neither from now on."""

    def on_joined(
        self, generation: Generation, leader: bool, members: tuple[JoinGroupResponseMember, ...]
    ) -> None:
        """JoinGroup succeeded. `members` is empty unless this member leads."""

    def on_synced(self, generation: Generation, assignment: bytes) -> AssignmentChange:
        """SyncGroup succeeded. Raises `DecodeError` for bytes that are no assignment."""

    def on_described(self, group: DescribedGroup | None) -> None:
        """The group as it was before a static member comes back to it; None where that can't be known."""
