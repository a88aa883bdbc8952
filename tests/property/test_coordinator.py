"""Members of a group under random joins, leaves, deaths, restarts, freezes, clock steps, losses and delays, in
simulated time, against a model of the broker's side.

At every moment: no two members believe that a partition is theirs, no member's generation goes back, no commit is
accepted but the last owner's, and no committed offset goes back but by a request that came late. After each quiet period every
partition has exactly one owner, every commit that was asked for has an outcome, and what late requests have undone is put right.
"""

from __future__ import annotations

from random import Random

from fakes.group import SimMember, Simulation
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, precondition, rule

from kafka_actors.group.machines.member_core import MemberState
from kafka_actors.group.machines.member_events import NO_GENERATION
from kafka_actors.types import TopicPartition

STRATEGIES = st.sampled_from([["cooperative-sticky"], ["range"], ["sticky"], ["cooperative-sticky", "range"]])
QUIET = 150.0
SESSION = 10.0
MOST_MEMBERS = 4
MOST_PARTITIONS = 9


class Invariants:
    """What holds at every moment of a simulation."""

    def __init__(self, sim: Simulation) -> None:
        self.sim = sim
        self.commits = 0
        self.shared_since: dict[TopicPartition, float] = {}
        self.highest: dict[TopicPartition, int] = {}
        self.undone: dict[TopicPartition, tuple[str, int, int]] = {}
        """Owner, generation and offset of commits that a late one has undone."""
        self.generations: dict[str, int] = {}
        sim.check = self.check

    def check(self) -> None:
        self.check_owners()
        self.check_commits()
        self.check_generations()

    def check_owners(self) -> None:
        owners: dict[TopicPartition, list[SimMember]] = {}
        for member in self.sim.members:
            # A frozen member does not know yet; its workers stop by their lease.
            if member.alive and member.frozen_until <= self.sim.now:
                for tp in member.has:
                    owners.setdefault(tp, []).append(member)
        shared = {tp: members for tp, members in owners.items() if len(members) > 1}
        for tp, members in shared.items():
            # Who missed a rebalance is put out before its session ends, and learns it by its next heartbeat.
            inside = [m.name for m in members if m.machine.generation.member_id in self.sim.group.members]
            assert len(inside) <= 1, f"{tp} belongs to {inside}"
            since = self.shared_since.setdefault(tp, self.sim.now)
            assert self.sim.now - since < SESSION, f"{tp} belongs to two for too long"
        self.shared_since = {tp: t for tp, t in self.shared_since.items() if tp in shared}

    def check_commits(self) -> None:
        """Called after each event, so that an accepted commit is seen before anybody else can begin to own."""
        for place, (tp, offset, member_id, _) in enumerate(
            self.sim.group.commits[self.commits :], self.commits
        ):
            owner = self.sim.owners.get(tp)
            assert member_id == owner, f"a commit of {tp} by {member_id} was accepted: it is {owner}'s"
            highest = self.highest.get(tp, 0)
            if offset < highest:
                assert place in self.sim.late, f"{tp} went back to {offset}"
                self.undone[tp] = owner, self.sim.group.generation, highest
            self.highest[tp] = offset
        self.commits = len(self.sim.group.commits)

    def check_generations(self) -> None:
        for member in self.sim.members:
            generation = member.machine.generation.id
            if generation != NO_GENERATION:
                assert generation >= self.generations.get(member.name, 0), f"{member.name} went back"
                self.generations[member.name] = generation

    def check_settled(self) -> None:
        for tp, (owner, generation, offset) in self.undone.items():
            if (self.sim.owners.get(tp), self.sim.group.generation) == (owner, generation):
                found = self.sim.group.offsets[tp].offset
                assert found >= offset, f"{tp} stays at {found}, {offset} was committed"
        self.undone.clear()
        live = self.sim.live()
        states = {m.name: m.machine.state for m in live}
        assert all(s is MemberState.STABLE for s in states.values()), states
        assert {m.machine.generation.id for m in live} <= {self.sim.group.generation}
        everything = {TopicPartition(t, p) for t, n in self.sim.partitions.items() for p in range(n)}
        have = [tp for m in live for tp in m.has]
        assert sorted(have) == sorted(everything if live else [])
        for m in live:
            assert all(t.done for t in m.tickets if t.deadline < self.sim.clock(m))
        # Who owns a partition can commit it: nothing that went wrong holds it up for ever.
        for m in live:
            self.sim.commit(m)
        self.sim.run(5.0)
        assert all(t.done and t.refused is None for m in live for t in m.tickets[-1:])


