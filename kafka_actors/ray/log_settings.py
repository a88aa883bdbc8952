"""Settings by which Ray prints less than by default into the terminal of a program that runs a job."""

from __future__ import annotations

import logging
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager

__all__ = ["ABOUT_EVERY_JOB", "quiet_lines", "quiet_start"]

ABOUT_EVERY_JOB = (
    # A paragraph for each actor that was killed: the supervisor logs one line.
    "A worker died or was killed while executing a task by an unexpected system error"
    # A job consists of actors that take no CPU.
    r"|WARNING: \d+ PYTHON worker processes have been started on node"
)
"""Regular expression of the beginnings of lines that Ray prints about every job, and that tell nothing about this one."""


def quiet_lines() -> None:
    """Has Ray print each line of the actors, except those that `ABOUT_EVERY_JOB` matches.

    By default Ray prints only one of several lines that differ in numbers, and a paragraph about that. It reads these
    variables on import: nothing changes in a program that has imported it, or where they are set.
    """
    if "ray" not in sys.modules and os.environ.get("RAY_DEDUP_LOGS", "1") != "0":
        os.environ.setdefault("RAY_DEDUP_LOGS_ALLOW_REGEX", f"^(?!{ABOUT_EVERY_JOB})")
        os.environ.setdefault("RAY_DEDUP_LOGS_SKIP_REGEX", f"^(?:{ABOUT_EVERY_JOB})")


@contextmanager
def quiet_start() -> Iterator[None]:
    """Context manager that hides Ray's warning that token authentication is on in a local Ray, as it should be."""
    log = logging.getLogger("ray._private.authentication")
    before = log.level
    log.setLevel(logging.ERROR)
    try:
        yield
    finally:
        log.setLevel(before)
