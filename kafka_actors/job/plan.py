"""`JobPlan`: a checked job definition, with everything that a supervisor needs to run the job."""

from __future__ import annotations

import logging
from typing import Any

import msgspec

from kafka_actors.config import JobConfig
from kafka_actors.telemetry.logs import LogOrigin
from kafka_actors.telemetry.sdk import Settings

from .actor_setup import ProcessSetup
from .autoscale import Autoscale
from .supervisor.machines.supervision import SupervisionTimings
from .transactions import TransactionalIds
from .worker.user_function import FunctionSpec

__all__ = ["JobPlan"]


class JobPlan(msgspec.Struct, frozen=True, kw_only=True):
    """A checked job definition, on its way from the driver to the supervisor.

    `topics`: with the retry topics. `bounded`: stop at the end offsets that the topics have at the start. `resources`: what a worker takes, in Ray's names.
    `telemetry`: None if the job isn't measured. `status_address`: host and port of the status page, None without one.
    `transactions`: the transactional ids of a job that delivers exactly once, None for at least once.
    """

    topics: list[str] | None
    pattern: str | None
    spec: FunctionSpec
    config: JobConfig
    workers: int | Autoscale
    bounded: bool
    group_instance_id: str | None
    name: str | None
    resources: dict[str, Any]
    log_level: int = logging.WARNING
    telemetry: Settings | None = None
    status_address: tuple[str, int] | None = None
    transactions: TransactionalIds | None = None

    def __repr__(self) -> str:
        """Name of the job alone: Ray prints an argument that it can't send, and `resources` may have secrets in their `runtime_env`."""
        return f"<JobPlan {' '.join(filter(None, (self.config.group_id, self.name)))}>"

    def setup(self, actor: str, incarnation: int = 0) -> ProcessSetup:
        """Makes the process set-up of one actor, named by its role and incarnation."""
        origin = LogOrigin(self.config.group_id or "", self.name or "", actor, incarnation)
        return ProcessSetup(self.log_level, origin, self.telemetry)

    @property
    def timings(self) -> SupervisionTimings:
        config = self.config
        return SupervisionTimings(
            ping_interval=config.ping_interval_ms / 1000,
            ping_timeout=config.ping_timeout_ms / 1000,
            start_timeout=config.start_timeout_s,
            max_poll_interval=config.max_poll_interval_ms / 1000,
        )

    def capacity_of(self, worker: int) -> float:
        return float(self.config.worker_capacity.get(worker, 1.0))
