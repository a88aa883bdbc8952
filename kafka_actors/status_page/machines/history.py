"""History of a job's figures: a bounded list of points for the plots of the status page, read from a number on.

Theory of operation. The supervisor adds a point at each look at the job, about one a second: its figures, or nulls where
the coordinator did not answer, which the plots show as a gap. Only the newest points are kept, a quarter of an hour of
them, so a page that stays open for days costs no more than one that was just opened.

Points are numbered from 1 on, and a page asks for those after the highest number that it has. It can't lose or
repeat one that way, however seldom it asks. A number that is higher than any here comes from a list that another process
had, as after a restart: then all points are returned, and `run`, the text of this list alone, says so to the page.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING

from msgspec import Struct

if TYPE_CHECKING:
    from kafka_actors.job.status import JobTotals

__all__ = ["INTERVAL_S", "KEPT_S", "History", "PlotHistory", "PlotPoint"]

INTERVAL_S = 1.0
"""Seconds between points."""
KEPT_S = 900.0
"""Seconds for which a point is kept."""


class PlotPoint(Struct, frozen=True, kw_only=True):
    """A moment of the plots. `number` counts from 1, and is what `after` refers to. The other values are those of
    `JobTotals`; all are null at a moment at which the coordinator did not answer."""

    number: int
    at_s: float
    records_per_s: float | None
    value_bytes_per_s: float | None
    lag: int | None
    lag_s: float | None
    latency_p50_ms: float | None
    latency_p99_ms: float | None


class History(Struct, frozen=True, kw_only=True):
    """JSON of `/history.json?after=N`: the points whose number is above N, the oldest first.

    All points are returned without `after`, and where N is higher than any number: another process has begun to count
    anew then, and `run` is another text, too. `last`: the highest number. `every_s`: seconds between points; `keeps_s`:
    for how long they are kept.
    """

    run: str
    last: int
    every_s: float
    keeps_s: float
    points: list[PlotPoint]


class PlotHistory:
    """Points of the last minutes. `run` is a text of this list alone, by which a reader notices another list."""

    def __init__(self, run: str, *, every_s: float = INTERVAL_S, keeps_s: float = KEPT_S) -> None:
        self._run = run
        self._every_s = every_s
        self._keeps_s = keeps_s
        self._points: deque[PlotPoint] = deque(maxlen=round(keeps_s / every_s))
        self._last = 0

    def add(self, totals: JobTotals | None, at_s: float) -> None:
        """Adds a point of this moment; None where the coordinator did not answer."""
        self._last += 1
        self._points.append(
            PlotPoint(
                number=self._last,
                at_s=at_s,
                records_per_s=totals.records_per_s if totals else None,
                value_bytes_per_s=totals.value_bytes_per_s if totals else None,
                lag=totals.lag if totals else None,
                lag_s=totals.lag_s if totals else None,
                latency_p50_ms=totals.latency_p50_ms if totals else None,
                latency_p99_ms=totals.latency_p99_ms if totals else None,
            )
        )

    def after(self, number: int = 0) -> History:
        """Points with a higher number; see `History`."""
        begin = number if number <= self._last else 0
        return History(
            run=self._run,
            last=self._last,
            every_s=self._every_s,
            keeps_s=self._keeps_s,
            points=[point for point in self._points if point.number > begin],
        )
