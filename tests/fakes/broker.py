"""Brokers in this process that speak the wire and answer as a test tells them.

    cluster = FakeCluster(brokers=2, topics={"orders": 4})
    async with cluster:
        broker = cluster.brokers[0]
        broker.once(ApiKey.HEARTBEAT, lambda request, call: HeartbeatResponse(error_code=27))
        broker.on(ApiKey.FETCH, hold)                    # an async handler; or SILENCE, DROP, Raw(bytes)
        client = KafkaClient(build(ClientConfig, bootstrap_servers=cluster.bootstrap))
        ...
        assert broker.counts[ApiKey.METADATA] <= 3

Like a real broker, it carries out the requests of one connection one after the other. ApiVersions, Metadata and
FindCoordinator have handlers; any other API without one answers with its response's defaults.
"""

from __future__ import annotations

import asyncio
import inspect
import time
import uuid
from collections import Counter, defaultdict, deque
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from waiting import slow_s

from kafka_actors.protocol import (
    ApiKey,
    ApiVersionsRequest,
    ApiVersionsResponse,
    FindCoordinatorRequest,
    FindCoordinatorResponse,
    MetadataRequest,
    MetadataResponse,
    decode,
    decode_header,
    encode,
    peek_request,
    response_frame,
)
from kafka_actors.protocol.messages.api_versions import ApiVersion
from kafka_actors.protocol.messages.find_coordinator import Coordinator
from kafka_actors.protocol.messages.metadata import (
    MetadataResponseBroker,
    MetadataResponsePartition,
    MetadataResponseTopic,
)
from kafka_actors.protocol.schema import Request, Response

from .messages import REQUESTS

MAX_REQUEST_BYTES = 100 << 20
"""Kafka's socket.request.max.bytes: the first bytes of TLS read as 352 MiB."""


class _Answer:
    def __init__(self, name: str) -> None:
        self._name = name

    def __repr__(self) -> str:
        return self._name


DROP = _Answer("DROP")
"""Answer by closing the connection."""

SILENCE = _Answer("SILENCE")
"""Never answer; the connection stays open and later requests of it wait as well."""


@dataclass(frozen=True)
class Raw:
    """Answer with exactly these bytes, whatever they are."""

    data: bytes


@dataclass(frozen=True)
class Call:
    """A request that arrived: what the log keeps, and what a handler gets beside the request itself."""

    broker: FakeBroker
    api_key: ApiKey
    version: int
    correlation_id: int
    client_id: str | None
    request: Request[Any]
    connection: int
    at: float = field(default_factory=time.monotonic)


Result = Response | Raw | _Answer
Handler = Callable[[Any, Call], Result | Awaitable[Result]]


