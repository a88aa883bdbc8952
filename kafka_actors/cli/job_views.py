"""Views of a running job: redrawn tables on a terminal, a line every few seconds elsewhere, or records of a JSON log."""

from __future__ import annotations

import logging
from types import TracebackType
from typing import TYPE_CHECKING, Any, Protocol, Self

from rich.console import Group, RenderableType
from rich.live import Live
from rich.table import Table
from rich.text import Text

from .output import Output, put_line
from .results import NOT_KNOWN

if TYPE_CHECKING:
    from kafka_actors.job.status import JobStatus, PartitionStatus, WorkerStatus

__all__ = ["JsonView", "LineView", "ScreenView", "View", "count", "fields", "line", "screen", "view_for"]

logger = logging.getLogger(__name__)

INTERVAL_S = 3.0
LATENCY = "latency"
PATIENCE_S = 1.5
"""Seconds of a start that are not shown: a job that starts within them is first shown when it runs."""
STARTING_S = 10.0
"""Seconds between lines about a start in which nothing changes."""
FIXED_LINES = 9
"""Lines of a screen beside the rows of its two tables: headline, blank lines, titles and rules."""


class View(Protocol):
    """Shows statuses as they come; used in a with statement."""

    def __enter__(self) -> View: ...

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None: ...

    def show(self, status: JobStatus, elapsed_s: float) -> None:
        """Shows a status, and for how many seconds the job has been started or watched."""

    def note(self, text: str) -> None:
        """Shows a line about something that happened, which stays in view."""


def view_for(
    output: Output, title: str = "", every_s: float = INTERVAL_S, latency_label: str = LATENCY
) -> View:
    """View that fits the place where the output goes. `latency_label` for the time from a record's timestamp to the end of its
    processing: of a job that works off records of before its start it is their age, and no latency."""
    if output.log_format == "json":
        return JsonView(every_s)
    if output.live:
        return ScreenView(output, title, latency_label)
    return LineView(output, every_s, latency_label)


class ScreenView:
    """Draws a headline and tables, again and again in place."""

    def __init__(self, output: Output, title: str, latency_label: str) -> None:
        self._output = output
        self._title = title
        self._latency_label = latency_label
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

    def show(self, status: JobStatus, elapsed_s: float) -> None:
        height = self._output.console.height
        self._live.update(screen(status, elapsed_s, height, self._title, self._latency_label), refresh=True)

    def note(self, text: str) -> None:
        self._output.print(text)


class PacedView:
    """Shows a status every few seconds, and at once where something other than the numbers changed."""

    def __init__(self, every_s: float) -> None:
        self._every_s = every_s
        self._last: tuple[float, tuple[object, ...]] | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        pass

    def _due(self, status: JobStatus, elapsed_s: float) -> bool:
        starting = status.state == "starting"
        if starting and elapsed_s < PATIENCE_S:
            return False
        workers = status.totals.workers_ready if starting else len(status.workers)
        shape = (status.state, workers, len(status.partitions), status.totals.restarts, *status.waits_for)
        if self._last is not None:
            since = elapsed_s - self._last[0]
            if since < (STARTING_S if starting else self._every_s) and shape == self._last[1]:
                return False
        self._last = (elapsed_s, shape)
        return True


class LineView(PacedView):
    """Prints a line on stdout every few seconds."""

    def __init__(self, output: Output, every_s: float, latency_label: str) -> None:
        super().__init__(every_s)
        self._output = output
        self._latency_label = latency_label

    def show(self, status: JobStatus, elapsed_s: float) -> None:
        if self._due(status, elapsed_s):
            self.note(line(status, elapsed_s, self._latency_label))

    def note(self, text: str) -> None:
        put_line(self._output.console.file, text)


class JsonView(PacedView):
    """Writes records of the log, on stderr, with the numbers as fields."""

    def __init__(self, every_s: float) -> None:
        super().__init__(every_s)
        # The command was asked to show progress, whatever the level of the log.
        logger.setLevel(logging.INFO)

    def show(self, status: JobStatus, elapsed_s: float) -> None:
        if self._due(status, elapsed_s):
            logger.info("progress", extra=fields(status, elapsed_s))

    def note(self, text: str) -> None:
        logger.info(text)


# ------------------------------------------------------------ a status as text


