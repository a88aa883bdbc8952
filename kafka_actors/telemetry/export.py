"""Exports to a collector that OpenTelemetry's SDK has no part for: this library's log records with their fields as attributes,
and `Distributions`.

OpenTelemetry's instruments take values one by one, and a distribution has one value for each record. So its data points
are built here, as the SDK would have built them, and put into each export. The module needs the SDK.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

from opentelemetry._logs import LogRecord, SeverityNumber
from opentelemetry.context import get_current
from opentelemetry.sdk.metrics import Histogram as HistogramInstrument
from opentelemetry.sdk.metrics.export import (
    AggregationTemporality,
    Histogram,
    HistogramDataPoint,
    Metric,
    MetricExporter,
    MetricsData,
    PeriodicExportingMetricReader,
    ScopeMetrics,
)
from opentelemetry.sdk.util.instrumentation import InstrumentationScope

from .attributes import Attributes
from .instruments import DESTINATION, GROUP, PARTITION, SCHEMA_URL, Instrument
from .logs import fields_of_call, task_now
from .recorder import BucketSums, Distributions, as_mapping

__all__ = ["CollectorHandler", "ExportingReader", "attributes_of"]

NAMES = {"topic": DESTINATION, "group": GROUP, "offset": "messaging.kafka.offset"}


class CollectorHandler(logging.Handler):
    """Passes log records to an OpenTelemetry `LoggerProvider`. A record that is logged while a span is current carries its ids."""

    def __init__(self, provider: Any) -> None:
        super().__init__()
        self._provider = provider

    def emit(self, record: logging.LogRecord) -> None:
        try:
            self._provider.get_logger(record.name).emit(
                LogRecord(
                    timestamp=int(record.created * 1e9),
                    context=get_current(),
                    severity_text=record.levelname,
                    severity_number=_severity(record.levelno),
                    body=record.getMessage(),
                    attributes=attributes_of(record),
                    event_name=getattr(record, "event", None),
                )
            )
        except Exception:
            self.handleError(record)


def _severity(level: int) -> SeverityNumber:
    """Python's log level as OpenTelemetry's severity number: INFO is 9, and each level has four numbers."""
    step = max(0, min(level // 10, 5))
    return SeverityNumber(max(1, 4 * step + 1))


def attributes_of(record: logging.LogRecord) -> dict[str, Any]:
    """Attributes of a record: its fields, under names of the semantic conventions where there are any; the task's attributes,
    named as in its spans; and the type of an exception, without its text."""
    found: dict[str, Any] = dict(task_now())
    for name, value in fields_of_call(record).items():
        if name == "partition":
            found[PARTITION] = str(value)
        elif value is not None:
            found[NAMES.get(name, f"kafka_actors.{name}")] = value
    if record.exc_info and record.exc_info[0] is not None:
        found["exception.type"] = record.exc_info[0].__qualname__
    return found


OURS = "kafka_actors"
UNKNOWN: Any = None
"""Smallest and largest value of a data point: unknown, because only counts arrive. The protocol allows to omit them."""


class ExportingReader(PeriodicExportingMetricReader):
    """The SDK's periodic reader, which adds the distributions to each export.

    They are exported as sums since the start or as differences, whichever the exporter prefers for histograms.
    """

    def __init__(
        self,
        exporter: MetricExporter,
        distributions: Distributions,
        now_ns: Callable[[], int] = time.time_ns,  # wall clock: data points carry the time of day
    ) -> None:
        preferred = exporter._preferred_temporality or {}  # read as the SDK's reader does
        temporality = preferred.get(HistogramInstrument, AggregationTemporality.CUMULATIVE)
        # One attribute only: all others of this object belong to the SDK's class.
        self._distributions = _DistributionMetrics(distributions, temporality, now_ns)
        super().__init__(exporter)

    def _receive_metrics(
        self, metrics_data: MetricsData, timeout_millis: float = 10_000, **kwargs: Any
    ) -> None:
        metrics = list(self._distributions.metrics())
        super()._receive_metrics(_completed(metrics_data, metrics), timeout_millis, **kwargs)


def _completed(data: MetricsData, metrics: list[Metric]) -> MetricsData:
    """The data with `metrics` added to this library's scope. A provider has one resource, so the first one is meant."""
    from kafka_actors import __version__

    if not metrics or not data.resource_metrics:
        return data
    first, *others = data.resource_metrics
    own = next(
        (scope for scope in first.scope_metrics if scope.scope.name == OURS),
        ScopeMetrics(InstrumentationScope(OURS, __version__, SCHEMA_URL), [], SCHEMA_URL),
    )
    foreign = [scope for scope in first.scope_metrics if scope is not own]
    merged = replace(own, metrics=[*own.metrics, *metrics])
    return replace(data, resource_metrics=[replace(first, scope_metrics=[*foreign, merged]), *others])


class _DistributionMetrics:
    """Turns distributions into metrics of the SDK."""

    def __init__(
        self, distributions: Distributions, temporality: AggregationTemporality, now_ns: Callable[[], int]
    ) -> None:
        self._distributions = distributions
        self._temporality = temporality
        self._now_ns = now_ns
        self._since_ns = now_ns()
        self._before: dict[tuple[Instrument, Attributes], BucketSums] = {}

    def metrics(self) -> Iterator[Metric]:
        """Yields one metric for each instrument that has values to export."""
        now = self._now_ns()
        for instrument, by_attributes in self._distributions.read().items():
            points = [
                self._point(instrument, attributes, sums, now)
                for attributes, sums in self._new(instrument, by_attributes)
            ]
            if points:
                data = Histogram(points, self._temporality)
                yield Metric(instrument.name, instrument.description, instrument.unit, data)
        if self._temporality is AggregationTemporality.DELTA:
            self._since_ns = now

    def _new(
        self, instrument: Instrument, by_attributes: dict[Attributes, BucketSums]
    ) -> Iterator[tuple[Attributes, BucketSums]]:
        """Yields what to export for each set of attributes: all sums, or their growth since the last export."""
        for attributes, sums in by_attributes.items():
            if self._temporality is AggregationTemporality.CUMULATIVE:
                yield attributes, sums
                continue
            before = self._before.get((instrument, attributes))
            self._before[instrument, attributes] = sums
            if before is not None:
                counts = (now - old for now, old in zip(sums.counts, before.counts, strict=True))
                sums = BucketSums(tuple(counts), sums.total - before.total)
            if any(sums.counts):
                yield attributes, sums

    def _point(
        self, instrument: Instrument, attributes: Attributes, sums: BucketSums, now: int
    ) -> HistogramDataPoint:
        return HistogramDataPoint(
            attributes=as_mapping(attributes),
            start_time_unix_nano=self._since_ns,
            time_unix_nano=now,
            count=sum(sums.counts),
            sum=sums.total,
            bucket_counts=sums.counts,
            explicit_bounds=instrument.boundaries,
            min=UNKNOWN,
            max=UNKNOWN,
        )
