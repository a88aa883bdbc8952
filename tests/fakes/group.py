"""A model of the broker's side of one classic group, and members' machines driven against it in simulated time.

`GroupModel` follows Kafka's `ClassicGroup`: PreparingRebalance until all have joined or the time is up, then
CompletingRebalance until the leader has synced. `Simulation` is the network, the clock and the shells.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from itertools import count
from random import Random
from typing import Any

from msgspec.structs import replace

import assignors
from kafka_actors.errors import DisconnectedError, KafkaTimeoutError
from kafka_actors.group.machines.assignment import TopicsView, perform_assignment
from kafka_actors.group.machines.commits import CommitQueue
from kafka_actors.group.machines.embedded_protocol import GroupConfig
from kafka_actors.group.machines.error_actions import GroupApi
from kafka_actors.group.machines.member import ClassicMember
from kafka_actors.group.machines.member_events import (
    ComputeAssignment,
    Disconnect,
    GroupRequest,
    LosePartitions,
    RevokePartitions,
    TakePartitions,
)
from kafka_actors.group.machines.ownership import Ownership
from kafka_actors.group.machines.pending_commits import (
    CommitEligibility,
    MembershipNews,
    PendingCommit,
    eligibility_of,
)
from kafka_actors.protocol import (
    DescribeGroupsResponse,
    FindCoordinatorResponse,
    HeartbeatResponse,
    JoinGroupResponse,
    LeaveGroupResponse,
    OffsetCommitResponse,
    OffsetFetchResponse,
    SyncGroupResponse,
)
from kafka_actors.protocol.messages.describe_groups import DescribedGroup, DescribedGroupMember
from kafka_actors.protocol.messages.find_coordinator import Coordinator
from kafka_actors.protocol.messages.join_group import JoinGroupResponseMember
from kafka_actors.protocol.messages.offset_commit import (
    OffsetCommitResponsePartition,
    OffsetCommitResponseTopic,
)
from kafka_actors.protocol.messages.offset_fetch import (
    OffsetFetchResponseGroup,
    OffsetFetchResponsePartitions,
    OffsetFetchResponseTopics,
)
from kafka_actors.types import OffsetAndMetadata, TopicPartition

Reply = Callable[[Any], None]


@dataclass
class ModelMember:
    member_id: str
    instance_id: str | None
    protocols: list[tuple[str, bytes]]
    session: float
    rebalance: float
    expires: float
    join: Reply | None = None
    sync: Reply | None = None
    assignment: bytes = b""


class GroupModel:
    """`generations`, `commits` ((tp, offset, member id, generation) as accepted) and `fenced` are for asking."""

    def __init__(self) -> None:
        self.state = "Empty"
        self.generation = 0
        self.generations: list[int] = []
        self.protocol_type = "consumer"
        self.protocol = ""
        self.leader = ""
        self.members: dict[str, ModelMember] = {}
        self.offsets: dict[TopicPartition, OffsetAndMetadata] = {}
        self.commits: list[tuple[TopicPartition, int, str, int]] = []
        self._pending: set[str] = set()
        self._deadline = 0.0
        self._ids = count(1)

    # ------------------------------------------------------------ requests

    def join(self, r: Any, reply: Reply, now: float) -> None:
        protocols = [(p.name, p.metadata) for p in r.protocols]
        session, rebalance = r.session_timeout_ms / 1000, r.rebalance_timeout_ms / 1000
        known = self._by_instance(r.group_instance_id)
        if not self.members:
            self.protocol_type = r.protocol_type
        elif self.protocol_type != r.protocol_type:
            reply(JoinGroupResponse(error_code=23))
            return
        if not r.member_id and r.group_instance_id is None:
            member_id = f"m{next(self._ids)}"
            self._pending.add(member_id)
            reply(JoinGroupResponse(error_code=79, member_id=member_id))
            return
        if r.member_id and known is not None and known.member_id != r.member_id:
            reply(JoinGroupResponse(error_code=82))
            return
        if r.member_id and r.member_id not in self.members and r.member_id not in self._pending:
            reply(JoinGroupResponse(error_code=25))
            return
        self._pending.discard(r.member_id)
        if not r.member_id and known is not None:
            self._static_rejoin(known, protocols, reply, now)
            return
        member = self.members.get(r.member_id)
        if member is None:
            member_id = r.member_id or f"m{next(self._ids)}"
            member = ModelMember(member_id, r.group_instance_id, protocols, session, rebalance, now + session)
            self.members[member_id] = member
            changed = True
        else:
            changed = member.protocols != protocols or (
                self.state == "Stable" and self.leader == member.member_id
            )
            member.protocols = protocols
        if self.state in ("Stable", "Completing") and not changed:
            reply(self._joined(member))
            return
        member.join = reply
        self._prepare(now)
        self._maybe_complete(now)

    def _static_rejoin(
        self, old: ModelMember, protocols: list[tuple[str, bytes]], reply: Reply, now: float
    ) -> None:
        del self.members[old.member_id]
        was_leader = self.leader == old.member_id
        old.member_id = f"m{next(self._ids)}"
        old.protocols, old.join, old.sync, old.expires = protocols, None, None, now + old.session
        self.members[old.member_id] = old
        if was_leader:
            self.leader = old.member_id
        if self.state == "Stable":
            reply(self._joined(old, skip=was_leader))
            return
        old.join = reply
        self._prepare(now)
        self._maybe_complete(now)

    def sync(self, r: Any, reply: Reply, now: float) -> None:
        code = self._check(r, now)
        if code or self.state == "Preparing":
            reply(SyncGroupResponse(error_code=code or 27))
            return
        member = self.members[r.member_id]
        if self.state == "Stable":
            reply(SyncGroupResponse(assignment=member.assignment))
            return
        member.sync = reply
        if r.member_id == self.leader:
            for a in r.assignments:
                if a.member_id in self.members:
                    self.members[a.member_id].assignment = a.assignment
            self.state = "Stable"
            for m in self.members.values():
                m.expires = now + m.session
                if m.sync is not None:
                    m.sync(SyncGroupResponse(assignment=m.assignment))
                    m.sync = None

    def heartbeat(self, r: Any, reply: Reply, now: float) -> None:
        code = self._check(r, now)
        if not code:
            self.members[r.member_id].expires = now + self.members[r.member_id].session
            code = 27 if self.state == "Preparing" else 0
        reply(HeartbeatResponse(error_code=code))

    def leave(self, r: Any, reply: Reply, now: float) -> None:
        self._remove(r.members[0].member_id, now)
        reply(LeaveGroupResponse())

    def commit(self, r: Any, reply: Reply, now: float) -> None:
        code = self._check(r, now, generation=r.generation_id_or_member_epoch)
        if not code and self.state == "Completing":
            code = 27
        topics = []
        for t in r.topics:
            for p in t.partitions:
                if not code:
                    tp = TopicPartition(t.name, p.partition_index)
                    self.offsets[tp] = OffsetAndMetadata(p.committed_offset, p.committed_metadata or "")
                    self.commits.append((tp, p.committed_offset, r.member_id, self.generation))
            parts = [
                OffsetCommitResponsePartition(partition_index=p.partition_index, error_code=code)
                for p in t.partitions
            ]
            topics.append(OffsetCommitResponseTopic(name=t.name, partitions=parts))
        reply(OffsetCommitResponse(topics=topics))

    def offset_fetch(self, r: Any, reply: Reply, now: float) -> None:
        topics = []
        for t in r.groups[0].topics:
            parts = []
            for p in t.partition_indexes:
                at = self.offsets.get(TopicPartition(t.name, p), OffsetAndMetadata(-1))
                parts.append(
                    OffsetFetchResponsePartitions(
                        partition_index=p, committed_offset=at.offset, metadata=at.metadata
                    )
                )
            topics.append(OffsetFetchResponseTopics(name=t.name, partitions=parts))
        reply(OffsetFetchResponse(groups=[OffsetFetchResponseGroup(group_id="g", topics=topics)]))

    def describe(self, r: Any, reply: Reply, now: float) -> None:
        group = DescribedGroup(group_id="g", group_state=self.state, protocol_type=self.protocol_type)
        if self.state == "Stable":
            members = [
                DescribedGroupMember(
                    member_id=m.member_id,
                    group_instance_id=m.instance_id,
                    member_metadata=dict(m.protocols)[self.protocol],
                    member_assignment=m.assignment,
                )
                for m in self.members.values()
            ]
            group = replace(group, protocol_data=self.protocol, members=members)
        reply(DescribeGroupsResponse(groups=[group]))

    # ------------------------------------------------------------ time and state

    def next_event(self) -> float:
        times = [m.expires for m in self.members.values() if m.join is None]
        if self.state in ("Preparing", "Completing"):
            times.append(self._deadline)
        return min(times, default=float("inf"))

    def tick(self, now: float) -> None:
        for member in list(self.members.values()):
            if member.join is None and now >= member.expires:
                self._remove(member.member_id, now)
        if self.state == "Preparing" and now >= self._deadline:
            self._complete(now)
        elif self.state == "Completing" and now >= self._deadline:
            for member in [m for m in self.members.values() if m.sync is None]:
                self._remove(member.member_id, now)

    def _check(self, r: Any, now: float, generation: int | None = None) -> int:
        known = self._by_instance(r.group_instance_id)
        if known is not None and known.member_id != r.member_id:
            return 82
        if r.member_id not in self.members:
            return 25
        return 22 if (r.generation_id if generation is None else generation) != self.generation else 0

    def _by_instance(self, instance_id: str | None) -> ModelMember | None:
        return next(
            (m for m in self.members.values() if instance_id is not None and m.instance_id == instance_id),
            None,
        )

    def _remove(self, member_id: str, now: float) -> None:
        self._pending.discard(member_id)
        member = self.members.pop(member_id, None)
        if member is None:
            return
        if member.join is not None:
            member.join(JoinGroupResponse(error_code=25))
        if member.sync is not None:
            member.sync(SyncGroupResponse(error_code=25))
        self._prepare(now)
        self._maybe_complete(now)

    def _prepare(self, now: float) -> None:
        if self.state == "Preparing":
            return
        self.state = "Preparing"
        self._deadline = now + max((m.rebalance for m in self.members.values()), default=0.0)
        for m in self.members.values():
            if m.sync is not None:
                m.sync(SyncGroupResponse(error_code=27))
                m.sync = None

    def _maybe_complete(self, now: float) -> None:
        if self.state == "Preparing" and all(m.join is not None for m in self.members.values()):
            self._complete(now)

    def _complete(self, now: float) -> None:
        self.members = {i: m for i, m in self.members.items() if m.join is not None}
        self.generation += 1
        self.generations.append(self.generation)
        if not self.members:
            self.state = "Empty"
            return
        self.state = "Completing"
        self._deadline = now + max(m.rebalance for m in self.members.values())
        offered = [{name for name, _ in m.protocols} for m in self.members.values()]
        common = set.intersection(*offered)
        self.protocol = next(n for n, _ in next(iter(self.members.values())).protocols if n in common)
        if self.leader not in self.members:
            self.leader = next(iter(self.members))
        for m in self.members.values():
            m.expires = now + m.session
            m.assignment = b""
            reply, m.join = m.join, None
            assert reply is not None
            reply(self._joined(m))

    def _joined(self, member: ModelMember, skip: bool = False) -> JoinGroupResponse:
        members = []
        if member.member_id == self.leader:
            members = [
                JoinGroupResponseMember(
                    member_id=m.member_id,
                    group_instance_id=m.instance_id,
                    metadata=dict(m.protocols)[self.protocol],
                )
                for m in self.members.values()
            ]
        return JoinGroupResponse(
            generation_id=self.generation,
            protocol_type=self.protocol_type,
            protocol_name=self.protocol,
            leader=self.leader,
            member_id=member.member_id,
            skip_assignment=skip,
            members=members,
        )


_HANDLERS: dict[GroupApi, Callable[[GroupModel, Any, Reply, float], None]] = {
    GroupApi.DESCRIBE: GroupModel.describe,
    GroupApi.JOIN: GroupModel.join,
    GroupApi.SYNC: GroupModel.sync,
    GroupApi.HEARTBEAT: GroupModel.heartbeat,
    GroupApi.LEAVE: GroupModel.leave,
    GroupApi.COMMIT: GroupModel.commit,
    GroupApi.OFFSET_FETCH: GroupModel.offset_fetch,
}


@dataclass(eq=False)
class SimMember:
    """A member's machines with a shell of the simulation. `has`: what its user believes to own."""

    name: str
    machine: ClassicMember
    ownership: Ownership
    commits: CommitQueue
    has: set[TopicPartition] = field(default_factory=set)
    alive: bool = True
    connection: int = 0
    tickets: list[PendingCommit] = field(default_factory=list)
    committed: dict[TopicPartition, int] = field(default_factory=dict)
    frozen_until: float = 0.0
    skew: float = 0.0
    """Seconds by which its clock is ahead: it may step, as when a machine was suspended."""
    scheduled: float = float("inf")

    def eligibility(self) -> CommitEligibility:
        return eligibility_of(self.machine, self.ownership.owned() | self.ownership.releasing)

    def fed(self) -> CommitQueue:
        """The queue, which knows how the member is now."""
        self.commits.eligibility = self.eligibility()
        return self.commits


