"""What a worker sends in which order: a dead letter is acknowledged before the offset behind its record is committed."""

import asyncio
import threading
from functools import partial

import pytest
from fakes.loop import turns
from fakes.records import records

import kafka_actors as ka
from kafka_actors.actors.messages import CommitReply, Grant, Orders
from kafka_actors.actors.outputs import OutputsSpec
from kafka_actors.actors.process import ProcessSpec
from kafka_actors.actors.worker import Worker
from kafka_actors.config import JobConfig, build
from kafka_actors.fetch import FetchedBytes, Standing
from kafka_actors.fetch.machines.buffer import Slice
from kafka_actors.fetch.messages import Fetched
from kafka_actors.protocol.types import TopicPartition
from kafka_actors.ray.process import Plan, process_of
from kafka_actors.records import Chunk

P3, EPOCH = TopicPartition("orders", 3), (1, 1)
FIRST, END = 100, 103
MANY = 200
"""Turns of the loop: more than a commit takes that waits for nothing."""


def refuse(batch):
    raise ValueError("no good")


def job():
    return ProcessSpec(refuse, "batch", 0, "dead_letter", OutputsSpec(None, "dead"))


def pipeline():
    read = ka.Pipeline.read_kafka("orders", group_id="g", bootstrap_servers="localhost:9092")
    made = (
        read.decode_json("id BIGINT", on_error="dead_letter").write(lambda batch: None).dead_letters("dead")
    )
    return ProcessSpec(process_of(Plan(made, "g")), "batch", 0, "fail")


class Letters:
    """In place of `DeadLetters`, with brokers that keep an acknowledgement back until the test lets them send it."""

    def __init__(self, scene, config, topic, group):
        self.scene, self.topic = scene, topic

    def write(self, rows, stages, reasons):
        self.scene.happens(f"{rows.num_rows} dead letters sent")

    def flush(self):
        self.scene.happens("acknowledgement awaited")
        assert self.scene.answer.wait(10)
        if self.scene.error is not None:
            raise self.scene.error
        self.scene.happens("acknowledged")

    def close(self):
        pass


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
        here = Fetched(*P3, start.epoch, FIRST, END)
        self._waiting.append(FetchedBytes(P3, [Slice(memoryview(b""), here, None)]))
        self._on_ready()

    def drain(self, partitions):
        pass

    def revoke(self, partitions):
        pass

    def standings(self, partitions):
        return {partition: Standing(FIRST, END, "") for partition in partitions}

    def take(self):
        return self._waiting.pop() if self._waiting else None

    def take_more(self):
        return None

    def take_newcomer(self):
        return None

    def unpack(self, item):
        return iter(())

    def decode(self, item, unpacked):
        yield Chunk(records([b"no", b"order", b"at all"]), END, 0)

    def consumed(self, item):
        pass


class Scene:
    """A worker that holds one partition, up to its end, and what happens around it in turn. It is its own coordinator."""

    def __init__(self, spec):
        self.seen, self.error, self.failed = [], None, False
        self.answer = threading.Event()
        self._loop, self._news = asyncio.get_running_loop(), asyncio.Event()
        self._given = False
        self.worker = Worker(
            "w",
            spec,
            build(JobConfig, group_id="g", bootstrap_servers="localhost:9092"),
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
        async with asyncio.timeout(10):
            while what not in self.seen:
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


@pytest.fixture(params=[job, pipeline], ids=["job", "pipeline"])
def play(request, monkeypatch):
    """`play(steps)`: runs `await steps(scene)` beside a worker that has started."""

    async def played(steps):
        scene = Scene(request.param())
        for module in ("kafka_actors.sinks.dead_letters", "kafka_actors.ray.process"):
            monkeypatch.setattr(f"{module}.DeadLetters", partial(Letters, scene))
        await scene.worker.start()
        try:
            await steps(scene)
        finally:
            scene.answer.set()
            await scene.worker.close()

    return lambda steps: asyncio.run(played(steps))


def test_nothing_is_committed_until_the_dead_letters_are_acknowledged(play):
    async def steps(scene):
        await scene.until("acknowledgement awaited")
        await turns(MANY)
        assert scene.seen == ["3 dead letters sent", "acknowledgement awaited"]
        scene.answer.set()
        await scene.until("committed [103]")
        assert scene.seen[2:] == ["acknowledged", "committed [103]"]

    play(steps)


def test_dead_letters_that_the_brokers_refuse_end_the_worker_and_nothing_is_ever_committed(play):
    async def steps(scene):
        await scene.until("acknowledgement awaited")
        scene.error = OSError("not written")
        scene.answer.set()
        await scene.until("failed")
        await turns(MANY)
        assert scene.seen == ["3 dead letters sent", "acknowledgement awaited", "failed"]

    play(steps)
