"""A live line while a run goes on: on a terminal, or in a notebook's cell."""

from __future__ import annotations

import shutil
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, TextIO, TypeVar

from kafka_actors.errors import JobFailed

from .progress import RunProgress, html, line

S = TypeVar("S")

EVERY_S = 1.0
PATIENCE_S = 2.0


class LiveLine:
    """Shows readings on a thread of its own, from `start` to `end`; says nothing where nobody looks (`show` is None)."""

    def __init__(
        self, read: Callable[[], RunProgress], show: Callable[[RunProgress, bool], None] | None
    ) -> None:
        self._read = read
        self._show = show
        self._over = threading.Event()
        self._told = False
        self._thread = threading.Thread(target=self._run, name="kafka-actors-live", daemon=True)

    def start(self) -> None:
        if self._show is not None:
            self._thread.start()

    def starting(self, read: Callable[[S], RunProgress]) -> Callable[[S], None] | None:
        """Shows what an engine says of a run that it starts; None where nobody looks."""
        show = self._show
        return None if show is None else lambda status: show(read(status), False)

    def end(self) -> None:
        """Before what is read is torn down. Safe to call twice."""
        self._over.set()
        if self._thread.is_alive():
            self._thread.join(PATIENCE_S)

    def last(self) -> None:
        """Ends it; the final reading stays. Shown once, however often it is called."""
        self.end()
        if self._show is not None and not self._told:
            self._told = True
            self._show(self._read(), True)

    @contextmanager
    def until_over(self) -> Iterator[None]:
        """Around a wait: whether the run ended well or failed, its last line stays. After a timeout it goes on."""
        try:
            yield
        except JobFailed:
            self.last()
            raise
        self.last()

    def _run(self) -> None:
        assert self._show is not None
        while not self._over.wait(EVERY_S):
            try:
                self._show(self._read(), False)
            except Exception:  # a line that can't be shown must not end a run
                return


def display_for(
    wanted: bool | None, stream: TextIO | None = None
) -> Callable[[RunProgress, bool], None] | None:
    """How to show readings: None where `wanted` is False, or None and there is no terminal or notebook."""
    if wanted is False:
        return None
    notebook = _notebook()
    if notebook is not None:
        return notebook
    stream = stream or sys.stderr
    if wanted or stream.isatty():
        return _Terminal(stream).show
    return None


class _Terminal:
    """One line that is written over."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream
        self._width = 0

    def show(self, reading: RunProgress, last: bool) -> None:
        text = line(reading)
        if not last:  # one line that is written over may not wrap
            text = text[: shutil.get_terminal_size().columns - 1]
        self._stream.write("\r" + text.ljust(self._width) + ("\n" if last else ""))
        self._stream.flush()
        self._width = len(text)


def _notebook() -> Callable[[RunProgress, bool], None] | None:
    """In a notebook: one output that is brought up to date. A terminal's IPython is none."""
    ipython = sys.modules.get("IPython")
    shell = ipython.get_ipython() if ipython is not None else None
    if shell is None or type(shell).__name__ == "TerminalInteractiveShell":
        return None
    from IPython.display import HTML, display

    handle: Any = None

    def show(reading: RunProgress, last: bool) -> None:
        nonlocal handle
        if handle is None:
            handle = display(HTML(html(reading)), display_id=True)
        else:
            handle.update(HTML(html(reading)))

    return show
