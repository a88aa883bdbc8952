"""How a running job is shown: redrawn on a terminal, a line every few seconds elsewhere, or records of a JSON log."""

from __future__ import annotations

import logging
from types import TracebackType
from typing import Protocol, Self

from rich.live import Live

from .job_progress import JobReading
from .job_tables import fields, line, screen
from .output import Output, put_line

__all__ = ["JsonView", "LineView", "ScreenView", "View", "view_for"]

logger = logging.getLogger(__name__)

EVERY_S = 3.0
PATIENCE_S = 1.5
"""A job that starts within it is shown only when it runs."""
STARTING_S = 10.0
"""A start in which nothing changes is told of so often."""


class View(Protocol):
    """Shows readings as they come; used in a with statement."""

    def __enter__(self) -> View: ...

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None: ...

    def show(self, reading: JobReading) -> None: ...

    def note(self, text: str) -> None:
        """Something that happened: stays to be read."""


def view_for(output: Output, title: str = "", every_s: float = EVERY_S) -> View:
    """The view that fits where the output goes."""
    if output.log_format == "json":
        return JsonView(every_s)
    return ScreenView(output, title) if output.live else LineView(output, every_s)


class ScreenView:
    """Headline and tables, redrawn in place."""

    def __init__(self, output: Output, title: str) -> None:
        self._output = output
        self._title = title
        # Log lines and notes are printed above by `Output`; the rest of the process doesn't print.
        self._live = Live(
            console=output.console, auto_refresh=False, redirect_stdout=False, redirect_stderr=False
        )

    def __enter__(self) -> ScreenView:
        self._live.start()
        self._output.above(self._output.console)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._output.above(None)
        self._live.stop()

    def show(self, reading: JobReading) -> None:
        self._live.update(screen(reading, self._output.console.height, self._title), refresh=True)

    def note(self, text: str) -> None:
        self._output.print(text)


class PacedView:
    """Shows a reading every so often, and at once where something else than the numbers changed."""

    def __init__(self, every_s: float) -> None:
        self._every_s = every_s
        self._last: tuple[float, tuple[object, ...]] | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        pass

    def _due(self, reading: JobReading) -> bool:
        starting = reading.state == "starting"
        if starting and reading.elapsed_s < PATIENCE_S:
            return False
        workers = sum(worker.status.ready for worker in reading.workers) if starting else len(reading.workers)
        shape = (reading.state, workers, len(reading.partitions), reading.restarts, *reading.waits_for)
        if self._last is not None:
            since = reading.elapsed_s - self._last[0]
            if since < (STARTING_S if starting else self._every_s) and shape == self._last[1]:
                return False
        self._last = (reading.elapsed_s, shape)
        return True


class LineView(PacedView):
    """A line on stdout every few seconds."""

    def __init__(self, output: Output, every_s: float) -> None:
        super().__init__(every_s)
        self._output = output

    def show(self, reading: JobReading) -> None:
        if self._due(reading):
            self.note(line(reading))

    def note(self, text: str) -> None:
        put_line(self._output.console.file, text)


class JsonView(PacedView):
    """Records of the log, on stderr, with the numbers as fields."""

    def __enter__(self) -> Self:
        # Progress is what was asked for, whatever the level of everything else.
        logger.setLevel(logging.INFO)
        return self

    def show(self, reading: JobReading) -> None:
        if self._due(reading):
            logger.info("progress", extra=fields(reading))

    def note(self, text: str) -> None:
        logger.info(text)
