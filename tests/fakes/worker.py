"""A worker of a job without Ray and without brokers, and what happens around it in turn."""

import asyncio
import threading

from fakes.records import records
from waiting import slow_s

from kafka_actors.config import JobConfig, build
from kafka_actors.fetch import FetchedBytes, FetchProgress
from kafka_actors.fetch.machines.buffer import PartitionSlice
from kafka_actors.fetch.messages import FetchedPartition
from kafka_actors.job.messages import CommitReply, Grant, Orders
from kafka_actors.job.worker.worker import Worker
from kafka_actors.records import Chunk
from kafka_actors.types import TopicPartition

P3, EPOCH = TopicPartition("orders", 3), (1, 1)
FIRST, END, LEADER_EPOCH = 100, 103, 4
MANY = 200
"""Turns of the loop: more than a commit takes that waits for nothing."""


class Fetches:
    """A fetcher that has one response as soon as its partition is assigned."""

    def __init__(self, on_ready):
        self._on_ready = on_ready
        self._waiting = []

    async def start(self):
        pass

    async def close(self):
        pass

    def assign(self, starts):
        (start,) = starts.values()
        here = FetchedPartition(*P3, start.epoch, FIRST, END)
        self._waiting.append(FetchedBytes(P3, [PartitionSlice(memoryview(b""), here, None)]))
        self._on_ready()

    def drain(self, partitions):
        pass

    def revoke(self, partitions):
        pass

    def topic_id(self, tp):
        return None

    def position_epoch(self, tp):
        return LEADER_EPOCH

    def progress(self, partitions):
        return {partition: FetchProgress(FIRST, END, "", LEADER_EPOCH) for partition in partitions}

    def take(self):
        return self._waiting.pop() if self._waiting else None

    async def next(self, timeout_s):
        await asyncio.sleep(0)
        return self.take()

    def take_more(self):
        return None

    def take_newcomer(self):
        return None

    def unpack(self, item, chunk_bytes=None):
        return iter(())

    def decode(self, item, unpacked):
        yield Chunk(records([b"no", b"order", b"at all"]), END, 0)

    def consumed(self, item, next_offset=None):
        pass

    def waiting(self):
        return [item.partition for item in self._waiting]

    newcomer = False


class Scene:
    """A worker that holds one partition, up to its end, and what happens around it in turn. It is its own coordinator."""

    def __init__(self, spec, **config):
        self.seen, self.error, self.failed = [], None, False
        self.answer = threading.Event()
        self._loop, self._news = asyncio.get_running_loop(), asyncio.Event()
        self._given = False
        self.worker = Worker(
            "w",
            spec,
            build(JobConfig, group_id="g", bootstrap_servers="localhost:9092", **config),
            self,
            self,
            lambda events, on_ready: Fetches(on_ready),
            on_metadata=lambda snapshot: None,
            events=lambda event: None,
        )

    def happens(self, what):
        """From any thread."""
        self.seen.append(what)
        self._loop.call_soon_threadsafe(self._news.set)

    async def until(self, what):
        await self.until_any(lambda seen: seen == what)

    async def until_any(self, wanted):
        """Waits until something happens of which `wanted` returns true."""
        async with asyncio.timeout(slow_s(10)):
            while not any(map(wanted, self.seen)):
                self._news.clear()
                await self._news.wait()

    async def poll(self, report):
        if report.failed is not None:
            self.happens("failed")
        if self._given:
            await asyncio.Event().wait()
        self._given = True
        return Orders((1, 1), [Grant(P3, EPOCH, FIRST, end_offset=END)], [], 60.0)

    async def commit(self, request):
        self.happens(f"committed {[entry.offset for entry in request.entries]}")
        return CommitReply(request.sequence, request.entries, [], [])

    async def watch(self, known):
        await asyncio.Event().wait()
