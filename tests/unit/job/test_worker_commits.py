"""What a worker sends in which order: a dead letter is acknowledged before the offset behind its record is committed."""

import asyncio
from functools import partial

import pytest
from fakes.loop import turns
from fakes.worker import MANY, Scene

import kafka_actors as ka
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
