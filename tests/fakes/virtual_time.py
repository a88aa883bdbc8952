"""An event loop whose clock moves on by itself: where nothing is ready, the time of the next timer has come."""

from __future__ import annotations

import asyncio
import selectors
from collections.abc import Callable, Coroutine
from typing import Any

import pytest

TURN_S = 1e-6
"""A turn of the loop takes some time: who waits for what is left of a second, and looks again, must not find the same moment."""

NOTHING_TO_WAIT_FOR = "nothing is ready and no timer runs: whoever waits would wait for good"


class _Selector(selectors.DefaultSelector):
    """Waits for nothing: moves the clock instead."""

    def __init__(self, *, files: bool) -> None:
        super().__init__()
        self.now = 0.0
        self._files = files

    def select(self, timeout: float | None = None) -> Any:
        if timeout is None:
            raise AssertionError(NOTHING_TO_WAIT_FOR)
        self.now += max(TURN_S, timeout)
        return super().select(0) if self._files else []


class VirtualTimeLoop(asyncio.SelectorEventLoop):
    """`time()` begins at 0 and takes no real time. Work for threads is done at once, in the loop's own. files: whether it looks at real
    files, such as that by which threads wake it."""

    def __init__(self, *, files: bool = True) -> None:
        self._virtual = _Selector(files=files)
        super().__init__(self._virtual)

    def time(self) -> float:
        return self._virtual.now


def run_in_virtual_time(main: Coroutine[Any, Any, Any]) -> Any:
    """`asyncio.run` in such a loop, also where unit tests may not sleep."""

    async def at_once(work: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        return work(*args, **kwargs)

    with pytest.MonkeyPatch.context() as patch, asyncio.Runner(loop_factory=VirtualTimeLoop) as runner:
        patch.setattr(asyncio, "sleep", asyncio.tasks.sleep)
        patch.setattr(asyncio, "to_thread", at_once)
        return runner.run(main)
