"""Processes of actors on this machine, as /proc shows them."""

from __future__ import annotations

import os
import signal

__all__ = ["end_process", "process_runs"]


def process_runs(pid: int) -> bool:
    """False when there is no such process, or it is stopped (state T) or already dead (Z, X).

    One that a debugger or a profiler holds (t) runs: who looks at it lets it go on, and would find it killed.
    """
    try:
        with open(f"/proc/{pid}/stat") as stat:
            return stat.read().rpartition(")")[2].split()[0] not in "TZX"
    except OSError:
        return False


def end_process(pid: int) -> None:
    """SIGKILL, if it is an actor's process."""
    try:
        with open(f"/proc/{pid}/cmdline") as cmdline:
            if "ray::" not in cmdline.read():
                return  # the number belongs to somebody else by now
        os.kill(pid, signal.SIGKILL)
    except OSError:
        pass
