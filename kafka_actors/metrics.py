"""Metrics in the manner of Kafka's clients: `Metrics`, `Sensor`, `MetricName`.

A `Sensor` records values. A metric is a statistic over a sensor's recent values, or a gauge whose function is called when
the metric is read. Recording costs one addition and one comparison, however many metrics use the sensor. A sensor of this
library also passes its values to an instrument of `kafka_actors.telemetry`.

Statistics follow `SampledStat.java`: `num_samples` windows of `sample_window_ms`; the oldest window is dropped.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from enum import Enum
from typing import Any, NamedTuple

__all__ = ["MetricName", "Metrics", "Sensor", "Stat"]

Record = Callable[[float], object]
Measure = Callable[[float], float]


class MetricName(NamedTuple):
    """Name of a metric. `group`: the part of a client that it belongs to. `tags`: they distinguish metrics of the same name."""

    name: str
    group: str
    description: str = ""
    tags: tuple[tuple[str, str], ...] = ()


class Stat(Enum):
    """Statistics over a sensor's values."""

    AVG = "avg"
    """Mean of the recent values; NaN if there are none."""
    MAX = "max"
    """Maximum of the recent values; NaN if there are none."""
    RATE = "rate"
    """Recent values per second."""
    RATE_PER_HOUR = "rate-per-hour"
    """Recent values per hour."""
    COUNT = "count"
    """Number of values since the sensor was created."""
    TOTAL = "total"
    """Sum of the values since the sensor was created."""


class _SensorSample:
    __slots__ = ("count", "maximum", "start", "total")

    def __init__(self, start: float) -> None:
        self.start = start
        self.count = 0
        self.total = 0.0
        self.maximum = -float("inf")


class Sensor:
    """Records values for statistics. One thread may write; any thread may read.

    export: called with each value too; it must not block. scale: factor for the values in statistics, since Java's
    clients have milliseconds where instruments have seconds.
    """

    def __init__(
        self, name: str, registry: Metrics, export: Record | None = None, scale: float = 1.0
    ) -> None:
        self.name = name
        self._registry = registry
        self._export = export
        self._scale = scale
        self._samples: tuple[_SensorSample, ...] = ()
        self._count = 0
        self._total = 0.0

    def __repr__(self) -> str:
        return f"<Sensor {self.name} of {self._count} values>"

    def record(self, value: float = 1.0) -> None:
        """Records a value."""
        if self._export is not None:
            self._export(value)
        value *= self._scale
        now = self._registry.now()
        current = self._samples[-1] if self._samples else None
        if current is None or now - current.start >= self._registry.window:
            current = _SensorSample(now)
            self._samples = (*self._samples, current)[-self._registry.num_samples :]
        current.count += 1
        current.total += value
        current.maximum = max(current.maximum, value)
        self._count += 1
        self._total += value

    def add(self, metric: MetricName, stat: Stat) -> None:
        """Adds a metric of this sensor's values. Raises `ValueError` for a name that is in use."""
        self._registry._register(metric, lambda now: self.measure(stat, now))

    def measure(self, stat: Stat, now: float) -> float:
        """Computes a statistic at `now`, a time of the registry's clock."""
        if stat is Stat.COUNT:
            return self._count
        if stat is Stat.TOTAL:
            return self._total
        window, number = self._registry.window, self._registry.num_samples
        live = [s for s in self._samples if now - s.start < window * number]
        count = sum(s.count for s in live)
        if stat is Stat.AVG:
            return sum(s.total for s in live) / count if count else float("nan")
        if stat is Stat.MAX:
            return max((s.maximum for s in live), default=float("nan"))
        # A rate over less than the full windows would jump after few values (`Rate.windowSize`).
        elapsed = now - live[0].start if live else 0.0
        missing = max(0, number - 1 - int(elapsed // window))
        seconds = elapsed + missing * window or window
        return count / seconds * (3600 if stat is Stat.RATE_PER_HOUR else 1)


class Metrics:
    """Registry of sensors and metrics.

    clock: returns monotonic seconds. num_samples, sample_window_ms: Kafka's `metrics.num.samples` and
    `metrics.sample.window.ms`, with their defaults. recorder: a `kafka_actors.telemetry.Recorder` for the instruments
    behind the sensors; None means this process' OpenTelemetry meter.
    """

    def __init__(
        self,
        *,
        clock: Callable[[], float] = time.monotonic,
        num_samples: int = 2,
        sample_window_ms: int = 30_000,
        recorder: Any = None,
    ) -> None:
        self.now = clock
        self.num_samples = num_samples
        self.window = sample_window_ms / 1000
        self.recorder = recorder
        self._sensors: dict[tuple[str, tuple[tuple[str, str], ...]], Sensor] = {}
        self._metrics: dict[MetricName, Measure] = {}

    def metric_name(
        self, name: str, group: str, description: str = "", tags: Mapping[str, str] | None = None
    ) -> MetricName:
        """Creates a name, with its tags sorted."""
        return MetricName(name, group, description, _tags(tags))

    def sensor(
        self,
        name: str,
        tags: Mapping[str, str] | None = None,
        *,
        export: Record | None = None,
        scale: float = 1.0,
    ) -> Sensor:
        """Returns the sensor of this name and these tags, created if there is none. export, scale: see `Sensor`."""
        key = name, _tags(tags)
        if key not in self._sensors:
            self._sensors[key] = Sensor(name, self, export, scale)
        return self._sensors[key]

    def add_metric(self, metric: MetricName, measure: Measure) -> None:
        """Adds a gauge: `measure(now)` is called at each reading. Raises `ValueError` for a name that is in use."""
        self._register(metric, measure)

    def _register(self, metric: MetricName, measure: Measure) -> None:
        if metric in self._metrics:
            raise ValueError(f"the group {metric.group!r} already has a metric {metric.name!r}")
        self._metrics = {**self._metrics, metric: measure}

    def __contains__(self, metric: MetricName) -> bool:
        return metric in self._metrics

    def remove_metric(self, metric: MetricName) -> None:
        """Removes a metric, if it exists."""
        self._metrics = {name: measure for name, measure in self._metrics.items() if name != metric}

    def metrics(self) -> dict[MetricName, float]:
        """Returns all metrics with their present values."""
        now = self.now()
        return {name: measure(now) for name, measure in self._metrics.items()}


def _tags(tags: Mapping[str, str] | None) -> tuple[tuple[str, str], ...]:
    return tuple(sorted((tags or {}).items()))
