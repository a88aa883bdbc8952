"""Coordinator and workers of a job against a hostile network: messages are late, lost and repeated.

Real `Placement`, `CommitGate` and `Holdings` are driven by random steps. A worker's log is what its function was
given; the promises are checked on the logs and on the commits.
"""

from __future__ import annotations

import random
from collections import Counter

from hypothesis import given, settings
from hypothesis import strategies as st

import assignors
from kafka_actors.actors.machines.commit_gate import CommitGate
from kafka_actors.actors.machines.holdings import Holdings, holding_of
from kafka_actors.actors.machines.placement import Placement, SlotState
from kafka_actors.actors.messages import CommitReply, CommitRequest, Grant, Orders, Report
from kafka_actors.protocol.types import TopicPartition

RECORDS = 12


class SimulatedWorker:
    """A worker whose function takes one record a call."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.holdings = Holdings()
        self.position: dict[TopicPartition, int] = {}
        self.in_hand: tuple[TopicPartition, tuple[int, int], int] | None = None
        self.log: list[tuple[TopicPartition, int]] = []

    def take(self, orders: Orders) -> None:
        changes = self.holdings.apply(orders)
        for grant in changes.begin:
            self.position[grant.partition] = grant.offset or 0

    def begin_call(self, rng: random.Random) -> None:
        ready = [h for p, h in self.holdings.held.items() if self.position[p] < RECORDS]
        if self.in_hand is None and ready:
            held = rng.choice(ready)
            if self.holdings.begin(held.partition, held.begun_under):
                offset = self.position[held.partition]
                self.in_hand = held.partition, held.begun_under, offset
                self.log.append((held.partition, offset))

    def end_call(self) -> None:
        if self.in_hand is not None:
            partition, epoch, offset = self.in_hand
            if self.holdings.active(partition, epoch) or partition in self.holdings.held:
                self.position[partition] = max(self.position.get(partition, 0), offset + 1)
            self.holdings.done(partition, epoch, offset + 1)
            self.in_hand = None

    def report(self) -> Report:
        self.holdings.release_drained()
        lines = [holding_of(h, position=None, end=None, blocked="") for h in self.holdings.held.values()]
        return Report(self.name, self.holdings.seen, True, lines)


class Simulation:
    """One coordinator, workers that come and go, and mailboxes that lose and reorder."""

    def __init__(self, rng: random.Random, loss: float) -> None:
        self.rng = rng
        self.loss = loss
        self.now = 0.0
        self.placement = Placement(1, assignors.get("sticky"), drain_timeout_s=1e9)
        self.gate = CommitGate(self.placement.holder)
        self.partitions = [TopicPartition("t", n) for n in range(4)]
        self.workers: dict[str, SimulatedWorker] = {}
        self.gone: list[SimulatedWorker] = []
        self.mail: list[tuple[str, object]] = []
        self.high: dict[TopicPartition, int] = {}
        self.killed = False
        self.placement.give(self.partitions)

    def join(self, name: str) -> None:
        self.workers[name] = SimulatedWorker(name)
        self.placement.set_worker(name)

    def kill(self, name: str) -> None:
        self.gone.append(self.workers.pop(name))
        self.placement.remove_worker(name)
        self.killed = True

    def orders(self, name: str) -> Orders:
        grants = []
        for slot in self.placement.held(name, frozenset({SlotState.GRANTED})):
            start = self.gate.start_of(slot.partition)
            grants.append(Grant(slot.partition, slot.epoch, start.offset if start else None))
        draining = [
            (s.partition, s.epoch) for s in self.placement.held(name, frozenset({SlotState.DRAINING}))
        ]
        return Orders(self.placement.version(name), grants, draining, 10.0)

    def post(self, to: str, message: object) -> None:
        if self.rng.random() >= self.loss:
            self.mail.append((to, message))
            if self.rng.random() < 0.1:
                self.mail.append((to, message))

    def deliver(self) -> None:
        to, message = self.mail.pop(self.rng.randrange(len(self.mail)))
        if isinstance(message, Report):
            if message.worker in self.placement.workers:
                self.placement.worker_ready(message.worker)
                self.placement.reported(message.worker, message.seen, message.holdings)
                self.placement.step(self.now)
                self.post(message.worker, self.orders(message.worker))
        elif isinstance(message, CommitRequest):
            self.post(message.worker, self.commit(message))
        elif to in self.workers:
            worker = self.workers[to]
            if isinstance(message, Orders):
                worker.take(message)
            elif isinstance(message, CommitReply):
                worker.holdings.committed(message)

    def commit(self, request: CommitRequest) -> CommitReply:
        refused = self.gate.offer(request.worker, request.entries)
        for partition, offset in self.gate.take().items():
            assert offset.offset >= self.high.get(partition, 0), "a committed offset went down"
            self.high[partition] = offset.offset
        self.gate.finished(dict.fromkeys(self.partitions))
        done = [e for e in request.entries if e.partition not in refused]
        return CommitReply(request.sequence, done, refused, [])

    def step(self) -> None:
        choice = self.rng.random()
        workers = list(self.workers.values())
        if choice < 0.45 and self.mail:
            self.deliver()
        elif workers:
            worker = self.rng.choice(workers)
            if choice < 0.6:
                self.post("coordinator", worker.report())
            elif choice < 0.75:
                worker.begin_call(self.rng)
            elif choice < 0.9:
                worker.end_call()
            else:
                self.post("coordinator", CommitRequest(worker.name, 0, worker.holdings.commits()))
        self.check()

    def check(self) -> None:
        """No two workers may begin a call in one partition under the epoch that counts."""
        for partition in self.partitions:
            slot = self.placement.slots[partition]
            holders = [
                w.name
                for w in self.workers.values()
                if (held := w.holdings.held.get(partition)) is not None and held.epoch == slot.epoch
            ]
            assert len(holders) <= 1
        for partition, offset in self.high.items():
            worked = {o for w in [*self.workers.values(), *self.gone] for p, o in w.log if p == partition}
            assert set(range(offset)) <= worked, "committed what no function was given"

    def settle(self) -> None:
        """No more losses or deaths: everything is to be processed and committed."""
        self.loss = 0.0
        for _ in range(200):
            for worker in list(self.workers.values()):
                worker.end_call()
                self.post("coordinator", CommitRequest(worker.name, 0, worker.holdings.commits()))
                self.post("coordinator", worker.report())
                worker.begin_call(self.rng)
            while self.mail:
                self.deliver()
            self.check()


@settings(max_examples=150)
@given(seed=st.integers(0, 2**32), loss=st.sampled_from([0.0, 0.1, 0.4]), kills=st.booleans())
def test_trap_6_late_lost_and_repeated_messages_break_no_promise(seed, loss, kills):
    rng = random.Random(seed)
    simulation = Simulation(rng, loss)
    for name in ("a", "b"):
        simulation.join(name)
    for number in range(400):
        simulation.step()
        if number % 60 == 30:
            simulation.join(f"w{number}")
        if kills and number % 90 == 80:
            simulation.kill(rng.choice(list(simulation.workers)))
    simulation.settle()

    worked = Counter(entry for w in [*simulation.workers.values(), *simulation.gone] for entry in w.log)
    assert set(worked) == {(p, o) for p in simulation.partitions for o in range(RECORDS)}
    assert simulation.high == dict.fromkeys(simulation.partitions, RECORDS)
    if not kills:
        assert max(worked.values()) == 1, "theme 5: a clean move of a partition repeats nothing"
