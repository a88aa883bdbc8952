"""The connection actor: IO to one broker for the workers of one node. It hands record bytes on undecoded."""

from __future__ import annotations

from typing import Any

import msgspec
import pyarrow as pa

from kafka_actors import protocol
from kafka_actors.config import JobConfig, resolved
from kafka_actors.errors import NodeNotReadyError
from kafka_actors.fetch import BrokerFetcher
from kafka_actors.fetch.broker_fetcher import Connect
from kafka_actors.fetch.messages import Pull
from kafka_actors.job.messages import pack, unpack
from kafka_actors.job.process_setup import ProcessSetup
from kafka_actors.job.transport.shared_memory import SharedMemory
from kafka_actors.job.transport.shm_server import SharedMemoryServer
from kafka_actors.net import BrokerChannels, ConnectionOpener, FetchSocket
from kafka_actors.net.receive_ring import ReceiveRing
from kafka_actors.telemetry.logs import set_log_origin

from .actor import ActorShell, once, set_up_process

__all__ = ["ConnectionActor"]


class ConnectionActor(ActorShell):
    """One socket and one fetch session for each worker, and `BrokerChannels` for their offset look-ups.

    Until `begin` it belongs to no broker: so a spare one can take the place of one that died.
    """

    def __init__(self, config: JobConfig, setup: ProcessSetup) -> None:
        set_up_process(setup)
        self._origin = setup.origin
        self._config = config
        self._broker: BrokerChannels | None = None
        self._fetchers: dict[str, BrokerFetcher] = {}
        self._doors = SharedMemoryServer(self._fetcher_into)

    @once
    async def begin(self, broker: int, host: str, port: int) -> None:
        """Learns its broker. Sockets are opened when first needed, and again after each failure."""
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
        """One credit of a worker that found no door: returns the next fetch response with the bytes of its partitions."""
        reply, records = await self._fetcher(worker).pull(unpack(pull, Pull))
        return pack(reply), [pa.py_buffer(data) for data in records]

    async def door(self) -> str | None:
        """Where workers of this node pull; None where they have to do it by `pull`."""
        return await self._doors.name()

    async def last_words(self, worker: str) -> bytes | None:
        """A packed `CrashReport` of a worker of this node that is dead; None where it never came to the door."""
        words = self._doors.last_words(worker)
        return None if words is None else pack(words)

    def _fetcher(self, worker: str) -> BrokerFetcher:
        fetcher = self._fetchers.get(worker)
        if fetcher is None:
            fetcher = self._fetchers[worker] = self._new_fetcher(FetchSocket)
        return fetcher

    def _fetcher_into(self, memory: SharedMemory) -> BrokerFetcher:
        ring = ReceiveRing(memory.allocate)
        return self._new_fetcher(lambda host, port, config: FetchSocket(host, port, config, ring=ring))

    def _new_fetcher(self, connect: Connect) -> BrokerFetcher:
        broker = self._begun()
        return BrokerFetcher(broker.id, broker.host, broker.port, self._config, connect=connect)

    async def forget(self, workers: list[str]) -> None:
        """These workers are gone: their sockets are closed."""
        self._doors.forget(workers)
        for worker in workers:
            if (fetcher := self._fetchers.pop(worker, None)) is not None:
                await fetcher.close()

    async def relay(
        self, api_key: int, body: bytes, timeout_ms: float | None, min_version: int | None
    ) -> bytes:
        """Sends a worker's request and returns the answer, both encoded in the latest version of the API."""
        kind = protocol.message_class(api_key, "request")
        request: Any = protocol.decode_message(kind, kind.latest, body)
        broker = self._begun()
        await broker.connect()
        response: Any = await broker.request(request, timeout_ms=timeout_ms, min_version=min_version)
        return protocol.encode(response, kind.latest)
