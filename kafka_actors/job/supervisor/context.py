"""`SupervisorContext`: the state that the parts of a job's supervisor share."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from kafka_actors.base.tasks import OwnedTasks
from kafka_actors.job.machines.retries import CallDeaths
from kafka_actors.job.messages import JobStart
from kafka_actors.job.plan import JobPlan

from .machines.supervision import Supervision
from .report import JobReport
from .runtime import RunningActors, Runtime
from .telemetry import JobTelemetry
from .worker_scaling import Autoscaler

__all__ = ["SupervisorContext"]


class SupervisorContext:
    """A job under supervision. `fail` ends it with an error.

    `machine` decides about actors, `running` lists those that run. `scaling`: the number of workers. `report` and
    `telemetry`: the job's status, log and metrics. `tasks`: all of the supervisor's tasks. `started` is done once the job
    works. `job_start`: the topics at the start, None until the metadata actor has listed them. `stopping`: the job ends,
    for whatever reason. `deaths`: calls of the user's function in which workers died.
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
            lanes=plan.config.lanes,
            retry_topics=plan.spec.outputs.tiers.topics,
        )
        self.report = JobReport(plan, self.running, self.machine.restarts, self.scaling.status, clock)
        self.telemetry = JobTelemetry(plan.config.group_id, plan.telemetry is not None)
        self.tasks = OwnedTasks(fail)
        self.deaths = CallDeaths(plan.spec.retries)
        self.started: asyncio.Future[None] = asyncio.get_event_loop().create_future()
        self.job_start: JobStart | None = None
        self.stopping = False
