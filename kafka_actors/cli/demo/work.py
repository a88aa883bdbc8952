"""What runs on Ray in the demo: the ledger as an actor, and the workers' function."""

from __future__ import annotations

import os
import time
from typing import Any

import pyarrow as pa
import ray

from .ledger import Account, Cents, Countries, Ledger, Offsets, Partition, batch_of
from .orders import revenue

__all__ = ["LedgerActor", "Revenue", "worker_id"]


class LedgerActor:
    """A `Ledger` outside of the workers: what one has delivered stays when it dies."""

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
    """The job's function: parses a batch of orders and enters what they are worth into the ledger.

    `seconds_per_order` is what a real job does beside: a model, a look-up. It makes a worker something that can
    be killed in the middle of its work.
    """

    def __init__(self, ledger: Any, seconds_per_order: float) -> None:
        self._ledger = ledger
        self._seconds_per_order = seconds_per_order

    def __call__(self, batch: pa.RecordBatch) -> None:
        countries, cents = batch_of([revenue(value) for value in batch.column("value").to_pylist()])
        time.sleep(batch.num_rows * self._seconds_per_order)
        partition = (batch.column("topic")[0].as_py(), batch.column("partition")[0].as_py())
        offsets = batch.column("offset").to_numpy()
        # Waited for: an offset is committed only after the ledger has the record. (Not by ray.get, which warns of
        # the actor's event loop; that is another thread than the one this function runs on.)
        self._ledger.add.remote(_this_worker(), partition, offsets, countries, cents).future().result()


def worker_id(node: str | None, pid: int | None) -> str:
    """A process of the Ray cluster."""
    return f"{node}/{pid}"


def _this_worker() -> str:
    return worker_id(ray.get_runtime_context().get_node_id(), os.getpid())
