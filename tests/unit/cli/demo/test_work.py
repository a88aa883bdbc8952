"""Work and kill of the demo: which worker dies and when, and what a worker enters into the ledger before it goes on."""

from __future__ import annotations

import os
import signal
import time
from concurrent.futures import Future
from types import SimpleNamespace
from typing import Any

import msgspec
import numpy as np
import pyarrow as pa
import pytest

from kafka_actors.cli.demo import work
from kafka_actors.cli.demo.orders import make_orders
from kafka_actors.cli.demo.work import Killer, LedgerActor, Revenue, victim_of, worker_id
from kafka_actors.job.status import JobStatus, PartitionStatus, ScalingStatus, WorkerStatus

HERE = "node-1"


def worker(number: int, partitions: list[int], ready: bool = True, node: str = HERE) -> WorkerStatus:
    held = [("t", p) for p in partitions]
    return WorkerStatus(f"worker-{number}.1", 100 + number, node, ready, held, 0, 0, 0)


def status_of(lags: list[int], *workers: WorkerStatus) -> JobStatus:
    return JobStatus(
        state="running",
        group_id="g",
        group=None,
        workers=list(workers),
        partitions=[PartitionStatus("t", n, None, 0, 0, lag, lag, "active") for n, lag in enumerate(lags)],
        records=0,
        value_bytes=0,
        connections={},
        restarts={},
        actors={},
        scaling=ScalingStatus(workers=4),
    )


class Method:
    """A method of an actor: `remote` calls it at once, and returns what stands for its result."""

    def __init__(self, call: Any) -> None:
        self._call = call

    def remote(self, *arguments: Any) -> Any:
        future: Future[Any] = Future()
        future.set_result(self._call(*arguments))
        return SimpleNamespace(future=lambda: future)


def handle(ledger: LedgerActor) -> Any:
    return SimpleNamespace(
        **{name: Method(getattr(ledger, name)) for name in ("add", "worker_killed", "counted", "account")}
    )


@pytest.fixture
def ledger(monkeypatch: pytest.MonkeyPatch) -> LedgerActor:
    """A ledger in this process, which is on the node `HERE`."""
    monkeypatch.setattr(work.ray, "get", lambda reference: reference.future().result())
    context = SimpleNamespace(get_node_id=lambda: HERE)
    monkeypatch.setattr(work.ray, "get_runtime_context", lambda: context)
    return LedgerActor()


@pytest.fixture
def killed(monkeypatch: pytest.MonkeyPatch) -> list[tuple[int, int]]:
    """Process ids and signals, in place of the kills."""
    found: list[tuple[int, int]] = []
    monkeypatch.setattr(work.os, "kill", lambda pid, number: found.append((pid, number)))
    return found


def enter(ledger: LedgerActor, count: int, by: str, partition: int = 0) -> None:
    ledger.add(by, ("t", partition), np.arange(count), np.array(["DE"] * count), np.array([100] * count))


# ------------------------------------------------------------ the victim


def test_the_victim_is_the_worker_with_most_still_to_do() -> None:
    status = status_of(
        [5, 500, 40, 900], worker(0, [0, 1]), worker(1, [2]), worker(2, [3], ready=False), worker(3, [])
    )
    victim = victim_of(status)
    assert victim is not None
    assert victim.name == "worker-0.1"
    assert victim_of(msgspec.structs.replace(status, workers=[])) is None


def test_a_worker_without_a_process_id_is_no_victim_and_a_partition_of_unknown_lag_counts_nothing() -> None:
    nameless = msgspec.structs.replace(worker(0, [0]), pid=None)
    status = status_of([900, 7], nameless, worker(1, [1]))
    unknown = msgspec.structs.replace(
        status, partitions=[*status.partitions, PartitionStatus("t", 2, None, 0, 0, None, None, "active")]
    )
    victim = victim_of(msgspec.structs.replace(unknown, workers=[*status.workers, worker(2, [2])]))
    assert victim is not None
    assert victim.name == "worker-1.1"