def line(status: JobStatus, elapsed_s: float, latency_label: str = LATENCY) -> str:
    """Status of a job in one line."""
    if status.state == "starting":
        ready = status.totals.workers_ready
        workers = f"{ready} of {count(status.scaling.workers, 'worker')} ready"
        return "  ".join((f"{elapsed_s:6.1f} s", status.state, workers, *_waits(status)))
    return "  ".join(
        (
            f"{elapsed_s:6.1f} s",
            status.state,
            _workers_of(status),
            f"{count(len(status.partitions), 'partition')}",
            f"{status.records:,} records",
            f"{status.totals.records_per_s or 0:,.0f}/s",
            *_behind(status, latency_label),
            f"restarts {status.totals.restarts}",
        )
    )


def fields(status: JobStatus, elapsed_s: float) -> dict[str, Any]:
    """Status of a job as the fields of a record in a JSON log."""
    return {
        "state": status.state,
        "group_id": status.group_id,
        "elapsed_s": round(elapsed_s, 3),
        "workers": len(status.workers),
        "workers_wanted": status.scaling.workers,
        "autoscale": str(status.scaling.autoscale) if status.scaling.autoscale else None,
        "backlog_s": _rounded(status.scaling.backlog_seconds),
        "partitions": len(status.partitions),
        "records": status.records,
        "records_per_s": round(status.totals.records_per_s or 0.0, 1),
        "lag": status.totals.lag,
        "lag_s": _tenths(status.totals.lag_s),
        "latency_p50_ms": _tenths(status.totals.latency_p50_ms),
        "latency_p99_ms": _tenths(status.totals.latency_p99_ms),
        "restarts": status.totals.restarts,
        "waits_for": status.waits_for or None,
    }


def screen(
    status: JobStatus, elapsed_s: float, height: int, title: str = "", latency_label: str = LATENCY
) -> RenderableType:
    """Status of a job as a headline and two tables that together fit into `height` lines."""
    room = max(3, height - FIXED_LINES - len(status.workers))
    parts: list[RenderableType] = [
        _headline(status, elapsed_s, title, latency_label),
        Text(),
        _workers(status),
    ]
    if status.partitions:
        parts += [Text(), *_partitions(status.partitions, room)]
    return Group(*parts)


def count(number: int, noun: str) -> str:
    """`1 worker`, `4 workers`."""
    return f"{number:,} {noun}" if number == 1 else f"{number:,} {noun}s"


def _headline(status: JobStatus, elapsed_s: float, title: str, latency_label: str) -> Text:
    group = status.group
    generation = str(group.generation) if group is not None and group.generation >= 0 else NOT_KNOWN
    return Text.assemble(
        (title or f"group {status.group_id}", "bold"),
        f"  {status.state}  {elapsed_s:.0f} s  generation {generation}\n",
        (f"{status.records:,}", "bold"),
        " records  ",
        (f"{status.totals.records_per_s or 0:,.0f}", "bold"),
        "/s  " + "  ".join((*_behind(status, latency_label), f"restarts {status.totals.restarts}")),
        *_scaling(status),
        *_transactions(status),
        *_window(status),
        *(f"\n{text}" for text in _waits(status)),
    )


def _waits(status: JobStatus) -> list[str]:
    return [f"waits for {text}" for text in status.waits_for]


def _behind(status: JobStatus, latency_label: str) -> list[str]:
    """Lag in records and in time, and the time from a record's timestamp to the end of its processing."""
    totals = status.totals
    age = "" if totals.lag_s is None else f" ({_time(totals.lag_s)})"
    parts = [f"lag {_number(totals.lag)}{age}"]
    if totals.latency_p50_ms is not None and totals.latency_p99_ms is not None:
        p50, p99 = _time(totals.latency_p50_ms / 1e3), _time(totals.latency_p99_ms / 1e3)
        parts.append(f"{latency_label} {p50}, p99 {p99}")
    return parts


def _scaling(status: JobStatus) -> list[str]:
    """Figures of the scaling policy, where there is one."""
    scaling = status.scaling
    if scaling.autoscale is None:
        return []
    backlog, busy = _number(_rounded(scaling.backlog_seconds)), scaling.busy
    parts = [f"workers {scaling.workers} of {scaling.autoscale}", f"backlog {backlog} s"]
    parts += [] if busy is None else [f"busy {busy:.0%}"]
    parts += [scaling.holding] if scaling.holding else []
    return ["\n", "  ".join(parts)]


def _transactions(status: JobStatus) -> list[str]:
    """Transactions of a job that delivers exactly once."""
    found = status.transactions
    if found is None:
        return []
    ago = "never" if found.committed_ago_s is None else f"{_time(found.committed_ago_s)} ago"
    parts = [f"transactions {found.committed:,}", f"the last {ago}"]
    parts += [] if found.open_s is None else [f"open for {_time(found.open_s)}"]
    if found.aborted:
        parts.append(f"aborted {found.aborted:,} ({found.repeated:,} records again): {found.cause}")
    return ["\n", "  ".join(parts)]


