"""What a worker sends in which order: a dead letter is acknowledged before the offset behind its record is committed."""

import asyncio
import threading
from functools import partial

import pyarrow as pa
import pytest
from fakes.loop import in_loop, turns
from fakes.worker import END, FIRST, MANY, Scene
from waiting import slow_s

import kafka_actors as ka
from kafka_actors.group.done_offsets import DoneOffsets
from kafka_actors.job.messages import CommitReply
from kafka_actors.job.worker.outputs import OutputsSpec
from kafka_actors.job.worker.user_function import FunctionSpec
from kafka_actors.ray.engine.pipeline_function import PipelinePlan, function_of


def refuse(batch):
    raise ValueError("no good")


def job():
    return FunctionSpec(refuse, "batch", 0, "dead_letter", OutputsSpec((), "dead"))


def pipeline():
    read = ka.Pipeline.read_kafka("orders", group_id="g", bootstrap_servers="localhost:9092")
    made = (
        read.decode_json("id BIGINT", on_error="dead_letter").write(lambda batch: None).dead_letters("dead")
    )
    return FunctionSpec(function_of(PipelinePlan(made, "g")), "batch", 0, "fail")


class FakeDeadLetters:
    """In place of `DeadLetters`, with brokers that keep an acknowledgement back until the test lets them send it."""

    def __init__(self, scene, config, topic, group, slot=None):
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


@pytest.fixture(params=[job, pipeline], ids=["job", "pipeline"])
def play(request, monkeypatch):
    """`play(steps)`: runs `await steps(scene)` beside a worker that has started."""

    async def played(steps):
        scene = Scene(request.param())
        for module in ("kafka_actors.sinks.dead_letters", "kafka_actors.ray.engine.pipeline_function"):
            monkeypatch.setattr(f"{module}.DeadLetters", partial(FakeDeadLetters, scene))
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


class Holding:
    """A sink whose rows are stored when the test lets a flush end."""

    scene = None

    def open(self, connection):
        return self

    def write(self, batch, origin):
        self.scene.happens(f"written {origin.first_offset}")

    def flush(self):
        self.scene.happens("flush begun")
        assert self.scene.answer.wait(slow_s(10))
        self.scene.happens("flushed")

    def close(self):
        pass


class KeyScene(Scene):
    """A scene whose commits show what is done beyond the offset."""

    async def commit(self, request):
        for entry in request.entries:
            beyond = DoneOffsets.of_text(entry.done, entry.offset).ranges.tolist() if entry.done else []
            self.happens(f"committed {entry.offset} and {beyond}")
        return CommitReply(request.sequence, request.entries, [], [])


@in_loop
async def test_what_is_done_beyond_the_offset_is_committed_when_its_results_are_flushed():
    gate, sink = threading.Event(), Holding()

    def score(message):
        if message.offset == FIRST:
            assert gate.wait(slow_s(10))
        return pa.record_batch({"value": [message.value]})

    spec = FunctionSpec(score, "message", 0, "fail", OutputsSpec((sink,)))
    scene = sink.scene = KeyScene(spec, ordering="key", concurrency=3, auto_commit_interval_ms=5)
    await scene.worker.start()
    await scene.until("flush begun")
    await turns(MANY)
    assert not any("[[" in what for what in scene.seen), "what the sink only holds is not done"
    scene.answer.set()
    everything = f"committed {FIRST} and [[{FIRST + 1}, {END}]]"
    await scene.until(everything)
    until = scene.seen.index(everything)
    last_write = max(n for n, what in enumerate(scene.seen[:until]) if what.startswith("written"))
    assert "flushed" in scene.seen[last_write:until]
    gate.set()
    await scene.until(f"committed {END} and []")
    await scene.worker.close()
