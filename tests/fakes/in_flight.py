"""Concurrent calls of one worker over fetched records that a test hands out, without Ray and without brokers."""

from __future__ import annotations

import threading

import pyarrow as pa

from kafka_actors.config import JobConfig, build
from kafka_actors.fetch import FetchedBytes
from kafka_actors.fetch.machines.buffer import PartitionSlice
from kafka_actors.fetch.messages import FetchedPartition
from kafka_actors.job.machines.lease import Lease
from kafka_actors.job.messages import CommitReply, Drain, Grant, Orders
from kafka_actors.job.retry_topics import RetryTiers
from kafka_actors.job.worker.concurrent_calls import ConcurrentCalls
from kafka_actors.job.worker.machines.worker_assignment import WorkerAssignment
from kafka_actors.job.worker.outputs import OutputsSpec
from kafka_actors.job.worker.user_function import FunctionSpec, UserFunction
from kafka_actors.records import Chunk
from kafka_actors.types import TopicPartition

P0, P1 = TopicPartition("t", 0), TopicPartition("t", 1)
EPOCH = (1, 1)


def batch(partition, first, keys):
    size = len(keys)
    return pa.record_batch(
        {
            "key": pa.array([None if k is None else k.encode() for k in keys], pa.binary()),
            "value": pa.array([b"v"] * size, pa.binary()),
            "topic": ["t"] * size,
            "partition": pa.array([partition] * size, pa.int32()),
            "offset": pa.array(range(first, first + size), pa.int64()),
            "timestamp": pa.array([1_700_000_000_000_000] * size, pa.timestamp("us", tz="UTC")),
            "timestampType": pa.array([0] * size, pa.int32()),
            "headers": pa.nulls(size, pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))),
        }
    )


class Reader:
    """Hands out what was `put`: chunks of one key for each record. It keeps to what was paused."""

    def __init__(self):
        self.items, self.paused, self.position = [], set(), {}

    def put(self, partition, first, *chunks, epoch=EPOCH, leader_epoch=3):
        end = first + sum(map(len, chunks))
        here = FetchedPartition(*partition, epoch, first, end)
        item = FetchedBytes(partition, [PartitionSlice(memoryview(b""), here, None)])
        self.items.append([item, list(chunks), first, leader_epoch])

    def take(self):
        for entry in self.items:
            if entry[0].partition not in self.paused:
                self.items.remove(entry)
                self.taken = entry
                return entry[0]
        return None

    def unpack(self, item, chunk_bytes=1 << 30):
        entry = self.taken
        while entry[1]:
            keys = entry[1].pop(0)
            rows = self.batch(item.partition.partition, entry[2], keys)
            fit = max(1, chunk_bytes * len(keys) // rows.nbytes)
            if fit < len(keys):
                rows = rows.slice(0, fit)
                entry[1].insert(0, keys[fit:])
            entry[2] += rows.num_rows
            yield Chunk(rows, entry[2], entry[3])

    def batch(self, partition, first, keys):
        return batch(partition, first, keys)

    def decode(self, item, unpacked):
        yield from unpacked or self.unpack(item)

    def position_epoch(self, tp):
        return self.taken[3]  # as if the records before had the same

    def consumed(self, item, next_offset=None):
        self.position[item.partition] = next_offset or item.next_offset

    def put_back(self, partition):
        if self.taken[1]:
            item, chunks, first, leader_epoch = self.taken
            self.items.insert(0, [item, chunks, first, leader_epoch])

    def pause(self, partitions):
        self.paused |= set(partitions)

    def resume(self, partitions):
        self.paused -= set(partitions)


class Idle:
    """Callers that make no calls by themselves: the test does."""

    def __init__(self, calls):
        self.woken = 0

    def run(self): ...

    def wake(self):
        self.woken += 1

    def wake_callers(self, ready): ...


class Flight:
    """A worker's concurrent calls on two partitions. The clock stands unless a test moves it."""

    def __init__(
        self,
        target=lambda message: None,
        *,
        ordering="key",
        concurrency=4,
        unit="message",
        retries=0,
        on_error="fail",
        dead_letter_topic=None,
        make_callers=Idle,
        grants=None,
        tiers=RetryTiers(),  # noqa: B008  a frozen value
        reader=None,
        **options,
    ):
        self.now, self.reader, self.events, self.ends, self.failures = 100.0, reader or Reader(), [], 0, []
        self.assignment, self.lease, self.lock = WorkerAssignment(), Lease(), threading.Lock()
        self.lease.renew(self.now, 60.0)
        outputs = OutputsSpec((), dead_letter_topic, tiers=tiers)
        self.function = UserFunction(FunctionSpec(target, unit, retries, on_error, outputs))
        self.function._made = target
        self.calls = ConcurrentCalls(
            self.function,
            self.assignment,
            self.lease,
            self.reader,
            build(
                JobConfig,
                group_id="g",
                bootstrap_servers="localhost:9092",
                ordering=ordering,
                concurrency=concurrency,
                **options,
            ),
            make_callers,
            lock=self.lock,
            events=self.events.append,
            on_progress=self.progress,
            on_failure=self.failures.append,
            clock=lambda: self.now,
            wall=self.wall,
        )
        self.order(grants or [Grant(p, EPOCH) for p in (P0, P1)])

    def wall(self):
        return 1_700_000_000.0

    def progress(self, ended):
        self.ends += ended

    def order(self, grants, draining=()):
        seen = self.assignment.seen
        return self.assignment.apply(Orders((1, seen[1] + 1), list(grants), list(draining), 60.0))

    def drain(self, partition):
        self.order([Grant(p, EPOCH) for p in (P0, P1) if p != partition], [Drain(partition, EPOCH)])

    def admit(self):
        while self.calls.admit_some():
            pass

    def take_all(self):
        found = {}
        while (call := self.calls.take()) is not None:
            found[call.first] = call
        return found

    def processed(self, partition=P0):
        return self.assignment.held[partition].processed

    def entries(self):
        with self.lock:
            self.calls.note_done()
            return self.assignment.commits()

    def commit(self):
        """Commits all that is to be committed; returns the entries."""
        entries = self.entries()
        self.assignment.committed(CommitReply(1, entries, [], []))
        return entries