class Group(RuleBasedStateMachine):
    """One group. Its network loses and delays by `random`; everything else is a rule."""

    @initialize(
        seed=st.integers(0, 2**32),
        strategies=STRATEGIES,
        loss=st.sampled_from([0.0, 0.02, 0.2]),
        static=st.booleans(),
    )
    def begin(self, seed: int, strategies: list[str], loss: float, static: bool) -> None:
        self.loss = loss
        self.names: list[str | None] = ["a", "b", "c"] if static else [None]
        self.sim = Simulation(
            Random(seed),
            strategies=strategies,
            loss=loss,
            session_timeout=SESSION,
            heartbeat_interval=1.0,
            heartbeat_timeout=3.0,
            rebalance_timeout=20.0,
            revoke_timeout=5.0,
            request_timeout=5.0,
        )
        self.always = Invariants(self.sim)
        self.sim.start(self.names[0])

    def one(self, index: int) -> SimMember:
        live = self.sim.live()
        return live[index % len(live)]

    def some_live(self) -> bool:
        return bool(self.sim.live())

    @rule(seconds=st.floats(0.1, 8.0))
    def time_passes(self, seconds: float) -> None:
        self.sim.run(seconds)

    @rule(index=st.integers(0, 2), seconds=st.floats(0.0, 5.0))
    def start(self, index: int, seconds: float) -> None:
        live = self.sim.live()
        instance = self.names[index % len(self.names)]
        taken = instance is not None and any(m.machine.config.group_instance_id == instance for m in live)
        if len(live) < MOST_MEMBERS and not taken:
            self.sim.start(instance)
        self.sim.run(seconds)

    @precondition(some_live)
    @rule(index=st.integers(0, 3))
    def kill(self, index: int) -> None:
        self.sim.kill(self.one(index))

    @precondition(some_live)
    @rule(index=st.integers(0, 3), seconds=st.floats(0.0, 15.0))
    def restart(self, index: int, seconds: float) -> None:
        """Another process in its place, with its instance id if it has one; perhaps after its session ended."""
        member = self.one(index)
        self.sim.kill(member)
        self.sim.run(seconds)
        self.sim.start(member.machine.config.group_instance_id)

    @precondition(some_live)
    @rule(index=st.integers(0, 3))
    def leave(self, index: int) -> None:
        self.sim.leave(self.one(index))

    @precondition(some_live)
    @rule(index=st.integers(0, 3), seconds=st.sampled_from([2.0, 12.0, 60.0]))
    def freeze(self, index: int, seconds: float) -> None:
        self.sim.freeze(self.one(index), seconds)

    @precondition(some_live)
    @rule(index=st.integers(0, 3), seconds=st.sampled_from([0.5, 4.0, 30.0, 3600.0]))
    def clock_steps(self, index: int, seconds: float) -> None:
        self.sim.step_clock(self.one(index), seconds)

    @rule(topic=st.sampled_from(["t", "u"]))
    def grow(self, topic: str) -> None:
        if sum(self.sim.partitions.values()) < MOST_PARTITIONS:
            self.sim.grow(topic)

    @rule(seconds=st.sampled_from([1.0, 5.0, 60.0]))
    def outage(self, seconds: float) -> None:
        self.sim.down_until = self.sim.now + seconds

    @rule()
    def quiet(self) -> None:
        self.sim.loss = 0.0
        self.sim.busy = False
        self.sim.run(QUIET)
        self.always.check_settled()
        self.sim.loss = self.loss
        self.sim.busy = True

    def teardown(self) -> None:
        if hasattr(self, "sim"):
            self.quiet()


Group.TestCase.settings = settings(max_examples=60, stateful_step_count=30)
test_every_partition_has_one_owner_whatever_happens = Group.TestCase


def test_what_late_requests_undo_is_put_right() -> None:
    """One member commits over a bad network; whenever that and the commits end, the last offset stands."""
    undone = 0
    for seed in range(20):
        group = Group()
        group.begin(seed=seed, strategies=["range"], loss=0.2, static=False)
        for _ in range(10):
            group.sim.run(group.sim.random.random() * 8.0)
            group.sim.loss, group.sim.busy = 0.0, False
            group.sim.run(40.0)
            undone += len(group.always.undone)
            group.always.check_settled()
            group.sim.loss, group.sim.busy = group.loss, True
    assert undone > 0
