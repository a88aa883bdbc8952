"""Metrics of connections, in the registry of the option `metrics`: after `SelectorMetrics` in Java's `Selector`.

They are views on the instruments of `kafka_actors.telemetry`, as those of the coordinator are.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import suppress

from kafka_actors.config import ClientConfig, ConsumerConfig
from kafka_actors.metrics import Metrics, Sensor, Stat
from kafka_actors.telemetry.instruments import CONNECTIONS, IO, REQUEST_DURATION
from kafka_actors.telemetry.recorder import GroupRecorder, metered


class NetworkMetrics:
    """Counts connections, requests, responses, bytes, and the time to a response, of all connections with this prefix.

    metrics: the registry; the metrics' group is `{prefix}-metrics`. Connections share sensors and metrics, so any
    number of these may be made for one registry.
    """

    def __init__(self, metrics: Metrics, prefix: str = "", group_id: str | None = None) -> None:
        self._metrics = metrics
        self._group = f"{prefix}-metrics" if prefix else "metrics"
        recorder = GroupRecorder(metrics.recorder or metered(), group_id)
        self._created = self._sensor(
            "connections-created",
            recorder.into(CONNECTIONS, (("state", "made"),)),
            {
                "connection-creation-rate": (Stat.RATE, "Connections made a second"),
                "connection-creation-total": (Stat.COUNT, "Connections made"),
            },
        )
        self._closed = self._sensor(
            "connections-closed",
            recorder.into(CONNECTIONS, (("state", "ended"),)),
            {
                "connection-close-rate": (Stat.RATE, "Connections ended a second"),
                "connection-close-total": (Stat.COUNT, "Connections ended"),
            },
        )
        self._sent = self._sensor(
            "bytes-sent",
            recorder.into(IO, (("network.io.direction", "transmit"),)),
            {
                "outgoing-byte-total": (Stat.TOTAL, "Bytes of requests"),
                "request-rate": (Stat.RATE, "Requests a second"),
                "request-total": (Stat.COUNT, "Requests"),
                "request-size-avg": (Stat.AVG, "The mean size of a request"),
                "request-size-max": (Stat.MAX, "The largest request"),
            },
        )
        self._received = self._sensor(
            "bytes-received",
            recorder.into(IO, (("network.io.direction", "receive"),)),
            {
                "incoming-byte-total": (Stat.TOTAL, "Bytes of responses"),
                "response-rate": (Stat.RATE, "Responses a second"),
                "response-total": (Stat.COUNT, "Responses"),
            },
        )
        self._latency = self._sensor(
            "request-latency",
            recorder.into(REQUEST_DURATION),
            {
                "request-latency-avg": (Stat.AVG, "The mean time to an answer, in milliseconds"),
                "request-latency-max": (Stat.MAX, "The longest time to an answer, in milliseconds"),
            },
            scale=1000,
        )

    def _sensor(
        self,
        name: str,
        export: Callable[[float], None],
        stats: Mapping[str, tuple[Stat, str]],
        scale: float = 1.0,
    ) -> Sensor:
        tags = {"group": self._group}
        sensor = self._metrics.sensor(name, tags, export=export, scale=scale)
        for metric, (stat, description) in stats.items():
            with suppress(ValueError):  # another connection has made it
                sensor.add(self._metrics.metric_name(metric, self._group, description), stat)
        return sensor

    def connected(self) -> None:
        """Counts a connection that is ready for requests."""
        self._created.record()

    def disconnected(self) -> None:
        """Counts the end of a connection that was ready."""
        self._closed.record()

    def sent(self, size: int) -> None:
        """Counts a request of `size` bytes that was written."""
        self._sent.record(size)

    def received(self, size: int, latency: float) -> None:
        """Counts a response of `size` bytes that came `latency` seconds after its request was written."""
        self._received.record(size)
        self._latency.record(latency)


def metrics_of(config: ClientConfig) -> NetworkMetrics | None:
    """The metrics of a config's connections, None where nothing is to be counted."""
    if config.metrics is None:
        return None
    group_id = config.group_id if isinstance(config, ConsumerConfig) else None
    return NetworkMetrics(config.metrics, config.metric_group_prefix, group_id)
