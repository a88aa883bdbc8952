"""A job without Ray: its plan, its status, and the supervisor, the coordinator and the workers that carry it out."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kafka_actors.lazy import lazily

if TYPE_CHECKING:
    from .autoscale import Autoscale
    from .retry_topics import RetryTopics
    from .status import JobStatus, WorkerStatus

# Loaded when first used: the process of each actor imports this package, and needs nothing of what a driver does.
_HOMES = {
    "Autoscale": "autoscale",
    "JobStatus": "status",
    "RetryTopics": "retry_topics",
    "WorkerStatus": "status",
}

__all__ = [
    "Autoscale",
    "JobStatus",
    "RetryTopics",
    "WorkerStatus",
]

__getattr__ = lazily(__name__, _HOMES)


def __dir__() -> list[str]:
    return __all__
