"""Processes of the demo on Ray: the ledger as an actor, the workers' function, and the kill of one worker.

Half way through, one worker gets SIGKILL, as from the kernel or with a failing machine.
"""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable
from typing import Any

import pyarrow as pa
import ray

from kafka_actors.job.status import JobStatus, WorkerStatus

from .ledger import Account, Cents, Countries, Ledger, Offsets, Partition, batch_of
from .orders import revenue

__all__ = ["Killer", "LedgerActor", "Revenue", "victim_of", "worker_id"]


class LedgerActor:
    """Actor with a `Ledger`: deliveries of a worker stay when the worker dies."""

    def __init__(self) -> None:
        self._ledger = Ledger()

    def add(
        self, worker: str, partition: Partition, offsets: Offsets, countries: Countries, cents: Cents
    ) -> None:
        self._ledger.add(worker, partition, offsets, countries, cents, time.monotonic())

    def worker_killed(self, worker: str, partitions: list[Partition]) -> None:
        self._ledger.worker_killed(worker, partitions, time.monotonic())

    def counted(self) -> int:
        return self._ledger.counted()

    def account(self) -> Account:
        return self._ledger.account()


class Revenue:
    """Function of the job's workers: parses a batch of orders and enters their revenue into the ledger.

    `seconds_per_order` stands for the work of a real job, such as a model or a look-up: it takes long enough for a worker
    to be killed in the middle of a batch.
    """

    def __init__(self, ledger: Any, seconds_per_order: float) -> None:
        self._ledger = ledger
        self._seconds_per_order = seconds_per_order

    def __call__(self, batch: pa.RecordBatch) -> None:
        countries, cents = batch_of([revenue(value) for value in batch.column("value").to_pylist()])
        time.sleep(batch.num_rows * self._seconds_per_order)
        partition = (batch.column("topic")[0].as_py(), batch.column("partition")[0].as_py())
        offsets = batch.column("offset").to_numpy()
        # Waits, because an offset is committed only after the ledger has the record. Not by ray.get, which warns of the
        # actor's event loop, though that runs on another thread.
        self._ledger.add.remote(_this_worker(), partition, offsets, countries, cents).future().result()


def worker_id(node: str | None, pid: int | None) -> str:
    """Id of a process in the Ray cluster."""
    return f"{node}/{pid}"


def _this_worker() -> str:
    return worker_id(ray.get_runtime_context().get_node_id(), os.getpid())


# ------------------------------------------------------------ the kill


class Killer:
    """Takes every status of the job, and kills one worker once half of `orders` have reached the ledger."""

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
    """Worker with the largest lag; None where no worker has partitions."""
    left = {(p.topic, p.partition): p.lag or 0 for p in status.partitions}
    working = [w for w in status.workers if w.ready and w.pid is not None and w.partitions]
    return max(working, key=lambda w: sum(left.get(p, 0) for p in w.partitions), default=None)


def kill_process(worker: WorkerStatus) -> None:
    """Kills the process of a worker, on this node or on another one of the Ray cluster."""
    assert worker.pid is not None
    if worker.node == ray.get_runtime_context().get_node_id():
        os.kill(worker.pid, signal.SIGKILL)
        return
    strategy = ray.util.scheduling_strategies.NodeAffinitySchedulingStrategy(worker.node, soft=False)
    remote = ray.remote(num_cpus=0, max_retries=0, scheduling_strategy=strategy)(os.kill)
    ray.get(remote.remote(worker.pid, signal.SIGKILL))
