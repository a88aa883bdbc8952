"""Which Ray a job runs in."""

from __future__ import annotations

import logging
import os
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import ray

from kafka_actors.errors import UsageError

from .log_settings import quiet_start

__all__ = ["connect_to_ray", "known_cluster", "start_local_ray", "use_ray"]

logger = logging.getLogger(__name__)


_lock = threading.Lock()
_users: int | None = None
"""Jobs of this process that use the Ray which was started for the first of them; None where there is no such Ray."""


def use_ray() -> Callable[[], None]:
    """Connects, for a job. Returns what is to be called, once, when the job has ended: a Ray that was started for jobs
    of this process ends with the last one of them."""
    global _users
    with _lock:
        if connect_to_ray():
            _users = 0
        if _users is None:
            return lambda: None
        _users += 1
        return _let_go


def _let_go() -> None:
    global _users
    with _lock:
        if _users is None:
            return
        _users -= 1
        if not _users:
            _users = None
            ray.shutdown()


def connect_to_ray(only_existing: bool = False) -> bool:
    """Joins the Ray cluster there is, or starts a local one. Returns whether it was started here.

    A cluster is one that RAY_ADDRESS names or `ray start` started on this machine. The local Ray of another
    program is not: it would end with that program.
    """
    if ray.is_initialized():
        return False
    address = known_cluster()
    if address is not None:
        try:
            ray.init(address=address, log_to_driver=True, logging_level=_level())
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
    with quiet_start():
        ray.init(address="local", include_dashboard=False, **{"logging_level": _level(), **options})


def _level() -> str:
    """Level of Ray's own log lines in this process, where nobody says otherwise: its first ones are about its start."""
    return os.environ.get("RAY_LOGGER_LEVEL", "warning")


def known_cluster() -> str | None:
    """The address of the Ray cluster that a job would join; None where it would start a Ray of its own."""
    return os.environ.get("RAY_ADDRESS") or _started_by_hand()


def _started_by_hand() -> str | None:
    """The address that `ray start` leaves on its machine."""
    try:
        return (
            Path(os.environ.get("RAY_TMPDIR", "/tmp")) / "ray" / "ray_current_cluster"
        ).read_text() or None
    except OSError:
        return None
