"""Members of a classic group that send raw requests to the machine of `FakeKafka`."""

from __future__ import annotations

from typing import Any

from fakes.fake_wire import Wire

from kafka_actors.protocol import (
    HeartbeatRequest,
    JoinGroupRequest,
    LeaveGroupRequest,
    SyncGroupRequest,
    encode_consumer_protocol,
)
from kafka_actors.protocol.messages.consumer_protocol_subscription import ConsumerProtocolSubscription
from kafka_actors.protocol.messages.join_group import JoinGroupRequestProtocol
from kafka_actors.protocol.messages.leave_group import MemberIdentity
from kafka_actors.protocol.messages.sync_group import SyncGroupRequestAssignment

SESSION_MS, REBALANCE_MS = 10_000, 60_000


class RawMember:
    """One member with a connection of its own; `answer` is the last response to its JoinGroup."""

    def __init__(
        self, wire: Wire, name: str, *, instance: str | None = None, topics: tuple[str, ...] = ("t",)
    ) -> None:
        self.wire = wire
        self.name = name
        self.instance = instance
        self.topics = topics
        self.member_id = ""
        self.answer: Any = None

    def join(self, *protocols: str, version: int = 9, protocol_type: str = "consumer") -> Any:
        """Joins, with the member id that the coordinator asks for; None while it waits."""
        found = self._join(protocols or ("range",), version, protocol_type)
        if found is not None and found.error_code == 79:
            return self._join(protocols or ("range",), version, protocol_type)
        return found

    def ask_for_id(self) -> None:
        """Joins without a member id, and not again with the one that it gets."""
        self.member_id = ""
        assert self._join(("range",), 9, "consumer").error_code == 79

    def _join(self, protocols: tuple[str, ...], version: int, protocol_type: str) -> Any:
        metadata = encode_consumer_protocol(ConsumerProtocolSubscription(topics=list(self.topics)), 1)
        request = JoinGroupRequest(
            group_id="g",
            session_timeout_ms=SESSION_MS,
            rebalance_timeout_ms=REBALANCE_MS,
            member_id=self.member_id,
            group_instance_id=self.instance,
            protocol_type=protocol_type,
            protocols=[JoinGroupRequestProtocol(p, metadata) for p in protocols],
        )
        return self._note(self.wire.ask(request, version, self.name))

    def joined(self) -> Any:
        """The response to a JoinGroup that waited."""
        return self._note(self.wire.take(self.name))

    def _note(self, answer: Any) -> Any:
        if answer is not None:
            self.answer = answer
            self.member_id = answer.member_id or self.member_id
        return answer

    def sync(self, **assignments: bytes) -> Any:
        """Syncs; the leader gives assignments by names of members, which it knows as `others`."""
        request = SyncGroupRequest(
            "g",
            self.answer.generation_id,
            self.member_id,
            self.instance,
            "consumer",
            self.answer.protocol_name,
            [SyncGroupRequestAssignment(member_id, blob) for member_id, blob in assignments.items()],
        )
        return self.wire.ask(request, 5, self.name)

    def heartbeat(self, generation: int | None = None) -> int:
        """The error code of a heartbeat."""
        number = self.answer.generation_id if generation is None else generation
        request = HeartbeatRequest("g", number, self.member_id, self.instance)
        code: int = self.wire.ask(request, 4, f"{self.name}-heartbeat").error_code
        return code

    def leave(self) -> int:
        """The error code with which it leaves."""
        request = LeaveGroupRequest("g", members=[MemberIdentity(self.member_id, self.instance)])
        code: int = self.wire.ask(request, 5, f"{self.name}-heartbeat").members[0].error_code
        return code


def stable_group(wire: Wire, *members: RawMember) -> list[RawMember]:
    """Lets the members join one after the other and sync; returns them with the leader first."""
    for member in members:
        member.join()
        for other in members:
            if other is not member and other.answer is not None and other.answer.error_code == 0:
                other.join()
        for other in members:
            other.joined()
    order = sorted(members, key=lambda m: m.answer.leader != m.member_id)
    for member in reversed(order):
        member.sync(**{m.member_id: m.name.encode() for m in members} if member is order[0] else {})
    for member in order:
        wire.take(member.name)
    return order
