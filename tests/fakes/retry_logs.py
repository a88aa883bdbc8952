"""A worker's concurrent calls over a source partition and its retry partitions, whose logs are in memory: what is written there is read
again. Without Ray and without brokers."""

from __future__ import annotations

from collections import defaultdict

import pyarrow as pa

from kafka_actors.base.batches import SCHEMA
from kafka_actors.errors import UsageError
from kafka_actors.fetch import FetchedBytes
from kafka_actors.fetch.machines.buffer import PartitionSlice
from kafka_actors.fetch.messages import FetchedPartition
from kafka_actors.job.messages import CommitReply, Grant
from kafka_actors.job.retry_topics import RetryTopics
from kafka_actors.job.worker.user_function import CallFailed
from kafka_actors.producer.futures import BatchMetadata, OffsetRange
from kafka_actors.records import Chunk
from kafka_actors.sinks.dead_letters import retry_records
from kafka_actors.types import TopicPartition

from .in_flight import EPOCH, Flight

__all__ = ["NOW_S", "SOURCE", "TIERS", "Logs", "RetryFlight", "failure"]

NOW_S = 1_700_000_000.0
SOURCE = TopicPartition("t", 0)
TIERS = RetryTopics("t-retry", delays=("10s", "1m"), dead_letter_topic="t-dead").tiers("t", ordering="key")
FIRST, SECOND = (TopicPartition(topic, 0) for topic in TIERS.topics)
LEADER_EPOCH = 3


def failure(call, error="no good"):
    """The failure of a call, as the user's function tells it: by the offsets of its records."""
    offsets = call.batch["offset"].to_pylist()
    return CallFailed(ValueError(error), offsets[0], offsets[-1])


class Written:
    """The outcome of what was written, to come."""

    def __init__(self):
        self.failure, self.ranges, self.callbacks = None, [], []

    def add_done_callback(self, callback):
        self.callbacks.append(callback)

    def result(self):
        return BatchMetadata(0, {FIRST: [OffsetRange(first, 1) for first in self.ranges]})

    def told(self):
        for callback in self.callbacks:
            callback(self)


class Logs:
    """The logs of all partitions of number 0, and what is on its way to them. `dead`: offsets in the source of dead letters."""

    def __init__(self, keys=""):
        self.rows = defaultdict(list)
        self.dead = []
        for key in keys:
            self.append(SOURCE, key)

    def append(self, partition, key, headers=None, value=None):
        offset = len(self.rows[partition])
        self.rows[partition].append(
            {
                "key": None if key in (None, "-") else key.encode() if isinstance(key, str) else key,
                "value": value or b"%d" % offset,
                "topic": partition.topic,
                "partition": partition.partition,
                "offset": offset,
                "timestamp": int(NOW_S * 1e6),
                "timestampType": 0,
                "headers": headers,
            }
        )
        return offset

    def batch(self, partition, first, size):
        rows = self.rows[partition][first : first + size]
        return pa.RecordBatch.from_pylist(rows, schema=SCHEMA)

    def end(self, partition):
        return len(self.rows[partition])