class FakeBroker:
    """One broker. `versions` limits what it speaks: ``{ApiKey.FETCH: (4, 12)}``, or None for an absent API."""

    def __init__(
        self,
        node_id: int = 0,
        *,
        cluster: FakeCluster | None = None,
        host: str = "127.0.0.1",
        versions: Mapping[ApiKey, tuple[int, int] | None] | None = None,
    ) -> None:
        self.node_id = node_id
        self.host = host
        self.port = 0
        self.cluster = cluster or FakeCluster(brokers=0)
        if cluster is None:
            self.cluster.brokers.append(self)
        self.versions: dict[ApiKey, tuple[int, int]] = {
            ApiKey(key): (cls.min_version, cls.latest) for key, cls in REQUESTS.items()
        }
        for key, limits in (versions or {}).items():
            if limits is None:
                del self.versions[key]
            else:
                self.versions[key] = limits
        self.log: list[Call] = []
        self.counts: Counter[ApiKey] = Counter()
        self.accepted = 0
        self._handlers: dict[ApiKey, Handler | Result] = {
            ApiKey.API_VERSIONS: _api_versions,
            ApiKey.METADATA: _metadata,
            ApiKey.FIND_COORDINATOR: _find_coordinator,
        }
        self._once: dict[ApiKey, deque[Handler | Result]] = defaultdict(deque)
        self._server: asyncio.Server | None = None
        self._open: dict[asyncio.StreamWriter, asyncio.Task[None] | None] = {}
        self._arrived = asyncio.Condition()

    # ------------------------------------------------------------ scripting

    def on(self, api_key: ApiKey, handler: Handler | Result) -> None:
        """Answer this API so from now on: a handler ``(request, call) -> response``, or an answer."""
        self._handlers[api_key] = handler

    def once(self, api_key: ApiKey, *handlers: Handler | Result) -> None:
        """Answer the next requests of this API so, one each, then as before."""
        self._once[api_key].extend(handlers)

    def requests(self, api_key: ApiKey) -> list[Any]:
        """The requests of an API so far, oldest first."""
        return [call.request for call in self.log if call.api_key == api_key]

    def calls(self, api_key: ApiKey) -> list[Call]:
        """The calls of an API so far, with version, connection and time."""
        return [call for call in self.log if call.api_key == api_key]

    async def wait_for(self, api_key: ApiKey, count: int = 1, within: float = 5.0) -> Call:
        """Wait until `count` requests of this API have arrived in all. Returns the last of them."""
        async with asyncio.timeout(slow_s(within)), self._arrived:
            await self._arrived.wait_for(lambda: self.counts[api_key] >= count)
        return self.calls(api_key)[count - 1]

    # ------------------------------------------------------------ life

    @property
    def address(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{host}:{self.port}"

    @property
    def connections(self) -> int:
        """Number of open connections."""
        return len(self._open)

    async def start(self, port: int = 0) -> FakeBroker:
        """Listen, on a free port unless told (a restart after `stop` may keep ``broker.port``)."""
        self._server = await asyncio.start_server(self._serve, self.host, port)
        self.port = self._server.sockets[0].getsockname()[1]
        return self

    async def stop(self) -> None:
        """Stop listening and close all connections, as a killed broker does."""
        if self._server is not None:
            self._server.close()
            self._server = None
        await self.drop_connections()

    async def drop_connections(self) -> None:
        """Close all connections and go on listening."""
        ending = [t for t in self._open.values() if t is not None and t is not asyncio.current_task()]
        for task in ending:
            task.cancel()
        for writer in list(self._open):
            writer.close()
        if ending:
            await asyncio.wait(ending)
        await asyncio.sleep(0)

    async def __aenter__(self) -> FakeBroker:
        return await self.start()

    async def __aexit__(self, *_: object) -> None:
        await self.stop()

    # ------------------------------------------------------------ serving

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        number = self.accepted
        self.accepted += 1
        self._open[writer] = asyncio.current_task()
        try:
            while True:
                size = int.from_bytes(await reader.readexactly(4), "big")
                if size > MAX_REQUEST_BYTES:
                    raise ConnectionError(
                        "no request is so long: a real broker closes the connection as well"
                    )
                await self._answer(await reader.readexactly(size), number, writer)
        except (asyncio.IncompleteReadError, ConnectionError, asyncio.CancelledError):
            pass
        finally:
            self._open.pop(writer, None)
            writer.close()

    async def _answer(self, data: bytes, number: int, writer: asyncio.StreamWriter) -> None:
        key, version, correlation_id = peek_request(data)
        api_key = ApiKey(key)
        low, high = self.versions.get(api_key, (0, -1))
        if api_key == ApiKey.API_VERSIONS and version > high:
            await self._note(Call(self, api_key, version, correlation_id, None, ApiVersionsRequest(), number))
            writer.write(_unsupported(correlation_id, low, high))
            return
        if not low <= version <= high:
            raise ConnectionError(f"{api_key.name} {version}: a real broker closes the connection as well")
        header, body = decode_header(key, version, "request", data)
        request = decode(REQUESTS[key], version, "request", body)
        call = Call(self, api_key, version, correlation_id, header.client_id, request, number)
        await self._note(call)
        result = await self._result(call)
        if result is DROP:
            raise ConnectionError("told to drop it")
        if result is SILENCE:
            await asyncio.Event().wait()
        if isinstance(result, Raw):
            writer.write(result.data)
        elif isinstance(result, Response):
            writer.write(response_frame(key, version, correlation_id, result))
        await writer.drain()

    async def _note(self, call: Call) -> None:
        self.log.append(call)
        self.counts[call.api_key] += 1
        async with self._arrived:
            self._arrived.notify_all()

    async def _result(self, call: Call) -> Result:
        queue = self._once[call.api_key]
        handler = queue.popleft() if queue else self._handlers.get(call.api_key)
        if handler is None:
            return REQUESTS[call.api_key].response()
        if not callable(handler):
            return handler
        result = handler(call.request, call)
        return await result if inspect.isawaitable(result) else result


class FakeCluster:
    """Some brokers that agree about metadata. `topics` is ``{name: number of partitions}``.

    ``leaders[(topic, partition)]`` and ``epochs[...]`` can be changed (`move`), so can ``coordinator`` (the node
    id that FindCoordinator answers with; ``None`` is COORDINATOR_NOT_AVAILABLE).
    """

    def __init__(self, brokers: int = 1, topics: Mapping[str, int] | None = None, **options: Any) -> None:
        self.cluster_id = "fake"
        self.brokers: list[FakeBroker] = []
        self.partitions: dict[str, int] = {}
        self.topic_ids: dict[str, uuid.UUID] = {}
        self.topic_errors: dict[str, int] = {}
        self.leaders: dict[tuple[str, int], int] = {}
        self.epochs: dict[tuple[str, int], int] = {}
        self.hidden: set[int] = set()
        self.coordinator: int | None = 0
        for node_id in range(brokers):
            self.brokers.append(FakeBroker(node_id, cluster=self, **options))
        for name, count in (topics or {}).items():
            self.create_topic(name, count)

    @property
    def bootstrap(self) -> list[str]:
        return [broker.address for broker in self.brokers]

    def create_topic(self, name: str, partitions: int) -> None:
        """Makes a topic (again, under another id)."""
        self.partitions[name] = partitions
        self.topic_ids[name] = uuid.uuid4()
        for index in range(partitions):
            self.leaders[name, index] = self.brokers[index % len(self.brokers)].node_id if self.brokers else 0
            self.epochs[name, index] = 0

    def delete_topic(self, name: str) -> None:
        del self.partitions[name], self.topic_ids[name]

    def move(self, topic: str, partition: int, leader: int) -> None:
        """Gives a partition another leader (-1: none) under a new epoch."""
        self.leaders[topic, partition] = leader
        self.epochs[topic, partition] += 1

    def hide(self, node_id: int) -> None:
        """Metadata no longer names this broker."""
        self.hidden.add(node_id)

    def metadata(self, topics: list[str] | None = None) -> MetadataResponse:
        """Metadata that the brokers answer about these topics, None for all."""
        listed = [
            MetadataResponseBroker(node_id=b.node_id, host=b.host, port=b.port)
            for b in self.brokers
            if b.node_id not in self.hidden
        ]
        names = sorted(self.partitions) if topics is None else topics
        return MetadataResponse(
            brokers=listed,
            cluster_id=self.cluster_id,
            controller_id=listed[0].node_id if listed else -1,
            topics=[self._topic(name) for name in names],
        )

    def _topic(self, name: str) -> MetadataResponseTopic:
        if name in self.topic_errors or name not in self.partitions:
            return MetadataResponseTopic(error_code=self.topic_errors.get(name, 3), name=name)
        parts = []
        for index in range(self.partitions[name]):
            leader = self.leaders[name, index]
            parts.append(
                MetadataResponsePartition(
                    error_code=0 if leader >= 0 else 5,
                    partition_index=index,
                    leader_id=leader,
                    leader_epoch=self.epochs[name, index],
                    replica_nodes=[b.node_id for b in self.brokers],
                    isr_nodes=[b.node_id for b in self.brokers],
                )
            )
        return MetadataResponseTopic(name=name, topic_id=self.topic_ids[name], partitions=parts)

    async def __aenter__(self) -> FakeCluster:
        for broker in self.brokers:
            await broker.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        for broker in self.brokers:
            await broker.stop()


def _api_versions(request: ApiVersionsRequest, call: Call) -> ApiVersionsResponse:
    return ApiVersionsResponse(
        api_keys=[
            ApiVersion(int(key), low, high) for key, (low, high) in sorted(call.broker.versions.items())
        ]
    )


def _unsupported(correlation_id: int, low: int, high: int) -> bytes:
    """KIP-511: the error in version 0, with the range of ApiVersions itself (none before Kafka 2.4)."""
    named = [ApiVersion(int(ApiKey.API_VERSIONS), low, high)] if high >= 3 else []
    body = encode(ApiVersionsResponse(error_code=35, api_keys=named), 0)
    return (4 + len(body)).to_bytes(4, "big") + correlation_id.to_bytes(4, "big") + body


def _metadata(request: MetadataRequest, call: Call) -> MetadataResponse:
    cluster = call.broker.cluster
    if request.topics is None:
        return cluster.metadata()
    return cluster.metadata([topic.name or "" for topic in request.topics])


def _find_coordinator(request: FindCoordinatorRequest, call: Call) -> FindCoordinatorResponse:
    cluster = call.broker.cluster
    found = next((b for b in cluster.brokers if b.node_id == cluster.coordinator), None)
    error = 0 if found is not None else 15
    node_id, host, port = (-1, "", -1) if found is None else (found.node_id, found.host, found.port)
    if call.version < 4:
        return FindCoordinatorResponse(error_code=error, node_id=node_id, host=host, port=port)
    return FindCoordinatorResponse(
        coordinators=[Coordinator(key, node_id, host, port, error) for key in request.coordinator_keys]
    )