# ------------------------------------------------------------ the kill


def test_one_worker_is_killed_once_half_of_the_orders_are_counted(
    ledger: LedgerActor, killed: list[tuple[int, int]]
) -> None:
    lines: list[str] = []
    killer = Killer(handle(ledger), 10, lines.append)
    status = status_of([9], worker(0, [0]))
    enter(ledger, 4, worker_id(HERE, 100))
    killer(status)
    assert (killer.killed, killed) == (None, [])
    enter(ledger, 5, worker_id(HERE, 100))
    killer(status_of([9], worker(0, [], ready=False)))
    assert killer.killed is None, "no worker has partitions: the next status may have one"
    for _ in range(2):
        killer(status)
    assert (killer.killed, killed) == ("worker-0.1", [(100, signal.SIGKILL)])
    assert lines == ["SIGKILL for worker-0.1 (pid 100) at 5 of 10 orders; it had 1 partitions"]


def test_the_ledger_knows_whom_the_kill_hit_and_times_the_take_over(
    ledger: LedgerActor, killed: list[tuple[int, int]]
) -> None:
    enter(ledger, 5, worker_id(HERE, 100))
    Killer(handle(ledger), 10, print)(status_of([9], worker(0, [0])))
    enter(ledger, 5, worker_id(HERE, 100))
    assert ledger.account().taken_over == {}, "a delivery of the victim that was on its way"
    enter(ledger, 9, worker_id("node-2", 100))
    account = ledger.account()
    assert set(account.taken_over) == {("t", 0)}
    assert (account.counted, account.delivered, account.counted_before_kill) == ({("t", 0): 9}, 19, 5)


def test_a_process_on_another_node_is_killed_there(
    ledger: LedgerActor, killed: list[tuple[int, int]], monkeypatch: pytest.MonkeyPatch
) -> None:
    options: dict[str, Any] = {}

    def remote(**some: Any) -> Any:
        options.update(some)
        return Method

    monkeypatch.setattr(work.ray, "remote", remote)
    affinity = lambda node, soft: (node, soft)  # noqa: E731
    strategies = SimpleNamespace(NodeAffinitySchedulingStrategy=affinity)
    monkeypatch.setattr(work.ray.util, "scheduling_strategies", strategies)
    work.kill_process(worker(0, [0], node="node-2"))
    assert killed == [(100, signal.SIGKILL)]
    assert options["scheduling_strategy"] == ("node-2", False)
    assert options["max_retries"] == 0, "a second kill of the same process id may hit another process"


# ------------------------------------------------------------ the workers' function


def test_a_batch_is_in_the_ledger_when_the_function_returns(
    ledger: LedgerActor, monkeypatch: pytest.MonkeyPatch
) -> None:
    slept: list[float] = []
    monkeypatch.setattr(time, "sleep", slept.append)
    orders = list(make_orders("us", 4))
    batch = pa.record_batch(
        {
            "value": [order.value for order in orders],
            "topic": ["orders-us"] * 4,
            "partition": pa.array([2] * 4, pa.int32()),
            "offset": [10, 11, 12, 13],
        }
    )
    for _ in range(2):
        Revenue(handle(ledger), 0.25)(batch)
    account = ledger.account()
    assert account.counted == {("orders-us", 2): 4}
    assert sum(account.revenue.values()) == sum(order.cents for order in orders)
    assert account.delivered == 8
    assert slept == [1.0, 1.0]


def test_a_worker_enters_its_deliveries_under_the_name_that_the_kill_has(
    ledger: LedgerActor, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(time, "sleep", lambda seconds: None)
    by: list[str] = []
    [order] = make_orders("us", 1)
    batch = pa.record_batch({"value": [order.value], "topic": ["t"], "partition": [0], "offset": [0]})
    Revenue(SimpleNamespace(add=Method(lambda name, *_: by.append(name))), 0.0)(batch)
    assert by == [worker_id(HERE, os.getpid())]
