"""Actors that are stopped (SIGSTOP): Ray does not notice, the supervisor does. Workers are among the faults of test_job_kills.py."""

import os
import signal
import time

import pytest
from jobs.faults import keep_alive, stop_actor
from pace import this_run
from waiting import suspend, until

pytestmark = [pytest.mark.ray, pytest.mark.kafka]


@pytest.fixture
def scene(scene_3):
    """On three brokers."""
    return scene_3


slow = pytest.mark.slow


@slow
@pytest.mark.parametrize("kind", ["connection", "coordinator", "metadata"])
def test_every_partition_goes_on_within_six_seconds_of_the_stop_of_an_actor(scene, kind):
    scene.start(workers=4)
    scene.under_load()
    scene.flowing()
    stop_actor(scene, kind)
    assert scene.settle().total() == 0


@slow
def test_workers_stop_by_themselves_before_another_member_starts_on_their_partitions(scene):
    session = 6.0
    driver = scene.driver(
        workers=2, config={"session_timeout_ms": int(session * 1000), "heartbeat_interval_ms": 500}
    ).started()
    scene.under_load()
    scene.flowing()
    frozen = [driver.pid, driver.actors["coordinator.1"]]
    scene.stopped.update(frozen)
    at = suspend(*frozen)
    other = scene.foreign("cooperative-sticky")
    until(lambda: other.first_assigned_at, 60, "the other member to be given the partitions", pause=0.01)
    until(lambda: set(scene.partitions) <= other.seen.keys(), 30, "the other member to work on all of them")
    last = max(e.at for e in scene.journal.entries() if e.at < other.first_assigned_at + 5)
    assert not [e for e in scene.journal.entries() if e.at > other.first_assigned_at]
    print(f"last call {last - at:.2f} s, other member {other.first_assigned_at - at:.2f} s after the freeze")
    assert last - at > session / 3, "they worked on as long as their lease held"
    for pid in frozen:
        scene.thaw(pid)
    other.leave()
    scene.flowing(60)
    driver.send(signal.SIGTERM)
    assert driver.wait(30) == 0
    scene.load.stop()
    assert scene.missing(scene.committed()) == {}


@slow
def test_a_rebalance_waits_for_no_frozen_worker(scene):
    """Another member joins while a worker is stopped: what the worker held goes to it after the drain timeout."""
    scene.start(workers=2, config={"drain_timeout_ms": 3000})
    scene.under_load()
    scene.spread(2)
    scene.flowing()
    victim = "worker-0.1"
    partitions = scene.owned_by(victim)
    pid = scene.pids()[victim]
    keep_alive(scene.running, lambda other: other == pid)
    _, at = scene.freeze(victim)
    other = scene.foreign("cooperative-sticky")
    until(lambda: len(other.assigned) == 6, 30, "the other member's share")
    took = this_run().quiet_s(at, time.monotonic())
    print(
        f"its share after {took:.1f} s, {len(partitions & other.assigned)} partitions of the frozen worker in it"
    )
    scene.thaw(pid)
    ours = set(scene.partitions) - other.assigned
    scene.flowing(partitions=ours)

    def calls_of_the_last_second() -> bool:
        return any(e.pid == pid and e.at > time.monotonic() - 1 for e in scene.journal.entries())

    # What it had fetched it goes on with until it hears that the partitions are not its own any more; nothing of that is committed.
    until(lambda: not calls_of_the_last_second(), 10, "the end of the thawed worker's calls")
    since = time.monotonic()
    scene.flowing(partitions=ours)
    assert not [e for e in scene.journal.entries() if e.at > since and e.partition in other.assigned]
    other.leave()
    os.kill(pid, signal.SIGKILL)
    scene.flowing()
    scene.settle()
    assert took <= 12
