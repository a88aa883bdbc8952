"""The Ray cluster of a job: joins an existing one, or starts a local one, which ends with the process's last job."""

from __future__ import annotations

import logging
import os
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import ray

from kafka_actors.errors import StartTimeoutError, UsageError

from .log_settings import quiet_start

__all__ = ["connect_to_ray", "known_cluster", "start_local_ray", "use_ray"]

logger = logging.getLogger(__name__)


_RAY_GIVES_UP_S = 30.0
"""Seconds after which `ray.init` gives up a node that it has started: a constant of Ray's (`ray._private.node`)."""
_ENDS = (
    "a detached job needs a Ray cluster, and the local Ray of this program would end with this program: start one with "
    "`ray start --head`, or set RAY_ADDRESS to the one that is there"
)
_lock = threading.Lock()
_users: int | None = None
"""The number of this process's jobs that use the local Ray which was started for them; None without such a Ray."""


def use_ray(*, detached: bool = False) -> Callable[[], None]:
    """Connects to Ray for a job. Returns a function to be called once when the job has ended: it shuts the local Ray down
    after the last job of this process. Raises `UsageError` for a detached job, which is to outlive that."""
    global _users
    with _lock:
        if connect_to_ray(detached=detached):
            _users = 0
        if _users is None:
            return lambda: None
        _users += 1
        return _release


def _release() -> None:
    global _users
    with _lock:
        if _users is None:
            return
        _users -= 1
        if not _users:
            _users = None
            ray.shutdown()


def connect_to_ray(only_existing: bool = False, detached: bool = False) -> bool:
    """Joins a Ray cluster, or starts a local one. Returns whether it was started.

    Joined is the cluster that RAY_ADDRESS names, or that `ray start` started on this machine. The local Ray of another program
    is not joined: it would end with that program. Raises `UsageError` where there is none to join, if `only_existing`, or none
    but the local Ray of this program, for a `detached` job, or the one of RAY_ADDRESS doesn't answer.
    """
    if ray.is_initialized():
        if detached and _users is not None:
            raise UsageError(_ENDS)
        return False
    address = known_cluster()
    if address is not None:
        given = os.environ.get("RAY_ADDRESS")
        try:
            # Where no address is given Ray finds the same one, and only then the token that `ray start` left on this machine.
            ray.init(address=given or None, log_to_driver=True, logging_level=_level())
        except ConnectionError:
            if given:
                raise UsageError(
                    f"no Ray cluster answers at {address!r}; start one, or unset RAY_ADDRESS, or set RAY_AUTH_MODE=token "
                    "for one that wants a token"
                ) from None
        else:
            logger.info("joined the Ray cluster at %s", address)
            return False
    if detached:
        raise UsageError(_ENDS)
    if only_existing:
        raise UsageError(
            "no Ray cluster runs here; set RAY_ADDRESS to the one that the job runs in "
            "(kafka-actors top takes the URL of its status page as well, and needs no Ray for that)"
        )
    start_local_ray(log_to_driver=True)
    return True


def start_local_ray(**options: Any) -> None:
    """Starts a Ray for this program alone, without the dashboard. `options` are those of `ray.init`. Raises `StartTimeoutError`
    where Ray gave its own start up."""
    try:
        with quiet_start():
            ray.init(address="local", include_dashboard=False, **{"logging_level": _level(), **options})
    except Exception as error:
        if type(error) is not Exception or "timed out during startup" not in str(error):
            raise  # Ray has no class for its own timeout
        raise StartTimeoutError(
            "the Ray of this machine, which waits no longer; on a busy machine start one with `ray start --head`, which the job then "
            f"joins. Its logs are in {_directory() / 'session_latest' / 'logs'}",
            _RAY_GIVES_UP_S,
        ) from error


def _level() -> str:
    """The level of Ray's own log lines in this process: only warnings, unless RAY_LOGGER_LEVEL is set."""
    return os.environ.get("RAY_LOGGER_LEVEL", "warning")


def known_cluster() -> str | None:
    """Returns the address of the Ray cluster that a job would join; None if it would start a local one."""
    return os.environ.get("RAY_ADDRESS") or _started_by_hand()


def _started_by_hand() -> str | None:
    """Reads the address that `ray start` writes on its machine."""
    try:
        return (_directory() / "ray_current_cluster").read_text() or None
    except OSError:
        return None


def _directory() -> Path:
    """Returns the directory in which the Rays of this machine have their files."""
    return Path(os.environ.get("RAY_TMPDIR", "/tmp")) / "ray"
