"""The embedded protocol of `BaseCoordinator`: an assignment whose bytes only the subclass can read."""

from __future__ import annotations

from collections.abc import Callable

from kafka_actors.protocol.messages.describe_groups import DescribedGroup
from kafka_actors.protocol.messages.join_group import JoinGroupResponseMember
from kafka_actors.types import TopicPartition

from .embedded_protocol import AssignmentChange
from .member_events import Generation, Partitions

_WHOLE: Partitions = frozenset({TopicPartition("", -1)})
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
        return self.give_up()

    def give_up(self) -> Partitions:
        given, self._owned = self._owned, _NOTHING
        self._releasing |= given
        return given

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
        self._owned = _WHOLE
        return AssignmentChange(added=_WHOLE)

    def on_described(self, group: DescribedGroup | None) -> None:
        """Nothing to compare: a static member takes what it is given back."""
