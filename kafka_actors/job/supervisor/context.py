"""What the parts of a supervisor have in common: the job as it is, and what each of them tells and asks."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from kafka_actors.base.tasks import OwnedTasks
from kafka_actors.job.machines.deaths import CallDeaths
from kafka_actors.job.messages import JobStart
from kafka_actors.job.plan import JobPlan

from .machines.supervision import Supervision
from .report import JobReport
from .running_actors import RunningActors
from .runtime import Runtime
from .telemetry import JobTelemetry
from .worker_scaling import Autoscaler

__all__ = ["SupervisorContext"]


class SupervisorContext:
    """A job under supervision. `fail` ends it with an error.

    `machine` decides which actors there should be, `roster` has those that there are, `scaling` how many workers there
    should be. `report` and `telemetry` are what is told of the job, `loops` what goes on in it. `started` is done
    once it works; `job_start`, how the topics were then, is known once the metadata actor has said it. `stopping`: it
    ends, for whatever reason. `deaths`: of workers in calls of the user's function.
    """

    report: JobReport

    def __init__(
        self,
        plan: JobPlan,
        runtime: Runtime,
        clock: Callable[[], float],
        fail: Callable[[BaseException], None],
    ) -> None:
        self.plan = plan
        self.runtime = runtime
        self.clock = clock
        self.fail = fail
        self.machine = Supervision(plan.timings, runtime.own_node)
        self.running = RunningActors(plan)
        self.scaling = Autoscaler(
            plan.workers,
            runtime,
            clock,
            lambda event: self.report.happened(event),
            placement_timeout_s=plan.timings.start_timeout,
        )
        self.report = JobReport(plan, self.running, self.machine.restarts, self.scaling.status, clock)
        self.telemetry = JobTelemetry(plan.config.group_id, plan.telemetry is not None)
        self.tasks = OwnedTasks(fail)
        self.deaths = CallDeaths(plan.spec.retries)
        self.started: asyncio.Future[None] = asyncio.get_event_loop().create_future()
        self.job_start: JobStart | None = None
        self.stopping = False
