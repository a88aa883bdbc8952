"""What the views show of a reading: tables for a terminal, a line for a log, fields for JSON."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from .job_progress import JobReading

if TYPE_CHECKING:
    from kafka_actors.job.messages import PartitionStatus
    from kafka_actors.job.status import WorkerStatus

__all__ = ["count", "fields", "line", "screen"]

NOT_KNOWN = "-"
FIXED_LINES = 9
"""Lines of a screen beside the rows of its two tables: headline, blank lines, titles and rules."""


def line(reading: JobReading) -> str:
    """A reading in one line."""
    if reading.state == "starting":
        ready = sum(worker.status.ready for worker in reading.workers)
        workers = f"{ready} of {count(reading.scaling.workers, 'worker')} ready"
        return "  ".join((f"{reading.elapsed_s:6.1f} s", reading.state, workers, *_waits(reading)))
    return "  ".join(
        (
            f"{reading.elapsed_s:6.1f} s",
            reading.state,
            _workers_of(reading),
            f"{count(len(reading.partitions), 'partition')}",
            f"{reading.records:,} records",
            f"{reading.records_per_s:,.0f}/s",
            *_behind(reading),
            f"restarts {reading.restarts}",
        )
    )


def fields(reading: JobReading) -> dict[str, Any]:
    """A reading as the fields of a JSON line."""
    return {
        "state": reading.state,
        "group_id": reading.group_id,
        "elapsed_s": round(reading.elapsed_s, 3),
        "workers": len(reading.workers),
        "workers_wanted": reading.scaling.workers,
        "autoscale": str(reading.scaling.autoscale) if reading.scaling.autoscale else None,
        "backlog_s": _rounded(reading.scaling.backlog_seconds),
        "partitions": len(reading.partitions),
        "records": reading.records,
        "records_per_s": round(reading.records_per_s, 1),
        "lag": reading.lag,
        "lag_s": None if reading.lag_s is None else round(reading.lag_s, 1),
        "latency_p50_ms": None if reading.latency is None else round(reading.latency.p50_ms, 1),
        "latency_p99_ms": None if reading.latency is None else round(reading.latency.p99_ms, 1),
        "restarts": reading.restarts,
        "waits_for": reading.waits_for or None,
    }


def screen(reading: JobReading, height: int, title: str = "") -> RenderableType:
    """A reading as a headline and two tables that together fit into `height` lines."""
    room = max(3, height - FIXED_LINES - len(reading.workers))
    parts: list[RenderableType] = [_headline(reading, title), Text(), _workers(reading)]
    if reading.partitions:
        parts += [Text(), *_partitions(reading.partitions, room)]
    return Group(*parts)


def count(number: int, noun: str) -> str:
    """`1 worker`, `4 workers`."""
    return f"{number:,} {noun}" if number == 1 else f"{number:,} {noun}s"


def _headline(reading: JobReading, title: str) -> Text:
    known = reading.generation is not None and reading.generation >= 0
    generation = str(reading.generation) if known else NOT_KNOWN
    return Text.assemble(
        (title or f"group {reading.group_id}", "bold"),
        f"  {reading.state}  {reading.elapsed_s:.0f} s  generation {generation}\n",
        (f"{reading.records:,}", "bold"),
        " records  ",
        (f"{reading.records_per_s:,.0f}", "bold"),
        "/s  " + "  ".join((*_behind(reading), f"restarts {reading.restarts}")),
        *_scaling(reading),
        *(f"\n{text}" for text in _waits(reading)),
    )


def _waits(reading: JobReading) -> list[str]:
    return [f"waits for {text}" for text in reading.waits_for]


def _behind(reading: JobReading) -> list[str]:
    """How far the job is behind: in records, in time, and from a record's timestamp to its having been processed."""
    age = "" if reading.lag_s is None else f" ({_time(reading.lag_s)})"
    latency = reading.latency
    parts = [f"lag {_number(reading.lag)}{age}"]
    if latency is not None:
        parts.append(f"latency {_time(latency.p50_ms / 1e3)}, p99 {_time(latency.p99_ms / 1e3)}")
    return parts


def _scaling(reading: JobReading) -> list[str]:
    """What the policy sees, where there is one."""
    scaling = reading.scaling
    if scaling.autoscale is None:
        return []
    backlog, busy = _number(_rounded(scaling.backlog_seconds)), scaling.busy
    parts = [f"workers {scaling.workers} of {scaling.autoscale}", f"backlog {backlog} s"]
    parts += [] if busy is None else [f"busy {busy:.0%}"]
    parts += [scaling.holding] if scaling.holding else []
    return ["\n", "  ".join(parts)]


def _workers_of(reading: JobReading) -> str:
    scaling = reading.scaling
    there = count(len(reading.workers), "worker")
    return f"{there} ({scaling.autoscale})" if scaling.autoscale is not None else there


def _workers(reading: JobReading) -> Table:
    table = _table(("WORKER", "left"), ("PID", "right"), ("PARTITIONS", "right"), ("RECORDS", "right"))
    for title in ("RECORDS/S", "BUSY", "RESTARTS"):
        table.add_column(title, justify="right")
    for worker in reading.workers:
        status = worker.status
        table.add_row(
            _name(status),
            _plain(status.pid),
            str(len(status.partitions)),
            f"{status.records:,}",
            f"{worker.records_per_s:,.0f}",
            NOT_KNOWN if worker.busy is None else f"{worker.busy:.0%}",
            str(status.restarts),
            style=None if status.ready else "yellow",
        )
    return table


def _name(worker: WorkerStatus) -> str:
    if not worker.ready:
        return f"{worker.name} (starting)"
    return f"{worker.name} (retiring)" if worker.retiring else worker.name


def _partitions(partitions: list[PartitionStatus], room: int) -> list[RenderableType]:
    """All of them by name, or, where they don't fit, those that are furthest behind."""
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
        # A Text, because a reason may have brackets: `[fe80::1]:9092` would be markup.
        table.add_row(p.topic, str(p.partition), *numbers, p.worker or NOT_KNOWN, Text(state))
    # Below the table: in it, it would make the first column wide.
    return [table, Text(f"and {hidden} more that are less behind", "dim")] if hidden else [table]


def _table(*columns: tuple[str, str]) -> Table:
    table = Table(box=None, padding=(0, 2, 0, 0), header_style="bold")
    for title, justify in columns:
        table.add_column(title, justify="right" if justify == "right" else "left")
    return table


def _number(value: int | None) -> str:
    return NOT_KNOWN if value is None else f"{value:,}"


def _time(seconds: float) -> str:
    """In few characters: `84ms`, `3.1s`, `12m`, `3.5h`."""
    if seconds < 1:
        return f"{seconds * 1e3:.0f}ms" if seconds else "0s"
    if seconds < 99.5:
        return f"{seconds:.1f}s"
    return f"{seconds / 60:.0f}m" if seconds < 5970 else f"{seconds / 3600:.1f}h"


def _rounded(seconds: float | None) -> int | None:
    return None if seconds is None else round(seconds)


def _plain(value: int | None) -> str:
    return NOT_KNOWN if value is None else str(value)
