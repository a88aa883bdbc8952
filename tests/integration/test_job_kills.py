"""A job whose actors are killed under load: other workers go on at once, nothing is lost, little comes twice."""

import os
import random
import time
from collections import Counter

import pytest
from jobs.journal import Ledger, until

pytestmark = [pytest.mark.ray, pytest.mark.kafka, pytest.mark.alone]

KILLS = int(os.environ.get("KAFKA_ACTORS_TEST_KILLS", "200"))
"""How many actors the longest of these tests kills: 200 take about eight minutes."""

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
def test_partitions_of_a_killed_worker_go_on_within_two_seconds(scene, times, constructor_s):
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
def test_a_killed_coordinator_actor_moves_nothing(scene, identity):
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
def test_fetching_goes_on_within_two_seconds_of_the_death_of_an_actor(scene, kind):
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
def test_whatever_is_killed_and_stopped_nothing_is_lost(scene):
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


@pytest.mark.slow
@pytest.mark.timeout(120 + 5 * KILLS)
def test_at_every_one_of_many_kills_at_random_all_that_is_committed_was_processed(scene):
    """kill -9 of any actor at any moment, also of those that have just come up: at every kill, and at the end, the
    workers' ledgers together have all offsets below the committed ones."""
    seed = random.SystemRandom().randrange(10**6)
    rng = random.Random(seed)
    print(f"seed {seed}")
    scene.start(workers=3, work=0.02, late=True)
    scene.under_load(each=2, rounds=10)
    scene.flowing()
    ledger = Ledger(scene.journal)
    killed, progressed, before = Counter(), 0, scene.committed()
    while killed.total() < KILLS:
        time.sleep(rng.uniform(0.0, 3.0))
        pids = scene.pids()
        if len(pids) < 4:  # most are just being replaced; a job that is never let up shows nothing
            continue
        name = rng.choice(sorted(pids))
        scene.kill(name)
        killed[name.split("-")[0].split(".")[0]] += 1
        committed, processed = scene.committed(), ledger.whole()
        early = {p: (o, processed[p]) for p, o in committed.items() if o > processed[p]}
        assert not early, f"committed, and not processed below: {early}, seed {seed}"
        assert all(committed[p] >= o for p, o in before.items()), f"seed {seed}"
        progressed += committed != before
        before = committed
    duplicates = scene.settle(120)
    print(f"killed {dict(killed)}; duplicates {duplicates.total()} of {scene.journal.records()} records")
    assert ledger.whole() == scene.ends()
    assert progressed > KILLS / 2, "records were committed between most of the kills"
