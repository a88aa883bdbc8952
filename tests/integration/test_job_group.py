"""A job among other members of its Kafka group: a foreign client, and a second job."""

import signal
import time

import pytest
from pace import this_run
from waiting import slow_s, suspend, until

pytestmark = [pytest.mark.ray, pytest.mark.kafka]

slow = pytest.mark.slow


def share(scene):
    """Number of partitions that the job's workers have."""
    return len([p for p in scene.status().partitions if p.state == "granted"])


def other_members_work(scene, other):
    """A foreign client gets half of the partitions, works on them, and leaves; nothing is processed by both."""
    until(lambda: len(other.assigned) == 6 and share(scene) == 6, 30, "six partitions for each")
    ours = {p for p, worker in scene.owners().items() if worker is not None}
    assert ours.isdisjoint(other.assigned)
    scene.flowing(partitions=ours)
    until(lambda: all(other.seen[p] for p in other.assigned), 20, "the other one to work on its share")
    other.leave()
    until(lambda: share(scene) == 12, 30, "all partitions to come back")
    scene.flowing()


def processed_by_both(scene, other):
    """Number of records that the job and the foreign client have both processed."""
    return sum(len(other.seen[e.partition].intersection(e.offsets)) for e in scene.journal.entries())


def second_job(scene, **options):
    """Another job in the group of the scene's; each has half of the partitions."""
    driver = scene.driver(workers=2, **options).started()
    until(lambda: share(scene) == 6, 30, "six partitions for each job")
    until(
        lambda: len({e.partition for e in scene.journal.entries() if e.pid in driver.workers()}) == 6,
        20,
        "the second job to work on its half",
    )
    return driver


def started_beside_a_foreign_client(scene, assignor):
    """Starts a job under load; another client comes, has its share for a while, and goes. Returns that client."""
    scene.start(workers=2, partition_assignment_strategy=[assignor], config={"drain_timeout_ms": 20_000})
    scene.under_load()
    scene.flowing()
    other = scene.foreign(assignor)
    other_members_work(scene, other)
    return other


def test_a_foreign_client_comes_and_goes_and_a_stop_waits_for_no_other_member(scene):
    other = started_beside_a_foreign_client(scene, "range")
    duplicates = scene.settle(stop=False)
    print(f"duplicates {duplicates.total()}")
    assert processed_by_both(scene, other) == 0
    scene.under_load()
    scene.flowing()
    stop_does_not_wait_for_a_member_that_holds_up_a_rebalance(scene)


def stop_does_not_wait_for_a_member_that_holds_up_a_rebalance(scene):
    """One that joined and polls no more rejoins at its own deadline, much later."""
    from confluent_kafka import Consumer

    silent = Consumer(
        {
            "bootstrap.servers": scene.cluster.bootstrap_servers,
            "group.id": scene.group,
            "partition.assignment.strategy": "range",
            "enable.auto.commit": False,
            "log_level": 0,
        }
    )
    silent.subscribe(
        [scene.topic], on_revoke=lambda *_: None
    )  # called by poll, and the rebalance waits for it

    def joined():
        silent.poll(0.1)
        return len(silent.assignment()) == 6

    until(joined, 30, "the other member to have its half")
    until(lambda: share(scene) == 6, 30, "the job to have the rest")
    scene.foreign("range")  # its joining begins a rebalance
    until(
        lambda: scene.cluster.describe_group(scene.group).state == "PreparingRebalance",
        30,
        "a rebalance that waits",
    )
    until(lambda: scene.status().group.state == "joining", 30, "the job to wait in it, too")
    began = time.monotonic()
    scene.running.stop(timeout=slow_s(20))
    took = this_run().quiet_s(began, time.monotonic())
    print(f"stopped in {took:.1f} s")
    assert took <= 5 + 5, "drain_timeout_ms, and to leave"
    assert scene.running.status().state == "stopped"
    group = scene.cluster.describe_group(scene.group)
    assert group.state == "PreparingRebalance", "it still waits"
    assert len(group.members) == 2, "the job has left it, and not only given up"
    silent.close()


@slow
def test_a_foreign_client_of_another_assignor_comes_and_goes(scene):
    other = started_beside_a_foreign_client(scene, "cooperative-sticky")
    duplicates = scene.settle()
    print(f"duplicates {duplicates.total()}")
    assert processed_by_both(scene, other) == 0


