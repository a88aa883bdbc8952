"""`--workers 8` and `--workers 1..16`."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from kafka_actors.job import Autoscale

__all__ = ["read_workers", "written_workers"]


def read_workers(given: int | str) -> int | Autoscale:
    """What the command line, the environment or a file says. Raises `ConfigError`."""
    from kafka_actors.job.autoscale import parsed_workers

    return parsed_workers(str(given))


def written_workers(workers: int | Autoscale) -> int | str:
    """A number, or a range as text."""
    return workers if isinstance(workers, int) else str(workers)
