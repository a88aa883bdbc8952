"""What connections do, as instruments of an OpenTelemetry meter: the options `metrics` and `metric_group_prefix`."""

from __future__ import annotations

from functools import lru_cache
from typing import Any

from kafka_actors.config import ClientConfig


class NetworkMetrics:
    """Counts of connections, requests, responses and bytes, and the latency of requests, each by broker.

    `meter` is an `opentelemetry.metrics.Meter`; the instruments' names are Kafka's (`connection.creation`,
    `request.latency`, ...) behind `prefix` and a dot. The attribute `server.address` is a broker's `host:port`.
    """

    def __init__(self, meter: Any, prefix: str = "") -> None:
        before = f"{prefix}." if prefix else ""
        self._created = meter.create_counter(
            f"{before}connection.creation", "{connection}", "connections made"
        )
        self._closed = meter.create_counter(f"{before}connection.close", "{connection}", "connections ended")
        self._requests = meter.create_counter(f"{before}request", "{request}", "requests written")
        self._responses = meter.create_counter(f"{before}response", "{response}", "responses received")
        self._sent = meter.create_counter(f"{before}outgoing.byte", "By", "bytes of requests written")
        self._received = meter.create_counter(f"{before}incoming.byte", "By", "bytes of responses received")
        self._latency = meter.create_histogram(f"{before}request.latency", "ms", "from request to response")

    def connected(self, address: str) -> None:
        """A connection is ready for requests."""
        self._created.add(1, {"server.address": address})

    def disconnected(self, address: str) -> None:
        """A connection that was ready has ended."""
        self._closed.add(1, {"server.address": address})

    def sent(self, address: str, size: int) -> None:
        """A request of `size` bytes was written."""
        by = {"server.address": address}
        self._requests.add(1, by)
        self._sent.add(size, by)

    def received(self, address: str, size: int, latency: float) -> None:
        """A response of `size` bytes came, `latency` seconds after its request was written."""
        by = {"server.address": address}
        self._responses.add(1, by)
        self._received.add(size, by)
        self._latency.record(latency * 1000, by)


def metrics_of(config: ClientConfig) -> NetworkMetrics | None:
    """The instruments for a config's connections, None where nothing is to be counted."""
    return None if config.metrics is None else _make(config.metrics, config.metric_group_prefix)


@lru_cache(maxsize=32)
def _make(meter: Any, prefix: str) -> NetworkMetrics:
    """Once per meter: a second instrument of the same name is a warning in OpenTelemetry's SDK."""
    return NetworkMetrics(meter, prefix)