CONFIG = {"session_timeout_ms": 6000, "heartbeat_interval_ms": 500}
WITHHELD_S = 42.0


@slow
def test_two_jobs_of_a_group_and_one_is_killed_with_its_driver(scene):
    scene.start(workers=2, config=CONFIG)
    scene.under_load()
    scene.flowing()
    second = second_job(scene, config=CONFIG)
    for pid in second.workers():
        scene.forgive(pid)
    ours = scene.worker_pids()
    at = second.send(signal.SIGKILL)
    until(
        lambda: scene.journal.first_after(at, scene.partitions, ours).keys() == set(scene.partitions),
        30,
        "everything to be with the job that is left",
    )
    took = this_run().quiet_s(at, at + max(scene.journal.first_after(at, scene.partitions, ours).values()))
    print(f"everything again {took:.1f} s after the kill")
    assert took <= 6 + 5
    scene.settle()


@slow
def test_a_peer_that_withholds_its_rejoin_holds_up_neither_fetches_nor_heartbeats(scene):
    """The peer is stopped, for seven of our sessions and within its own, while a third member waits to join. Without answers to
    heartbeats for one session the leases of the workers would end, and so would their calls."""
    scene.start(workers=2, config={**CONFIG, "request_timeout_ms": 5000})
    scene.under_load()
    scene.flowing()
    pids = set(scene.pids().values())
    peer = scene.driver(workers=1, config={"session_timeout_ms": 60_000}).started()
    until(lambda: share(scene) == 6, 30, "six partitions for each job")
    ours = {p for p, worker in scene.owners().items() if worker is not None}
    leaders, coordinator = scene.cluster.leaders(scene.topic), scene.cluster.coordinator_of(scene.group)
    assert coordinator in {leaders[p.partition] for p in ours}, "the group's broker is asked for records, too"
    frozen = [peer.pid, peer.actors["coordinator.1"]]
    scene.stopped.update(frozen)
    suspend(*frozen)
    scene.foreign("cooperative-sticky")  # its joining begins a rebalance

    def waiting():
        return scene.cluster.describe_group(scene.group).state == "PreparingRebalance"

    until(waiting, 30, "a rebalance that waits")
    at = time.monotonic()
    until(lambda: time.monotonic() > at + WITHHELD_S, WITHHELD_S + 1, "time to pass")
    assert waiting(), "it still waits"
    pause = max(scene.journal.longest_pause(p, at, at + WITHHELD_S) for p in ours)
    print(f"longest pause {pause:.2f} s")
    assert pids <= set(scene.pids().values()), "nobody was replaced; a spare may have come"
    assert pause <= 2.0


def test_a_second_job_comes_and_goes_and_a_named_job_that_is_deployed_anew_moves_nothing_of_another_member(
    scene,
):
    # No session ends by itself: the place of the job that is deployed anew is kept however long its actors take to start.
    soon = {"heartbeat_interval_ms": 500, "session_timeout_ms": 300_000, "drain_timeout_ms": 20_000}
    scene.start(workers=2, name=scene.group, config=soon)
    scene.under_load()
    scene.flowing()
    second = second_job(scene, config=soon)
    before = scene.cluster.generations(scene.group)[-1]
    second.send(signal.SIGTERM)
    assert second.wait(30) == 0
    assert len(scene.cluster.describe_group(scene.group).members) == 1, "it has left: no session has to end"
    until(lambda: share(scene) == 12, 20, "all partitions after one job has stopped")
    scene.flowing()
    assert scene.cluster.generations(scene.group)[-1] == before + 1, "one rebalance"
    assert scene.journal.duplicates() == {}

    other = scene.foreign("cooperative-sticky")
    until(lambda: len(other.assigned) == 6 and share(scene) == 6, 30, "six partitions for each")
    theirs, generation = set(other.assigned), scene.cluster.generations(scene.group)[-1]
    revoked = other.revoked
    scene.running.stop(leave=False)
    assert len(scene.cluster.describe_group(scene.group).members) == 2, "its place is kept"
    scene.start(workers=2, name=scene.group, config=soon)
    scene.flowing(60, partitions=set(scene.partitions) - theirs)
    assert share(scene) == 6
    assert other.assigned == theirs
    assert other.revoked == revoked
    assert scene.cluster.generations(scene.group)[-1] == generation
    other.leave()
    scene.flowing()
    assert scene.settle().total() == 0
