"""`Consumer` and `Job` with and without an OpenTelemetry SDK beside them."""

from __future__ import annotations

import os
from typing import Any

from benchmarks import our_consumer, our_jobs
from benchmarks.reading import Run


def consumer(told: dict[str, Any]) -> Run:
    """As `our_consumer.batches`."""
    how = _taken(told)
    if how == "untold":
        _tell_nothing()
    elif how == "measured":
        _measure()
    return our_consumer.batches(told)


def job(told: dict[str, Any]) -> Run:
    """As `our_jobs.throughput`. The SDK is that of the driver, which scrapes nothing; workers count, and trace nothing."""
    if _taken(told) == "measured":
        os.environ |= {"OTEL_METRICS_EXPORTER": "prometheus", "OTEL_EXPORTER_PROMETHEUS_PORT": "0"}
    return our_jobs.throughput(told)


def _taken(told: dict[str, Any]) -> str:
    """The option that says how; the rest are the consumer's own."""
    how: str = told["options"].pop("how")
    return how


def _tell_nothing() -> None:
    from kafka_actors.consumer.telemetry import ConsumerTelemetry
    from kafka_actors.telemetry import recorder

    recorder.record_into(recorder.Recorder())
    ConsumerTelemetry.delivered = ConsumerTelemetry.polled = lambda *_: None  # type: ignore[method-assign]  # measured without it


def _measure() -> None:
    from opentelemetry import metrics, trace
    from opentelemetry.sdk.metrics import MeterProvider
    from opentelemetry.sdk.metrics.export import (
        MetricExporter,
        MetricExportResult,
        PeriodicExportingMetricReader,
    )
    from opentelemetry.sdk.trace import TracerProvider
    from opentelemetry.sdk.trace.export import BatchSpanProcessor, SpanExporter, SpanExportResult

    class Metrics(MetricExporter):
        def export(self, *_: Any, **__: Any) -> MetricExportResult:
            return MetricExportResult.SUCCESS

        def force_flush(self, timeout_millis: float = 0) -> bool:
            return True

        def shutdown(self, timeout_millis: float = 0, **_: Any) -> None:
            """Nothing is open."""

    class Spans(SpanExporter):
        def export(self, spans: Any) -> SpanExportResult:
            return SpanExportResult.SUCCESS

    metrics.set_meter_provider(MeterProvider([PeriodicExportingMetricReader(Metrics(), 1_000)]))
    tracers = TracerProvider()
    tracers.add_span_processor(BatchSpanProcessor(Spans()))
    trace.set_tracer_provider(tracers)
