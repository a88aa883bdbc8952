"""A job that is stopped while no broker answers."""

import time

import pytest
from jobs.driver import exists
from pace import this_run
from waiting import until

pytestmark = [
    pytest.mark.ray,
    pytest.mark.kafka,
    pytest.mark.slow,
]


@pytest.fixture
def scene(scene_3):
    """On three brokers."""
    return scene_3


@pytest.mark.parametrize("fault", ["kill", "pause"])
def test_a_stop_without_brokers_takes_ten_seconds_and_names_what_nobody_has_confirmed(scene, fault):
    # Only the drain of the stop commits.
    running = scene.start(workers=2, config={"auto_commit_interval_ms": 600_000})
    scene.under_load()
    scene.spread(2)
    scene.flowing()
    assert running.status().unconfirmed == []
    scene.load.stop()
    for broker in scene.cluster.broker_ids:
        getattr(scene.cluster, fault)(broker)
    pids = set(scene.pids().values())
    begun = time.monotonic()
    confirmed = running.stop()
    took = this_run().quiet_s(begun, time.monotonic())
    print(f"{fault}: stopped in {took:.1f} s")
    assert confirmed is False
    named = running.status().unconfirmed
    assert {p for _, p in named} == {p.partition for p in scene.partitions}
    assert running.stop() is False, "the same when it is asked again"
    assert took <= 10.0
    until(lambda: not [pid for pid in pids if exists(pid)], 5, "the end of the actors")


def test_a_stop_with_brokers_says_that_all_is_confirmed(scene):
    running = scene.start(workers=2)
    scene.under_load()
    scene.spread(2)
    scene.flowing()
    assert running.stop() is True
    assert running.status().unconfirmed == []
