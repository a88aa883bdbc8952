"""Workers that share partitions, against a hostile network: messages are late, lost and repeated, workers come and die, the coordinator is
replaced, and partitions are dealt anew all the while.

Real `Placement`, `CommitGate`, `WorkerAssignment` and `RecordsInFlight` are driven by random steps. What is committed must be done, offset
and metadata; calls of one key never overlap; and nothing comes twice where nobody dies.
"""

from __future__ import annotations

import random
from collections import Counter
from typing import Any

import numpy as np
import pyarrow as pa
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

import assignors
from kafka_actors.fetch import FetchProgress
from kafka_actors.group.commit_metadata import unpack
from kafka_actors.group.done_offsets import DoneOffsets
from kafka_actors.job.coordinator.machines.commit_gate import CommitGate
from kafka_actors.job.coordinator.machines.placement import Placement, PlacementState
from kafka_actors.job.coordinator.machines.slicing import Slicing
from kafka_actors.job.lanes import Slice, source
from kafka_actors.job.messages import CommitReply, CommitRequest, Drain, Grant, Orders, Report
from kafka_actors.job.worker.machines.record_window import RecordWindow, WindowChunk
from kafka_actors.job.worker.machines.records_in_flight import RecordsInFlight
from kafka_actors.job.worker.machines.worker_assignment import WorkerAssignment, report_of
from kafka_actors.job.worker.slice_records import records_of_slice
from kafka_actors.types import OffsetAndMetadata, TopicPartition

RECORDS, CHUNK, LANES = 24, 5, 8
KEYS = [None, *(b"%d" % n for n in range(7))]


