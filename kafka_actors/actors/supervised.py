"""What the parts of a supervisor have in common: the job as it is, and what each of them tells and asks."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from .autoscaling import Autoscaling
from .loops import Loops
from .machines.deaths import Deaths
from .machines.supervision import Supervision
from .messages import JobStart
from .observing import JobObserver
from .plan import JobPlan
from .reporting import Reporting
from .roster import Roster
from .runtime import Runtime

__all__ = ["Supervised"]


class Supervised:
    """A job under supervision. `fail` ends it with an error.

    `machine` decides which actors there should be, `roster` has those that there are, `scaling` how many workers there
    should be. `report` and `observer` are what is told of the job, `loops` what goes on in it. `started` is done
    once it works; `job_start`, how the topics were then, is known once the metadata actor has said it. `stopping`: it
    ends, for whatever reason. `deaths`: of workers in calls of the user's function.
    """

    report: Reporting

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
        self.machine = Supervision(plan.timings, runtime.here)
        self.roster = Roster(plan)
        self.scaling = Autoscaling(
            plan.workers,
            runtime,
            clock,
            lambda event: self.report.happened(event),
            patience_s=plan.timings.start_timeout,
        )
        self.report = Reporting(plan, self.roster, self.machine.restarts, self.scaling.status, clock)
        self.observer = JobObserver(plan.config.group_id, plan.telemetry is not None)
        self.loops = Loops(fail)
        self.deaths = Deaths(plan.spec.retries)
        self.started: asyncio.Future[None] = asyncio.get_event_loop().create_future()
        self.job_start: JobStart | None = None
        self.stopping = False
