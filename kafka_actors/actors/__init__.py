"""A consumer group member as actors on Ray: `Job` and `RunningJob`, and behind them the supervisor, the metadata
and coordinator actors, a connection actor for each broker and node, and the workers."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kafka_actors.lazy import lazily

if TYPE_CHECKING:
    from .autoscale import Autoscale
    from .job import Job, RunningJob
    from .status import JobStatus, WorkerStatus

# Loaded when first used: the process of each actor imports this package, and needs nothing of what a driver does.
_HOMES = {
    "Autoscale": "autoscale",
    "Job": "job",
    "JobStatus": "status",
    "RunningJob": "job",
    "WorkerStatus": "status",
}

__all__ = [
    "Autoscale",
    "Job",
    "JobStatus",
    "RunningJob",
    "WorkerStatus",
]

__getattr__ = lazily(__name__, _HOMES)


def __dir__() -> list[str]:
    return __all__
