"""Event loops in tests: an async test in one of its own with a bound on its time, and turns of a loop instead of seconds."""

from __future__ import annotations

import asyncio
import functools
from collections.abc import Awaitable, Callable
from typing import Any

from waiting import slow_s


def in_loop(test: Callable[..., Awaitable[None]]) -> Callable[..., None]:
    """Decorator: the coroutine function becomes a plain test, fixtures included. It may take 60 s of a quiet machine."""

    @functools.wraps(test)
    def run(*args: Any, **kwargs: Any) -> None:
        async def bounded() -> None:
            async with asyncio.timeout(slow_s(60)):
                await test(*args, **kwargs)

        asyncio.run(bounded())

    return run


async def turns(count: int) -> None:
    """Lets everything that is ready have so many turns."""
    for _ in range(count):
        await asyncio.sleep(0)


async def turns_until(condition: Callable[[], bool]) -> None:
    """Gives turns until `condition` becomes true. Raises `AssertionError` where that's more than 1,000."""
    for _ in range(1_000):
        if condition():
            return
        await asyncio.sleep(0)
    raise AssertionError("it did not come")
