"""Production of test data in bulk with confluent-kafka, so that records under test come from another client."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from confluent_kafka import Message

Bytes = bytes | str | None
Headers = Sequence[tuple[str, bytes | None]]


class Produce:
    """Callable that produces records and waits until the brokers have acknowledged all of them."""

    def __init__(self, bootstrap_servers: str | Callable[[], str]) -> None:
        self._servers = bootstrap_servers

    def __call__(
        self,
        topic: str,
        values: Iterable[Bytes],
        *,
        partition: int | Sequence[int] | None = None,
        keys: Sequence[Bytes] | None = None,
        headers: Sequence[Headers | None] | None = None,
        timestamps: Sequence[int] | None = None,
        compression: str = "none",
        bootstrap_servers: str | None = None,
        config: Mapping[str, Any] | None = None,
    ) -> dict[int, int]:
        """Produces one record for each of `values`; returns partition → number of records that went there.

        `partition` is one id for all, an id for each, or None: by key, else spread round the partitions in turn
        within the producer. `keys`, `headers` and `timestamps` (ms since the epoch) hold one entry for each value.
        `compression` is a codec of the producer; `config` adds to its configuration. Raises
        `confluent_kafka.KafkaException` for the first record that a broker refused.
        """
        from confluent_kafka import KafkaException, Producer

        settings: dict[str, Any] = {
            "bootstrap.servers": bootstrap_servers or self._bootstrap(),
            "compression.type": compression,
            "linger.ms": 5,
            "enable.idempotence": True,  # keeps the order over retries
            "queue.buffering.max.messages": 1_000_000,
            "sticky.partitioning.linger.ms": 0,
        }
        producer = Producer({**settings, **(config or {})})
        counts: dict[int, int] = {}
        failures: list[Any] = []

        def delivered(error: Any, message: Message) -> None:
            if error is not None:
                failures.append(error)
                return
            where = message.partition()
            assert where is not None
            counts[where] = counts.get(where, 0) + 1

        for index, value in enumerate(values):
            arguments = _arguments(index, partition, keys, headers, timestamps)
            _send(producer, topic, value, delivered, arguments)
        left = producer.flush(60)
        if failures:
            raise KafkaException(failures[0])
        if left:
            raise TimeoutError(f"{left} records to {topic} were not acknowledged within 60 s")
        return counts

    def _bootstrap(self) -> str:
        return self._servers if isinstance(self._servers, str) else self._servers()


def _arguments(
    index: int,
    partition: int | Sequence[int] | None,
    keys: Sequence[Bytes] | None,
    headers: Sequence[Headers | None] | None,
    timestamps: Sequence[int] | None,
) -> dict[str, Any]:
    arguments: dict[str, Any] = {}
    if partition is not None:
        arguments["partition"] = partition if isinstance(partition, int) else partition[index]
    if keys is not None:
        arguments["key"] = keys[index]
    if headers is not None and headers[index] is not None:
        arguments["headers"] = list(headers[index] or ())
    if timestamps is not None:
        arguments["timestamp"] = timestamps[index]
    return arguments


def _send(producer: Any, topic: str, value: Bytes, delivered: Any, arguments: dict[str, Any]) -> None:
    while True:
        try:
            producer.produce(topic, value, on_delivery=delivered, **arguments)
        except BufferError:  # the queue is full: let deliveries make room
            producer.poll(0.1)
        else:
            producer.poll(0)
            return
