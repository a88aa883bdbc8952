"""One partition's call does not return: the others go on, whatever waits behind it, and a restart repeats nothing of it."""

import asyncio
import time

import pytest
from jobs.journal import Recorder, until

from kafka_actors.protocol.types import TopicPartition

pytestmark = [pytest.mark.ray, pytest.mark.kafka, pytest.mark.alone, pytest.mark.timeout(300)]

BLOCKED_S = 20.0
BEHIND = 40_000
"""So many records of 1 KB wait behind the blocked one: five times what the worker may keep."""


def test_theme_35_behind_a_call_that_does_not_return_only_its_partition_waits(scene, produce, tmp_path):
    directory, released = str(scene.journal.directory), tmp_path / "released"

    class Blocking(Recorder):
        """Partition 0 waits for a file; a call is in the journal once it is done."""

        def __init__(self):
            super().__init__(directory)

        async def __call__(self, batch):
            while batch["partition"][0].as_py() == 0 and not released.exists():  # noqa: ASYNC110  another process
                await asyncio.sleep(0.05)
            super().__call__(batch)

    blocked = TopicPartition(scene.topic, 0)
    others = set(scene.partitions) - {blocked}
    servers = scene.cluster.bootstrap_servers
    produce(scene.topic, [b"x" * 1000] * BEHIND, partition=0, bootstrap_servers=servers)
    scene.start(workers=1, process=Blocking, config={"worker_buffer_bytes": 8 << 20})
    scene.under_load()
    scene.flowing(partitions=others)
    at, before = time.monotonic(), scene.committed()
    until(lambda: time.monotonic() > at + BLOCKED_S, BLOCKED_S + 1, "time to pass")
    pause = max(scene.journal.longest_pause(p, at, at + BLOCKED_S) for p in others)
    committed = scene.committed()
    print(f"longest pause of another partition {pause:.2f} s")
    assert all(committed[p] > before.get(p, 0) for p in others)
    assert committed.get(blocked, 0) == 0
    assert not [e for e in scene.journal.entries() if e.partition == blocked]

    scene.kill(min(scene.pids("worker")))
    scene.flowing(partitions=others)
    assert scene.committed().get(blocked, 0) == 0
    released.touch()
    scene.flowing()
    duplicates = scene.settle()
    assert duplicates[blocked] == 0, "what was in hand was never processed before"
    assert pause <= 2.0
