"""Connections of a member to its group's coordinator, and a task for each request over them.

`GroupClient` and `GroupBroker` are what a coordinator needs of connections and metadata: Protocols, so that it depends on no
network and no actor.

Some requests changed their shape over the versions. Machines make the newest shape. Which version applies shows when the request
is encoded, which fails, with nothing sent, where a version lacks a field; then the next older shape is tried.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any, Protocol

from msgspec.structs import replace

from kafka_actors.cluster import ClusterMetadata, ClusterSnapshot
from kafka_actors.cluster.future import Future
from kafka_actors.errors import DisconnectedError, EncodeError, KafkaTimeoutError, NodeNotReadyError
from kafka_actors.protocol import FindCoordinatorRequest, LeaveGroupRequest, OffsetFetchRequest
from kafka_actors.protocol.messages.offset_fetch import OffsetFetchRequestTopic
from kafka_actors.telemetry.attributes import Attributes, of_server

from .machines.error_actions import GroupApi
from .machines.member_events import CoordinatorNode, GroupChannel, GroupRequest


class GroupBroker(Protocol):
    """Connections of one member to one broker: a main channel, an offsets channel, and one for each further
    `connection_id`. `net.BrokerChannels` is one."""

    @property
    def connected(self) -> bool: ...

    async def connect(self) -> None: ...

    async def open_channel(self, connection_id: str) -> None: ...

    def close_channel(self, connection_id: str) -> None: ...

    async def request(
        self,
        message: Any,
        *,
        connection_id: str | None = None,
        offsets_channel: bool = False,
        timeout_ms: float | None = None,
    ) -> Any: ...

    def close(self) -> None: ...


class GroupClient(Protocol):
    """A client of the cluster, as `net.KafkaClient` is one."""

    @property
    def cluster(self) -> ClusterMetadata: ...

    @property
    def snapshot(self) -> ClusterSnapshot: ...

    def least_loaded_node(self) -> int | None: ...

    def trouble(self) -> str: ...

    def tracks(self, topic: str) -> bool: ...

    def add_topic(self, topic: str, *more: str) -> Future[ClusterMetadata]: ...

    async def send(self, node_id: int, request: Any, *, timeout_ms: float | None = None) -> Any: ...

    async def open_broker(self, node_id: int, host: str, port: int) -> GroupBroker: ...


Deliver = Callable[[GroupRequest, object], object]

OFFSET_FETCH_CHANNEL = "offset-fetch-channel"
"""The `connection_id` of OffsetFetch requests."""


class CoordinatorChannels:
    """Opens, uses and closes the connections of one member. `deliver` gets each request with its response or exception, once."""

    def __init__(self, client: GroupClient, member_name: str) -> None:
        self._client = client
        self._member_name = member_name
        self._broker: GroupBroker | None = None
        self._server: Attributes = ()
        self._tasks: set[asyncio.Task[None]] = set()
        self._fetches = 0

    @property
    def broker(self) -> GroupBroker | None:
        """The coordinator's connections, if there are any."""
        return self._broker

    @property
    def server(self) -> Attributes:
        """The address of the coordinator that was connected to last, as attributes of telemetry; empty before."""
        return self._server

    def start(self, request: GroupRequest, deliver: Deliver) -> None:
        """Sends a request; returns at once."""
        task = asyncio.get_running_loop().create_task(self._exchange(request, deliver))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _exchange(self, request: GroupRequest, deliver: Deliver) -> None:
        try:
            outcome: object = await self._carry_out(request)
        except Exception as error:
            outcome = error
        deliver(request, outcome)

    async def _carry_out(self, request: GroupRequest) -> object:
        if request.api is GroupApi.CONNECT:
            await self._connect(request.body, request.timeout)
            return None
        timeout_ms = request.timeout * 1000
        if request.api is GroupApi.FIND_COORDINATOR:
            return await self._ask_any(request.body, timeout_ms)
        return await self.ask(request.body, timeout_ms, request.channel)

    async def _ask_any(self, body: object, timeout_ms: float) -> object:
        node = self._client.least_loaded_node()
        if node is None:
            raise NodeNotReadyError(f"no broker may be asked now: {self._client.trouble()}")
        return await send_in_some_shape(partial(self._client.send, node, timeout_ms=timeout_ms), body)

    async def _connect(self, node: CoordinatorNode, seconds: float) -> None:
        self.disconnect()
        try:
            async with asyncio.timeout(seconds):
                broker = await self._client.open_broker(node.node_id, node.host, node.port)
        except TimeoutError:
            raise KafkaTimeoutError(f"no connection to {node.host}:{node.port} in {seconds:g} s") from None
        self.disconnect()
        self._broker = broker
        self._server = of_server(node.host, node.port)

    async def ask(self, body: object, timeout_ms: float, channel: GroupChannel = GroupChannel.OFFSETS) -> Any:
        """Returns the coordinator's response. Raises as `Connection.send`, `NodeNotReadyError` where there is none."""
        broker = self._broker
        if broker is None:
            raise NodeNotReadyError("the group's coordinator is not known")
        send = partial(broker.request, timeout_ms=timeout_ms)
        if channel is GroupChannel.OFFSET_FETCH:
            with self.fetching_offsets():
                await broker.open_channel(OFFSET_FETCH_CHANNEL)
                return await send_in_some_shape(partial(send, connection_id=OFFSET_FETCH_CHANNEL), body)
        if channel is GroupChannel.OFFSETS:
            return await send_in_some_shape(partial(send, offsets_channel=True), body)
        if not broker.connected:  # idle for long while the group was stable
            await broker.connect()
        return await send_in_some_shape(partial(send, connection_id=self._member_name), body)

    @contextmanager
    def fetching_offsets(self) -> Iterator[None]:
        """Keeps the connection for OffsetFetch open as long as any caller is within; the last one closes it."""
        self._fetches += 1
        try:
            yield
        finally:
            self._fetches -= 1
            if self._fetches == 0 and self._broker is not None:
                self._broker.close_channel(OFFSET_FETCH_CHANNEL)

    def disconnect(self) -> None:
        """Closes all channels; what was in flight on them fails."""
        if self._broker is not None:
            self._broker.close()
            self._broker = None

    async def close(self) -> None:
        """Closes everything and waits for nobody."""
        self.disconnect()
        tasks = [task for task in self._tasks if task is not asyncio.current_task()]
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks)


