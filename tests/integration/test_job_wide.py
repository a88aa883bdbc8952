"""A job of many partitions, few of which have much: each of them is read, whoever is killed and however it is scaled."""

from contextlib import closing

import pytest
from jobs.scene import Scene
from waiting import slow_s, until

pytestmark = [pytest.mark.ray, pytest.mark.kafka, pytest.mark.slow]

EACH = 3


@pytest.fixture
def wide(ray_local, kafka_cluster, kafka_topic, produce, group_id, tmp_path):
    """Makes a scene of so many partitions with a few records each."""
    scenes = []

    def make(partitions):
        topic = kafka_topic(partitions, prefix="wide")
        scene = Scene(kafka_cluster, topic, partitions, group_id, tmp_path)
        scenes.append(scene)
        more(scene)
        return scene

    def more(scene):
        count = len(scene.partitions)
        values = [b"%d" % n for n in range(EACH * count)]
        produce(scene.topic, values, partition=[n % count for n in range(EACH * count)])

    make.more = more
    yield make
    for scene in scenes:
        with closing(scene):
            pass


def test_a_worker_takes_on_600_partitions_that_get_their_first_records_together(wide):
    """With a call within a call for each of them it died of RecursionError at some 490, and so did its replacement."""
    scene = wide(600)
    scene.start(workers=1, until="latest").wait(timeout=slow_s(60))
    assert scene.journal.missing(scene.ends()) == {}
    assert scene.journal.duplicates() == {}
    assert scene.committed() == scene.ends()


@pytest.mark.parametrize("workers", [1, 4])
def test_a_job_over_2000_partitions_is_killed_and_scaled(wide, workers):
    scene = wide(2_000)
    scene.start(workers=workers)
    all_done = lambda: scene.committed() == scene.ends()  # noqa: E731
    until(all_done, 60, "the first records", pause=0.5)
    wide.more(scene)
    scene.kill("worker-0.1")
    until(all_done, 90, "what came while a worker was killed", pause=0.5)
    scene.running.scale(2 * workers)
    wide.more(scene)
    scene.spread(2 * workers, 60)
    until(all_done, 90, "what came while it grew", pause=0.5)
    scene.running.scale(max(1, workers // 2))
    wide.more(scene)
    until(lambda: len(scene.pids("worker")) == max(1, workers // 2), 60, "the retired workers' ends")
    until(all_done, 90, "what came while it shrank", pause=0.5)
    print(scene.settle().total(), "duplicates, of the worker that was killed")
