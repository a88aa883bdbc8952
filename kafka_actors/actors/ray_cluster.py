"""Which Ray a job runs in."""

from __future__ import annotations

import contextlib
import logging
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import ray

from kafka_actors.errors import UsageError

__all__ = ["connect_to_ray", "start_local_ray"]

logger = logging.getLogger(__name__)


def connect_to_ray(only_existing: bool = False) -> bool:
    """Joins the Ray cluster there is, or starts a local one. Returns whether it was started here.

    A cluster is one that RAY_ADDRESS names or `ray start` started on this machine. The local Ray of another
    program is not: it would end with that program.
    """
    if ray.is_initialized():
        return False
    address = os.environ.get("RAY_ADDRESS") or _started_by_hand()
    if address is not None:
        try:
            ray.init(address=address, log_to_driver=True)
        except ConnectionError:
            if os.environ.get("RAY_ADDRESS"):
                raise UsageError(
                    f"no Ray cluster answers at {address!r}; start one, or unset RAY_ADDRESS"
                ) from None
        else:
            logger.info("joined the Ray cluster at %s", address)
            return False
    if only_existing:
        raise UsageError(
            "no Ray cluster runs here; set RAY_ADDRESS to the one that the job runs in "
            "(kafka-actors top takes the URL of its status page as well, and needs no Ray for that)"
        )
    start_local_ray(log_to_driver=True)
    return True


def start_local_ray(**options: Any) -> None:
    """A Ray for this program alone, without its dashboard. `options` are those of `ray.init`."""
    with _told_to_free_at_once():
        ray.init(address="local", include_dashboard=False, **options)


FREE_AT_ONCE = "RAY_free_objects_batch_size"
"""Ray gives the memory of objects that nobody refers to back in hundreds, or after a second. In a second some
gigabytes of records pass through: they would all be held, and the next ones go into memory that no cache knows."""


@contextlib.contextmanager
def _told_to_free_at_once() -> Iterator[None]:
    """Ray's own processes read their settings from the environment that they are started in."""
    if FREE_AT_ONCE in os.environ:
        yield
        return
    os.environ[FREE_AT_ONCE] = "1"
    try:
        yield
    finally:
        del os.environ[FREE_AT_ONCE]


def _started_by_hand() -> str | None:
    """The address that `ray start` leaves on its machine."""
    try:
        return (
            Path(os.environ.get("RAY_TMPDIR", "/tmp")) / "ray" / "ray_current_cluster"
        ).read_text() or None
    except OSError:
        return None
