"""Jobs on Ray: `Job` and `RunningJob`, the actors that a job runs as, and the engine of pipelines, `OnRay`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kafka_actors.lazy import lazily

if TYPE_CHECKING:
    from .engine.on_ray import OnRay
    from .job import Job
    from .running_job import RunningJob

# Loaded when first used: the process of each actor imports this package, and needs nothing of what a driver does.
_HOMES = {
    "Job": "job",
    "OnRay": "engine.on_ray",
    "RunningJob": "running_job",
}

__all__ = [
    "Job",
    "OnRay",
    "RunningJob",
]

__getattr__ = lazily(__name__, _HOMES)


def __dir__() -> list[str]:
    return __all__
