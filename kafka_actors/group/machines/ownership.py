"""Decides which partitions a consumer takes over and gives up, and when the group should rebalance.

Theory of operation. Arrives: metadata and the subscription (`on_metadata`), what JoinGroup and SyncGroup brought (`on_joined`,
`on_synced`), the end of a drain (`released`), and a lost membership (`lose`). Decided: what to give up before and after a rebalance,
what is new, and whether another rebalance is needed.

A partition is *owned* (read and committed), *being released* (drained; it may still be committed), or neither. It becomes owned by an
assignment, and is released by one that lacks it; a lost membership ends both at once.

- Eager: everything is given up before JoinGroup. Cooperative (KIP-429): a member keeps its partitions while the
  group rebalances, gives up after SyncGroup what went to others, and then rejoins so that these can be handed out.
- A leader watches the topics of all members, and compares them with those from which it computed the assignment (`watch`): where
  partitions have come or gone since, the group has to rebalance. Followers watch nothing but their own subscription.
- A static member that comes back is handed its old assignment without a rebalance (KIP-345), which nobody has compared with its
  present subscription and the present partitions. So the group is described before it joins (`on_described`), and after SyncGroup
  the old subscription, user data and numbers of partitions are compared with the present ones (`_outdated`).

A lost membership takes owned partitions and those being released alike, and what was said of the group with
them: nothing of it may be claimed in the next subscription, because somebody else may own it by then.

Source: `ConsumerCoordinator.java`, `onJoinPrepare` to `onJoinComplete`; KIP-814 for a leader that skips the assignment.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from assignors import Assignor
from kafka_actors.errors import DecodeError
from kafka_actors.protocol.messages.describe_groups import DescribedGroup
from kafka_actors.protocol.messages.join_group import JoinGroupResponseMember

from .assignment import (
    COOPERATIVE_STICKY,
    STICKY,
    TopicsView,
    decode_assignment,
    decode_subscription,
    encode_subscription,
    group_topics,
)
from .embedded_protocol import AssignmentChange
from .member_events import NO_GENERATION, Generation, Partitions

_NOTHING: Partitions = frozenset()
_OWN_CLAIMS = (STICKY, COOPERATIVE_STICKY)
"""Their user data says what a member holds, which after a restart is another thing than what it wants."""


@dataclass(frozen=True, slots=True)
class _PriorAssignment:
    """The subscription of this static member, and the partitions that its group had assigned, before it came back."""

    topics: frozenset[str]
    user_data: bytes | None
    counts: Mapping[str, int]


class Ownership:
    """The consumer's `EmbeddedProtocol`. Everything is about one membership; a new one gets a new object.

    assignors: in order of preference. A list that holds an eager one is eager, since the group may choose it. incarnation: see
    `GroupConfig`; as long as nothing was assigned it stands, negative, for the generation, which other clients take for none. Brokers
    hand a follower that joins again with the same metadata the generation that there is.
    """

    def __init__(
        self,
        assignors: Sequence[Assignor],
        *,
        group_instance_id: str | None = None,
        rack: str | None = None,
        incarnation: int | None = None,
    ) -> None:
        self.assignors = tuple(assignors)
        self.mode: Literal["eager", "cooperative"] = (
            "cooperative" if all(a.protocol == "cooperative" for a in assignors) else "eager"
        )
        self.subscribed: frozenset[str] = frozenset()
        self._instance_id = group_instance_id
        self._rack = rack
        self._owned = _NOTHING
        self._releasing = _NOTHING
        self._last_assigned = _NOTHING
        self._unassigned = NO_GENERATION if incarnation is None else -incarnation
        self._owned_in = self._unassigned
        self._joined: frozenset[str] | None = None
        self._group_topics: frozenset[str] = frozenset()
        self.leading: Generation | None = None
        """The generation that this member leads, until it joins again: what it computes for an earlier one is not watched."""
        self.view = TopicsView()
        self._watched: Mapping[str, tuple[int, ...]] | None = None
        self._before: _PriorAssignment | None = None
        self._handed_back: _PriorAssignment | None = None

    @property
    def releasing(self) -> Partitions:
        """Partitions that are being drained; they may still be committed."""
        return self._releasing

    # ------------------------------------------------------------ what is wanted

    def on_metadata(self, subscribed: frozenset[str], view: TopicsView) -> str | None:
        """Takes new topics, partitions or a new subscription. Returns why the group should rebalance, if it should."""
        self.subscribed = subscribed
        self.view = view
        if self._joined is not None and subscribed != self._joined:
            return "the subscription has changed"
        if self._watched is not None and view.only(self.group_topics) != self._watched:
            return "partitions of subscribed topics have changed"
        return None

    @property
    def group_topics(self) -> frozenset[str]:
        """The topics whose metadata this member needs: its own, and as leader those of all members."""
        return self.subscribed | self._group_topics

    def watch(self, watched: Mapping[str, tuple[int, ...]]) -> None:
        """Takes, as leader, the partitions from which all assignments were computed."""
        self._watched = dict(watched)
        self._before = None

    def watch_again(self, view: TopicsView) -> str | None:
        """Watches what there is now, as a leader that was handed its old assignment. Returns why the group should
        rebalance, if partitions have come since that assignment was looked at."""
        self.view = view
        self._watched = dict(view.only(self.group_topics))
        return None if self._handed_back is None else self._grown(self._handed_back)

    @property
    def watching(self) -> bool:
        """Whether changes of the group's topics are noticed: a leader that skipped assigning has to call `watch_again`."""
        return self._watched is not None

    # ------------------------------------------------------------ the policy

    # The methods of `EmbeddedProtocol`, whose docstrings say what they do.

    def protocols(self) -> list[tuple[str, bytes]]:
        self._joined = self.subscribed
        self._watched = self.leading = None  # the next assignment is computed from all that has come by then
        return self.metadata()

    def metadata(self) -> list[tuple[str, bytes]]:
        """Returns what `protocols` does, without a join: (name, metadata) of each assignor."""
        topics = sorted(self.subscribed)
        return [
            (
                assignor.name,
                encode_subscription(
                    assignor, topics, self._owned, self._owned_in, self._last_assigned, self._rack
                ),
            )
            for assignor in self.assignors
        ]

    def owned(self) -> Partitions:
        return self._owned

    def before_join(self) -> Partitions:
        if self.mode == "eager":
            return self.release_all()
        unwanted = frozenset(tp for tp in self._owned if tp.topic not in self.subscribed)
        return self._release(unwanted)

    def release_all(self) -> Partitions:
        return self._release(self._owned)

    def _release(self, partitions: Partitions) -> Partitions:
        """Begins to give partitions up, and returns them."""
        self._owned -= partitions
        self._releasing |= partitions
        return partitions

    def released(self, partitions: Partitions) -> None:
        self._releasing -= partitions

    def lose(self) -> Partitions:
        lost = self._owned | self._releasing
        self._owned = self._releasing = self._last_assigned = _NOTHING
        self._owned_in = self._unassigned
        self._watched = self._handed_back = self.leading = None
        return lost

    def on_joined(
        self, generation: Generation, leader: bool, members: tuple[JoinGroupResponseMember, ...]
    ) -> None:
        # Only a leader watches; it starts when it is known from what the assignment was computed.
        self._group_topics = group_topics(members) if leader else frozenset()
        self.leading = generation if leader else None
        self._watched = None
        self._handed_back = None

    def on_synced(self, generation: Generation, assignment: bytes) -> AssignmentChange:
        assigned = decode_assignment(assignment)
        before, self._before = self._before, None
        unwanted = {tp.topic for tp in assigned} - self.subscribed
        if unwanted:
            # The subscription has changed since JoinGroup: nothing of this assignment is taken, and what is owned stays so.
            if self._owned:
                self._owned_in = generation.id
            return AssignmentChange(rejoin=f"assigned {sorted(unwanted)[0]}, which is not subscribed to")
        added, revoked = assigned - self._owned, self._owned - assigned
        self._owned = assigned
        self._releasing |= revoked
        self._last_assigned = assigned
        self._owned_in = generation.id
        rejoin = None
        if before is not None:
            rejoin = self._outdated(before)
            self._handed_back = before if rejoin is None else None
        return AssignmentChange(added, revoked, rejoin)

    # ------------------------------------------------------------ a static member that comes back

    def on_described(self, group: DescribedGroup | None) -> None:
        self._before = None if group is None or self._instance_id is None else self._read_before(group)

    def _read_before(self, group: DescribedGroup) -> _PriorAssignment | None:
        """Reads this member's subscription, and the numbers of partitions of all members, from a described group; None where it isn't
        in there, or can't be read."""
        counts: dict[str, set[int]] = {}
        own_metadata: bytes | None = None
        try:
            for member in group.members:
                for tp in decode_assignment(member.member_assignment):
                    counts.setdefault(tp.topic, set()).add(tp.partition)
                if member.group_instance_id == self._instance_id:
                    own_metadata = member.member_metadata
            subscription = decode_subscription(own_metadata) if own_metadata else None
        except DecodeError:
            return None
        if subscription is None:
            return None
        user_data = None if group.protocol_data in _OWN_CLAIMS else subscription.user_data
        sizes = {topic: len(ids) for topic, ids in counts.items()}
        return _PriorAssignment(frozenset(subscription.topics), user_data, sizes)

    def _outdated(self, before: _PriorAssignment) -> str | None:
        """Returns why the old assignment, which the group hands back, is outdated, if it is (KIP-345, KIP-814)."""
        if before.topics != self.subscribed:
            return "the subscription has changed since this static member was last here"
        made = [getattr(assignor, "subscription_user_data", None) for assignor in self.assignors]
        if before.user_data is not None and before.user_data not in [
            make(sorted(self.subscribed)) for make in made if make is not None
        ]:
            return "the assignor's data has changed since this static member was last here"
        return self._grown(before)

    def _grown(self, before: _PriorAssignment) -> str | None:
        """Returns that topics have other numbers of partitions than the group had assigned, if so."""
        counts = {topic: len(ids) for topic, ids in self.view.only(self.subscribed).items() if ids}
        if {topic: n for topic, n in before.counts.items() if topic in self.subscribed} != counts:
            return "partitions have changed since this static member was last here"
        return None


def has_mixed_protocols(assignors: Iterable[Assignor]) -> bool:
    """Returns whether a list of strategies holds both kinds, and so is eager only because of some: worth a warning."""
    return len({assignor.protocol for assignor in assignors}) > 1
