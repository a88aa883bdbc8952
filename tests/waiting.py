"""Waits of tests: until something is so, until a process has ended or stopped, and how long any other wait may last.

Seconds are those of a quiet machine everywhere here. A wait that only bounds a hang holds on a machine `SLOWEST` times as slow; a promise in
seconds is held by the pace that was measured meanwhile (see `pace`).
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import subprocess
import time
from collections.abc import Callable, Iterator

import psutil
from pace import this_run

SLOWEST = 10
"""Tests pass on machines that are this many times as slow as the reference."""
MOST_S = 600.0
"""The longest wait: pytest's own limit for a test (`timeout` in pyproject.toml) is longer, so that the wait fails first and says for what."""


def slow_s(seconds: float) -> float:
    """Returns the seconds after which a wait counts as a hang that takes `seconds` on a quiet machine: for timeouts of others, like that
    of `subprocess.run`, `asyncio.timeout` or `Future.result`."""
    return min(seconds * SLOWEST, MOST_S)


def at_pace_s(seconds: float) -> float:
    """Returns the seconds that `seconds` of a quiet machine take at the pace of the last moments: for timeouts of the product that a test
    waits out, and in which the product has something to do before."""
    return seconds * this_run().since(time.monotonic() - 15.0)


class _Limit:
    """Seconds of a quiet machine, counted from now on."""

    def __init__(self, seconds: float, what: str, shown: Callable[[], object] | None) -> None:
        self._seconds = seconds
        self._what = what
        self._shown = shown
        self._began = time.monotonic()

    def check(self) -> None:
        """Raises `AssertionError` where they are over."""
        if time.monotonic() - self._began > self._seconds * this_run().since(self._began):
            seen = f"\n{self._shown()}" if self._shown else ""
            raise AssertionError(f"not within {self._seconds:g} s: {self._what or 'the condition'}{seen}")


def until(
    condition: Callable[[], object],
    seconds: float = 30.0,
    what: str = "",
    pause: float = 0.05,
    *,
    shown: Callable[[], object] | None = None,
) -> None:
    """Waits for a condition; fails after `seconds` with what was waited for, and with what `shown` returns then."""
    limit = _Limit(seconds, what, shown)
    while not condition():
        limit.check()
        time.sleep(pause)


async def until_async(condition: Callable[[], object], seconds: float = 10.0, what: str = "") -> None:
    """Waits for a condition as `until` does, while the event loop goes on."""
    limit = _Limit(seconds, what, None)
    while not condition():
        limit.check()
        await asyncio.sleep(0.01)


def until_ended(
    process: subprocess.Popen[str] | subprocess.Popen[bytes], seconds: float, log: Callable[[], object]
) -> int:
    """Waits for the end of a process and returns its exit code; fails after `seconds` with its log."""
    until(lambda: process.poll() is not None, seconds, f"the end of process {process.pid}", shown=log)
    return process.wait()


def output_of(process: subprocess.Popen[str], seconds: float) -> tuple[str, str]:
    """Waits for the end of a process and returns what it wrote to its two streams. One that hangs fails the test with that, and with where
    each of its threads stands, if PYTHONFAULTHANDLER is set in its environment."""
    try:
        return process.communicate(timeout=slow_s(seconds))
    except subprocess.TimeoutExpired:
        process.send_signal(signal.SIGABRT)
        out, err = process.communicate()
        raise AssertionError(
            f"not within {slow_s(seconds):g} s: the end of process {process.pid}\n{out}\n{err}"
        ) from None


def suspend(*pids: int) -> float:
    """Sends SIGSTOP to processes, and waits until all of them have stopped: on a busy machine they run on for a while, and may still answer.
    Returns the `time.monotonic` of the first signal."""
    at = time.monotonic()
    for pid in pids:
        os.kill(pid, signal.SIGSTOP)
    for process in map(psutil.Process, pids):
        until(
            lambda process=process: process.status() == psutil.STATUS_STOPPED,
            30,
            f"process {process.pid} to stop",
        )
    return at


@contextlib.contextmanager
def within(seconds: float) -> Iterator[None]:
    """Promise: fails where the block took longer than `seconds` would have been on a quiet machine."""
    began = time.monotonic()
    yield
    took = this_run().quiet_s(began, time.monotonic())
    assert took <= seconds, f"took {took:.1f} s of a quiet machine, not {seconds:g}"
