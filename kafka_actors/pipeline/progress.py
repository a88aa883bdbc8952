"""How a run gets on, as one line and as a table for a notebook: the same words for every engine."""

from __future__ import annotations

from html import escape

from msgspec import Struct

from kafka_actors.base.rates import WINDOW_S, Window, rate

UNKNOWN = "-"


class RunProgress(Struct, frozen=True, kw_only=True):
    """A run at one moment. `records`: worked on so far; `lag`: how many are left; both None where that isn't known.
    `batch`: the number of the micro-batch, and `tasks`: those that are done and all, where the engine has them; `waits_for`: what keeps it from having started."""

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
    """`orders → scored  running 12 s  1,234,567 records  98,765/s  lag 42  4 workers`."""
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
    """A small table."""
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
