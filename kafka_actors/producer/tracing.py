"""Spans of what is sent, and their context in the records' headers."""

from __future__ import annotations

from opentelemetry.trace import Span, SpanKind

from kafka_actors.protocol.types import TopicPartition
from kafka_actors.telemetry.context import TRACEPARENT, links_to, parse, traceparent
from kafka_actors.telemetry.headers import links_of, with_context
from kafka_actors.telemetry.spans import end, start, tracing

from .futures import BatchFuture, BatchResult
from .routing import Part

__all__ = ["TRACEPARENT_BYTES", "SendSpans"]

PackedHeaders = list[tuple[bytes, bytes | None]]
TRACEPARENT_BYTES = len(TRACEPARENT) + 55


class SendSpans:
    """For one producer. A record that brings a context of its own keeps it, and the span links to that.

    on: whether spans are recorded where the producer is made; single records aren't asked for it each time.
    """

    def __init__(self, client_id: str) -> None:
        self._client_id = client_id
        self.on = tracing()

    def batch(self, part: Part, future: BatchFuture) -> Part:
        """The rows of one topic with the context of a span that ends when all of them are settled."""
        if not tracing() or not part.batch.num_rows:
            return part
        links = links_of(part.batch)
        span = start(
            "send",
            SpanKind.CLIENT if links else SpanKind.PRODUCER,
            topic=part.topic,
            count=part.batch.num_rows,
            client_id=self._client_id,
            links=links,
        )
        batch, _ = with_context(part.batch, traceparent(span.get_span_context()))
        future.add_done_callback(lambda _: end(span, future.failure))
        return part._replace(batch=batch)

    def record(self, tp: TopicPartition, headers: PackedHeaders | None) -> tuple[Span, PackedHeaders]:
        """A span for one record, and the record's headers with its context."""
        own = [parse(value) for name, value in headers or () if name == TRACEPARENT.encode()]
        span = start(
            "send",
            SpanKind.CLIENT if own else SpanKind.PRODUCER,
            topic=tp.topic,
            partition=tp.partition,
            client_id=self._client_id,
            links=links_to(own),
        )
        if own:
            return span, list(headers or ())
        value = traceparent(span.get_span_context()).encode()
        return span, [*(headers or ()), (TRACEPARENT.encode(), value)]

    def ends(self, span: Span, result: BatchResult, index: int) -> None:
        """The span of one record ends with the record's outcome."""
        result.when_done(lambda: end(span, result.of(index).error))
