"""Members of a classic group: what they said, in which calls they wait, which protocols they share, who leads.

Theory of operation. `ClassicGroup` has the states and timers, this module the members and what follows from
them alone. Nothing here waits.

- A member is known by its id, a static one by its instance id too. Each request names one or both, and the
  generation: `check` finds out who is unknown, fenced by a later member of its instance id, or of an earlier
  generation, in that order.
- The first member leads; when it goes, the oldest of the others does. A group's protocol type is its first
  member's.
- Members vote for a protocol: each for the first of its own list that all have. Among equals Java's hash
  table decides, and so it does here, because clients that support two assignors see which one is chosen.
- `subscribed` is what the generation reads, by the members' metadata, where that is a consumer's. Offsets of
  these topics neither expire nor can be deleted. Where it can't be told, all topics count as read.
- Only the leader is told the other members with their metadata; all are told who leads.
- What a coordinator writes down of a group (`saved`) is all but the calls that members wait in and their
  timers: these belong to connections and to the coordinator that made them.

Source: Kafka's `ClassicGroup` and `ClassicGroupMember`; KIP-345, KIP-496.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import Any

from kafka_actors import errors
from kafka_actors.errors import DecodeError
from kafka_actors.protocol import (
    JoinGroupRequest,
    JoinGroupResponse,
    SyncGroupResponse,
    decode_consumer_protocol,
)
from kafka_actors.protocol.messages.consumer_protocol_subscription import ConsumerProtocolSubscription
from kafka_actors.protocol.messages.join_group import JoinGroupResponseMember

from .calls import BrokerCall
from .cluster_state import java_hash
from .error_answers import Refused
from .timers import BrokerTimer, cancel

Protocols = list[tuple[str, bytes]]


def protocols_of(request: JoinGroupRequest) -> Protocols:
    """The protocols of a member with its metadata, the one it likes most first."""
    return [(p.name, bytes(p.metadata)) for p in request.protocols]


def join_error(call: BrokerCall, error: type[errors.KafkaError] | int, member_id: str) -> JoinGroupResponse:
    """The answer to a JoinGroup that failed."""
    code = error if isinstance(error, int) else error.code
    # Before version 7 the protocol can't be null.
    return JoinGroupResponse(
        error_code=code, member_id=member_id, protocol_name=None if call.version >= 7 else ""
    )


def _place(text: str) -> int:
    code = java_hash(text) & 0xFFFFFFFF
    return (code ^ code >> 16) & 15


class FakeMember:
    """A member: what it said when it joined, and the calls in which it waits."""

    def __init__(self, member_id: str, call: BrokerCall, request: JoinGroupRequest) -> None:
        self.member_id = member_id
        self.instance_id = request.group_instance_id
        self.protocol_type = request.protocol_type
        self.client_id = call.client_id or ""
        self.client_host = call.link.client_host
        self.is_new = True
        self.assignment = b""
        self.join: BrokerCall | None = None
        self.sync: BrokerCall | None = None
        self.timer: BrokerTimer | None = None
        self.update(request)

    def update(self, request: JoinGroupRequest) -> None:
        """Takes over what a later JoinGroup says."""
        self.protocols: Protocols = protocols_of(request)
        self.session_ms = request.session_timeout_ms
        # JoinGroup 0 has no rebalance timeout.
        self.rebalance_ms = (
            request.rebalance_timeout_ms if request.rebalance_timeout_ms >= 0 else self.session_ms
        )

    def metadata(self, protocol: str) -> bytes:
        """Its metadata under a protocol."""
        return dict(self.protocols)[protocol]

    def answer_join(self, response: JoinGroupResponse) -> None:
        """Answers the JoinGroup in which it waits, if it does."""
        call, self.join = self.join, None
        if call is not None:
            call.respond(response)

    def refuse_join(self, error: type[errors.KafkaError], member_id: str) -> None:
        """Answers the JoinGroup in which it waits with an error, if it does."""
        if self.join is not None:
            self.answer_join(join_error(self.join, error, member_id))

    def answer_sync(self, response: SyncGroupResponse) -> bool:
        """Answers the SyncGroup in which it waits; returns whether it does."""
        call, self.sync = self.sync, None
        if call is not None:
            call.respond(response)
        return call is not None


class GroupMembers:
    """All members of a group, in the order in which they came; their leader, and the generation and protocol that they agreed on."""

    def __init__(self) -> None:
        self.by_id: dict[str, FakeMember] = {}
        self.leader: str | None = None
        self.generation = 0
        self.protocol_type: str | None = None
        self.protocol: str | None = None
        self.subscribed: set[str] | None = None

    def __len__(self) -> int:
        return len(self.by_id)

    def __iter__(self) -> Iterator[FakeMember]:
        return iter(list(self.by_id.values()))

    def static(self, instance_id: str | None) -> FakeMember | None:
        """The member with an instance id."""
        return next((m for m in self if instance_id is not None and m.instance_id == instance_id), None)

    def check(self, member_id: str, instance_id: str | None, generation: int | None = None) -> None:
        """Raises `Refused` for a member that is not in the group, was fenced, or is of another generation."""
        if instance_id is not None:
            current = self.static(instance_id)
            if current is None:
                raise Refused(errors.UnknownMemberIdError)
            if current.member_id != member_id:
                raise Refused(errors.FencedInstanceIdError)
        if member_id not in self.by_id:
            raise Refused(errors.UnknownMemberIdError)
        if generation is not None and generation != self.generation:
            raise Refused(errors.IllegalGenerationError)

    def add(self, member: FakeMember) -> None:
        """Adds a member; the first one leads, and says of which type the group is."""
        if not self.by_id:
            self.protocol_type = member.protocol_type
        self.by_id[member.member_id] = member
        self.leader = self.leader or member.member_id

    def remove(self, member_id: str) -> None:
        """Removes a member; the oldest of the others leads in its place."""
        if (member := self.by_id.pop(member_id, None)) is not None:
            cancel(member.timer)
        if self.leader == member_id:
            self.leader = next(iter(self.by_id), None)

    def rename(self, member: FakeMember, member_id: str) -> None:
        """Gives a member another id, and with it the last place."""
        del self.by_id[member.member_id]
        if self.leader == member.member_id:
            self.leader = member_id
        member.member_id = member_id
        self.by_id[member_id] = member

    @property
    def joined(self) -> list[str]:
        """Ids of the members that wait in a JoinGroup."""
        return [m.member_id for m in self if m.join is not None]

    @property
    def rebalance_ms(self) -> int:
        """The longest rebalance timeout."""
        return max((m.rebalance_ms for m in self), default=0)

    def common_protocols(self) -> set[str]:
        """Protocols that all members have."""
        counts = Counter(name for member in self for name, _ in member.protocols)
        return {name for name, count in counts.items() if count == len(self)}

    def supports(self, protocol_type: str, names: list[str]) -> bool:
        """Whether somebody with these protocols can join the others. A group that all have left has any protocol."""
        fits = not self.by_id or not self.common_protocols().isdisjoint(names)
        return self.protocol_type == protocol_type and fits

    def elected_protocol(self) -> str:
        """The protocol with the most votes: a member votes for the first one of its list that all have."""
        common = self.common_protocols()
        votes = Counter(next(name for name, _ in m.protocols if name in common) for m in self)
        # Among equals the first one in a hash table of Java's with 16 places.
        return max(sorted(votes, key=_place), key=lambda name: votes[name])

    def begin_generation(self) -> None:
        """Begins the next generation of those that are here."""
        self.generation += 1
        self.protocol = self.elected_protocol() if self.by_id else None
        self.subscribed = self._subscribed(self.protocol or "")

    def _subscribed(self, protocol: str) -> set[str] | None:
        """Topics that members read, by their metadata; None where that can't be told."""
        if self.protocol_type != "consumer":
            return None
        try:
            found = [
                decode_consumer_protocol(ConsumerProtocolSubscription, m.metadata(protocol)) for m in self
            ]
        except (DecodeError, KeyError):
            return None
        return {topic for subscription in found for topic in subscription.topics}

    def subscribe(self, topic: str) -> bool:
        """Whether the generation reads a topic, so that its offsets neither expire nor can be deleted; where that can't be told, consumers do."""
        return self.protocol_type == "consumer" if self.subscribed is None else topic in self.subscribed

    # ---------------------------------------------------------------- responses

    def joined_response(
        self,
        member: FakeMember,
        *,
        skip_assignment: bool = False,
        alone: bool = False,
        leader: str | None = None,
    ) -> JoinGroupResponse:
        """Tells a member the generation, and its leader all members. alone: nobody else is told of."""
        others = []
        if member.member_id == self.leader and not alone:
            protocol = self.protocol or ""
            others = [JoinGroupResponseMember(m.member_id, m.instance_id, m.metadata(protocol)) for m in self]
        return JoinGroupResponse(
            generation_id=self.generation,
            protocol_type=self.protocol_type,
            protocol_name=self.protocol,
            leader=leader or self.leader or "",
            skip_assignment=skip_assignment,
            member_id=member.member_id,
            members=others,
        )

    def sync_response(self, member: FakeMember) -> SyncGroupResponse:
        """Tells a member its assignment."""
        return SyncGroupResponse(
            protocol_type=self.protocol_type, protocol_name=self.protocol, assignment=member.assignment
        )

    # ---------------------------------------------------------------- another coordinator

    def saved(self) -> dict[str, Any]:
        """All that the coordinator writes down of them."""
        waits = ("join", "sync", "timer")
        members = [{k: v for k, v in vars(m).items() if k not in waits} for m in self]
        return {**vars(self), "by_id": members}

    def restore(self, saved: dict[str, Any]) -> None:
        """Replaces all by what was written down. Nobody waits in a call."""
        by_id = {}
        for fields in saved["by_id"]:
            member = FakeMember.__new__(FakeMember)
            vars(member).update(fields, join=None, sync=None, timer=None)
            by_id[member.member_id] = member
        vars(self).update(saved, by_id=by_id)
