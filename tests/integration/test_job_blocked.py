"""An async function whose call on one partition waits for long: the others go on, and little comes again after a restart."""

import asyncio

import pytest
from jobs.journal import Recorder
from waiting import until

from kafka_actors.types import TopicPartition

pytestmark = [pytest.mark.ray, pytest.mark.kafka]

EACH, VALUE = 2_000, b"x" * 1_000


def test_a_call_that_waits_for_long_holds_up_its_own_partition_alone(scene_3, produce):
    """2 MB in each partition, of which the buffers have room for 1 MB a broker."""
    scene = scene_3
    produce(
        scene.topic,
        [VALUE] * (12 * EACH),
        partition=[n % 12 for n in range(12 * EACH)],
        bootstrap_servers=scene.cluster.bootstrap_servers,
    )
    waiting = TopicPartition(scene.topic, 0)
    directory = str(scene.journal.directory)

    class Waiting(Recorder):
        def __init__(self):
            super().__init__(directory)

        async def __call__(self, batch):
            super().__call__(batch)
            if batch["partition"][0].as_py() == 0:
                await asyncio.sleep(600)

    running = scene.start(
        workers=1, process=Waiting, config={"worker_buffer_bytes": 6 * 2**20, "drain_timeout_ms": 1000}
    )
    others = {p: end for p, end in scene.ends().items() if p != waiting}
    try:
        until(
            lambda: {p: offset for p, offset in scene.committed().items() if p in others} == others,
            60,
            "the other partitions committed to their ends",
            pause=0.5,
        )
    except AssertionError as error:
        error.add_note("\n".join(str(partition) for partition in scene.status().partitions))
        raise
    handed = [len(entry.offsets) for entry in scene.journal.entries() if entry.partition == waiting]
    assert len(handed) == 1, "one call at a time"
    (pid,) = scene.worker_pids()
    scene.forgive(pid)
    running.stop()
    assert scene.committed().get(waiting, 0) == 0

    scene.start(workers=1)
    assert scene.settle() == {waiting: handed[0]}, "what was in hand comes again, and nothing else"
