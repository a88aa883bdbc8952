"""A job that grows, shrinks and pauses under load: nothing comes twice, and the group never notices."""

import time

import pytest
from jobs.journal import until

pytestmark = [pytest.mark.ray, pytest.mark.kafka, pytest.mark.alone, pytest.mark.timeout(300)]


def test_workers_2_to_6_to_3_under_load_repeat_nothing(scene):
    scene.start(workers=2)
    scene.under_load()
    scene.spread(2)
    generation = scene.status().group.generation
    for workers in (6, 3):
        before = scene.owners()
        scene.running.scale(workers)
        scene.spread(workers, 60)
        scene.flowing()
        after = scene.owners()
        moved = [p for p in after if before[p] != after[p]]
        print(f"{len(moved)} of 12 partitions moved for {workers} workers")
        assert len(moved) <= {6: 8, 3: 6}[workers], "more than had to"
        until(lambda n=workers: len(scene.pids("worker")) == n, 20, "the retired workers' ends")
    assert scene.status().group.generation == generation
    duplicates = scene.settle()
    assert duplicates.total() == 0
    assert {e.pid for e in scene.journal.entries()} > scene.worker_pids()


def test_a_number_without_room_is_given_up_and_the_job_goes_on_with_the_workers_it_has(scene):
    scene.start(workers=2, resources_per_worker={"num_cpus": 2}, config={"start_timeout_s": 12})
    scene.under_load()
    scene.spread(2)
    pids = scene.worker_pids()
    scene.running.scale(3)
    assert scene.status().scaling.workers == 3
    until(lambda: scene.status().scaling.workers == 2, 30, "two workers again")
    change = scene.status().scaling.changes[-1]
    assert (change.before, change.after) == (3, 2)
    assert change.reason.startswith("no room for 3 workers within 12 s: worker-2 needs num_cpus=2; ")
    scene.flowing()
    assert scene.status().state == "running"
    assert scene.worker_pids() == pids
    assert scene.settle().total() == 0


def test_a_paused_job_calls_nothing_and_keeps_its_partitions(scene):
    scene.start(workers=2)
    scene.under_load()
    scene.flowing()
    generation, owners = scene.status().group.generation, scene.owners()
    scene.running.pause()
    assert scene.status().state == "paused"
    time.sleep(1.5)  # orders reach a worker within half a second
    paused = time.monotonic()
    time.sleep(4)
    assert not [e for e in scene.journal.entries() if e.at > paused]
    assert scene.owners() == owners
    scene.running.resume()
    scene.flowing()
    assert scene.status().state == "running"
    assert scene.status().group.generation == generation
    assert scene.settle().total() == 0
