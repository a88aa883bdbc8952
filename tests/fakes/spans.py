"""An SDK of OpenTelemetry in this process for the time of a test, which keeps the spans that end; and records whose headers have contexts."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pyarrow as pa
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


HEADERS = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))


def context(number: int) -> str:
    """A `traceparent` of this trace and span."""
    return f"00-{number:032x}-{number:016x}-01"


def made(number: int) -> list[tuple[str, bytes]]:
    """Headers of a record that was sent in this context."""
    return [("traceparent", context(number).encode())]


def batch(*headers: Any) -> pa.RecordBatch:
    """A batch with these headers a row: None, or a list of (key, value)."""
    rows = [h if h is None else [{"key": k, "value": v} for k, v in h] for h in headers]
    count = len(rows)
    return pa.record_batch(
        {
            "value": pa.array([b"v"] * count, pa.binary()),
            "topic": ["orders"] * count,
            "partition": pa.array([3] * count, pa.int32()),
            "offset": pa.array(range(100, 100 + count), pa.int64()),
            "headers": pa.array(rows, HEADERS),
        }
    )
