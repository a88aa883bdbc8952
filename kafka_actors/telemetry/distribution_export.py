"""Histograms of what comes counted, for a collector: they go out with what the SDK has collected.

OpenTelemetry's instruments take values one by one, and these are as many as records. So they are put into what a reader exports, as the
points that the SDK would have made of them.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

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
from .distributions import BucketSums, Distributions
from .instruments import SCHEMA_URL, Instrument
from .recorder import as_mapping

__all__ = ["ExportingReader"]

OURS = "kafka_actors"
UNKNOWN: Any = None
"""The least and the greatest value of a point: of counts nobody knows them, and the protocol lets them be left out."""


class ExportingReader(PeriodicExportingMetricReader):
    """As the SDK's own, with these distributions in each export, cumulative or as differences, as the exporter prefers for
    histograms."""

    def __init__(
        self,
        exporter: MetricExporter,
        counted: Distributions,
        now_ns: Callable[[], int] = time.time_ns,  # wall clock: points say when they were made
    ) -> None:
        preferred = exporter._preferred_temporality or {}  # as the SDK's reader asks it
        temporality = preferred.get(HistogramInstrument, AggregationTemporality.CUMULATIVE)
        self._distributions = _Points(
            counted, temporality, now_ns
        )  # one name, as all others here are the SDK's
        super().__init__(exporter)

    def _receive_metrics(
        self, metrics_data: MetricsData, timeout_millis: float = 10_000, **kwargs: Any
    ) -> None:
        metrics = list(self._distributions.metrics())
        super()._receive_metrics(_completed(metrics_data, metrics), timeout_millis, **kwargs)


def _completed(data: MetricsData, metrics: list[Metric]) -> MetricsData:
    """With these metrics in our scope. A provider has one resource."""
    from kafka_actors import __version__

    if not metrics or not data.resource_metrics:
        return data
    first, *others = data.resource_metrics
    own = next(
        (scope for scope in first.scope_metrics if scope.scope.name == OURS),
        ScopeMetrics(InstrumentationScope(OURS, __version__, SCHEMA_URL), [], SCHEMA_URL),
    )
    foreign = [scope for scope in first.scope_metrics if scope is not own]
    whole = replace(own, metrics=[*own.metrics, *metrics])
    return replace(data, resource_metrics=[replace(first, scope_metrics=[*foreign, whole]), *others])


class _Points:
    """Distributions as metrics of the SDK."""

    def __init__(
        self, counted: Distributions, temporality: AggregationTemporality, now_ns: Callable[[], int]
    ) -> None:
        self._counted = counted
        self._temporality = temporality
        self._now_ns = now_ns
        self._since_ns = now_ns()
        self._before: dict[tuple[Instrument, Attributes], BucketSums] = {}

    def metrics(self) -> Iterator[Metric]:
        """One of each instrument that has anything to say."""
        now = self._now_ns()
        for instrument, by_attributes in self._counted.read().items():
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
        """What is to be said of each: all of it, or what came since the last time."""
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
