"""The points of the plots: a bounded list that is read from a number on."""

from __future__ import annotations

from collections import deque

from kafka_actors.status_page.document import History, PlotPoint, TotalsView

__all__ = ["EVERY_S", "KEEPS_S", "PlotHistory"]

EVERY_S = 1.0
KEEPS_S = 900.0


class PlotHistory:
    """Points of the last minutes. `run`: names this list of points, so that who reads on notices another one."""

    def __init__(self, run: str, *, every_s: float = EVERY_S, keeps_s: float = KEEPS_S) -> None:
        self._run = run
        self._every_s = every_s
        self._keeps_s = keeps_s
        self._points: deque[PlotPoint] = deque(maxlen=round(keeps_s / every_s))
        self._last = 0

    def add(self, totals: TotalsView | None, at_s: float) -> None:
        """The job at this moment; None where nobody knows."""
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
        """The points from there on: see `History`."""
        begin = number if number <= self._last else 0
        return History(
            run=self._run,
            last=self._last,
            every_s=self._every_s,
            keeps_s=self._keeps_s,
            points=[point for point in self._points if point.number > begin],
        )
