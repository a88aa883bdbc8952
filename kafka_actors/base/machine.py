"""The contract of machines: parts that decide, to which time and answers are passed in, and which do no IO themselves.

Inputs are ordinary methods (`on_response(…, now)`, `submit(…, now)`): they change the machine's state and return nothing that has
to be acted upon. `poll(now)` is its only way to ask for something: it takes all decisions that are due, and returns what
has to be done and when it wants to be polled again at the latest. A shell with IO polls after each input and at `next_wake`, so a
test steps the same machine by hand. etcd's raft library works in this way; its `Ready` gave the name.

`machine_driver` has the asyncio shell. How to write the next machine: docs/development/machines.md.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Generic, Protocol, TypeVar

from msgspec import Struct

__all__ = ["Machine", "Ready", "earliest"]

A_co = TypeVar("A_co", covariant=True)
E_co = TypeVar("E_co", covariant=True)


class Ready(Struct, Generic[A_co, E_co], frozen=True):
    """All that a machine wants at one moment. Nothing in it is returned by a later `poll` again.

    A Struct and no dataclass, because one is made for each fetch response: 0.16 µs against 0.88 (CPython 3.11).
    """

    actions: tuple[A_co, ...] = ()
    """To be carried out by the shell, in this order."""
    events: tuple[E_co, ...] = ()
    """Facts that came about, in order, for logs, metrics and observers. A shell that ignores them changes nothing."""
    next_wake: float | None = None
    """When to poll again if there is no input before, in seconds of the clock that `now` is of; None for never."""


class Machine(Protocol[A_co, E_co]):
    """Whatever decides under the contract of this module. Only `poll` is common: inputs are each machine's own."""

    def poll(self, now: float) -> Ready[A_co, E_co]:
        """Takes the decisions that are due at `now`: seconds of a monotonic clock, never less than in an earlier call."""


def earliest(times: Iterable[float | None]) -> float | None:
    """The first of several wake-up times; None where there is none."""
    return min([time for time in times if time is not None], default=None)