def key_of(partition, offset):
    return KEYS[(offset * 7 + partition.partition * 3 + offset // 5) % len(KEYS)]


class SimulatedWorker:
    """A worker with several calls at once."""

    def __init__(self, name: str, rng: random.Random, by_key: bool) -> None:
        self.name, self.rng, self.by_key = name, rng, by_key
        self.holdings = WorkerAssignment()
        self.position: dict[TopicPartition, int] = {}
        self.calls: list[Any] = []
        self.sequence = 0
        self.in_flight = RecordsInFlight(
            "key" if by_key else "unordered", 3, messages=True, retries=0, most_rows=12, most_bytes=1 << 40,
            may_begin=self.may_begin,
        )  # fmt: skip

    def may_begin(self, window: RecordWindow) -> bool:
        return not window.closed and self.holdings.active(window.partition, window.epoch)

    def take(self, orders: Orders) -> None:
        changes = self.holdings.apply(orders)
        self.in_flight.drop(changes.drop)
        for grant in changes.begin:
            self.in_flight.drop([grant.partition])
            self.position[grant.partition] = grant.offset or 0
            self.holdings.positioned(grant.partition, grant.offset or 0)
        self.in_flight.follow(orders.watermarks)

    def window(self, held) -> RecordWindow:
        at = self.position[held.partition]
        return self.in_flight.window(
            held.partition, held.begun_under, 0, at, held.done, held.dealt, held.slices
        )

    def fetch(self) -> None:
        for partition, held in self.holdings.held.items():
            if not self.holdings.active(partition, held.begun_under):
                continue
            window, first = self.window(held), self.position[partition]
            if window.waits:
                continue
            rows = min(CHUNK, RECORDS - first, self.in_flight.room(window))
            if rows <= 0:
                continue
            offsets = list(range(first, first + rows))
            batch = pa.record_batch(
                {
                    "key": pa.array([key_of(partition, n) for n in offsets], pa.binary()),
                    "offset": pa.array(offsets, pa.int64()),
                }
            )
            batch, lanes = records_of_slice(batch, held.dealt, LANES, by_key=self.by_key)
            chunk = WindowChunk(window, batch, first + rows, 1, keyed=self.by_key, lanes=lanes)
            self.position[partition] = first + rows
            self.in_flight.admit(chunk, 0.0)
            self.advance(window)

    def advance(self, window: RecordWindow) -> None:
        self.holdings.advance(window.partition, window.epoch, window.watermark, 1, 0)

    def begin_call(self) -> list[tuple[TopicPartition, int]]:
        """Returns the records that the function is called with, if there are any."""
        call = self.in_flight.take(0.0)
        if call is None:
            return []
        window = call.window
        if window.hand.calls == 1:
            self.holdings.begin(window.partition, window.epoch)
        self.calls.append(call)
        return [(window.partition, int(call.chunk.offsets[row])) for row in call.rows]

    def end_call(self) -> list[tuple[TopicPartition, int]]:
        if not self.calls:
            return []
        call = self.calls.pop(self.rng.randrange(len(self.calls)))
        window = call.window
        self.in_flight.finished(call, 0.0)
        self.advance(window)
        if window.hand.calls == 0:
            self.holdings.call_failed(window.partition, window.epoch)
        return [(window.partition, int(call.chunk.offsets[row])) for row in call.rows]

    def note_done(self) -> None:
        for window in self.in_flight.windows:
            held = self.holdings.held.get(window.partition)
            if held is not None and held.begun_under == window.epoch:
                self.holdings.note_done(window.partition, window.beyond())

    def entries(self):
        self.note_done()
        return self.holdings.commits()

    def report(self) -> Report:
        self.note_done()
        self.in_flight.drop(self.holdings.release_drained())
        lines = [report_of(h, FetchProgress(None, None, "")) for h in self.holdings.held.values()]
        return Report(self.name, self.holdings.seen, True, lines)


class Simulation:
    """One coordinator at a time, workers that come and go, and mailboxes that lose and reorder."""

    def __init__(self, rng: random.Random, loss: float, by_key: bool) -> None:
        self.rng, self.loss, self.by_key = rng, loss, by_key
        self.incarnation, self.now = 0, 0.0
        self.partitions = [TopicPartition("t", n) for n in range(2)]
        self.workers: dict[str, SimulatedWorker] = {}
        self.mail: list[tuple[str, object]] = []
        self.committed: dict[TopicPartition, OffsetAndMetadata] = {}
        self.called: Counter[tuple[TopicPartition, int]] = Counter()
        self.done: set[tuple[TopicPartition, int]] = set()
        self.running: Counter[tuple[TopicPartition, bytes]] = Counter()
        self.most_parts = 1
        self.sequences: dict[str, int] = {}
        self.replace_coordinator()

    def replace_coordinator(self) -> None:
        self.incarnation += 1
        self.mail = [(to, message) for to, message in self.mail if to != "coordinator"]
        slicing = Slicing(LANES, begun=lambda partition: partition in self.gate.committed)
        self.placement = Placement(
            self.incarnation, assignors.get("sticky"), drain_timeout_s=1e9, slicing=slicing
        )
        self.gate = CommitGate(self.placement.holder)
        self.gate.baseline(self.committed)
        self.placement.recovery.begin(dict.fromkeys(self.workers, 1e9))
        for name in self.workers:
            self.placement.set_worker(name)
        self.placement.gathering.expected = len(self.workers)
        self.placement.assign(self.partitions)

    def join(self, name: str) -> None:
        self.workers[name] = SimulatedWorker(name, self.rng, self.by_key)
        self.placement.set_worker(name)
        self.placement.gathering.expected = len(self.workers)

    def kill(self, name: str) -> None:
        gone = self.workers.pop(name)
        for call in gone.calls:
            self.ends([(call.window.partition, int(call.chunk.offsets[row])) for row in call.rows])
        self.placement.remove_worker(name)
        self.placement.gathering.expected = len(self.workers)

    def orders(self, report: Report) -> Orders:
        name, placement = report.worker, self.placement
        if placement.recovery.awaits(name):
            return Orders(placement.version(name), [], [], 10.0, hold=True)
        grants, watermarks = [], []
        for slot in placement.held(name, frozenset({PlacementState.GRANTED})):
            start, dealt = self.gate.start_of(slot.partition), slot.partition
            grant = Grant(
                source(dealt), slot.epoch, start.offset if start else None, continues=slot.continues
            )
            if start is not None:
                slices = self.gate.slices_done(source(dealt))
                grant = replace(grant, done=unpack(start.metadata).done, slices=slices)
            if isinstance(dealt, Slice):
                grant = replace(grant, part=dealt.part, parts=dealt.parts)
                watermarks.append((source(dealt), self.gate.committed[source(dealt)].offset))
                self.most_parts = max(self.most_parts, dealt.parts)
            grants.append(grant)
        draining = [
            Drain(source(s.partition), s.epoch, s.continues)
            for s in placement.held(name, frozenset({PlacementState.DRAINING, PlacementState.LEAVING}))
        ]
        return Orders(placement.version(name), grants, draining, 10.0, watermarks=watermarks)

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
                self.placement.poll(self.now)
                self.post(message.worker, self.orders(message))
        elif isinstance(message, CommitRequest):
            self.post(message.worker, self.commit(message))
        elif (worker := self.workers.get(to)) is not None:
            if isinstance(message, Orders):
                worker.take(message)
            elif isinstance(message, CommitReply) and message.sequence == worker.sequence:
                worker.holdings.committed(message)

    def commit(self, request: CommitRequest) -> CommitReply:
        if request.sequence < self.sequences.get(request.worker, 0):
            return CommitReply(request.sequence, [], [], [])
        self.sequences[request.worker] = request.sequence
        of = {e: self.placement.slices.held(request.worker, e.partition) for e in request.entries}
        entries = [replace(e, partition=placed.partition) if placed else e for e, placed in of.items()]
        refused = self.gate.offer(request.worker, entries)
        for partition, offset in self.gate.take().items():
            before = self.committed[partition].offset if partition in self.committed else 0
            assert offset.offset >= before, "a committed offset went down"
            says = DoneOffsets.of_text(unpack(offset.metadata).done, offset.offset)
            every = np.arange(RECORDS, dtype=np.int64)
            told = [*range(offset.offset), *every[says.has(every, 1)].tolist()]
            assert all((partition, each) in self.done for each in told), "committed what is not done"
            self.committed[partition] = offset
        self.gate.finished(dict.fromkeys(self.partitions))
        done = [
            replace(e, partition=source(e.partition))
            for e in entries
            if e.partition not in refused and self.gate.is_committed(e)
        ]
        return CommitReply(request.sequence, done, [source(each) for each in refused], [])

    def begins(self, records) -> None:
        for partition, offset in records:
            self.called[partition, offset] += 1
            key = key_of(partition, offset)
            if self.by_key and key is not None:
                self.running[partition, key] += 1
                assert self.running[partition, key] == 1, "two calls of one key at once"

    def ends(self, records, *, done: bool = False) -> None:
        for partition, offset in records:
            if done:
                self.done.add((partition, offset))
            if self.by_key and (key := key_of(partition, offset)) is not None:
                self.running[partition, key] -= 1

    def step(self) -> None:
        choice = self.rng.random()
        workers = list(self.workers.values())
        self.now += 0.05
        if choice < 0.4 and self.mail:
            self.deliver()
        elif workers:
            self.act(self.rng.choice(workers), choice)

    def act(self, worker: SimulatedWorker, choice: float) -> None:
        if choice < 0.55:
            self.post("coordinator", worker.report())
        elif choice < 0.65:
            worker.fetch()
        elif choice < 0.78:
            self.begins(worker.begin_call())
        elif choice < 0.9:
            self.ends(worker.end_call(), done=True)
        else:
            worker.sequence += 1
            self.post("coordinator", CommitRequest(worker.name, worker.sequence, worker.entries()))

    def settle(self) -> None:
        """No more losses or deaths: everything is to be processed and committed."""
        self.loss = 0.0
        for _ in range(400):
            if self.over:
                return
            self.now += 1.0
            for worker in list(self.workers.values()):
                for choice in (0.6, 0.7, 0.85, 0.95, 0.5):
                    self.act(worker, choice)
            while self.mail:
                self.deliver()

    @property
    def over(self) -> bool:
        return {p: o.offset for p, o in self.committed.items()} == dict.fromkeys(self.partitions, RECORDS)


@settings(max_examples=100, deadline=None)
@given(
    seed=st.integers(0, 2**32),
    loss=st.sampled_from([0.0, 0.1, 0.4]),
    joins=st.booleans(),
    kills=st.booleans(),
    replacements=st.booleans(),
    by_key=st.booleans(),
)
def test_what_is_committed_is_done_whatever_is_dealt_anew(seed, loss, joins, kills, replacements, by_key):
    rng = random.Random(seed)
    simulation = Simulation(rng, loss, by_key)
    for number in range(5):
        simulation.join(f"worker-{number}.1")
    for number in range(600):
        simulation.step()
        if joins and number % 100 == 50:
            simulation.join(f"worker-{number}.1")
        if kills and number % 90 == 80 and len(simulation.workers) > 1:
            simulation.kill(rng.choice(list(simulation.workers)))
        if replacements and rng.random() < 0.01:
            simulation.replace_coordinator()
    simulation.settle()

    assert simulation.over
    assert set(simulation.called) == {(p, o) for p in simulation.partitions for o in range(RECORDS)}
    if not (loss or kills or replacements):
        assert simulation.most_parts > 1
    if not (kills or replacements):
        assert max(simulation.called.values()) == 1, "where nobody dies nothing comes twice"
