"""Kafka sink: results are sent to a topic, whose existence is checked before anything is written."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import Any

import pyarrow as pa
from msgspec.structs import asdict

from kafka_actors.base.topics import check_topic
from kafka_actors.config import ClientConfig, ProducerConfig, convert, producer_over
from kafka_actors.errors import (
    DeliveryTimeoutError,
    KafkaActorsError,
    OutOfOrderSequenceNumberError,
    SinkError,
    StageError,
    TopicAuthorizationFailedError,
    UndeliveredError,
    UnknownServerError,
    UnknownTopicOrPartitionError,
)
from kafka_actors.producer import Producer
from kafka_actors.producer.machines.transaction_errors import OF_ONE_PRODUCER
from kafka_actors.records.batch import MAX_BINARY

from .sink import Origin

logger = logging.getLogger(__name__)

MISSING_S = 3.0
"""Seconds for which a topic may be unknown to the brokers: one that was just created is, for a moment."""


SINK_TOPIC = "the sink's topic"
DEAD_LETTER_TOPIC = "the dead-letter topic"


class TargetProducer(Producer):
    """Producer that raises for a missing topic after `MISSING_S`, not after `max_block_ms`: topics may be named in the
    records, and one misspelt name must not hold up the others."""

    _missing_s = MISSING_S

    @property
    def failure(self) -> KafkaActorsError | None:
        """The error with which the transaction has to be aborted, or the producer ended; None if there is none."""
        if self._closed:
            return self._is_closed()
        return self._transactions("failure").machine.error


class CopyingProducer(TargetProducer):
    """Producer of records that were in Kafka before: how large one may be is for its topic to say (`max.message.bytes`)."""

    _largest = MAX_BINARY


def producer_of(config: ProducerConfig, kind: type[TargetProducer] = TargetProducer) -> Producer:
    """Makes and connects a producer. Called in the worker, because it resolves references to secrets. Raises `ConfigError`."""
    made = kind(config=asdict(config))
    return made.__enter__()


def producer_to(
    config: ProducerConfig, topic: str | None, what: str, kind: type[TargetProducer] = TargetProducer
) -> Producer:
    """Makes a producer and checks that `topic` exists, unless it is None. `what` says in errors which topic it is.

    Raises `UnknownTopicOrPartitionError`. Where describing the topic is not authorized it only logs a warning, since
    writing may be."""
    producer = producer_of(config, kind)
    try:
        if topic is not None:
            producer.partitions_for(topic)
    except TopicAuthorizationFailedError as error:
        logger.warning("%s can't be checked before the start: %s", what, error)
    except UnknownTopicOrPartitionError:
        _drop(producer)
        servers = ", ".join(config.bootstrap_servers)
        raise UnknownTopicOrPartitionError(
            f"{what} is not there on {servers}: create it, or check its name", topic=topic, request="Metadata"
        ) from None
    except BaseException:
        _drop(producer)
        raise
    return producer


def check_target(config: ProducerConfig, topic: str | None, what: str) -> None:
    """Checks that a topic exists, with a producer that is closed again. Raises as `producer_to`."""
    if topic is not None:
        _drop(producer_to(config, topic, what))


def _drop(producer: Producer) -> None:
    """Closes a producer that has sent nothing."""
    producer.close(timeout_ms=0)


_PASSING = (*OF_ONE_PRODUCER, DeliveryTimeoutError, OutOfOrderSequenceNumberError, UnknownServerError)
"""Errors that the same records need not meet with the next producer, or later, beside those that are `retriable`."""


def is_final(error: BaseException | None) -> bool:
    """Whether writing the same records again would raise the same error."""
    if isinstance(error, UndeliveredError):
        return all(map(is_final, error.errors.values()))
    if isinstance(error, UnknownTopicOrPartitionError):  # raised only after `MISSING_S`
        return True
    if isinstance(error, (SinkError, StageError)):
        return is_final(error.__cause__)
    return isinstance(error, KafkaActorsError) and not error.retriable and not isinstance(error, _PASSING)


CLOSE_MS = 2_000


class KafkaSink:
    """Sends each row that `process` returns: columns key, value, headers …, as `Producer.send_batch` takes them.

    Without `topic` the column `topic` names it. Options are a producer's (`ProducerConfig`), as keyword arguments or in
    `config={…}`; the cluster and its security are the job's unless `bootstrap_servers` names others.
    """

    def __init__(
        self, topic: str | None = None, *, config: Mapping[str, Any] | None = None, **options: Any
    ) -> None:
        self.topic = None if topic is None else check_topic(topic, "topic")
        self.options = convert(ProducerConfig, config, **options)

    def open(self, connection: ClientConfig) -> KafkaWriter:
        """Connects. Raises `NoBrokersAvailable`, `ConfigError`, `UnknownTopicOrPartitionError` for a topic that doesn't
        exist, and as `Producer`."""
        return KafkaWriter(producer_config(connection, self.options), self.topic)

    def __repr__(self) -> str:
        return f"<KafkaSink to {self.topic or 'the column topic'}>"


def producer_config(connection: ClientConfig, options: Mapping[str, Any]) -> ProducerConfig:
    """The config of a sink's producer: the job's connection, overridden by the sink's options."""
    known = {name: getattr(connection, name) for name in ClientConfig.__struct_fields__}
    return producer_over(known, options)


class KafkaWriter:
    """Open Kafka sink: sends in the background; `flush` waits until the brokers have acknowledged everything."""

    flushes_beside_writes = True

    def __init__(self, config: ProducerConfig, topic: str | None) -> None:
        self._topic = topic
        self._producer = producer_to(config, topic, SINK_TOPIC)

    def write(self, batch: pa.RecordBatch, origin: Origin) -> None:
        """Waits for room in `buffer_memory`. Raises as `Producer.send_batch`."""
        self._producer.send_batch(batch, self._topic)

    def flush(self) -> None:
        """Raises `UndeliveredError`."""
        self._producer.flush()

    def close(self) -> None:
        """Closes within two seconds: offsets of rows that are not flushed are not committed, so those rows come again."""
        self._producer.close(timeout_ms=CLOSE_MS)

    def __repr__(self) -> str:
        return f"<KafkaWriter {self._producer!r}>"
