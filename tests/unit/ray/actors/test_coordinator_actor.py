"""The coordinator actor as a shell: it decodes, calls the job's coordinator, and encodes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from fakes.loop import in_loop

from kafka_actors.job.messages import (
    CommitReply,
    CommitRequest,
    CoordinatorStatus,
    Identity,
    JobStart,
    Orders,
    Report,
    WorkerPlan,
    pack,
    unpack,
)
from kafka_actors.job.status import GroupState
from kafka_actors.ray import Job
from kafka_actors.ray.actors import coordinator_actor
from kafka_actors.ray.actors.coordinator_actor import CoordinatorActor
from kafka_actors.telemetry.sdk import Settings
from kafka_actors.telemetry.tally import TallyState

ORDERS = Orders((1, 4), [], [], 6.0)
REPLY = CommitReply(3, [], [], [])
STATUS = CoordinatorStatus(GroupState("stable", 5, "m-1", None, 8, 2), [], {}, False, 10, 20)
PLAN = WorkerPlan(2, {"worker-0.1": 1.0}, [], False, True)


class Coordinator:
    """A job's coordinator that notes what it is told."""

    def __init__(self) -> None:
        self.told: list[Any] = []
        self.stopped: list[bool] = []

    async def poll(self, report: Report) -> Orders:
        self.told.append(report)
        return ORDERS

    async def commit(self, request: CommitRequest) -> CommitReply:
        self.told.append(request)
        return REPLY

    async def set_plan(self, plan: WorkerPlan) -> None:
        self.told.append(plan)

    def status(self, *, known: int) -> CoordinatorStatus:
        self.told.append(known)
        return STATUS

    async def verdict(self, known: int, wait_s: float) -> CoordinatorStatus:
        self.told.append((known, wait_s))
        return STATUS

    async def stop(self, leave: bool) -> None:
        self.stopped.append(leave)


class Client:
    def __init__(self) -> None:
        self.closed = 0

    async def close(self) -> None:
        self.closed += 1


@pytest.fixture
def make(monkeypatch: pytest.MonkeyPatch) -> Callable[..., CoordinatorActor]:
    monkeypatch.setattr(coordinator_actor, "set_up_process", lambda setup: None)
    plan = Job(topics=["t"], group_id="g", bootstrap_servers="h:1", process=print).plan()

    def made(telemetry: Settings | None = None) -> CoordinatorActor:
        setup = plan.setup("coordinator", 2)
        setup = type(setup)(setup.log_level, setup.origin, telemetry)
        start, identity = pack(JobStart([])), pack(Identity("static-1"))
        return CoordinatorActor(plan.config, 2, ["t"], None, start, identity, setup)

    return made


@in_loop
async def test_nothing_can_be_asked_of_it_before_it_has_begun(make: Callable[..., CoordinatorActor]) -> None:
    with pytest.raises(RuntimeError, match="the coordinator actor has not begun"):
        await make().poll(pack(Report("worker-0.1", (0, 0), False, [])))


@in_loop
async def test_messages_go_to_the_coordinator_and_its_answers_back(
    make: Callable[..., CoordinatorActor],
) -> None:
    made = make()
    made._job = coordinator = Coordinator()
    report, request = Report("worker-0.1", (1, 3), True, []), CommitRequest("worker-0.1", 3, [])
    assert unpack(await made.poll(pack(report)), Orders) == ORDERS
    assert unpack(await made.commit(pack(request)), CommitReply) == REPLY
    await made.set_plan(pack(PLAN))
    assert unpack(await made.status(7), CoordinatorStatus) == STATUS
    assert unpack(await made.verdict(8, 0.5), CoordinatorStatus) == STATUS
    assert coordinator.told == [report, request, PLAN, 7, (8, 0.5)]


@in_loop
async def test_it_counts_only_where_the_job_is_measured(make: Callable[..., CoordinatorActor]) -> None:
    assert await make().ping() is None
    counted = await make(Settings()).ping()
    assert counted is not None
    assert unpack(counted, TallyState) == TallyState()


@in_loop
async def test_a_stop_that_is_asked_for_twice_is_one(make: Callable[..., CoordinatorActor]) -> None:
    made = make()
    made._job, made._client = coordinator, client = Coordinator(), Client()
    assert await made.stop(True)
    assert await made.stop(False)
    assert (coordinator.stopped, client.closed) == ([True], 1)
