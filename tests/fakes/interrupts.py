"""A signal's handler that raises behind a chosen call of the main thread, as it may behind any."""

from __future__ import annotations

import contextlib
import sys
import threading
from collections.abc import Callable, Iterator
from types import FrameType
from typing import Any

TAKING_A_CONDITION = threading.Condition.__enter__
"""Behind it the lock of a `Condition`, `Event` or `Future` is taken, and no `with` gives it back yet."""


@contextlib.contextmanager
def interrupted_behind(call: Callable[..., object]) -> Iterator[None]:
    """Ends the block by a `KeyboardInterrupt`, which is not passed on, right behind the first call of this Python function in it."""

    def on_call(frame: FrameType, event: str, arg: object) -> Any:
        return on_return if frame.f_code is call.__code__ else None  # type: ignore[attr-defined]  # of a Python function

    def on_return(frame: FrameType, event: str, arg: object) -> Any:
        if event == "return":
            sys.settrace(None)
            raise KeyboardInterrupt
        return on_return

    before = sys.gettrace()
    sys.settrace(on_call)
    try:
        with contextlib.suppress(KeyboardInterrupt):
            yield
    finally:
        sys.settrace(before)
