"""Actors that are stopped (SIGSTOP): Ray does not notice, the supervisor does; and a zombie moves no offset."""

import os
import signal
import time

import pytest
import ray
from jobs.audit import commits
from jobs.journal import until

from kafka_actors.actors.machines.supervision import ActorKey
from kafka_actors.actors.messages import CommitEntry, CommitReply, CommitRequest, Orders, Report, pack, unpack

pytestmark = [pytest.mark.ray, pytest.mark.kafka, pytest.mark.alone, pytest.mark.timeout(300)]

slow = pytest.mark.slow

WATCHED_S = 10.0
"""So long every partition is looked at after a freeze. The promise is that none stands for more than six."""


@pytest.mark.parametrize(
    "kind",
    ["worker", *(pytest.param(kind, marks=slow) for kind in ("connection", "coordinator", "metadata"))],
)
def test_every_partition_goes_on_within_six_seconds_of_the_stop_of_an_actor(scene, kind):
    scene.start()
    scene.under_load()
    scene.flowing()
    until(lambda: scene.pids("spare"), 30, "a spare connection actor")
    generation = scene.status().group.generation
    pid, at = scene.freeze(min(scene.pids(kind)))
    until(lambda: time.monotonic() > at + WATCHED_S, WATCHED_S + 1, "time to pass")
    scene.thaw(pid)
    live = scene.others(pid)
    progress = scene.journal.first_after(at, scene.partitions, live)
    assert progress.keys() == set(scene.partitions)
    pauses = [scene.journal.longest_pause(p, at, at + WATCHED_S) for p in scene.partitions]
    print(f"{kind}: first calls within {max(progress.values()):.2f} s, longest pause {max(pauses):.2f} s")
    scene.flowing()
    assert pid not in scene.pids().values()
    assert scene.status().group.generation == generation
    duplicates = scene.settle()
    if kind != "worker":
        assert duplicates.total() == 0
    assert max(pauses) <= 6.0


def ask(scene, method, message, kind):
    """One message to the coordinator actor, as a worker sends it."""
    supervisor = scene.running._control._supervisor
    handle = supervisor._job.roster[ActorKey("coordinator")].ref.raw
    return unpack(ray.get(getattr(handle, method).remote(pack(message))), kind)


def keep_alive(scene, pid):
    """As where the supervisor can't reach a worker's node: what it gave up on is not ended."""
    runtime = scene.running._control._supervisor._job.runtime
    end = runtime.kill
    runtime.kill = lambda ref, info: end(ref, info) if info is None or info.pid != pid else None


def test_a_zombie_worker_moves_no_offset_and_works_no_more(scene):
    scene.start(workers=2)
    scene.under_load()
    scene.spread(2)
    scene.flowing()
    zombie = "worker-0.1"
    partitions = scene.owned_by(zombie)
    orders = ask(scene, "poll", Report(zombie, (0, 0), True, [], wait_s=0.0), Orders)
    epochs = {g.partition: g.epoch for g in orders.grants}
    assert epochs.keys() == partitions
    pid = scene.pids()[zombie]
    keep_alive(scene, pid)
    _, at = scene.freeze(zombie)
    until(
        lambda: scene.journal.first_after(at, partitions, scene.others(pid)).keys() == partitions,
        20,
        "a move",
    )
    scene.spread(2)
    thawed = time.monotonic()
    scene.thaw(pid)
    assert os.path.exists(f"/proc/{pid}"), "or there would be no zombie to be fenced"
    scene.flowing()
    far = [CommitEntry(p, epoch, 10**9) for p, epoch in epochs.items()]
    reply = ask(scene, "commit", CommitRequest(zombie, 1, far), CommitReply)
    assert set(reply.refused) == partitions
    assert reply.committed == []
    scene.flowing()
    calls = [e.at - thawed for e in scene.journal.entries() if e.pid == pid and e.at > thawed]
    print(f"the zombie's last call came {max(calls, default=0):.2f} s after it went on")
    assert max(calls, default=0) <= 2.0
    os.kill(pid, signal.SIGKILL)
    scene.settle()
    log = commits(scene.cluster.bootstrap_servers, scene.group)
    assert {p: offsets[-1] for p, offsets in log.items()} == scene.ends(), "the audit log is read whole"


@slow
def test_workers_stop_by_themselves_before_another_member_starts_on_their_partitions(scene):
    session = 6.0
    driver = scene.driver(
        workers=2, config={"session_timeout_ms": int(session * 1000), "heartbeat_interval_ms": 500}
    ).started()
    scene.under_load()
    scene.flowing()
    frozen = [driver.pid, driver.actors["coordinator.1"]]
    at = time.monotonic()
    for pid in frozen:
        os.kill(pid, signal.SIGSTOP)
    scene.stopped.update(frozen)
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
    keep_alive(scene, pid)
    _, at = scene.freeze(victim)
    other = scene.foreign("cooperative-sticky")
    until(lambda: len(other.assigned) == 6, 30, "the other member's share")
    took = time.monotonic() - at
    print(
        f"its share after {took:.1f} s, {len(partitions & other.assigned)} partitions of the frozen worker in it"
    )
    scene.thaw(pid)
    ours = set(scene.partitions) - other.assigned
    scene.flowing(partitions=ours)
    since = time.monotonic()
    scene.flowing(partitions=ours)
    assert not [e for e in scene.journal.entries() if e.at > since and e.partition in other.assigned]
    other.leave()
    os.kill(pid, signal.SIGKILL)
    scene.flowing()
    scene.settle()
    assert took <= 12
