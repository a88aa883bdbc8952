"""Results to a Kafka topic."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pyarrow as pa

from kafka_actors.base.topics import check_topic
from kafka_actors.config import ClientConfig, ProducerConfig, convert, producer_over

from .targets import SINK_TOPIC, producer_to
from .writer import Origin

CLOSE_MS = 2_000


class KafkaSink:
    """Sends each row of what `process` returns: columns key, value, headers …, as `Producer.send_batch` takes them.

    `topic` None: the column `topic` says where. Options are a producer's (`ProducerConfig`), as keyword arguments
    or in `config={…}`; the cluster and its security are the job's unless `bootstrap_servers` names others.
    """

    def __init__(
        self, topic: str | None = None, *, config: Mapping[str, Any] | None = None, **options: Any
    ) -> None:
        self.topic = None if topic is None else check_topic(topic, "topic")
        self.options = convert(ProducerConfig, config, **options)

    def open(self, connection: ClientConfig) -> KafkaWriter:
        """Connects. Raises `NoBrokersAvailable`, `ConfigError`, `UnknownTopicOrPartitionError` for a topic that isn't
        there, and what else `Producer` raises."""
        return KafkaWriter(producer_config(connection, self.options), self.topic)

    def __repr__(self) -> str:
        return f"<KafkaSink to {self.topic or 'the column topic'}>"


def producer_config(connection: ClientConfig, options: Mapping[str, Any]) -> ProducerConfig:
    """The sink's options over a job's connection."""
    known = {name: getattr(connection, name) for name in ClientConfig.__struct_fields__}
    return producer_over(known, options)


class KafkaWriter:
    """Sends in the background; `flush` waits until the brokers have acknowledged everything."""

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
        """What isn't flushed by now isn't committed either: no need to wait long."""
        self._producer.close(timeout_ms=CLOSE_MS)

    def __repr__(self) -> str:
        return f"<KafkaWriter {self._producer!r}>"
