"""The connection actor: IO to one broker for the workers of one node. It hands record bytes on undecoded."""

from __future__ import annotations

from typing import Any

import msgspec
import pyarrow as pa

from kafka_actors import protocol
from kafka_actors.config import JobConfig, resolved
from kafka_actors.errors import NodeNotReadyError
from kafka_actors.fetch import BrokerFetcher
from kafka_actors.fetch.messages import Pull
from kafka_actors.net import Broker, ConnectionOpener, FetchSocket
from kafka_actors.telemetry.logs import speaks

from .door import DoorKeeper
from .messages import pack, unpack
from .plan import Setup
from .shell import ActorShell, set_up_process

__all__ = ["ConnectionActor"]


class ConnectionActor(ActorShell):
    """One socket and one fetch session for each worker, and a `Broker` for their offset look-ups.

    Until `begin` it belongs to no broker: so a spare one can take the place of one that died.
    """

    def __init__(self, config: JobConfig, setup: Setup) -> None:
        set_up_process(setup)
        self._origin = setup.origin
        self._config = config
        self._broker: Broker | None = None
        self._fetchers: dict[str, BrokerFetcher] = {}
        self._doors = DoorKeeper(self._fetcher)

    async def begin(self, broker: int, host: str, port: int) -> None:
        """Learns its broker. Sockets are opened when first needed, and again after each failure."""
        self._config = resolved(self._config)
        speaks(msgspec.structs.replace(self._origin, actor=f"connection-{broker}"))
        timeout_ms = self._config.request_timeout_ms
        self._broker = Broker(broker, host, port, ConnectionOpener(self._config), timeout_ms, timeout_ms)

    def _begun(self) -> Broker:
        if self._broker is None:
            raise NodeNotReadyError("this connection actor has no broker yet")
        return self._broker

    async def pull(self, worker: str, pull: bytes) -> list[tuple[bytes, list[pa.Buffer]]]:
        """One credit of a worker: returns the next fetch responses with the bytes of their partitions.

        Not with the response as a whole: Ray copies what is larger than 1 MiB in six threads, which costs more than
        it saves beside other work, and a partition brings no more than that at the defaults.
        """
        answers = await self._fetcher(worker).pull(unpack(pull, Pull))
        return [(pack(reply), [pa.py_buffer(data) for data in records]) for reply, records in answers]

    async def door(self) -> str | None:
        """Where workers of this node may pull what is little; None where they can't."""
        return await self._doors.name()

    def _fetcher(self, worker: str) -> BrokerFetcher:
        fetcher = self._fetchers.get(worker)
        if fetcher is None:
            broker = self._begun()
            fetcher = self._fetchers[worker] = BrokerFetcher(
                broker.id, broker.host, broker.port, self._config, connect=FetchSocket
            )
        return fetcher

    async def forget(self, workers: list[str]) -> None:
        """These workers are gone: their sockets are closed."""
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
