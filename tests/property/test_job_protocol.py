"""Coordinator and workers of a job against a hostile network: messages are late, lost and repeated, workers die,
and the coordinator is replaced in the middle of whatever it was doing.

Real `Placement`, `CommitGate` and `WorkerAssignment` are driven by random steps. A worker's log is what its function was
given; the promises are checked on the logs and on the commits.
"""

from __future__ import annotations

import random
from collections import Counter

from hypothesis import example, given, settings
from hypothesis import strategies as st

import assignors
from kafka_actors.fetch import FetchProgress
from kafka_actors.job.coordinator.machines.commit_gate import CommitGate
from kafka_actors.job.coordinator.machines.placement import Placement, PlacementState
from kafka_actors.job.messages import CommitReply, CommitRequest, Drain, Grant, GrantEpoch, Orders, Report
from kafka_actors.job.worker.machines.worker_assignment import WorkerAssignment, report_of
from kafka_actors.types import OffsetAndMetadata, TopicPartition

RECORDS = 12


class SimulatedWorker:
    """A worker whose function takes one record a call."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.holdings = WorkerAssignment()
        self.position: dict[TopicPartition, int] = {}
        self.in_hand: tuple[TopicPartition, GrantEpoch, int] | None = None

    def take(self, orders: Orders) -> None:
        for grant in self.holdings.apply(orders).begin:
            self.position[grant.partition] = grant.offset or 0

    def begin_call(self, rng: random.Random) -> tuple[TopicPartition, int] | None:
        """The record that its function is given, if there is one to give."""
        ready = [h for p, h in self.holdings.held.items() if self.position[p] < RECORDS]
        if self.in_hand is not None or not ready:
            return None
        held = rng.choice(ready)
        if not self.holdings.begin(held.partition, held.begun_under):
            return None
        self.in_hand = held.partition, held.begun_under, self.position[held.partition]
        return held.partition, self.position[held.partition]

    def end_call(self) -> None:
        if self.in_hand is None:
            return
        partition, epoch, offset = self.in_hand
        held = self.holdings.held.get(partition)
        if held is not None and held.begun_under == epoch:
            self.position[partition] = offset + 1
        self.holdings.done(partition, epoch, offset + 1)
        self.in_hand = None

    def report(self) -> Report:
        self.holdings.release_drained()
        lines = [report_of(h, FetchProgress(None, None, "")) for h in self.holdings.held.values()]
        return Report(self.name, self.holdings.seen, True, lines)


class Simulation:
    """One coordinator at a time, workers that come and go, and mailboxes that lose and reorder."""

    def __init__(self, rng: random.Random, loss: float) -> None:
        self.rng = rng
        self.loss = loss
        self.incarnation = 0
        self.partitions = [TopicPartition("t", n) for n in range(4)]
        self.workers: dict[str, SimulatedWorker] = {}
        self.mail: list[tuple[str, object]] = []
        self.committed: dict[TopicPartition, int] = {}
        self.worked: Counter[tuple[TopicPartition, int]] = Counter()
        self.replace_coordinator()

    def replace_coordinator(self) -> None:
        """What was on its way to the old one is lost; what it sent may still arrive."""
        self.incarnation += 1
        self.mail = [(to, message) for to, message in self.mail if to != "coordinator"]
        self.placement = Placement(self.incarnation, assignors.get("sticky"), drain_timeout_s=1e9)
        self.gate = CommitGate(self.placement.holder)
        self.gate.baseline({p: OffsetAndMetadata(o, "", -1) for p, o in self.committed.items()})
        self.placement.recovery.begin(dict.fromkeys(self.workers, 1.0))
        for name in self.workers:
            self.placement.set_worker(name)
        self.placement.assign(self.partitions)

    def join(self, name: str) -> None:
        self.workers[name] = SimulatedWorker(name)
        self.placement.set_worker(name)

    def kill(self, name: str) -> None:
        del self.workers[name]
        self.placement.remove_worker(name)

    def orders(self, report: Report) -> Orders:
        name = report.worker
        if self.placement.recovery.awaits(name):
            return Orders(self.placement.version(name), [], [], 10.0, hold=True)
        grants = []
        for slot in self.placement.held(name, frozenset({PlacementState.GRANTED})):
            start = self.gate.start_of(slot.partition)
            offset = start.offset if start else None
            grants.append(Grant(slot.partition, slot.epoch, offset, continues=slot.continues))
        draining = [
            Drain(s.partition, s.epoch, s.continues)
            for s in self.placement.held(name, frozenset({PlacementState.DRAINING}))
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
                if self.placement.recovery.active:
                    self.placement.adopt(message.worker, message.seen, message.holdings, self.partitions)
                self.placement.reported(message.worker, message.seen, message.holdings)
                self.placement.poll(0.0)
                self.post(message.worker, self.orders(message))
        elif isinstance(message, CommitRequest):
            self.post(message.worker, self.commit(message))
        elif (worker := self.workers.get(to)) is not None:
            if isinstance(message, Orders):
                worker.take(message)
            elif isinstance(message, CommitReply):
                worker.holdings.committed(message)

    def commit(self, request: CommitRequest) -> CommitReply:
        refused = self.gate.offer(request.worker, request.entries)
        for partition, offset in self.gate.take().items():
            before = self.committed.get(partition, 0)
            assert offset.offset >= before, "a committed offset went down"
            for worked in range(before, offset.offset):
                assert self.worked[partition, worked], "committed what no function was given"
            self.committed[partition] = offset.offset
        self.gate.finished(dict.fromkeys(self.partitions))
        done = [e for e in request.entries if e.partition not in refused]
        return CommitReply(request.sequence, done, refused, [])

    def begin_call(self, worker: SimulatedWorker) -> None:
        if (record := worker.begin_call(self.rng)) is not None:
            self.worked[record] += 1

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
                self.begin_call(worker)
            elif choice < 0.9:
                worker.end_call()
            else:
                self.post("coordinator", CommitRequest(worker.name, 0, worker.holdings.commits()))
        self.check()

    def check(self) -> None:
        """No two workers may hold a partition under the epoch that counts."""
        for partition, slot in self.placement.partitions.items():
            held = [w.holdings.held[partition] for w in self.workers.values() if partition in w.holdings.held]
            assert sum(h.epoch == slot.epoch for h in held) <= 1

    def settle(self) -> None:
        """No more losses or deaths: everything is to be processed and committed."""
        self.loss = 0.0
        for _ in range(200):
            if self.done:
                return
            for worker in list(self.workers.values()):
                worker.end_call()
                self.post("coordinator", CommitRequest(worker.name, 0, worker.holdings.commits()))
                self.post("coordinator", worker.report())
                self.begin_call(worker)
            while self.mail:
                self.deliver()
            self.check()

    @property
    def done(self) -> bool:
        return self.committed == dict.fromkeys(self.partitions, RECORDS)


@settings(max_examples=300)
@given(
    seed=st.integers(0, 2**32),
    loss=st.sampled_from([0.0, 0.1, 0.4]),
    kills=st.booleans(),
    replacements=st.booleans(),
)
@example(seed=853434189, loss=0.1, kills=False, replacements=True)  # orders from before a drain ended, late
def test_late_lost_and_repeated_messages_break_no_promise(seed, loss, kills, replacements):
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
        if replacements and rng.random() < 0.01:
            simulation.replace_coordinator()
    simulation.settle()

    assert simulation.done
    assert set(simulation.worked) == {(p, o) for p in simulation.partitions for o in range(RECORDS)}
    if not kills:
        assert max(simulation.worked.values()) == 1, "a clean move of a partition repeats nothing"