class Reader:
    """Hands out the logs, a few records at a time, as a fetcher does."""

    def __init__(self, logs, size=4):
        self.logs, self.size = logs, size
        self.positions, self.paused, self.ahead, self.ends = {}, set(), {}, {}
        self.turn = 0

    def assign(self, starts, ends):
        """Takes where each partition begins, and where reading of it ends: None for nowhere."""
        self.positions, self.paused, self.ahead, self.ends = dict(starts), set(), dict(starts), dict(ends)

    def _end(self, partition):
        end, bound = self.logs.end(partition), self.ends[partition]
        return end if bound is None else min(end, bound)

    def take(self):
        self.turn += 1
        names = sorted(self.positions)
        for partition in names[self.turn % len(names) :] + names[: self.turn % len(names)]:
            first, end = self.ahead[partition], self._end(partition)
            if partition in self.paused or first >= end:
                continue
            behind = min(end, first + self.size)
            self.ahead[partition] = behind
            here = FetchedPartition(*partition, EPOCH, first, behind)
            return FetchedBytes(partition, [PartitionSlice(memoryview(b""), here, None)])
        return None

    def decode(self, item, unpacked):
        yield from unpacked or self.unpack(item)

    def unpack(self, item, chunk_bytes=1 << 30):
        first = self.positions[item.partition]
        rows = self.logs.batch(item.partition, first, self.ahead[item.partition] - first)
        yield Chunk(rows, first + rows.num_rows, LEADER_EPOCH)

    def consumed(self, item, next_offset=None):
        self.positions[item.partition] = self.ahead[item.partition] if next_offset is None else next_offset

    def put_back(self, partition):
        self.ahead[partition] = self.positions[partition]

    def pause(self, partitions):
        self._known(partitions)
        self.paused |= set(partitions)

    def resume(self, partitions):
        self._known(partitions)
        self.paused -= set(partitions)

    def _known(self, partitions):
        if not set(partitions) <= set(self.positions):
            raise UsageError("isn't assigned")

    def position(self, tp):
        return self.positions[tp]

    def position_epoch(self, tp):
        return LEADER_EPOCH

    def seek(self, tp, offset, leader_epoch=-1):
        self.positions[tp] = self.ahead[tp] = offset

    def seek_to_end(self, tp):
        self.seek(tp, self.logs.end(tp))


class RetryFlight(Flight):
    """A worker that has the partition, from what is committed on. `written`: what is in the producer's buffer: rows, tier and outcome. The wall
    clock is `at`, in seconds since the start."""

    def __init__(self, logs, committed=None, *, tiers=TIERS, size=4, **options):
        self.logs, self.written, self.at = logs, [], 0.0
        self.committed = {p: Grant(p, EPOCH, 0) for p in tiers.group(SOURCE)} | (committed or {})
        grants = list(self.committed.values())
        super().__init__(
            grants=grants,
            tiers=tiers,
            reader=Reader(logs, size),
            on_error="dead_letter",
            dead_letter_topic="t-dead",
            **options,
        )
        self.reader.assign(
            {grant.partition: grant.offset or 0 for grant in grants},
            {grant.partition: tiers.read_to(grant.partition, grant.end_offset) for grant in grants},
        )
        self.function.outputs.retry_later = self._retry_later
        self.function.outputs.dead_letter = self._dead_letter

    def wall(self):
        return NOW_S + self.at

    def _retry_later(self, records, reasons, tier, attempts, not_before):
        made = retry_records(records, reasons, "g", tier, attempts, not_before)
        self.written.append((made.to_pylist(), tier, outcome := Written()))
        return outcome

    def _dead_letter(self, records, error):
        self.logs.dead += records["offset"].to_pylist()

    def flush(self, most=None, *, tell=True):
        """Has the broker write what is on its way, the first `most` of it, and tell the offsets."""
        now, self.written = self.written[:most], self.written[len(self.written) if most is None else most :]
        for rows, tier, outcome in now:
            partition = TopicPartition(self.function.outputs.tiers.topics[tier - 1], 0)
            outcome.ranges = [
                self.logs.append(partition, row["key"], row["headers"], row["value"]) for row in rows
            ]
            if tell:
                outcome.told()

    def commit(self):
        """Commits as a worker does: what was done before the flush. `committed` is what the next worker is granted."""
        entries = self.entries()
        self.flush()
        self.assignment.committed(CommitReply(1, entries, [], []))
        self.committed |= {
            e.partition: Grant(e.partition, EPOCH, e.offset, e.leader_epoch, done=e.done) for e in entries
        }
        return entries

    def admit(self):
        for _ in range(50):
            if not self.calls.admit_some():
                self.calls.look(1.0)
                if not self.calls.admit_some():
                    return

    def take(self):
        return self.calls.take()

    def offsets(self, call):
        """Offsets in the source of a call's records."""
        return call.batch["offset"].to_pylist()
