"""A job whose actors are killed and stopped under load: other workers go on at once, nothing is lost, little comes twice."""

import os
import random
import time
from collections import Counter

import pytest
from jobs.faults import (
    audit_is_complete,
    fence_worker,
    kill_coordinator,
    kill_for_fetches,
    kill_worker,
    stop_actor,
)
from jobs.journal import Ledger
from waiting import until

pytestmark = [pytest.mark.ray, pytest.mark.kafka]


@pytest.fixture
def scene(scene_3):
    """On three brokers."""
    return scene_3


KILLS = int(os.environ.get("KAFKA_ACTORS_TEST_KILLS", "200"))
"""Number of actors that the longest of these tests kills: 200 take about eight minutes."""


def test_one_job_goes_on_whichever_of_its_actors_dies_or_is_stopped(scene):
    """Each in turn: first those whose end repeats nothing."""
    scene.start(workers=4, config={"group_instance_id": "auto"})
    scene.under_load()
    scene.spread(4)
    scene.flowing()
    generation = scene.status().group.generation
    kill_coordinator(scene, rebalances=0)
    for kind in ("connection", "metadata"):
        kill_for_fetches(scene, kind)
    assert scene.journal.duplicates() == {}
    assert len({e.pid for e in scene.journal.entries()}) == 4
    stop_actor(scene, "worker")
    for number in (
        0,
        1,
    ):  # the second finds workers that have taken over already; more of them are more of the same
        scene.spread(4, 120)
        kill_worker(scene, sorted(scene.pids("worker"))[number])
    scene.spread(4, 120)
    fence_worker(scene, sorted(scene.pids("worker"))[2])
    assert scene.status().group.generation == generation
    duplicates = scene.settle()
    audit_is_complete(scene)
    assert scene.cluster.generations(scene.group)[-1] == generation
    print(f"duplicates {duplicates.total()}, allowed {scene.allowed_duplicates().total()}")
    assert duplicates.total() > 0  # the journal does see what comes twice


@pytest.mark.slow
@pytest.mark.parametrize(
    ("times", "constructor_s"),
    [
        pytest.param(20, 0),
        pytest.param(2, 30),
    ],
)
def test_partitions_of_a_killed_worker_go_on_within_two_seconds(scene, times, constructor_s):
    scene.start(workers=4, make=constructor_s)
    scene.under_load()
    scene.flowing()
    before = scene.status().group.generation
    for number in range(times):
        scene.spread(4, 120)
        scene.flowing()
        kill_worker(scene, sorted(scene.pids("worker"))[number % 4])
    assert scene.status().group.generation == before
    duplicates = scene.settle()
    assert scene.cluster.generations(scene.group)[-1] == before
    print(f"duplicates {duplicates.total()}, allowed {scene.allowed_duplicates().total()}")
    assert duplicates.total() > 0


@pytest.mark.slow
def test_a_killed_coordinator_actor_of_a_dynamic_member_moves_nothing(scene):
    """The coordinator comes back as the leader of a group of one: it may only join once more."""
    scene.start(workers=4, config={"group_instance_id": None})
    scene.under_load()
    scene.spread(4)
    scene.flowing()
    kill_coordinator(scene, rebalances=1)
    duplicates = scene.settle()
    assert len({e.pid for e in scene.journal.entries()}) == 4
    assert duplicates.total() == 0


@pytest.mark.slow
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
@pytest.mark.timeout(900 + 50 * KILLS)
def test_at_every_one_of_many_kills_at_random_all_that_is_committed_was_processed(scene):
    """kill -9 of any actor at any moment, also of those that have just come up: at every kill, and at the end, the
    workers' ledgers together have all offsets below the committed ones."""
    seed = random.SystemRandom().randrange(10**6)
    rng = random.Random(seed)
    print(f"seed {seed}")
    scene.start(workers=3, work=0.02, late=True)
    scene.under_load(each=2, rounds=5)
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
        committed, processed = scene.committed(), ledger.processed_ends()
        early = {p: (o, processed[p]) for p, o in committed.items() if o > processed[p]}
        assert not early, f"committed, and not processed below: {early}, seed {seed}"
        assert all(committed[p] >= o for p, o in before.items()), f"seed {seed}"
        progressed += committed != before
        before = committed
    duplicates = scene.settle(120)
    print(f"killed {dict(killed)}; duplicates {duplicates.total()} of {scene.journal.records()} records")
    assert ledger.processed_ends() == scene.ends()
    assert progressed > KILLS / 2, "records were committed between most of the kills"
