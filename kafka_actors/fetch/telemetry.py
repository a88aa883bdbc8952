"""Metrics of fetching: bytes, times and failures, by broker."""

from __future__ import annotations

from kafka_actors.cluster.snapshot import ClusterSnapshot
from kafka_actors.telemetry.attributes import Attributes, of_operation, of_server, with_error
from kafka_actors.telemetry.instruments import FETCH_BYTES, FETCH_FAILURES, GROUP, OPERATION_DURATION
from kafka_actors.telemetry.recorder import Recorder

from .messages import FetchReply


class FetchTelemetry:
    """Records the metrics of one fetcher. Brokers that it doesn't know yet are measured without their address."""

    def __init__(self, recorder: Recorder, group_id: str | None) -> None:
        self._recorder = recorder
        self._group = ((GROUP, group_id or ""),)
        self._operation = of_operation("fetch", group_id)
        self._servers: dict[int, Attributes] = {}

    def follow(self, snapshot: ClusterSnapshot) -> None:
        """Takes over the addresses of the brokers."""
        self._servers = {broker: of_server(b.host, b.port) for broker, b in snapshot.brokers.items()}

    def fetched(self, broker: int, reply: FetchReply) -> None:
        """Counts a response."""
        server = self._servers.get(broker, ())
        self._recorder.add(FETCH_BYTES, reply.size, (*self._group, *server))
        self._recorder.record(OPERATION_DURATION, reply.seconds, (*self._operation, *server))

    def failed(self, broker: int, error: Exception) -> None:
        """Counts a pull that was not answered."""
        of_failure = with_error((*self._group, *self._servers.get(broker, ())), error)
        self._recorder.add(FETCH_FAILURES, 1, of_failure)
