"""Base of engines: a pipeline bound to an engine, before it starts, while it runs, and after. Its progress is shown the same way
for every engine: as one line, as a table for notebooks, and live while the run goes on.
"""

from __future__ import annotations

import shutil
import sys
import threading
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from html import escape
from types import TracebackType
from typing import Any, ClassVar, Generic, Literal, Protocol, Self, TextIO, TypeVar

from msgspec import Struct

from kafka_actors.base.rates import WINDOW_S, Window, rate
from kafka_actors.base.timeouts import timeouts_by_name, wait_of
from kafka_actors.errors import JobFailed, UsageError

from .pipeline import Pipeline

UNKNOWN = "-"


class RunProgress(Struct, frozen=True, kw_only=True):
    """Progress of a run at one moment.

    `records`: processed so far; `lag`: records left to read; None where that isn't known. `batch`: number of the
    micro-batch; `tasks`: finished and all; None where the engine has none. `waits_for`: what the start waits for.
    """

    title: str
    state: str
    elapsed_s: float
    records: int | None
    records_per_s: float
    lag: int | None = None
    batch: int | None = None
    workers: int | None = None
    tasks: tuple[int, int] | None = None
    waits_for: list[str] = []


class RateMeter:
    """Records a second over the last few seconds, for an engine whose status has no rates."""

    def __init__(self, window_s: float = WINDOW_S) -> None:
        self._window: Window[int] = Window(window_s)

    def observe(self, records: int, now: float) -> float:
        """Takes the number of records so far, at `now` in monotonic seconds, and returns the rate."""
        before, span_s = self._window.add(records, now)
        return rate(records, before, span_s)


def line(reading: RunProgress) -> str:
    """One line: `orders → scored  running 12 s  1,234,567 records  98,765/s  lag 42  4 workers`."""
    parts = [
        reading.title,
        f"{reading.state} {reading.elapsed_s:.0f} s",
    ]
    if reading.state == "starting":
        return "  ".join([*parts, *(f"waits for {text}" for text in reading.waits_for)])
    if reading.records is not None:
        parts += [
            f"{reading.records:,} records",
            f"{reading.records_per_s:,.0f}/s",
            f"lag {_number(reading.lag)}",
        ]
    if reading.batch is not None:
        parts.append(f"batch {reading.batch:,}")
    if reading.tasks is not None:
        parts.append("{:,} of {:,} tasks".format(*reading.tasks))
    if reading.workers is not None:
        parts.append(f"{reading.workers} worker{'s' * (reading.workers != 1)}")
    return "  ".join(parts)


def html(reading: RunProgress) -> str:
    """A small HTML table."""
    cells = {
        "state": reading.state,
        "seconds": f"{reading.elapsed_s:,.0f}",
    }
    if reading.waits_for:
        cells["waits for"] = "; ".join(reading.waits_for)
    if reading.records is not None:
        cells["records"] = f"{reading.records:,}"
        cells["records/s"] = f"{reading.records_per_s:,.0f}"
        cells["lag"] = _number(reading.lag)
    if reading.batch is not None:
        cells["batch"] = f"{reading.batch:,}"
    if reading.tasks is not None:
        cells["tasks"] = "{:,} of {:,}".format(*reading.tasks)
    if reading.workers is not None:
        cells["workers"] = str(reading.workers)
    head = "".join(f"<th>{escape(name)}</th>" for name in cells)
    body = "".join(f"<td>{escape(value)}</td>" for value in cells.values())
    return f"<b>{escape(reading.title)}</b><table><tr>{head}</tr><tr>{body}</tr></table>"


def _number(value: int | None) -> str:
    return UNKNOWN if value is None else f"{value:,}"


S = TypeVar("S")

EVERY_S = 1.0
JOIN_TIMEOUT_S = 2.0


