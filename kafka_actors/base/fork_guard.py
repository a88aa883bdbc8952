"""Guards against forks: objects that hold sockets belong to the process, and the event loop, that created them; and a child that code of
others forks does not go on in place of its parent."""

from __future__ import annotations

import os
import traceback
from typing import Any, NoReturn

from kafka_actors.errors import UsageError

_forks = 0
"""Forks between this process and the one that imported this module. A producer compares it for each record: reading the
process id instead would be a system call."""


def _after_fork() -> None:
    global _forks
    _forks += 1


os.register_at_fork(after_in_child=_after_fork)


def forks() -> int:
    """Number that is another one in each child that is forked after the call."""
    return _forks


def end_child(made_after: int, called: str, error: BaseException | None = None) -> None:
    """Ends this process at once if it was forked since `forks` returned `made_after`; for where a call of others' code is left.

    A child that came back would go on with its copy of its parent's work and sockets. Its exit code is that of `sys.exit`, 0
    where it returned, or 1 for any other `error`. `called`: name of what was called, for the line on stderr.
    """
    if _forks == made_after:
        return
    code = getattr(error, "code", 1) if error is not None else 0
    if not isinstance(error, SystemExit):
        raised = "".join(traceback.format_exception(error)) if error is not None else ""
        line = f"{raised}{called} forked process {os.getpid()}, which has left the call: it is ended, its parent goes on; end it with os._exit\n"
        os.write(2, line.encode())
    os._exit(code if isinstance(code, int) else int(code is not None))


class NotPicklable:
    """Refuses pickling, as Ray and Spark pickle what a function refers to: sockets and threads stay in their process."""

    _called = ""
    """Name for error messages, if it differs from the class's."""

    def __reduce_ex__(self, protocol: Any) -> NoReturn:
        name = self._called or type(self).__name__
        raise TypeError(
            f"{'an' if name[0] in 'aeiouAEIOU' else 'a'} {name} can't be pickled, because it holds sockets: send its config and "
            "make a new one where it is needed"
        )


class ForkGuard(NotPicklable):
    """Refuses use after a fork, which would share sockets between two processes."""

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


def another_loop(owner: object) -> str:
    """Error text for an asyncio client that is used in another event loop than before."""
    return (
        f"this {type(owner).__name__} belongs to the event loop that it was first used in: make one in each "
        "asyncio.run(), or use it in one loop only"
    )
