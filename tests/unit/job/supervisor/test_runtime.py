"""Calls of actors that may get lost, and the registry of the actors that run."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterator

import pytest
from fakes.virtual_time import run_in_virtual_time

from kafka_actors.errors import DisconnectedError
from kafka_actors.job.messages import ActorInfo, CoordinatorStatus
from kafka_actors.job.status import GroupState, PartitionStatus, ScalingStatus
from kafka_actors.job.supervisor.machines.supervision import ActorKey
from kafka_actors.job.supervisor.runtime import (
    METADATA,
    RunningActor,
    RunningActors,
    actor_name,
    bounded,
    none_if_disconnected,
    retry_while,
)
from kafka_actors.ray import Job

WORKERS = [ActorKey("worker", number) for number in range(3)]
LINKS = [ActorKey("connection", number, "n1") for number in (1, 2)]
ELSEWHERE = ActorKey("connection", 1, "n2")


def running(*, begun: bool = True, node: str = "n1", incarnation: int = 1) -> RunningActor:
    return RunningActor(incarnation, None, ActorInfo(7, node), begun=begun)


@pytest.fixture
def actors() -> RunningActors:
    plan = Job(topics="t", group_id="g", bootstrap_servers="h:1", process=print, workers=2).plan()
    made = RunningActors(plan)
    made.brokers = dict.fromkeys([*LINKS, ELSEWHERE], ("h", 1))
    return made


# ---------------------------------------------------------------- calls


class Calls:
    """A call that gets lost a few times, and then returns how often it was made."""

    def __init__(self, lost: int) -> None:
        self.lost = lost
        self.made = 0

    async def __call__(self) -> int:
        self.made += 1
        if self.made <= self.lost:
            raise DisconnectedError("lost")
        return self.made


def test_a_call_of_a_dead_actor_has_no_result() -> None:
    async def other() -> None:
        raise ValueError("its own")

    assert asyncio.run(none_if_disconnected(Calls(0)())) == 1
    assert asyncio.run(none_if_disconnected(Calls(1)())) is None
    with pytest.raises(ValueError, match="its own"):
        asyncio.run(none_if_disconnected(other()))


def test_a_lost_call_is_made_again_while_it_matters() -> None:
    assert run_in_virtual_time(retry_while(Calls(3), lambda: True)) == 4
    calls = Calls(3)
    with pytest.raises(DisconnectedError):
        run_in_virtual_time(retry_while(calls, lambda: calls.made < 2))
    assert calls.made == 2


def test_the_end_of_a_job_waits_for_nobody_for_long(caplog: pytest.LogCaptureFixture) -> None:
    async def fails() -> None:
        raise ValueError("no")

    async def takes(seconds: float) -> str:
        await asyncio.sleep(seconds)
        return "done"

    with caplog.at_level(logging.WARNING):
        what = ("close of worker-0.1", "its process is ended")
        assert run_in_virtual_time(bounded(takes(4.0), 5.0, *what)) == "done"
        assert not caplog.messages
        assert run_in_virtual_time(bounded(takes(6.0), 5.0, *what)) is None
        assert run_in_virtual_time(bounded(fails(), 5.0, *what)) is None
    assert caplog.messages == [
        "close of worker-0.1 did not end within 5.0 s: its process is ended",
        "close of worker-0.1 failed: ValueError: no; its process is ended",
    ]


# ---------------------------------------------------------------- the registry


def test_an_actor_is_named_by_role_and_incarnation() -> None:
    assert [actor_name(METADATA, 1), actor_name(WORKERS[2], 3)] == ["metadata.1", "worker-2.3"]


def test_actors_of_a_kind_come_in_the_order_of_their_numbers(actors: RunningActors) -> None:
    for key in (WORKERS[2], METADATA, WORKERS[0]):
        actors[key] = running()
    assert list(actors.of_kind("worker")) == [WORKERS[0], WORKERS[2]]


def test_an_actor_has_begun_once_its_begin_has_returned(actors: RunningActors) -> None:
    actors[WORKERS[0]], actors[WORKERS[1]] = running(begun=False), running()
    assert [actors.begun(key) is not None for key in WORKERS] == [False, True, False]


def test_workers_are_known_by_node_once_they_have_answered_from_it(actors: RunningActors) -> None:
    actors[WORKERS[0]] = running(node="n2", incarnation=4)
    actors[WORKERS[1]] = running(node="n1")
    actors[WORKERS[2]] = RunningActor(1, None)
    actors[LINKS[0]] = running(node="n2")
    assert actors.worker_nodes() == ["n1", "n2"]
    assert actors.workers_on("n2") == ["worker-0.4"]
    assert actors.workers_on("n3") == []


def test_a_node_connects_once_when_the_last_of_its_connection_actors_is_up(actors: RunningActors) -> None:
    actors[LINKS[0]] = running()
    actors[LINKS[1]] = running(begun=False)
    assert not actors.connects("n1")
    actors[LINKS[1]].begun = True
    assert actors.connects("n1")
    assert not actors.connects("n1"), "it stays connected, also when one is replaced"
    del actors[LINKS[0]]
    assert not actors.connects("n1")
    assert actors.connected == {"n1"}


def test_a_lost_node_wants_no_connections(actors: RunningActors) -> None:
    actors.lose_node("n1")
    assert actors.lost == {"n1"}
    assert list(actors.brokers) == [ELSEWHERE]


def test_each_worker_that_shares_a_partition_has_it(actors: RunningActors) -> None:
    shared = PartitionStatus("t", 0, "worker-0.1, worker-1.1", None, None, None, None, "granted")
    group = CoordinatorStatus(
        GroupState("stable", 1, "m", None, 2, 0), [shared], {}, finished=False, records=0, value_bytes=0
    )
    for key in WORKERS:
        actors[key] = running()
    held = {
        w.name: w.partitions for w in actors.status("running", group, {}, ScalingStatus(workers=3)).workers
    }
    assert held == {"worker-0.1": [("t", 0)], "worker-1.1": [("t", 0)], "worker-2.1": []}


def test_partitions_are_looked_through_once_for_all_workers(actors: RunningActors) -> None:
    """A status page asks twice a second: with a hundred workers and 10,000 partitions it took half of the supervisor's time."""

    class Counted(list[PartitionStatus]):
        looks = 0

        def __iter__(self) -> Iterator[PartitionStatus]:
            self.looks += 1
            return super().__iter__()

    there = Counted([PartitionStatus("t", 0, "worker-0.1", None, None, None, None, "granted")])
    group = CoordinatorStatus(
        GroupState("stable", 1, "m", None, 1, 0), there, {}, finished=False, records=0, value_bytes=0
    )
    for key in WORKERS:
        actors[key] = running()
    actors.status("running", group, {}, ScalingStatus(workers=3))
    assert there.looks == 1
