"""Members of a group under random joins, leaves, deaths, freezes, losses and delays, in simulated time.

Against a model of the broker's side: after each quiet period every partition has exactly one owner; no two members
ever believe at once that a partition is theirs; generations only grow; committed offsets never go back.
"""

from __future__ import annotations

from random import Random

from fakes.group import SimMember, Simulation
from hypothesis import given, settings
from hypothesis import strategies as st

from kafka_actors.coordinator.machines.states import MemberState
from kafka_actors.protocol.types import TopicPartition

STRATEGIES = st.sampled_from([["cooperative-sticky"], ["range"], ["sticky"], ["cooperative-sticky", "range"]])
QUIET = 150.0
SESSION = 10.0


class Invariants:
    def __init__(self, sim: Simulation) -> None:
        self.sim = sim
        self.commits = 0
        self.shared_since: dict[TopicPartition, float] = {}
        self.highest: dict[TopicPartition, int] = {}
        sim.check = self.check

    def check(self) -> None:
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
        for tp, offset, _, _ in self.sim.group.commits[self.commits :]:
            assert offset >= self.highest.get(tp, 0), f"{tp} went back to {offset}"
            self.highest[tp] = offset
        self.commits = len(self.sim.group.commits)
        assert self.sim.group.generations == sorted(set(self.sim.group.generations))

    def settled(self) -> None:
        live = self.sim.live()
        states = {m.name: m.machine.state for m in live}
        assert all(s is MemberState.STABLE for s in states.values()), states
        everything = {TopicPartition(t, p) for t, n in self.sim.partitions.items() for p in range(n)}
        have = [tp for m in live for tp in m.has]
        assert sorted(have) == sorted(everything if live else [])
        assert all(t.done for m in live for t in m.tickets if t.deadline < self.sim.now)


def act(sim: Simulation, random: Random, names: list[str | None]) -> None:
    live = sim.live()
    action = random.choice(
        ["start", "start", "kill", "leave", "grow", "freeze", "outage", "commit", "commit", "commit"]
    )
    if action == "start" and len(live) < 4:
        instance = random.choice(names)
        if instance is None or all(m.machine.config.group_instance_id != instance for m in live):
            sim.start(instance)
    elif action == "grow" and sum(sim.partitions.values()) < 9:
        sim.grow(random.choice(["t", "u"]))
    elif action == "outage":
        sim.down_until = sim.now + random.choice([1.0, 5.0, 60.0])
    elif live:
        member = random.choice(live)
        if action == "kill":
            member.alive = False
            member.has.clear()
        elif action == "leave":
            member.machine.leave(sim.now, 10.0)
            sim.step(member)
        elif action == "freeze":
            sim.freeze(member, random.choice([2.0, 12.0, 60.0]))
        elif action == "commit":
            sim.commit(member)


@settings(max_examples=60)
@given(st.integers(0, 2**32), STRATEGIES, st.sampled_from([0.0, 0.02, 0.2]), st.booleans())
def test_theme_05_every_partition_has_one_owner_whatever_happens(seed, strategies, loss, static):
    random = Random(seed)
    sim = Simulation(
        random,
        strategies=strategies,
        loss=loss,
        session_timeout=SESSION,
        heartbeat_interval=1.0,
        heartbeat_timeout=3.0,
        rebalance_timeout=20.0,
        revoke_timeout=5.0,
        request_timeout=5.0,
    )
    invariants = Invariants(sim)
    names: list[str | None] = ["a", "b", "c"] if static else [None]
    sim.start(names[0])
    for _ in range(2):
        sim.loss = loss
        for _ in range(15):
            sim.run(random.random() * 8)
            act(sim, random, names)
        sim.loss = 0.0
        sim.run(QUIET)
        invariants.settled()
