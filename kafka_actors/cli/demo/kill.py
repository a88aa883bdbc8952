"""Half way through, one worker is killed with SIGKILL, as the kernel or a failing machine would."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from typing import Any

import ray

from kafka_actors.job.status import JobStatus, WorkerStatus

from .work import worker_id

__all__ = ["Killer", "victim_of"]


class Killer:
    """Called with every status: kills one worker once half of `orders` have reached the ledger."""

    def __init__(self, ledger: Any, orders: int, say: Callable[[str], None]) -> None:
        self._ledger = ledger
        self._orders = orders
        self._say = say
        self.killed: str | None = None

    def __call__(self, status: JobStatus) -> None:
        if self.killed is not None:
            return
        counted = ray.get(self._ledger.counted.remote())
        victim = victim_of(status) if 2 * counted >= self._orders else None
        if victim is None:
            return
        self.killed = victim.name
        ray.get(self._ledger.worker_killed.remote(worker_id(victim.node, victim.pid), victim.partitions))
        kill_process(victim)
        self._say(
            f"SIGKILL for {victim.name} (pid {victim.pid}) at {counted:,} of {self._orders:,} orders; "
            f"it had {len(victim.partitions)} partitions"
        )


def victim_of(status: JobStatus) -> WorkerStatus | None:
    """The worker with most still to do, if any has."""
    left = {(p.topic, p.partition): p.lag or 0 for p in status.partitions}
    working = [w for w in status.workers if w.ready and w.pid is not None and w.partitions]
    return max(working, key=lambda w: sum(left.get(p, 0) for p in w.partitions), default=None)


def kill_process(worker: WorkerStatus) -> None:
    """Where the process is: here, or on another node of the Ray cluster."""
    assert worker.pid is not None
    if worker.node == ray.get_runtime_context().get_node_id():
        os.kill(worker.pid, signal.SIGKILL)
        return
    strategy = ray.util.scheduling_strategies.NodeAffinitySchedulingStrategy(worker.node, soft=False)
    remote = ray.remote(num_cpus=0, max_retries=0, scheduling_strategy=strategy)(os.kill)
    ray.get(remote.remote(worker.pid, signal.SIGKILL))
