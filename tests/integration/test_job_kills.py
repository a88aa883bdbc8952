"""A job whose actors are killed under load: other workers go on at once, nothing is lost, little comes twice."""

import random
import time

import pytest
from jobs.journal import until

pytestmark = [pytest.mark.ray, pytest.mark.kafka, pytest.mark.alone]

WATCHED_S = 4.0
"""So long every partition is looked at after a kill. The promise is that none stands for more than two."""


def kill_workers(scene, times):
    """SIGKILL of one worker after the other; returns the longest time until each of its partitions went on."""
    slowest = 0.0
    for n in range(times):
        scene.spread(4, 120)
        scene.flowing()
        victim = sorted(scene.pids("worker"))[n % 4]
        partitions = scene.owned_by(victim)
        assert partitions
        killed = scene.pids()[victim]
        at = scene.kill(victim)
        scene.flowing()
        took = scene.journal.first_after(at, partitions, scene.others(killed))
        assert took.keys() == partitions
        print(f"kill {n + 1} of {victim}: {max(took.values()):.2f} s")
        slowest = max(slowest, *took.values())
    return slowest


@pytest.mark.parametrize(
    ("times", "constructor_s"),
    [
        (2, 0),  # the second finds workers that have taken over already; more of them are more of the same
        pytest.param(20, 0, marks=[pytest.mark.slow, pytest.mark.timeout(900)]),
        pytest.param(2, 30, marks=[pytest.mark.slow, pytest.mark.timeout(400)]),
    ],
)
def test_theme_04_theme_05_partitions_of_a_killed_worker_go_on_within_two_seconds(
    scene, times, constructor_s
):
    scene.start(make=constructor_s)
    scene.under_load()
    scene.flowing()
    before = scene.status().group.generation
    slowest = kill_workers(scene, times)
    assert scene.status().group.generation == before
    duplicates = scene.settle()
    assert scene.cluster.generations(scene.group)[-1] == before
    print(
        f"slowest {slowest:.2f} s; duplicates {duplicates.total()}, allowed {scene.allowed_duplicates().total()}"
    )
    assert duplicates.total() > 0  # the journal does see what comes twice
    assert slowest <= 2.0


def pause_after(scene, at):
    """The longest time without a call of process on any partition from `at` on."""
    until(lambda: time.monotonic() > at + WATCHED_S, WATCHED_S + 1, "time to pass")
    scene.flowing()
    return max(scene.journal.longest_pause(p, at, at + WATCHED_S) for p in scene.partitions)


@pytest.mark.parametrize("identity", ["auto", pytest.param(None, marks=pytest.mark.slow)])
def test_trap_6_a_killed_coordinator_actor_moves_nothing(scene, identity):
    scene.start(config={"group_instance_id": identity})
    scene.under_load()
    scene.flowing()
    before, owners = scene.status().group, scene.owners()
    at = scene.kill("coordinator.1")
    pause = pause_after(scene, at)
    until(lambda: "coordinator.2" in scene.pids(), 20, "a new coordinator actor")
    until(lambda: scene.owners() == owners, 20, "every partition with the worker that had it")
    after = scene.status().group
    assert after.group_instance_id == before.group_instance_id
    # A dynamic member that comes back is the leader of a group of one: it may only join once more.
    assert after.generation - before.generation <= (0 if identity == "auto" else 1)
    # Committing goes on under the new incarnation.
    commits = scene.committed()
    until(
        lambda: all(scene.committed().get(p, 0) > commits.get(p, 0) for p in scene.partitions),
        20,
        "commits of every partition",
    )
    print(f"longest pause {pause:.2f} s, commits again {time.monotonic() - at:.1f} s after the kill")
    duplicates = scene.settle()
    assert len({e.pid for e in scene.journal.entries()}) == 4
    assert duplicates.total() == 0
    assert pause <= 2.0


@pytest.mark.parametrize("kind", ["connection", "metadata"])
def test_theme_36_fetching_goes_on_within_two_seconds_of_the_death_of_a(scene, kind):
    scene.start()
    scene.under_load()
    scene.flowing()
    until(lambda: scene.pids("spare"), 30, "a spare connection actor")
    before, owners = scene.status().group.generation, scene.owners()
    victim = min(scene.pids(kind))
    time.sleep(1)
    at = scene.kill(victim)
    pause = pause_after(scene, at)
    until(lambda: f"{victim.split('.')[0]}.2" in scene.pids(), 10, f"a new {kind} actor")
    scene.flowing()
    assert scene.owners() == owners
    assert scene.status().group.generation == before
    duplicates = scene.settle()
    assert duplicates.total() == 0
    print(f"longest pause {pause:.2f} s")
    assert pause <= 2.0


@pytest.mark.slow
@pytest.mark.timeout(400)
def test_theme_36_whatever_is_killed_and_stopped_nothing_is_lost(scene):
    """A dozen faults in a row, of any kind of actor, some while the last one is still being dealt with."""
    rng = random.Random(36)
    scene.start(workers=3)
    scene.under_load()
    scene.flowing()
    for _ in range(12):
        until(lambda: len(scene.pids()) >= 7, 60, "most actors to be there")
        name = rng.choice(sorted(scene.pids()))
        fault = rng.choice([scene.kill, scene.kill, scene.freeze])
        print(fault.__name__, name)
        fault(name)
        time.sleep(rng.uniform(0.0, 4.0))
    scene.flowing(60)
    owners = scene.owners()
    assert None not in owners.values()
    duplicates = scene.settle()
    print(f"duplicates {duplicates.total()}, allowed {scene.allowed_duplicates().total()}")
