"""Connection actor: IO with one broker for the workers of one node. Record bytes are passed on undecoded."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec
import pyarrow as pa

from kafka_actors import protocol
from kafka_actors.config import JobConfig, resolved
from kafka_actors.errors import NodeNotReadyError
from kafka_actors.fetch import BrokerFetcher
from kafka_actors.fetch.local_sources import Connect
from kafka_actors.fetch.messages import Pull
from kafka_actors.fetch.shared_records import SharedRecords
from kafka_actors.job.actor_setup import ProcessSetup
from kafka_actors.job.messages import pack, unpack
from kafka_actors.job.transport.shared_memory import SharedMemory
from kafka_actors.job.transport.shm_server import SharedMemoryServer
from kafka_actors.net import BrokerChannels, ConnectionOpener, FetchSocket
from kafka_actors.net.receive_ring import ReceiveRing
from kafka_actors.telemetry.logs import set_log_origin

from .actor import ActorShell, once, set_up_process

__all__ = ["ConnectionActor"]


class ConnectionActor(ActorShell):
    """One socket and one fetch session for each worker, and `BrokerChannels` for their offset lookups.

    Until `begin` it belongs to no broker, so that a spare one can take the place of one that died.
    """

    def __init__(self, config: JobConfig, setup: ProcessSetup) -> None:
        set_up_process(setup)
        self._origin = setup.origin
        self._config = config
        self._broker: BrokerChannels | None = None
        self._fetchers: dict[str, BrokerFetcher] = {}
        self._server = SharedMemoryServer(self._fetcher_into)
        self._shared = SharedRecords()

    @once
    async def begin(self, broker: int, host: str, port: int) -> None:
        """Sets the broker. Sockets are opened when first needed, and again after each failure."""
        self._config = resolved(self._config)
        set_log_origin(msgspec.structs.replace(self._origin, actor=f"connection-{broker}"))
        timeout_ms = self._config.request_timeout_ms
        opener = ConnectionOpener(self._config)
        self._broker = BrokerChannels(broker, host, port, opener, timeout_ms, timeout_ms)

    def _begun(self) -> BrokerChannels:
        if self._broker is None:
            raise NodeNotReadyError("this connection actor has no broker yet")
        return self._broker

    async def pull(self, worker: str, pull: bytes) -> tuple[bytes, list[pa.Buffer]]:
        """Returns the next fetch response with the bytes of its partitions, to a worker without shared memory."""
        reply, records = await self._fetcher(worker).pull(unpack(pull, Pull))
        return pack(reply), [pa.py_buffer(data) for data in records]

    async def shared_memory_name(self) -> str | None:
        """Returns the socket name of the shared-memory transport; None where workers have to call `pull`."""
        return await self._server.name()

    async def crash_report(self, worker: str) -> bytes | None:
        """Returns a packed `CrashReport` of a dead worker of this node; None if it never connected here."""
        report = self._server.crash_report(worker)
        return None if report is None else pack(report)

    def _fetcher(self, worker: str) -> BrokerFetcher:
        fetcher = self._fetchers.get(worker)
        if fetcher is None:
            fetcher = self._fetchers[worker] = self._new_fetcher(FetchSocket)
        return fetcher

    def _fetcher_into(self, memory: SharedMemory) -> BrokerFetcher:
        ring = ReceiveRing(memory.allocate, memory.give_back)
        return self._new_fetcher(
            lambda host, port, config: FetchSocket(host, port, config, ring=ring), ring.lend
        )

    def _new_fetcher(
        self, connect: Connect, lend: Callable[[int, float], memoryview] | None = None
    ) -> BrokerFetcher:
        broker, shared = self._begun(), self._shared
        return BrokerFetcher(
            broker.id, broker.host, broker.port, self._config, connect=connect, shared=shared, lend=lend
        )

    async def forget(self, workers: list[str]) -> None:
        """Closes the sockets of workers that are gone."""
        self._server.forget(workers)
        for worker in workers:
            if (fetcher := self._fetchers.pop(worker, None)) is not None:
                await fetcher.close()

    async def relay(
        self, api_key: int, body: bytes, timeout_ms: float | None, min_version: int | None
    ) -> bytes:
        """Sends a worker's request to the broker; request and response are encoded in the API's latest version."""
        kind = protocol.message_class(api_key, "request")
        request: Any = protocol.decode_message(kind, kind.latest, body)
        broker = self._begun()
        await broker.connect()
        response: Any = await broker.request(request, timeout_ms=timeout_ms, min_version=min_version)
        return protocol.encode(response, kind.latest)
