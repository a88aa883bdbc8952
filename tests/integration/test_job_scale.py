"""A job that grows, shrinks and pauses under load: nothing comes twice, and the group never notices."""

import time

import pytest
from waiting import until

pytestmark = [pytest.mark.ray, pytest.mark.kafka]

REST_S = 4.0
"""So long nothing is called in a pause, though there are records: without it each partition has a call five times a second."""


def test_one_job_grows_shrinks_and_pauses_and_repeats_nothing(scene):
    """Workers 2 to 6 to 4, then a pause. From 6 to 3 also an assignor that knows no holders would move no more than has to."""
    scene.start(workers=2, config={"drain_timeout_ms": 50_000})
    scene.under_load()
    scene.spread(2)
    generation = scene.status().group.generation
    for workers, most in ((6, 8), (4, 4)):
        before = scene.owners()
        scene.running.scale(workers)
        scene.spread(workers, 60)
        scene.flowing()
        after = scene.owners()
        moved = [p for p in after if before[p] != after[p]]
        print(f"{len(moved)} of 12 partitions moved for {workers} workers")
        assert len(moved) <= most, "more than had to"
        until(lambda n=workers: len(scene.pids("worker")) == n, 20, "the retired workers' ends")
    assert scene.status().group.generation == generation
    assert {e.pid for e in scene.journal.entries()} > scene.worker_pids()
    pauses_and_resumes(scene)
    assert scene.status().group.generation == generation
    assert scene.settle().total() == 0


def pauses_and_resumes(scene):
    """A paused job calls nothing and keeps its partitions."""
    owners = scene.owners()
    scene.running.pause()
    assert scene.status().state == "paused"
    began = time.monotonic()

    def rested():
        """Seconds from the last call to the newest records that each partition has had since."""
        newest = min(times[-1] for times in scene.load.acknowledged_at.values())
        return newest - max(began, *(e.at for e in scene.journal.entries()))

    until(lambda: rested() > REST_S, 30, "an end of all calls", shown=lambda: f"rested {rested():.1f} s")
    assert scene.owners() == owners
    scene.running.resume()
    scene.flowing()
    assert scene.status().state == "running"
