"""What a producer tells the meter of its process: messages sent, and how long requests take."""

from __future__ import annotations

from collections.abc import Mapping

from kafka_actors.cluster.snapshot import ClusterSnapshot
from kafka_actors.errors import error_for_code
from kafka_actors.telemetry.attributes import Attributes, of_operation, of_partition, of_server, with_error
from kafka_actors.telemetry.instruments import OPERATION_DURATION, SENT_MESSAGES
from kafka_actors.telemetry.recorder import Recorder, metered
from kafka_actors.types import TopicPartition

from .machines.sender import ProduceAnswer, ProduceOrder

__all__ = ["ProducerTelemetry", "server_of"]


def server_of(snapshot: ClusterSnapshot, node: int | None) -> Attributes:
    """Where a broker is; empty where that isn't known."""
    broker = None if node is None else snapshot.brokers.get(node)
    return () if broker is None else of_server(broker.host, broker.port)


class ProducerTelemetry:
    """A message counts at each attempt to send it, with the broker, and the error where it failed."""

    def __init__(self, recorder: Recorder | None = None) -> None:
        self._recorder = recorder or metered()

    def answered(
        self,
        seconds: float,
        order: ProduceOrder,
        answers: Mapping[TopicPartition, ProduceAnswer],
        server: Attributes = (),
    ) -> None:
        """A request was answered by this broker, `seconds` after it was begun."""
        first: Exception | None = None
        for batch in order.batches:
            answer = answers.get(batch.partition)
            error = None if answer is None else error_for_code(answer.error_code, request="Produce")
            first = first or error
            attributes = (*of_partition(None, *batch.partition, "send"), *server)
            self._recorder.add(SENT_MESSAGES, batch.records, with_error(attributes, error))
        self._timed(seconds, order, first, server)

    def failed(self, seconds: float, order: ProduceOrder, error: Exception, server: Attributes = ()) -> None:
        """A request may have been sent to this broker, and got no answer."""
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
