"""What can be asked of a membership, at any time."""

from __future__ import annotations

from .machines.embedded_protocol import GroupConfig
from .machines.member import ClassicMember
from .machines.member_states import MemberState


class Membership:
    """How a member stands in its group; a view on its machine."""

    _group_config: GroupConfig
    _member: ClassicMember
    _crashed: Exception | None = None

    def __repr__(self) -> str:
        return (
            f"<{type(self).__name__} {self._group_config.group_id} {self.state.value} "
            f"generation {self.generation}>"
        )

    @property
    def state(self) -> MemberState:
        """Where the member stands."""
        return self._member.state

    @property
    def joined(self) -> bool:
        """Whether the member has its assignment and no rebalance is under way."""
        return self.state is MemberState.STABLE and self._member.rejoin_reason is None

    @property
    def generation(self) -> int:
        """The group's generation that this member is in, -1 if none."""
        return self._member.generation.id

    @property
    def member_id(self) -> str:
        """The id the coordinator gave this member, empty if none."""
        return self._member.generation.member_id

    @property
    def group_id(self) -> str:
        """The group."""
        return self._group_config.group_id

    @property
    def group_instance_id(self) -> str | None:
        """The id of a static member (KIP-345)."""
        return self._group_config.group_instance_id

    @property
    def leader(self) -> bool:
        """Whether this member assigns for the group."""
        return self._member.leader

    @property
    def coordinator_id(self) -> int | None:
        """The node id of the group's coordinator, if it is known."""
        node = self._member.coordinator
        return None if node is None else node.node_id

    @property
    def fatal(self) -> Exception | None:
        """The error that ended the membership."""
        return self._member.fatal or self._crashed

    @property
    def last_heartbeat_sent_and_acked(self) -> float | None:
        """When (by `clock`) the last request was *sent* that the coordinator acknowledged; None if none."""
        return self._member.heartbeat.acknowledged_at

    def need_rejoin(self) -> bool:
        """Whether the group is to be joined, or joined again."""
        return not self.joined

    def coordinator_unknown(self) -> bool:
        """Whether the coordinator is not known, or not connected."""
        return self._member.coordinator is None
