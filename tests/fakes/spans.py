"""An SDK of OpenTelemetry in this process for the time of a test, which keeps the spans that end."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest
from opentelemetry import trace
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from kafka_actors.telemetry import spans


@contextmanager
def kept_spans() -> Iterator[Callable[[], tuple[ReadableSpan, ...]]]:
    """Gives what says which spans have ended."""
    exporter = InMemorySpanExporter()
    provider = TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(trace, "_TRACER_PROVIDER", provider)
        patch.setattr(spans, "_look_at", 0.0)
        spans.tracer.cache_clear()
        yield exporter.get_finished_spans
        spans.tracer.cache_clear()