LOST_CONNECTION = DisconnectedError("the connection to the coordinator was given up")


def shapes(request: Any) -> list[Any]:
    """Returns the request and its older shapes, newest first.

    A request about several groups has no older shape: those before are about one.
    """
    if isinstance(request, FindCoordinatorRequest) and len(request.coordinator_keys) == 1:
        return [request, FindCoordinatorRequest(key=request.coordinator_keys[0], key_type=request.key_type)]
    if isinstance(request, LeaveGroupRequest) and len(request.members) == 1:
        old = LeaveGroupRequest(group_id=request.group_id, member_id=request.members[0].member_id)
        return [request, old]
    if isinstance(request, OffsetFetchRequest) and len(request.groups) == 1:
        return [request, *_older_offset_fetch(request)]
    return [request]


def _older_offset_fetch(request: OffsetFetchRequest) -> list[OffsetFetchRequest]:
    group = request.groups[0]
    topics = None
    if group.topics is not None:
        topics = [
            OffsetFetchRequestTopic(name=t.name, partition_indexes=t.partition_indexes) for t in group.topics
        ]
    before_8 = OffsetFetchRequest(
        group_id=group.group_id, topics=topics, require_stable=request.require_stable
    )
    # A broker before 2.5 knows no pending transactions here; what it answers is stable or nothing.
    before_7 = [replace(before_8, require_stable=False)] if request.require_stable else []
    return [before_8, *before_7]


async def send_in_some_shape(send: Callable[[Any], Awaitable[Any]], request: Any) -> Any:
    """Returns the response to the newest shape that can be encoded. Raises what `send` raises for the last one tried."""
    *newer, oldest = shapes(request)
    for shape in newer:
        try:
            return await send(shape)
        except EncodeError:
            continue
    return await send(oldest)
