"""Faults under a job's load, each with the promises that hold for it. A test lets one job take several of them in turn.

Pauses are in seconds of a quiet machine: see `pace`.
"""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable
from typing import Any

import ray
from pace import this_run
from waiting import until

from kafka_actors import RunningJob
from kafka_actors.job.messages import CommitEntry, CommitReply, CommitRequest, Orders, Report, pack, unpack
from kafka_actors.job.supervisor.machines.supervision import ActorKey
from kafka_actors.types import TopicPartition

from .audit import commits
from .scene import Scene

KILLED_S = 4.0
"""So long every partition is looked at after a kill. The promise is that none stands for more than two."""
STOPPED_S = 10.0
"""So long every partition is looked at after a stop. The promise is that none stands for more than six."""


def longest_pause(scene: Scene, at: float, seconds: float) -> float:
    """The longest time without a call of process on any partition in the `seconds` after `at`, which it waits for."""
    until(lambda: time.monotonic() > at + seconds, seconds + 1, "time to pass")
    return max(scene.journal.longest_pause(p, at, at + seconds) for p in scene.partitions)


def kill_worker(scene: Scene, victim: str) -> None:
    """SIGKILL of a worker: its partitions go on elsewhere within two seconds."""
    partitions, killed = scene.owned_by(victim), scene.pids()[victim]
    assert partitions
    at = scene.kill(victim)
    scene.flowing()
    took = scene.journal.first_after(at, partitions, scene.others(killed))
    assert took.keys() == partitions
    slowest = this_run().quiet_s(at, at + max(took.values()))
    print(f"{victim} killed: its partitions went on after {slowest:.2f} s")
    assert slowest <= 2.0


def kill_coordinator(scene: Scene, rebalances: int) -> None:
    """SIGKILL of the coordinator actor: nothing moves, and another one commits. `rebalances`: so many the group may have for it."""
    before, owners = scene.status().group, scene.owners()
    (name,) = scene.pids("coordinator")
    at = scene.kill(name)
    pause = longest_pause(scene, at, KILLED_S)
    scene.flowing()
    until(lambda: set(scene.pids("coordinator")) - {name}, 20, "a new coordinator actor")
    until(lambda: scene.owners() == owners, 20, "every partition with the worker that had it")
    after = scene.status().group
    assert after.group_instance_id == before.group_instance_id
    assert after.generation - before.generation <= rebalances
    commits_of_all_partitions(scene)
    print(f"{name} killed: longest pause {pause:.2f} s, commits again {time.monotonic() - at:.1f} s after it")
    assert pause <= 2.0


def kill_for_fetches(scene: Scene, kind: str) -> None:
    """SIGKILL of an actor that fetches need: a new one comes, no partition moves, and none stands for more than two seconds."""
    until(lambda: scene.pids("spare"), 30, "a spare connection actor")
    before, owners = scene.status().group.generation, scene.owners()
    victim = min(scene.pids(kind))
    role, incarnation = victim.rsplit(".", 1)
    time.sleep(1)
    at = scene.kill(victim)
    pause = longest_pause(scene, at, KILLED_S)
    scene.flowing()
    until(lambda: f"{role}.{int(incarnation) + 1}" in scene.pids(), 10, f"a new {kind} actor")
    scene.flowing()
    assert scene.owners() == owners
    assert scene.status().group.generation == before
    print(f"{victim} killed: longest pause {pause:.2f} s")
    assert pause <= 2.0


def stop_actor(scene: Scene, kind: str) -> None:
    """SIGSTOP, of which Ray knows nothing: the actor is replaced, and no partition stands for more than six seconds."""
    until(lambda: scene.pids("spare"), 30, "a spare connection actor")
    generation = scene.status().group.generation
    pid, at = scene.freeze(min(scene.pids(kind)))

    def went_on() -> dict[TopicPartition, float]:
        return scene.journal.first_after(at, scene.partitions, scene.others(pid))

    def replaced() -> bool:
        return pid not in scene.pids().values() and went_on().keys() == set(scene.partitions)

    until(replaced, 20, f"another {kind}, and calls on every partition")
    pause = longest_pause(scene, at, max(STOPPED_S, time.monotonic() - at))
    scene.thaw(pid)
    progress = went_on()
    print(f"{kind} stopped: first calls within {max(progress.values()):.2f} s, longest pause {pause:.2f} s")
    scene.flowing()
    assert pid not in scene.pids().values()
    assert scene.status().group.generation == generation
    assert pause <= 6.0


def fence_worker(scene: Scene, zombie: str) -> None:
    """A worker that is stopped, replaced, and goes on: it moves no offset and makes no more calls."""
    partitions = scene.owned_by(zombie)
    orders = _ask(scene, "poll", Report(zombie, (0, 0), True, [], wait_s=0.0), Orders)
    epochs = {g.partition: g.epoch for g in orders.grants}
    assert epochs.keys() == partitions
    workers = len(scene.pids("worker"))
    pid = scene.pids()[zombie]
    keep_alive(scene.running, lambda other: other == pid)
    _, at = scene.freeze(zombie)
    until(
        lambda: scene.journal.first_after(at, partitions, scene.others(pid)).keys() == partitions,
        20,
        "a move",
    )
    scene.spread(workers)
    thawed = time.monotonic()
    scene.thaw(pid)
    assert os.path.exists(f"/proc/{pid}"), "or there would be no zombie to be fenced"
    scene.flowing()
    far = [CommitEntry(p, epoch, 10**9) for p, epoch in epochs.items()]
    reply = _ask(scene, "commit", CommitRequest(zombie, 1, far), CommitReply)
    assert set(reply.refused) == partitions
    assert reply.committed == []
    orders = _ask(scene, "poll", Report(zombie, orders.version, True, [], wait_s=0.0), Orders)
    assert (orders.grants, orders.lease_s, orders.hold) == ([], 0.0, False), "it has to drop all that it has"
    scene.flowing()
    calls = [e.at for e in scene.journal.entries() if e.pid == pid and e.at > thawed]
    last = this_run().quiet_s(thawed, max(calls, default=thawed))
    print(f"the zombie's last call came {last:.2f} s after it went on")
    assert last <= 2.0
    os.kill(pid, signal.SIGKILL)


def commits_of_all_partitions(scene: Scene) -> None:
    """Waits until each partition's committed offset has moved."""
    before = scene.committed()
    until(
        lambda: all(scene.committed().get(p, 0) > before.get(p, 0) for p in scene.partitions),
        20,
        "commits of every partition",
    )


def audit_is_complete(scene: Scene) -> None:
    """The control, at the end: the audit of commits has read all of them."""
    log = commits(scene.cluster.bootstrap_servers, scene.group)
    assert {p: offsets[-1] for p, offsets in log.items()} == scene.ends()


def _ask(scene: Scene, method: str, message: Any, kind: type) -> Any:
    """One message to the coordinator actor, as a worker sends it."""
    supervisor = scene.running._control._supervisor  # type: ignore[union-attr]
    handle = supervisor._job.running[ActorKey("coordinator")].ref.raw
    return unpack(ray.get(getattr(handle, method).remote(pack(message))), kind)


def keep_alive(running: RunningJob | None, kept: Callable[[int], bool]) -> None:
    """Keeps the job's supervisor from ending processes, which it gives up: their node can't be reached."""
    runtime = running._control._supervisor._job.runtime  # type: ignore[union-attr]
    end = runtime.kill
    runtime.kill = lambda ref, info: end(ref, info) if info is None or not kept(info.pid) else None
