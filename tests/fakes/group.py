"""Members' machines driven against a group coordinator of `FakeKafka`, its machine too, in simulated time.

`SimCoordinator` is the broker's side; `Simulation` is the network, the clock and the members' shells.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from itertools import count
from random import Random
from typing import Any

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
from kafka_actors.protocol import ApiKey, FindCoordinatorResponse, OffsetCommitResponse
from kafka_actors.protocol.messages.find_coordinator import Coordinator
from kafka_actors.testing.fake_kafka.machines.calls import BrokerCall, ClientLink
from kafka_actors.testing.fake_kafka.machines.fake_cluster import FakeCluster
from kafka_actors.testing.fake_kafka.machines.group_members import GroupMembers
from kafka_actors.types import OffsetAndMetadata, TopicPartition

Reply = Callable[[Any], None]
GROUP = "g"
_APIS = {
    GroupApi.DESCRIBE: (ApiKey.DESCRIBE_GROUPS, 6),
    GroupApi.JOIN: (ApiKey.JOIN_GROUP, 9),
    GroupApi.SYNC: (ApiKey.SYNC_GROUP, 5),
    GroupApi.HEARTBEAT: (ApiKey.HEARTBEAT, 4),
    GroupApi.LEAVE: (ApiKey.LEAVE_GROUP, 5),
    GroupApi.COMMIT: (ApiKey.OFFSET_COMMIT, 9),
    GroupApi.OFFSET_FETCH: (ApiKey.OFFSET_FETCH, 9),
}
"""Requests of members, and the version in which each is understood."""


class SimCoordinator:
    """A broker of `FakeKafka` that coordinates one group, asked without bytes.

    `commits` ((partition, offset, member id, generation) as accepted), `members`, `generation` and `offsets` are for asking.
    """

    def __init__(self, random: Random, topics: Mapping[str, int]) -> None:
        self._cluster = FakeCluster(random)
        self._cluster.state.add_node(1, "h", 1)
        for name, partitions in topics.items():
            self.grow(name, partitions)
        self.commits: list[tuple[TopicPartition, int, str, int]] = []
        self._numbers = count(1)

    def ask(self, api: GroupApi, request: Any, client_id: str, reply: Reply, now: float) -> None:
        """Carries a request out. Each has a connection of its own: what waits holds up nothing."""
        key, version = _APIS[api]
        link = ClientLink(next(self._numbers), 1, "/member")
        answered = lambda call, response: reply(response)  # noqa: E731
        if api is GroupApi.COMMIT:
            answered = lambda call, response: self._note(request, response, reply)  # noqa: E731
        self._cluster.advance(now)
        self._cluster.carry_out(BrokerCall(link, key, version, 1, client_id, request, now, answered))
        self.tick(now)

    def _note(self, request: Any, response: OffsetCommitResponse, reply: Reply) -> None:
        for topic, outcomes in zip(request.topics, response.topics, strict=True):
            for asked, outcome in zip(topic.partitions, outcomes.partitions, strict=True):
                if outcome.error_code == 0:
                    tp = TopicPartition(topic.name, asked.partition_index)
                    self.commits.append((tp, asked.committed_offset, request.member_id, self.generation))
        reply(response)

    def grow(self, topic: str, partitions: int) -> None:
        """Has the topic so many partitions."""
        state = self._cluster.state
        if topic not in state.topics:
            state.create_topic(topic, [[1]] * partitions)
        else:
            more = partitions - len(state.topics[topic].partitions)
            state.add_partitions(state.topics[topic], [[1]] * more)

    def tick(self, now: float) -> None:
        """Does what is due."""
        self._cluster.poll(now)

    def next_event(self) -> float:
        """When something is due."""
        wake = self._cluster.state.timers.next_wake
        return float("inf") if wake is None else wake

    @property
    def _members(self) -> GroupMembers | None:
        group = self._cluster.groups.groups.get(GROUP)
        return None if group is None else group.members

    @property
    def members(self) -> set[str]:
        """Ids of the members."""
        return set() if self._members is None else set(self._members.by_id)

    @property
    def generation(self) -> int:
        """The group's generation, 0 before the first one."""
        return 0 if self._members is None else self._members.generation

    @property
    def offsets(self) -> dict[TopicPartition, OffsetAndMetadata]:
        """The committed offsets."""
        found = self._cluster.offsets.committed(GROUP)
        return {TopicPartition(*at): OffsetAndMetadata(one.offset) for at, one in found.items()}


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
        self.partitions = {"t": 4}
        self.group = SimCoordinator(Random(random.getrandbits(32)), self.partitions)
        self.members: list[SimMember] = []
        self.loss = loss
        self.down_until = 0.0
        self.strategies = strategies
        self.config = config
        self.check: Callable[[], None] = lambda: None
        self.busy = True
        """Whether records come, so that members have something to commit all the time."""
        self.owners: dict[TopicPartition, str] = {}
        """The member id that began to own each partition last."""
        self.late: set[int] = set()
        """Places in the group's list of commits of those that came when nobody waited for them any more."""
        self._heap: list[tuple[float, int, Callable[[], None]]] = []
        self._order = count()
        self._last_arrival: dict[tuple[int, int, bool], float] = {}

    # ------------------------------------------------------------ members

    def start(self, instance_id: str | None = None) -> SimMember:
        config = GroupConfig(GROUP, group_instance_id=instance_id, **self.config)
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
        self.group.grow(topic, self.partitions[topic])
        for member in self.live():
            self.at(self.random.random() * 3, lambda member=member: self._metadata(member))

    def commit(self, member: SimMember, partitions: Iterable[TopicPartition] | None = None) -> None:
        """Commits one more record for everything it has, or for these."""
        offsets, known = {}, self.group.offsets
        for tp in member.has if partitions is None else partitions:
            at = max(member.committed.get(tp, 0), known.get(tp, OffsetAndMetadata(0)).offset)
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
                leading = member.ownership.leading

                def computed() -> None:
                    if leading is not None and leading == member.ownership.leading:
                        member.ownership.watch(result.watched)
                    member.machine.on_assignment(token, result.assignments, self.clock(member))
                    self.step(member)

                self.at(self.random.random(), computed)
            case TakePartitions(_, added, _):
                assert not member.has & added
                member.has |= added
                self.owners.update(dict.fromkeys(added, member.machine.generation.member_id))
                if member.ownership.leading is not None and not member.ownership.watching:
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
            if (
                self.random.random() < 0.5
            ):  # kept somewhere, and given out within the time that is promised for
                self._keep(member, request)
            return
        arrival = self._in_order(member, request)
        self.at(arrival - self.now, lambda: self._arrive(member, request, answer))

    def _in_order(self, member: SimMember, request: GroupRequest) -> float:
        key = (id(member), member.connection, request.channel)
        arrival = max(self.now + self.random.random() * 0.2, self._last_arrival.get(key, 0.0))
        self._last_arrival[key] = arrival
        return arrival

    def _keep(self, member: SimMember, request: GroupRequest) -> None:
        """Gives a request out late: up to `request_timeout` after it was sent, or after nobody waits for its answer any more."""
        connection = member.connection
        late = self.random.random() * self.config["request_timeout"]

        def expired() -> None:
            if member.connection == connection:
                self.at(late, lambda: self._arrive_late(member, request))

        if self.random.random() < 0.5:
            self.at(late, lambda: self._arrive_late(member, request))
        else:
            self.at(request.timeout, expired)

    def _arrive_late(self, member: SimMember, request: GroupRequest) -> None:
        """The broker carries out a request of a connection that is gone."""
        before = len(self.group.commits)
        self._arrive(member, request, lambda _: None)
        self.late.update(range(before, len(self.group.commits)))

    def _arrive(self, member: SimMember, request: GroupRequest, answer: Callable[[object], None]) -> None:
        def reply(outcome: object) -> None:
            if self.random.random() >= self.loss:
                self.at(self.random.random() * 0.2, lambda: answer(outcome))
            elif self.random.random() < 0.5:  # not lost, but later than anybody waits for it
                self.at(self.random.random() * 30.0, lambda: answer(outcome))

        if self.now < self.down_until:
            return
        if request.api is GroupApi.FIND_COORDINATOR:
            reply(FindCoordinatorResponse(coordinators=[Coordinator(key=GROUP, node_id=1, host="h", port=1)]))
        elif request.api is GroupApi.CONNECT:
            reply(None)
        else:
            self.group.ask(request.api, request.body, member.name, reply, self.now)


_UNBOUND = (GroupApi.FIND_COORDINATOR, GroupApi.CONNECT)
