"""One member whose every answer is arbitrary: it never breaks, never waits without bound, and always recovers."""

from __future__ import annotations

from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

import assignors
from kafka_actors.errors import (
    ConnectionFailedError,
    DecodeError,
    DisconnectedError,
    KafkaTimeoutError,
    NodeNotReadyError,
)
from kafka_actors.group.machines.assignment import TopicsView, encode_assignment
from kafka_actors.group.machines.embedded_protocol import GroupConfig
from kafka_actors.group.machines.error_actions import GroupApi
from kafka_actors.group.machines.member import ClassicMember
from kafka_actors.group.machines.member_core import MemberState
from kafka_actors.group.machines.member_events import (
    ComputeAssignment,
    GroupRequest,
    LosePartitions,
    RevokePartitions,
    TakePartitions,
)
from kafka_actors.group.machines.ownership import Ownership
from kafka_actors.protocol import (
    DescribeGroupsResponse,
    FindCoordinatorResponse,
    HeartbeatResponse,
    JoinGroupResponse,
    LeaveGroupResponse,
    SyncGroupResponse,
)
from kafka_actors.protocol.messages.find_coordinator import Coordinator
from kafka_actors.types import TopicPartition

PASSING = [14, 15, 16, 7, 27, 22, 25, 110, 113, 111, 89]
ONLY_JOIN = (79, 111)
FATAL = [30, 82, 81, 24]
FAILURES = [
    DisconnectedError("gone"),
    KafkaTimeoutError("silent"),
    ConnectionFailedError("refused"),
    NodeNotReadyError("not now"),
    DecodeError("garbage"),
]
LONGEST = 65.0 + 1.0

outcome = st.one_of(
    st.just("good"), st.just("never"), st.sampled_from(FAILURES), st.sampled_from(PASSING), st.just(79)
)
step = st.tuples(
    st.floats(0.0, 30.0),
    outcome,
    st.sampled_from(["", "", "", "release", "rejoin", "subscribe", "grow", "coordinator lost"]),
    st.frozensets(st.integers(0, 3)),
    st.booleans(),
)


