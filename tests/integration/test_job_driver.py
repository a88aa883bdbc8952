"""A job and its driver's end: SIGKILL leaves nothing behind, SIGTERM commits and leaves, a second one ends at once."""

import signal
import time

import pytest
from pace import this_run
from waiting import until

pytestmark = [pytest.mark.ray, pytest.mark.kafka]

LONG_DRAIN = {"drain_timeout_ms": 20_000}
"""Time enough for calls in hand, also of a worker that stands still for a while; a driver's stop has 30 s in all."""


def test_a_killed_driver_leaves_no_actor_and_the_next_of_its_name_goes_on(scene):
    first = scene.driver(workers=2, name=scene.group).started()
    scene.under_load()
    scene.flowing()
    members = scene.cluster.describe_group(scene.group).members
    assert len(members) == 1
    assert len(first.left()) == len(first.actors), "the control: all of them exist"
    for pid in first.workers():
        scene.forgive(pid)
    at = first.send(signal.SIGKILL)
    second = scene.driver(workers=2, name=scene.group, config=LONG_DRAIN)
    until(lambda: not first.left(), 12, "the end of all actors")
    gone = this_run().quiet_s(at, time.monotonic())
    second.started(60)
    scene.flowing(30)
    took = scene.journal.first_after(at, scene.partitions, second.workers())
    print(f"actors gone after {gone:.1f} s, first calls of the next after {max(took.values()):.1f} s")
    assert gone <= 10
    assert took.keys() == set(scene.partitions)
    assert this_run().quiet_s(at, at + max(took.values())) <= 20
    now = scene.cluster.describe_group(scene.group).members
    assert [m.group_instance_id for m in now] == [m.group_instance_id for m in members]
    second.send(signal.SIGTERM)
    assert second.wait(30) == 0
    scene.load.stop()
    processed = {p: max(c) + 1 for p, c in scene.journal.counts().items()}
    assert scene.committed() == processed
    assert scene.missing(scene.committed()) == {}


def test_sigterm_finishes_commits_leaves_and_exits_with_0(scene):
    driver = scene.driver(workers=2, work=0.3, config=LONG_DRAIN).started()
    scene.under_load()
    scene.flowing()
    at = driver.send(signal.SIGTERM)
    assert driver.wait(20) == 0
    print(f"ended {time.monotonic() - at:.1f} s after SIGTERM")
    processed = {p: max(c) + 1 for p, c in scene.journal.counts().items()}
    assert scene.committed() == processed, "what was in hand was finished and committed"
    assert scene.journal.duplicates() == {}
    assert scene.cluster.describe_group(scene.group).members == []
    until(lambda: not driver.left(), 5, "the end of all actors")


def test_batches_in_hand_have_the_drain_timeout_and_a_second_sigterm_none(scene):
    driver = scene.driver(workers=2, work=600.0, config={"drain_timeout_ms": 3000}).started()
    scene.under_load()
    until(lambda: len({e.pid for e in scene.journal.entries()}) == 2, 30, "a call in hand in each worker")
    at = driver.send(signal.SIGTERM)
    assert driver.wait(20) == 0
    ended = time.monotonic()
    print(f"ended {ended - at:.1f} s after SIGTERM, with calls in hand")
    assert ended - at >= 3
    assert this_run().quiet_s(at, ended) <= 3 + 6
    assert not scene.committed() or max(scene.committed().values()) == 0, "nothing was finished"
    assert scene.cluster.describe_group(scene.group).members == []

    before = len(scene.journal.entries())
    driver = scene.driver(workers=2, work=600.0, config=LONG_DRAIN).started()
    until(lambda: len(scene.journal.entries()) >= before + 2, 30, "a call in hand in each worker")
    driver.send(signal.SIGTERM)
    # Two signals that come before the first one is noticed are one.
    until(lambda: driver.ask()["state"] == "stopping", 10, "the driver to begin its stop")
    at = driver.send(signal.SIGTERM)
    assert driver.wait(10) == -signal.SIGTERM
    took = this_run().quiet_s(at, time.monotonic())
    print(f"ended {took:.1f} s after the second SIGTERM")
    assert took <= 2
    until(lambda: not driver.left(), 10, "the end of all actors")
