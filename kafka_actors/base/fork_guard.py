"""Guards of objects that hold sockets: they belong to the process, and the event loop, that created them."""

from __future__ import annotations

import os
from typing import Any, NoReturn

from kafka_actors.errors import UsageError

_forks = 0
"""Forks between this process and the one that imported this module. A producer compares it for each record: reading the
process id instead would be a system call."""


def _after_fork() -> None:
    global _forks
    _forks += 1


os.register_at_fork(after_in_child=_after_fork)


class ForkGuard:
    """Refuses use after a fork, which would share sockets between two processes, and refuses pickling."""

    _called = ""
    """Name for error messages, if it differs from the class's."""

    def __init__(self) -> None:
        self._pid = os.getpid()
        self._made_after = _forks

    def _check_process(self) -> None:
        """Raises `UsageError` in a forked child."""
        if _forks != self._made_after:
            raise UsageError(
                f"this {self._called or type(self).__name__} was made in process {self._pid} and its sockets can't "
                f"be shared with its fork {os.getpid()}: make a new one there"
            )

    def __reduce_ex__(self, protocol: Any) -> NoReturn:
        raise TypeError(
            f"a {self._called or type(self).__name__} can't be pickled, because it holds sockets: send its config and "
            "make a new one where it is needed"
        )


def another_loop(owner: object) -> str:
    """Error text for an asyncio client that is used in another event loop than before."""
    return (
        f"this {type(owner).__name__} belongs to the event loop that it was first used in: make one in each "
        "asyncio.run(), or use it in one loop only"
    )