def _window(status: JobStatus) -> list[str]:
    """Records in flight of a job whose calls overtake each other, and the record that holds up its offset for longest."""
    window = status.totals.window
    if window is None:
        return []
    parts = [f"in flight {count(window.records, 'record')}", count(window.calls, "call")]
    parts += [f"{window.keys:,} keys"] if window.keys else []
    parts += [f"{window.parked:,} parked"] if window.parked else []
    parts += [] if window.held_s is None else [f"held for {_time(window.held_s)} by {window.held_by}"]
    return ["\n", "  ".join(parts)]


def _workers_of(status: JobStatus) -> str:
    scaling = status.scaling
    there = count(len(status.workers), "worker")
    return f"{there} ({scaling.autoscale})" if scaling.autoscale is not None else there


def _workers(status: JobStatus) -> Table:
    table = _table(("WORKER", "left"), ("PID", "right"), ("PARTITIONS", "right"), ("RECORDS", "right"))
    for title in ("RECORDS/S", "BUSY", "RESTARTS"):
        table.add_column(title, justify="right")
    for worker in status.workers:
        table.add_row(
            _name(worker),
            _plain(worker.pid),
            str(len(worker.partitions)),
            f"{worker.records:,}",
            f"{worker.records_per_s or 0:,.0f}",
            NOT_KNOWN if worker.busy is None else f"{worker.busy:.0%}",
            str(worker.restarts),
            style=None if worker.ready else "yellow",
        )
    return table


def _name(worker: WorkerStatus) -> str:
    if not worker.ready:
        return f"{worker.name} (starting)"
    return f"{worker.name} (retiring)" if worker.retiring else worker.name


def _partitions(partitions: list[PartitionStatus], room: int) -> list[RenderableType]:
    """Table of all partitions by name, or, where they don't fit, of those that are furthest behind."""
    shown = sorted(partitions, key=lambda p: (p.topic, p.partition))
    hidden = 0
    if len(shown) > room:
        hidden = len(shown) - (room - 1)
        shown = sorted(shown, key=lambda p: (-(p.lag or 0), p.topic, p.partition))[: room - 1]
    table = _table(("TOPIC", "left"), ("PARTITION", "right"), ("CURRENT-OFFSET", "right"))
    for title in ("COMMITTED", "LOG-END-OFFSET", "LAG", "BEHIND"):
        table.add_column(title, justify="right")
    table.add_column("WORKER")
    table.add_column("STATE")
    for p in shown:
        numbers = [_number(n) for n in (p.position, p.committed, p.end, p.lag)]
        numbers.append(NOT_KNOWN if p.lag_seconds is None else _time(p.lag_seconds))
        state = f"{p.state}: {p.reason}" if p.reason else p.state
        if p.window is not None and not p.reason:
            state += f", {count(p.window.records, 'record')} in flight"
            state += (
                ""
                if p.window.held_s is None
                else f", held for {_time(p.window.held_s)} by {p.window.held_by}"
            )
        # As a Text, because rich takes brackets in a reason, as in `[fe80::1]:9092`, for markup.
        table.add_row(p.topic, str(p.partition), *numbers, p.worker or NOT_KNOWN, Text(state))
    # Below the table: within it, the line would make the first column wide.
    return [table, Text(f"and {hidden} more that are less behind", "dim")] if hidden else [table]


def _table(*columns: tuple[str, str]) -> Table:
    table = Table(box=None, padding=(0, 2, 0, 0), header_style="bold")
    for title, justify in columns:
        table.add_column(title, justify="right" if justify == "right" else "left")
    return table


def _number(value: int | None) -> str:
    return NOT_KNOWN if value is None else f"{value:,}"


def _time(seconds: float) -> str:
    """Time in few characters: `84ms`, `3.1s`, `12m`, `3.5h`."""
    if seconds < 1:
        return f"{seconds * 1e3:.0f}ms" if seconds else "0s"
    if seconds < 99.5:
        return f"{seconds:.1f}s"
    return f"{seconds / 60:.0f}m" if seconds < 5970 else f"{seconds / 3600:.1f}h"


def _rounded(seconds: float | None) -> int | None:
    return None if seconds is None else round(seconds)


def _tenths(value: float | None) -> float | None:
    return None if value is None else round(value, 1)


def _plain(value: int | None) -> str:
    return NOT_KNOWN if value is None else str(value)