class Simulation:
    """Members, one group, one network. `check` is called after every event."""

    def __init__(self, random: Random, *, strategies: list[str], loss: float, **config: Any) -> None:
        self.random = random
        self.now = 1000.0
        self.group = GroupModel()
        self.members: list[SimMember] = []
        self.partitions = {"t": 4}
        self.loss = loss
        self.down_until = 0.0
        self.strategies = strategies
        self.config = config
        self.check: Callable[[], None] = lambda: None
        self.busy = True
        """Whether records come, so that members have something to commit all the time."""
        self.owners: dict[TopicPartition, str] = {}
        """The member id that began to own each partition last."""
        self._heap: list[tuple[float, int, Callable[[], None]]] = []
        self._order = count()
        self._last_arrival: dict[tuple[int, int, bool], float] = {}

    # ------------------------------------------------------------ members

    def start(self, instance_id: str | None = None) -> SimMember:
        config = GroupConfig("g", group_instance_id=instance_id, **self.config)
        ownership = Ownership([assignors.get(s) for s in self.strategies], group_instance_id=instance_id)
        machine = ClassicMember(config, ownership, rand=self.random.random)
        member = SimMember(
            f"{len(self.members)}", machine, ownership, CommitQueue(config, rand=self.random.random)
        )
        self.members.append(member)
        self._metadata(member)
        machine.start(self.clock(member))
        self.at(0.0, lambda: self.step(member))
        self.at(self.random.random(), lambda: self._auto_commit(member))
        return member

    def _auto_commit(self, member: SimMember) -> None:
        if member.alive and not member.machine.ended:
            if self.busy and self.now >= member.frozen_until:
                self.commit(member)
            self.at(0.2 + self.random.random(), lambda: self._auto_commit(member))

    def freeze(self, member: SimMember, seconds: float) -> None:
        """The member's process is stopped: it takes no step and sees no answer until it goes on."""
        member.frozen_until = max(member.frozen_until, self.now + seconds)
        self.at(member.frozen_until - self.now, lambda: self.step(member))

    def clock(self, member: SimMember) -> float:
        """The time by a member's own clock."""
        return self.now + member.skew

    def step_clock(self, member: SimMember, seconds: float) -> None:
        """The member's clock jumps ahead."""
        member.skew += seconds
        self.step(member)

    def leave(self, member: SimMember) -> None:
        """The member ends in order, within 10 s."""
        member.machine.leave(self.clock(member), 10.0)
        self.step(member)

    def kill(self, member: SimMember) -> None:
        """The member's process is gone without a word."""
        member.alive = False
        member.has.clear()

    def live(self) -> list[SimMember]:
        return [m for m in self.members if m.alive and not m.machine.ended]

    def grow(self, topic: str = "t") -> None:
        self.partitions[topic] = self.partitions.get(topic, 0) + 1
        for member in self.live():
            self.at(self.random.random() * 3, lambda member=member: self._metadata(member))

    def commit(self, member: SimMember, partitions: Iterable[TopicPartition] | None = None) -> None:
        """Commits one more record for everything it has, or for these."""
        offsets = {}
        for tp in member.has if partitions is None else partitions:
            at = max(member.committed.get(tp, 0), self.group.offsets.get(tp, OffsetAndMetadata(0)).offset)
            member.committed[tp] = at + 1
            offsets[tp] = OffsetAndMetadata(at + 1)
        if offsets:
            member.tickets.append(member.commits.submit(offsets, self.clock(member), 60.0))
            self.step(member)

    def _metadata(self, member: SimMember) -> None:
        view = TopicsView({t: tuple(range(n)) for t, n in self.partitions.items()})
        reason = member.ownership.on_metadata(frozenset(self.partitions), view)
        if reason is not None:
            member.machine.request_rejoin(reason)
            self.step(member)

    # ------------------------------------------------------------ time

    def at(self, delay: float, action: Callable[[], None]) -> None:
        heapq.heappush(self._heap, (self.now + delay, next(self._order), action))

    def run(self, seconds: float) -> None:
        end = self.now + seconds
        while True:
            following = min(self._heap[0][0] if self._heap else end, self.group.next_event(), end)
            self.now = max(self.now, following)
            if following >= end:
                return
            self.group.tick(self.now)
            while self._heap and self._heap[0][0] <= self.now:
                heapq.heappop(self._heap)[2]()
            self.check()

    # ------------------------------------------------------------ the shell

    def step(self, member: SimMember) -> None:
        if not member.alive:
            return
        if self.now < member.frozen_until:
            return
        again = True
        while again:
            again = False
            ready = member.machine.poll(self.clock(member))
            for action in ready.actions:
                self._carry_out(member, action)
            commits = member.fed().poll(self.clock(member))
            for action in commits.actions:
                again |= self._carry_out_commit(member, action)
        wakes = [w for w in (ready.next_wake, commits.next_wake) if w is not None]
        if wakes:
            wake = max(min(wakes) - member.skew, self.now)
            if wake < member.scheduled or member.scheduled <= self.now:
                member.scheduled = wake
                self.at(wake - self.now + 1e-6, lambda: self.step(member))

    def _carry_out_commit(self, member: SimMember, action: object) -> bool:
        """Returns whether the membership has news, after which its machine is to be polled again."""
        match action:
            case GroupRequest():
                self._transmit(
                    member, action, lambda r, o: member.fed().on_response(r, o, self.clock(member))
                )
            case MembershipNews(error, verdict, generation):
                member.machine.on_membership_error(error, verdict, generation, self.clock(member))
                return True
        return False

    def _carry_out(self, member: SimMember, action: object) -> None:
        match action:
            case GroupRequest():
                self._transmit(
                    member, action, lambda r, o: member.machine.on_response(r, o, self.clock(member))
                )
            case Disconnect():
                member.connection += 1
                member.fed().connection_lost(DisconnectedError("given up"), self.clock(member))
            case ComputeAssignment(token, protocol, members):
                assignor = assignors.get(protocol)
                view = TopicsView({t: tuple(range(n)) for t, n in self.partitions.items()})
                result = perform_assignment(assignor, members, view)

                def computed() -> None:
                    member.ownership.watch(result.watched)
                    member.machine.on_assignment(token, result.assignments, self.clock(member))
                    self.step(member)

                self.at(self.random.random(), computed)
            case TakePartitions(_, added, _):
                assert not member.has & added
                member.has |= added
                self.owners.update(dict.fromkeys(added, member.machine.generation.member_id))
                if member.machine.leader and not member.ownership.watching:
                    view = TopicsView({t: tuple(range(n)) for t, n in self.partitions.items()})
                    if (reason := member.ownership.watch_again(view)) is not None:
                        member.machine.request_rejoin(reason)
            case RevokePartitions(token, partitions, _):
                assert partitions <= member.has
                assert partitions <= (member.eligibility().owned or frozenset()), (
                    "can't commit what it drains"
                )

                def released() -> None:
                    if member.alive:
                        member.machine.on_released(token, self.clock(member))
                        self.step(member)

                # Stops with what it has in hand at once; the drain takes its time, or for ever.
                member.has -= partitions
                self.commit(member, partitions)
                self.at(self.random.choice([0.0, 0.5, 2.0, 1e6]), released)
            case LosePartitions(partitions, _):
                member.has -= partitions

    # ------------------------------------------------------------ the network

    def _transmit(
        self, member: SimMember, request: GroupRequest, deliver: Callable[[GroupRequest, object], object]
    ) -> None:
        connection = member.connection

        def answer(outcome: object) -> None:
            if member.alive and (member.connection == connection or request.api in _UNBOUND):
                if self.now < member.frozen_until:
                    self.at(member.frozen_until - self.now, lambda: answer(outcome))
                    return
                deliver(request, outcome)
                self.step(member)

        self.at(request.timeout, lambda: answer(KafkaTimeoutError("simulated")))
        lost = self.now < self.down_until or self.random.random() < self.loss
        if lost:
            return
        arrival = self._in_order(member, request)
        self.at(arrival - self.now, lambda: self._arrive(request, answer))

    def _in_order(self, member: SimMember, request: GroupRequest) -> float:
        key = (id(member), member.connection, request.channel)
        arrival = max(self.now + self.random.random() * 0.2, self._last_arrival.get(key, 0.0))
        self._last_arrival[key] = arrival
        return arrival

    def _arrive(self, request: GroupRequest, answer: Callable[[object], None]) -> None:
        def reply(outcome: object) -> None:
            if self.random.random() >= self.loss:
                self.at(self.random.random() * 0.2, lambda: answer(outcome))
            elif self.random.random() < 0.5:  # not lost, but later than anybody waits for it
                self.at(self.random.random() * 30.0, lambda: answer(outcome))

        if self.now < self.down_until:
            return
        if request.api is GroupApi.FIND_COORDINATOR:
            reply(FindCoordinatorResponse(coordinators=[Coordinator(key="g", node_id=1, host="h", port=1)]))
        elif request.api is GroupApi.CONNECT:
            reply(None)
        else:
            _HANDLERS[request.api](self.group, request.body, reply, self.now)


_UNBOUND = (GroupApi.FIND_COORDINATOR, GroupApi.CONNECT)
