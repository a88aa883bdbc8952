"""A member's machine, stepped by hand: what it sends is answered by name, time moves only when told."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import pytest

import assignors
from kafka_actors.group.machines.assignment import TopicsView, encode_assignment
from kafka_actors.group.machines.embedded_protocol import GroupConfig
from kafka_actors.group.machines.error_actions import GroupApi
from kafka_actors.group.machines.member import ClassicMember
from kafka_actors.group.machines.member_events import GroupRequest, MemberAction, MemberEvent
from kafka_actors.group.machines.ownership import Ownership
from kafka_actors.protocol.messages.find_coordinator import Coordinator, FindCoordinatorResponse
from kafka_actors.protocol.messages.heartbeat import HeartbeatResponse
from kafka_actors.protocol.messages.join_group import JoinGroupResponse, JoinGroupResponseMember
from kafka_actors.protocol.messages.leave_group import LeaveGroupResponse
from kafka_actors.protocol.messages.sync_group import SyncGroupResponse
from kafka_actors.types import TopicPartition

RESPONSES: dict[GroupApi, Callable[..., Any]] = {
    GroupApi.JOIN: JoinGroupResponse,
    GroupApi.SYNC: SyncGroupResponse,
    GroupApi.HEARTBEAT: HeartbeatResponse,
    GroupApi.LEAVE: LeaveGroupResponse,
}


def tps(*names: str) -> frozenset[TopicPartition]:
    """`"a-0"` → TopicPartition("a", 0)."""
    return frozenset(TopicPartition(n.rpartition("-")[0], int(n.rpartition("-")[2])) for n in names)


class Dialogue:
    """One member with the consumer's policy, and what it has said so far."""

    def __init__(
        self, strategies: Sequence[str] = ("cooperative-sticky",), *, member_id: str = "", **config: Any
    ) -> None:
        self.config = GroupConfig(group_id="g", **config)
        self.ownership = Ownership(
            [assignors.get(s) for s in strategies], group_instance_id=self.config.group_instance_id
        )
        self.member = ClassicMember(self.config, self.ownership, rand=lambda: 0.5, member_id=member_id)
        self.now = 100.0
        self.out: list[GroupRequest] = []
        self.events: list[MemberAction | MemberEvent] = []
        """Actions other than requests, and events."""
        self.wake: float | None = None
        self.metadata({"t": 4})

    def metadata(self, topics: dict[str, int], subscribed: Sequence[str] = ("t",)) -> None:
        view = TopicsView({topic: tuple(range(n)) for topic, n in topics.items()})
        reason = self.ownership.on_metadata(frozenset(subscribed), view)
        if reason is not None:
            self.member.request_rejoin(reason)

    def poll(self, seconds: float = 0.0) -> list[str]:
        """Lets time pass, polls, and says which requests came out."""
        self.now += seconds
        ready = self.member.poll(self.now)
        requests = [action for action in ready.actions if isinstance(action, GroupRequest)]
        self.out += requests
        self.events += [action for action in ready.actions if isinstance(action, MemberAction)]
        self.events += ready.events
        self.wake = ready.next_wake
        return [r.api.value for r in requests]

    def open_request(self, api: GroupApi) -> GroupRequest:
        return next(r for r in self.out if r.api is api)

    def answer(self, api: GroupApi, outcome: object = None, /, **fields: Any) -> list[str]:
        """Answers the oldest open request of this kind, and polls."""
        request = self.open_request(api)
        self.out.remove(request)
        self.member.on_response(
            request, outcome if fields == {} and outcome is not None else self.reply(api, fields), self.now
        )
        return self.poll()

    def error(self, api: GroupApi, code: int, **fields: Any) -> list[str]:
        return self.answer(api, error_code=code, **fields)

    @staticmethod
    def reply(api: GroupApi, fields: dict[str, Any]) -> object:
        if api is GroupApi.FIND_COORDINATOR:
            node = Coordinator(**({"key": "g", "node_id": 1, "host": "b1", "port": 9092} | fields))
            return FindCoordinatorResponse(coordinators=[node])
        if api is GroupApi.CONNECT:
            return None
        return RESPONSES[api](**fields)

    def take(self, kind: type[MemberAction | MemberEvent]) -> list[Any]:
        """The actions or events of a kind so far, which are then forgotten."""
        taken = [e for e in self.events if isinstance(e, kind)]
        self.events = [e for e in self.events if not isinstance(e, kind)]
        return taken

    # ---------------------------------------------------------- whole passages

    def connect(self) -> list[str]:
        self.member.start(self.now)
        self.poll()
        self.answer(GroupApi.FIND_COORDINATOR)
        return self.answer(GroupApi.CONNECT)

    def joined(
        self, generation: int = 1, *, member_id: str = "m-1", leader: str = "other", **fields: Any
    ) -> list[str]:
        fields = {"protocol_name": self.ownership.assignors[0].name, "protocol_type": "consumer"} | fields
        return self.answer(
            GroupApi.JOIN, generation_id=generation, member_id=member_id, leader=leader, **fields
        )

    def synced(self, *partitions: str) -> list[str]:
        return self.answer(GroupApi.SYNC, assignment=encode_assignment(tps(*partitions)))

    def stable(self, *partitions: str) -> None:
        """Through a first join as a follower."""
        self.connect()
        if self.out and self.out[0].api is GroupApi.DESCRIBE:
            self.answer(GroupApi.DESCRIBE, RuntimeError("not asked"))
        if not self.config.group_instance_id:
            self.error(GroupApi.JOIN, 79, member_id="m-1")
        self.joined()
        self.synced(*partitions)

    def as_leader(self, *others: JoinGroupResponseMember) -> tuple[JoinGroupResponseMember, ...]:
        """The members list of a JoinGroup response in which this member leads."""
        body = self.open_request(GroupApi.JOIN).body
        return (JoinGroupResponseMember(member_id="m-1", metadata=body.protocols[0].metadata), *others)


@pytest.fixture
def dialogue() -> type[Dialogue]:
    return Dialogue


@pytest.fixture
def tp() -> Callable[..., frozenset[TopicPartition]]:
    return tps
