"""Ray's GCS, which knows of all actors, stops or dies under a job: the job needs it only to start actors."""

import os
import signal
import time
from collections import Counter, defaultdict
from contextlib import closing

import pytest
from jobs.audit import lowered
from jobs.driver import exists
from jobs.head import STORED, Head
from jobs.scene import Scene
from waiting import until

pytestmark = [pytest.mark.ray, pytest.mark.kafka]

slow = pytest.mark.slow

WITHOUT_S = 8.0
"""So long every partition is looked at without a GCS. The promise is that none stands for more than two."""


@pytest.fixture
def stage(kafka_cluster_3, kafka_topic, group_id, tmp_path):
    """A scene for drivers on a Ray of their own."""
    topic = kafka_topic(12, cluster=kafka_cluster_3, replication_factor=3)
    with closing(Scene(kafka_cluster_3, topic, 12, group_id, tmp_path)) as made:
        yield made


def ended_well(scene, driver):
    """SIGTERM ends it; nothing is lost, and no more comes twice than the faults allow."""
    driver.send(signal.SIGTERM)
    assert driver.wait(30) == 0, "".join(driver.complained)[-3000:]
    scene.load.stop()
    counts = scene.journal.counts()
    assert scene.committed() == {p: max(c) + 1 for p, c in counts.items()}
    assert scene.missing(scene.committed()) == {}
    assert lowered(scene.cluster.bootstrap_servers, scene.group) == {}
    assert Counter(scene.journal.duplicates()) <= scene.allowed_duplicates()


def watched(scene, at):
    """The longest time for which a partition stood, from `at` on."""
    until(lambda: time.monotonic() > at + WITHOUT_S, WITHOUT_S + 1, "time to pass")
    return max(scene.journal.longest_pause(p, at, at + WITHOUT_S) for p in scene.partitions)


def one_owner_each(scene, seconds=3.0):
    """Soon, when the worker in the dead one's place has got its share, all records of so long, of every partition, are processed by
    one worker."""
    begun = time.monotonic()

    def settled():
        since = time.monotonic() - seconds
        owners = defaultdict(set)
        for entry in scene.journal.entries():
            if entry.at > since:
                owners[entry.partition].add(entry.pid)
        return since > begun and {len(owners[p]) for p in scene.partitions} == {1}

    until(settled, 30, "one worker for each partition", pause=0.5)


@pytest.mark.parametrize("fault", ["kill", pytest.param("stop", marks=slow)])
def test_a_job_goes_on_without_a_gcs_and_replaces_actors_when_it_is_back(stage, fault, tmp_path):
    scene = stage
    with closing(Head(tmp_path, STORED)) as head:
        driver = scene.driver(
            workers=3, variables=head.variables, config={"drain_timeout_ms": 20_000}
        ).started()
        scene.under_load()
        scene.flowing()
        generation, before = scene.cluster.generations(scene.group)[-1], scene.committed()
        at = time.monotonic()
        head.kill_gcs() if fault == "kill" else head.stop_gcs()
        pause = watched(scene, at)
        until(
            lambda: all(scene.committed()[p] > o for p, o in before.items()),
            30,
            "commits of each partition without a GCS",
            shown=lambda: (before, scene.committed()),
        )
        print(f"{fault}: longest pause {pause:.2f} s")

        dead = {min(driver.workers()), driver.actors["coordinator.1"]}
        for pid in dead:
            scene.forgive(pid)
            os.kill(pid, signal.SIGKILL)
        time.sleep(3)
        back = time.monotonic()
        head.start_gcs() if fault == "kill" else head.continue_gcs()
        scene.flowing(90)
        print(f"everything flows {time.monotonic() - back:.1f} s after the GCS is back")
        until(lambda: len(head.actors("WorkerActor")) == 3, 60, "as many workers as before")
        assert len(head.actors("CoordinatorActor")) == 1
        scene.flowing()
        until(
            lambda: len({e.pid for e in scene.journal.entries()}) >= 4, 60, "calls in the dead worker's place"
        )
        one_owner_each(scene)
        assert len({e.pid for e in scene.journal.entries()}) == 4, "no worker was replaced but the dead one"
        assert scene.cluster.generations(scene.group)[-1] == generation
        ended_well(scene, driver)
    assert pause <= 2.0


@slow
def test_a_job_whose_gcs_is_gone_for_good_ends_and_the_next_goes_on(stage, tmp_path):
    scene = stage
    soon = {"RAY_gcs_rpc_server_reconnect_timeout_s": "5"}  # Ray's own is 60
    with closing(Head(tmp_path, soon)) as head:
        driver = scene.driver(workers=2, variables=head.variables).started()
        scene.under_load()
        scene.flowing()
        for pid in driver.workers():
            scene.forgive(pid)
        at = time.monotonic()
        head.kill_gcs()
        code = driver.wait(60)
        until(lambda: not driver.left(), 30, "the end of all actors")
        print(f"the driver ended with {code} and all actors, {time.monotonic() - at:.1f} s after the GCS")
        assert code != 0
    assert not any(exists(pid) for pid in driver.actors.values())
    with closing(Head(tmp_path, {})) as head:
        driver = scene.driver(
            workers=2, variables=head.variables, config={"drain_timeout_ms": 20_000}
        ).started()
        scene.flowing(60)
        one_owner_each(scene)
        ended_well(scene, driver)