class LiveLine:
    """Shows the progress from a thread of its own, from `start` to `end`; does nothing where `show` is None."""

    def __init__(
        self, read: Callable[[], RunProgress], show: Callable[[RunProgress, bool], None] | None
    ) -> None:
        self._read = read
        self._show = show
        self._over = threading.Event()
        self._final_shown = False
        self._thread = threading.Thread(target=self._run, name="kafka-actors-live", daemon=True)

    def start(self) -> None:
        if self._show is not None:
            with suppress(RuntimeError):  # the system gives no thread, and the run goes on
                self._thread.start()

    def starting(self, read: Callable[[S], RunProgress]) -> Callable[[S], None] | None:
        """A callback that shows the status of a run that is starting; None where nothing is shown."""
        show = self._show
        return None if show is None else lambda status: show(read(status), False)

    def end(self) -> None:
        """Stops reading, to be called before the run is torn down. A second call changes nothing."""
        self._over.set()
        if self._thread.is_alive():
            self._thread.join(JOIN_TIMEOUT_S)

    def last(self) -> None:
        """Stops reading and shows the final progress, once, which stays on the screen."""
        self.end()
        if self._show is not None and not self._final_shown:
            self._final_shown = True
            self._show(self._read(), True)

    @contextmanager
    def until_over(self) -> Iterator[None]:
        """Context of a wait: when the run has ended or failed, its final line stays. After a timeout the line goes on."""
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
    """A function that shows progress; None where `wanted` is False, or None and there is no terminal or notebook."""
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
    """Terminal on which one line is overwritten."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream
        self._width = 0

    def show(self, reading: RunProgress, last: bool) -> None:
        text = line(reading)
        if not last:  # a line that wraps can't be overwritten
            text = text[: shutil.get_terminal_size().columns - 1]
        self._stream.write("\r" + text.ljust(self._width) + ("\n" if last else ""))
        self._stream.flush()
        self._width = len(text)


def _notebook() -> Callable[[RunProgress, bool], None] | None:
    """A function that updates one output of a notebook's cell; None outside of notebooks, such as in a terminal's IPython."""
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


class EngineRun(Protocol):
    """Run that an engine has started."""

    def wait(self, *, timeout: float | None) -> None:
        """Waits for the end. Raises `JobFailed`, `KafkaTimeoutError`."""
        ...


R = TypeVar("R", bound=EngineRun)


@timeouts_by_name
class BoundPipeline(ABC, Generic[R]):
    """Pipeline and its run. The engine's subclass starts and stops it, and reads its progress."""

    engine: ClassVar[Literal["ray", "spark"]]

    def __init__(self, pipeline: Pipeline, progress: bool | None) -> None:
        self.pipeline = pipeline
        self._running: R | None = None
        self._live = LiveLine(self.progress, display_for(progress))

    @abstractmethod
    def start(self) -> Self: ...

    @abstractmethod
    def progress(self) -> RunProgress:
        """The run's progress now."""

    def run(self) -> None:
        """Starts, waits for the end, and leaves nothing behind. Raises as `start` and `wait`."""
        with self.start():
            self.wait()

    def wait(self, *, timeout: float | None = None) -> None:
        """Waits until the run has ended, which a bounded one does by itself.

        Raises `JobFailed`, whose cause is a `StageError` or a `SinkError` where the pipeline failed, and
        `KafkaTimeoutError` after `timeout` seconds.
        """
        limit_s = wait_of(timeout)
        with self._live.until_over():
            self._run.wait(timeout=limit_s)

    def explain(self) -> str:
        """Describes which stage runs where on this engine."""
        return self.pipeline.explain(self.engine)

    @property
    def _run(self) -> R:
        if self._running is None:
            raise UsageError("it is not started: call start() or run()")
        return self._running

    def _check_new(self) -> None:
        """Raises `UsageError` for a pipeline that was started before."""
        if self._running is not None:
            raise UsageError(f"it was started already: make another one with on_{self.engine}(…)")

    def __enter__(self) -> Self:
        return self

    @abstractmethod
    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None: ...

    def _repr_html_(self) -> str:
        """A table of the progress, or the plan before the start, for notebooks."""
        return html(self.progress()) if self._running is not None else f"<pre>{escape(self.explain())}</pre>"