class Lone:
    """A member, its answers, and what it must never do."""

    def __init__(self, strategy: str, static: bool) -> None:
        config = GroupConfig("g", group_instance_id="i" if static else None)
        self.ownership = Ownership([assignors.get(strategy)], group_instance_id=config.group_instance_id)
        self.member = ClassicMember(config, self.ownership, rand=lambda: 0.5)
        self.now = 0.0
        self.out: list[GroupRequest] = []
        self.has: set[TopicPartition] = set()
        self.draining: dict[int, frozenset[TopicPartition]] = {}
        self.work: ComputeAssignment | None = None
        self.generation = 0
        self.topics = {"t": 4}
        self.metadata()
        self.member.start(0.0)

    def metadata(self) -> None:
        view = TopicsView({t: tuple(range(n)) for t, n in self.topics.items()})
        reason = self.ownership.on_metadata(frozenset(self.topics), view)
        if reason is not None:
            self.member.request_rejoin(reason)

    def poll(self) -> None:
        ready = self.member.poll(self.now)
        for action in ready.actions:
            self.take(action)
        assert (
            self.has == self.ownership.owned()
        )  # an action may be overtaken by a later one of the same poll
        assert self.member.ended == (ready.next_wake is None)
        if ready.next_wake is not None:
            assert ready.next_wake <= self.now + LONGEST

    def take(self, action: Any) -> None:
        match action:
            case GroupRequest():
                self.out.append(action)
            case TakePartitions(_, added, partitions):
                assert not self.has & added
                self.has |= added
                assert partitions == self.has
            case RevokePartitions(token, partitions, deadline):
                assert partitions <= self.has
                assert self.now <= deadline <= self.now + self.member.config.revoke_timeout
                self.has -= partitions
                self.draining[token] = partitions
            case LosePartitions(partitions, _):
                assert partitions >= self.has
                self.has.clear()
                self.draining.clear()
            case ComputeAssignment():
                self.work = action

    def answer(self, kind: Any, assigned: frozenset[int], leader: bool) -> None:
        """Answers the oldest request that is out."""
        if not self.out:
            return
        request = self.out.pop(0)
        if kind == "never":
            return
        if isinstance(kind, int) and request.api in (GroupApi.CONNECT, GroupApi.DESCRIBE):
            kind = DisconnectedError("gone")
        elif kind in ONLY_JOIN and request.api is not GroupApi.JOIN:
            kind = 14
        elif kind in PASSING and request.api is GroupApi.FIND_COORDINATOR:
            kind = 15
        reply = kind if isinstance(kind, Exception) else self.reply(request, kind, assigned, leader)
        self.member.on_response(request, reply, self.now)

    def reply(self, request: GroupRequest, kind: Any, assigned: frozenset[int], leader: bool) -> object:
        code = 0 if kind == "good" else kind
        match request.api:
            case GroupApi.FIND_COORDINATOR:
                node = Coordinator(key="g", node_id=1, host="h", port=1, error_code=code)
                return FindCoordinatorResponse(coordinators=[node])
            case GroupApi.CONNECT:
                return None
            case GroupApi.DESCRIBE:
                return DescribeGroupsResponse()
            case GroupApi.JOIN:
                self.generation += 1
                return JoinGroupResponse(
                    error_code=code,
                    generation_id=self.generation,
                    member_id="m",
                    leader="m" if leader else "x",
                    protocol_name=self.ownership.assignors[0].name,
                )
            case GroupApi.SYNC:
                data = encode_assignment(("t", p) for p in assigned)
                return SyncGroupResponse(error_code=code, assignment=data)
            case GroupApi.HEARTBEAT:
                return HeartbeatResponse(error_code=code)
            case _:
                return LeaveGroupResponse(error_code=code)

    def act(self, action: str) -> None:
        if action == "release" and self.draining:
            self.member.on_released(self.draining.popitem()[0], self.now)
        elif action == "rejoin":
            self.member.request_rejoin("because")
        elif action == "subscribe":
            self.topics = {"t": 4} if "u" in self.topics else {"t": 4, "u": 1}
            self.metadata()
        elif action == "grow":
            self.topics["t"] += 1
            self.metadata()
        elif action == "coordinator lost":
            self.member.coordinator_lost("because", self.now)
        if self.work is not None:
            self.member.on_assignment(self.work.token, (), self.now)
            self.work = None

    def heal(self) -> None:
        """From now on every answer is good and comes at once; the group rebalances once more."""
        end = self.now + 3 * LONGEST
        self.act("rejoin")  # else what an earlier step assigned, perhaps nothing, would stay
        while self.now < end:
            self.act("release")
            while self.out:
                self.answer("good", frozenset({0, 1}), False)
                self.poll()
            self.now += 0.5
            self.poll()


@settings(max_examples=150)
@given(st.sampled_from(["range", "cooperative-sticky"]), st.booleans(), st.lists(step, max_size=80))
def test_member_recovers_from_every_sequence_of_passing_errors(strategy, static, steps):
    lone = Lone(strategy, static)
    lone.poll()
    for seconds, kind, action, assigned, leader in steps:
        lone.now += seconds
        lone.answer(kind, assigned, leader)
        lone.act(action)
        lone.poll()
    assert not lone.member.ended
    lone.heal()
    assert lone.member.state is MemberState.STABLE
    assert lone.has == {TopicPartition("t", 0), TopicPartition("t", 1)}


@settings(max_examples=100)
@given(
    st.booleans(),
    st.lists(step, max_size=30),
    st.sampled_from([*FATAL, "leave"]),
    st.floats(0.0, 20.0),
)
def test_member_ends_in_bounded_time_from_every_state(static, steps, how, timeout):
    lone = Lone("cooperative-sticky", static)
    lone.poll()
    for seconds, kind, action, assigned, leader in steps:
        lone.now += seconds
        lone.answer(kind, assigned, leader)
        lone.act(action)
        lone.poll()
    if lone.member.ended:
        return
    if how == "leave":
        lone.member.leave(lone.now, timeout)
        end = lone.now + timeout
        while not lone.member.ended:
            wake = lone.member.poll(lone.now).next_wake
            assert wake is not None or lone.member.ended
            lone.now = lone.now if wake is None else max(lone.now, wake)
            assert lone.now <= end + 1e-6
        assert lone.member.state is MemberState.LEFT
    else:
        for _ in range(200):
            lone.now += 1.0
            while lone.out and not lone.member.ended:
                lone.answer(how, frozenset(), False)
            lone.poll()
        assert lone.member.ended
    assert lone.member.policy.owned() == frozenset()
