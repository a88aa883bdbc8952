"""Jobs on Ray: `Job` and `RunningJob`, the actors that a job runs as, and the engine of pipelines, `OnRay`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

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

_INSTEAD = (
    "kafka_actors.ray has no read_kafka, which would make a Ray Dataset: Pipeline.read_kafka(…).on_ray() runs stages on a topic's "
    "batches, Job a function, and .write_parquet(…) of a pipeline makes files for ray.data.read_parquet"
)

_find = lazily(__name__, _HOMES)


def __getattr__(name: str) -> Any:
    if name == "read_kafka":  # the name that Ray Data's readers have
        raise AttributeError(_INSTEAD, name=name)
    return _find(name)


def __dir__() -> list[str]:
    return __all__
