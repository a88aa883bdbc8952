"""Metrics and spans of a producer: sent messages, durations of requests, and trace contexts in the records' headers."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from opentelemetry.trace import Span, SpanKind

from kafka_actors.cluster.future import call_each
from kafka_actors.cluster.snapshot import ClusterSnapshot
from kafka_actors.errors import error_for_code
from kafka_actors.telemetry.attributes import (
    Attributes,
    of_cluster,
    of_operation,
    of_partition,
    of_server,
    with_error,
)
from kafka_actors.telemetry.instruments import OFFSET, OPERATION_DURATION, SENT_MESSAGES, TOMBSTONE
from kafka_actors.telemetry.recorder import Recorder, metered
from kafka_actors.telemetry.spans import TRACEPARENT, end, links_to, parse, start, traceparent, tracing
from kafka_actors.types import TopicPartition

from .futures import BatchFuture, BatchResult
from .machines.produce_requests import ProduceAnswer, ProduceOrder
from .routing import PartitionRows

__all__ = ["TRACEPARENT_BYTES", "ProducerTelemetry", "SendSpans", "server_of"]


def server_of(snapshot: ClusterSnapshot, node: int | None) -> Attributes:
    """Returns the address of a broker as attributes; empty where it isn't known."""
    broker = None if node is None else snapshot.brokers.get(node)
    return () if broker is None else of_server(broker.host, broker.port)


class ProducerTelemetry:
    """Counts each attempt to send a message, with the broker, and the error where it failed."""

    def __init__(self, recorder: Recorder | None = None) -> None:
        self._recorder = recorder or metered()

    def answered(
        self,
        seconds: float,
        order: ProduceOrder,
        answers: Mapping[TopicPartition, ProduceAnswer],
        server: Attributes = (),
    ) -> None:
        """Counts a request that this broker answered after `seconds`."""
        first: Exception | None = None
        for batch in order.batches:
            answer = answers.get(batch.partition)
            error = None if answer is None else error_for_code(answer.error_code, request="Produce")
            first = first or error
            attributes = (*of_partition(None, *batch.partition, "send"), *server)
            self._recorder.add(SENT_MESSAGES, batch.records, with_error(attributes, error))
        self._timed(seconds, order, first, server)

    def failed(self, seconds: float, order: ProduceOrder, error: Exception, server: Attributes = ()) -> None:
        """Counts a request that may have been sent to this broker, and got no answer."""
        for batch in order.batches:
            attributes = (*of_partition(None, *batch.partition, "send"), *server)
            self._recorder.add(SENT_MESSAGES, batch.records, with_error(attributes, error))
        self._timed(seconds, order, error, server)

    def _timed(
        self, seconds: float, order: ProduceOrder, error: Exception | None, server: Attributes
    ) -> None:
        topics = {batch.partition.topic for batch in order.batches}
        attributes = (*of_operation("send", None, topics.pop() if len(topics) == 1 else None), *server)
        self._recorder.record(OPERATION_DURATION, seconds, with_error(attributes, error))


PackedHeaders = list[tuple[bytes, bytes | None]]
TRACEPARENT_BYTES = len(TRACEPARENT) + 55


class SendSpans:
    """Spans of one producer. A record that has a trace context in its headers keeps it, and the span links to that.

    `snapshot` returns the cluster's metadata. `on`: whether spans are recorded, as found when the producer is made: looking for
    each single record would cost too much.
    """

    def __init__(self, client_id: str, snapshot: Callable[[], ClusterSnapshot] = ClusterSnapshot) -> None:
        self._client_id = client_id
        self._snapshot = snapshot
        self.on = tracing()

    def batch(self, part: PartitionRows, future: BatchFuture) -> PartitionRows:
        """Returns the rows of one topic with the context of a span that ends when all of them are settled."""
        if not tracing() or not part.batch.num_rows:
            return part
        from kafka_actors.telemetry.headers import links_of, with_context  # slow to import, and few trace

        links = links_of(part.batch)
        span = start(
            "send",
            SpanKind.CLIENT if links else SpanKind.PRODUCER,
            topic=part.topic,
            count=part.batch.num_rows,
            client_id=self._client_id,
            links=links,
            more=self._cluster(),
        )
        batch, _ = with_context(part.batch, traceparent(span.get_span_context()))
        future.add_done_callback(lambda _: end(span, future.failure))
        return part._replace(batch=batch)

    def record(
        self, tp: TopicPartition, headers: PackedHeaders | None, *, tombstone: bool = False
    ) -> tuple[Span, PackedHeaders]:
        """Begins a span for one record. Returns it, and the record's headers with its context."""
        own = [parse(value) for name, value in headers or () if name == TRACEPARENT.encode()]
        span = start(
            "send",
            SpanKind.CLIENT if own else SpanKind.PRODUCER,
            topic=tp.topic,
            partition=tp.partition,
            client_id=self._client_id,
            links=links_to(own),
            more=(*self._cluster(), *(((TOMBSTONE, True),) if tombstone else ())),
        )
        if own:
            return span, list(headers or ())
        value = traceparent(span.get_span_context()).encode()
        return span, [*(headers or ()), (TRACEPARENT.encode(), value)]

    def ends(self, span: Span, result: BatchResult, index: int) -> None:
        """Has the span of one record end with the record's outcome and offset."""

        def over() -> None:
            outcome, snapshot = result.of(index), self._snapshot()
            if outcome.base_offset >= 0:
                span.set_attribute(OFFSET, outcome.base_offset + index - outcome.first)
            span.set_attributes(dict(server_of(snapshot, snapshot.leader(result.partition))))
            end(span, outcome.error)

        result.when_done(lambda: call_each([over]))  # an error of a span processor's is not the producer's

    def _cluster(self) -> Attributes:
        return of_cluster(self._snapshot().cluster_id)
