"""Drives machines: one task that steps, sleeps until the next wake-up, and tells who waits."""

from __future__ import annotations

import asyncio
from collections.abc import Callable


class StepLoop:
    """Calls `step` whenever `wake` was called or the time has come that it returned last (None: never).

    on_crash: an exception of `step`, after which there is no further step. clock: seconds, monotonic. Bound to
    the event loop in which `run` is called first.
    """

    def __init__(
        self,
        step: Callable[[], float | None],
        on_crash: Callable[[Exception], None],
        clock: Callable[[], float],
    ) -> None:
        self._step = step
        self._on_crash = on_crash
        self._clock = clock
        self._wakeup = asyncio.Event()
        self._changed = asyncio.Condition()
        self._task: asyncio.Task[None] | None = None
        self.broken = False
        """Whether a step raised."""

    @property
    def running(self) -> bool:
        """Whether the task has been started and not stopped."""
        return self._task is not None

    def run(self) -> None:
        """Starts the task, where there is none."""
        if self._task is None:
            self._task = asyncio.get_running_loop().create_task(self._run())

    def wake(self) -> None:
        """Something has changed: a step is due."""
        self._wakeup.set()

    async def until(self, condition: Callable[[], bool], seconds: float | None) -> bool:
        """Returns True once the condition holds after a step, False when `seconds` have passed (None: never)."""
        try:
            async with asyncio.timeout(seconds), self._changed:
                await self._changed.wait_for(condition)
        except TimeoutError:
            return False
        return True

    async def stop(self) -> None:
        """Ends the task."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait({self._task})
            self._task = None

    async def _run(self) -> None:
        while not self.broken:
            self._wakeup.clear()
            try:
                wake = self._step()
            except Exception as error:  # a defect of ours must not leave a member that looks alive
                self.broken = True
                self._on_crash(error)
                break
            await self._tell()
            try:
                async with asyncio.timeout(None if wake is None else max(0.0, wake - self._clock())):
                    await self._wakeup.wait()
            except TimeoutError:
                pass
        await self._tell()

    async def _tell(self) -> None:
        async with self._changed:
            self._changed.notify_all()
