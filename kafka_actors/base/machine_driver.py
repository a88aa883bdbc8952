"""The asyncio shell of machines: polls them, carries out what they ask for, and sleeps until they want to be polled again."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Never, TypeVar

from .machine import Machine, Ready, earliest
from .tasks import Broadcast, woken

__all__ = ["MachineDriver", "no_action"]

A = TypeVar("A")
E = TypeVar("E")


def no_action(action: Never) -> None:
    """Carries out the actions of a machine that has none."""


def _nothing(*_: object) -> None:
    """Ignores an event."""


class MachineDriver:
    """One loop over one or more machines (`base.machine`) that share a clock.

    Each turn polls the machines in the order in which they were added. The actions of a machine are carried out, then its events
    published, before the next one is polled; so an action may be the input of a later machine. Whoever gives a machine an input
    calls `wake` afterwards, or `poll` where the result is wanted at once. Bound to the event loop in which it runs first.

    clock: seconds, monotonic. after_poll: called at the end of each turn. on_crash: gets an exception of a turn, after which
    there is no other one: a defect must not leave machines that only look alive; without it `run` raises the exception.
    """

    def __init__(
        self,
        clock: Callable[[], float],
        *,
        after_poll: Callable[[], None] = _nothing,
        on_crash: Callable[[Exception], None] | None = None,
    ) -> None:
        self._clock = clock
        self._after_poll = after_poll
        self._on_crash = on_crash
        self._turns: list[Callable[[float], float | None]] = []
        self._next_wake: float | None = None
        self._wakeup = asyncio.Event()
        self._due = True
        self._polled = Broadcast()
        self._task: asyncio.Task[None] | None = None
        self.crashed = False
        """Whether a turn raised an exception."""

    def add(
        self,
        machine: Machine[A, E],
        carry_out: Callable[[A], object],
        publish: Callable[[E], object] = _nothing,
    ) -> None:
        """Drives this machine too. `carry_out` and `publish` get its actions and events one by one, and must not wait."""

        def turn(now: float) -> float | None:
            ready: Ready[A, E] = machine.poll(now)
            for action in ready.actions:
                carry_out(action)
            for event in ready.events:
                publish(event)
            return ready.next_wake

        self._turns.append(turn)

    @property
    def running(self) -> bool:
        """Whether the task of `start` exists: `stop` has not been called since."""
        return self._task is not None

    def start(self) -> None:
        """Runs in a task of its own, unless it does already."""
        if self._task is None:
            self._task = asyncio.get_running_loop().create_task(self.run())

    async def stop(self) -> None:
        """Ends the task of `start`."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait({self._task})
            self._task = None

    def wake(self) -> None:
        """Has the next turn follow soon: an input has changed something."""
        self._due = True
        self._wakeup.set()

    def poll(self) -> None:
        """Makes one turn now, by hand."""
        self._turn()
        self._wakeup.set()  # the loop sleeps until another time

    async def until(self, condition: Callable[[], bool], seconds: float | None) -> bool:
        """Returns True once the condition holds after a turn, False when `seconds` have passed (None: never)."""
        try:
            async with asyncio.timeout(seconds):
                while not condition():
                    await self._polled.wait()
        except TimeoutError:
            return False
        return True

    async def run(self) -> None:
        """Goes on until it is cancelled, or a turn raises an exception."""
        self._due = True
        while True:
            self._wakeup.clear()
            try:
                if self._due:
                    self._turn()
            except Exception as error:
                self._crash(error)
                return
            wake = self._next_wake
            await woken(self._wakeup, None if wake is None else max(0.0, wake - self._clock()))
            self._due |= not self._wakeup.is_set()

    def _turn(self) -> None:
        self._due = False
        now = self._clock()
        self._next_wake = earliest([turn(now) for turn in self._turns])
        self._after_poll()
        self._polled.notify_all()

    def _crash(self, error: Exception) -> None:
        self.crashed = True
        if self._on_crash is None:
            raise error
        self._on_crash(error)
        self._polled.notify_all()
