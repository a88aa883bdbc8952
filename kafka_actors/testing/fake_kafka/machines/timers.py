"""Timers of the brokers: calls that are due at a time of the clock that is passed in.

Theory of operation. Sessions, rebalance timeouts, long polls, delays of rules and the coordinators' looks at
open transactions all wait. None of them has a clock: each makes a timer with a call, and `FakeCluster.poll`
runs what is due and tells the shell when the next one is. So five minutes of a rebalance take a test no time,
and a simulation decides what happens first.

Timers of one moment run in the order in which they were made, and a timer made while others run, for that
same moment, runs in the same poll. So a run depends on nothing but its inputs. A cancelled timer stays in the
heap until its time has come or it is the next one: cancelling is frequent (each heartbeat moves a session's
end), and costs nothing this way.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable
from itertools import count


class BrokerTimer:
    """A call that is due at `at` seconds, unless it is cancelled."""

    def __init__(self, at: float, call: Callable[[], object]) -> None:
        self.at = at
        self._call: Callable[[], object] | None = call

    @property
    def waiting(self) -> bool:
        """Whether it has neither run nor been cancelled."""
        return self._call is not None

    def cancel(self) -> None:
        """Prevents the call."""
        self._call = None

    def run(self) -> None:
        """Makes the call, once."""
        call, self._call = self._call, None
        if call is not None:
            call()


class BrokerTimers:
    """All timers of a cluster. Those of one moment run in the order in which they were made."""

    def __init__(self) -> None:
        self._heap: list[tuple[float, int, BrokerTimer]] = []
        self._numbers = count()

    def at(self, when: float, call: Callable[[], object]) -> BrokerTimer:
        """Has `call()` made at `when`."""
        timer = BrokerTimer(when, call)
        heapq.heappush(self._heap, (when, next(self._numbers), timer))
        return timer

    def run_due(self, now: float) -> None:
        """Runs what is due at `now`, also timers that these make for that moment."""
        while (when := self.next_wake) is not None and when <= now:
            _, _, timer = heapq.heappop(self._heap)
            timer.run()

    @property
    def next_wake(self) -> float | None:
        """When the next timer is due; None where there is none."""
        while self._heap and not self._heap[0][2].waiting:
            heapq.heappop(self._heap)
        return self._heap[0][0] if self._heap else None


def cancel(*timers: BrokerTimer | None) -> None:
    """Cancels the timers that there are."""
    for timer in timers:
        if timer is not None:
            timer.cancel()
