"""A network in memory between our clients and a `FakeCluster`, under a virtual clock: no socket, no second of real time.

    with Simulation(seed=7) as world:                       # clock, randomness and threads of kafka_actors are the simulation's
        kafka = world.kafka(brokers=3, topics={"t": 4})     # a FakeKafka: create_topic, kill, restart, set_leader, on, records ...
        async def main():
            async with AsyncConsumer(topics="t", group_id="g", bootstrap_servers=kafka.bootstrap_servers) as consumer: ...
            await world.start("m1", member())               # a task of the client "m1": what it opens is m1's, and what it starts
            world.network.hole(5.0, client="m1", node=2)    # nothing arrives between them for five seconds, later all of it
            world.network.hold(5.0, client="m1")            # the same, but for connections that are opened meanwhile
            world.network.cut(client="m1", after_bytes=10)  # connections break in the middle of the next response
            world.kill("m1")                                # its tasks and connections end, as a process that is killed
            world.freeze("m1", 8.0)                         # stands still, as by SIGSTOP
        world.run(main(), within=120)                       # seconds of the virtual clock

The event loop is the transport: `SimulatedLoop` resolves names, connects and makes transports of this network in place of the
operating system, so the clients' code runs as it is (`Connection`, `KafkaClient`, `AsyncProducer` ...). `BrokerFetcher` blocks in threads:
these take turns with the loop (`lockstep.py`), and receive through `BlockingSocket`. All delays and choices come from the seed. `trace`
holds what arrived when: two runs of a seed have the same.
"""

from __future__ import annotations

import asyncio
import errno
import heapq
import socket
import struct
from collections.abc import Callable
from contextvars import ContextVar, copy_context
from random import Random
from typing import Any, NamedTuple

from fakes.virtual_time import NOTHING_TO_WAIT_FOR, TURN_S, VirtualTimeLoop

from kafka_actors.testing.fake_kafka.machines.fake_cluster import FakeCluster, SendBytes

from .lockstep import Lockstep, LockstepThread

CLIENT: ContextVar[str] = ContextVar("client", default="")
"""The client whose code runs. Tasks, timers and threads inherit it."""
_TIMEVAL = struct.Struct("@ll")
_STEP_S = 1e-7
"""Bytes of one direction of a connection arrive one after the other: timers of one moment have no order."""


class SimulatedLoop(VirtualTimeLoop):
    """An event loop with a virtual clock whose connections are those of a `MemoryNetwork`, and whose threads take turns with it."""

    def __init__(self) -> None:
        super().__init__(files=False)
        self.network: MemoryNetwork | None = None
        self.lockstep = Lockstep(self)
        self._frozen: dict[str, list[asyncio.Handle] | None] = {}
        """Events of clients that stand still are put aside until they go on; those of clients that were killed (None) are dropped."""

    def _run_once(self) -> None:
        """One turn, as asyncio's own, without files and without a look at the system's clock: that is most of its time."""
        if 100 < len(self._scheduled) < 2 * self._timer_cancelled_count:  # type: ignore[has-type]
            self._scheduled = [handle for handle in self._scheduled if not handle._cancelled]  # type: ignore[has-type]
            heapq.heapify(self._scheduled)
            self._timer_cancelled_count = 0
        ready, scheduled = self._ready, self._scheduled  # type: ignore[attr-defined]
        while scheduled and scheduled[0]._cancelled:
            self._timer_cancelled_count -= 1
            heapq.heappop(scheduled)._scheduled = False
        now = self._virtual.now = self._virtual.now + TURN_S
        if not ready:
            if not scheduled:
                raise AssertionError(NOTHING_TO_WAIT_FOR)
            now = self._virtual.now = max(now, scheduled[0]._when)
        while scheduled and scheduled[0]._when <= now:
            handle = heapq.heappop(scheduled)
            handle._scheduled = False
            ready.append(handle)
        for _ in range(len(ready)):  # not those that these add
            handle = ready.popleft()
            if handle._cancelled or (self._frozen and self._put_aside(handle)):
                continue
            handle._run()

    def _put_aside(self, handle: asyncio.Handle) -> bool:
        client = handle._context.get(CLIENT, "")  # type: ignore[attr-defined]
        if client not in self._frozen:
            return False
        aside = self._frozen[client]
        if aside is not None:
            aside.append(handle)
        return True

    # ---------------------------------------------------------------- clients

    def freeze(self, client: str, seconds: float) -> None:
        """Has nothing of a client run for some seconds."""
        if client not in self._frozen:
            self._frozen[client] = []
            # In a context of nobody, or it would be put aside itself.
            self.call_later(seconds, self.thaw, client, context=_nobody())

    def thaw(self, client: str) -> None:
        """Has a client go on that stands still."""
        if self._frozen.get(client) is not None:
            self._ready.extend(self._frozen.pop(client) or ())  # type: ignore[attr-defined]

    def kill(self, client: str) -> None:
        """Has nothing of a client run any more."""
        self._frozen[client] = None

    @property
    def frozen(self) -> set[str]:
        """Clients that stand still, or were killed."""
        return set(self._frozen)

    # ---------------------------------------------------------------- in place of the operating system

    def call_soon_threadsafe(self, callback: Any, *args: Any, context: Any = None) -> asyncio.Handle:
        return self.call_soon(callback, *args, context=context)

    def run_in_executor(self, executor: Any, func: Callable[..., Any], *args: Any) -> Any:  # type: ignore[override]
        future = self.create_future()

        def settle(result: Any, error: BaseException | None) -> None:
            if future.done():
                return
            if error is None:
                future.set_result(result)
            else:
                future.set_exception(error)

        def work() -> None:
            try:
                result = func(*args)
            except Exception as error:
                self.call_soon(settle, None, error)
            else:
                self.call_soon(settle, result, None)

        self.lockstep.in_thread(work)
        return future

    async def getaddrinfo(self, host: Any, port: Any, **_: Any) -> Any:
        return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", (host, port))]

    async def sock_connect(self, sock: Any, address: Any) -> None:
        assert self.network is not None
        link = await self.network.dial(address[1])
        self.network.dialed[id(sock)] = (sock, link)
        sock.close()  # nothing is sent through it

    async def create_connection(self, protocol_factory: Any, *_: Any, sock: Any = None, **__: Any) -> Any:  # type: ignore[override]
        assert self.network is not None
        _, link = self.network.dialed.pop(id(sock))
        transport = MemoryTransport(self, link, protocol_factory())
        return transport, transport.protocol


def _nobody() -> Any:
    context = copy_context()
    context.run(CLIENT.set, "")
    return context


class MemoryLink:
    """One connection of a client to a broker. Bytes of each direction arrive in their order, after the network's delay."""

    def __init__(self, network: MemoryNetwork, client: str, node: int, number: int) -> None:
        self.network = network
        self.client = client
        self.node = node
        self.number = number
        self.open = True
        """Whether the client's side has it open."""
        self.sent_at = 0.0
        """When the client sent the bytes that have reached the broker last."""
        self.on_data: Callable[[bytes], None] = lambda data: None
        self.on_end: Callable[[Exception | None], None] = lambda error: None
        self.cut_after: int | None = None
        self.held_until = 0.0
        self._context = copy_context()
        self._up = 0.0
        self._down = 0.0

    def send(self, data: bytes) -> None:
        """Sends bytes to the broker."""
        if self.open:
            self._up = self.network.arrival(self, self._up)
            self.network.at(self._up, self._reach_broker, self.network.now, data)

    def _reach_broker(self, sent_at: float, data: bytes) -> None:
        self.sent_at = sent_at
        self.network.reached_broker(self, data)

    def close(self) -> None:
        """Closes the client's side: the broker learns it behind all that was sent."""
        if self.open:
            self.open = False
            self._up = self.network.arrival(self, self._up)
            self.network.at(self._up, self.network.closed_by_client, self)

    def deliver(self, data: bytes) -> None:
        """Sends bytes to the client; breaks after some of them if it is to be cut."""
        if self.cut_after is not None:
            data = data[: self.cut_after]
        self._down = self.network.arrival(self, self._down)
        self.network.at(self._down, self._reached_client, data, context=self._context)
        if self.cut_after is not None:
            self.cut_after = None
            self.reset()

    def end(self, error: Exception | None = None) -> None:
        """Closes the broker's side: the client learns it behind all that was sent."""
        self._down = self.network.arrival(self, self._down)
        self.network.at(self._down, self._ended, error, context=self._context)

    def reset(self) -> None:
        """Breaks: the broker's side is closed now, the client learns it behind what was sent."""
        self.end(ConnectionResetError(errno.ECONNRESET, "Connection reset by peer"))
        self.network.closed_by_client(self)

    def _reached_client(self, data: bytes) -> None:
        if self.open:
            self.network.note("received", self.client, self.node, len(data))
            self.on_data(data)

    def _ended(self, error: Exception | None) -> None:
        if self.open:
            self.open = False
            self.network.note("ended", self.client, self.node)
            self.on_end(error)


class MemoryTransport(asyncio.Transport):
    """A transport of asyncio over a `MemoryLink`."""

    def __init__(self, loop: SimulatedLoop, link: MemoryLink, protocol: Any) -> None:
        super().__init__()
        self.protocol = protocol
        self._loop = loop
        self._link = link
        link.on_data = protocol.data_received
        link.on_end = protocol.connection_lost
        protocol.connection_made(self)

    def write(self, data: Any) -> None:
        self._link.send(bytes(data))

    def abort(self) -> None:
        if self._link.open:
            self._link.close()
            self._loop.call_soon(self.protocol.connection_lost, None)

    close = abort

    def is_closing(self) -> bool:
        return not self._link.open


class BlockingSocket:
    """A blocking socket over a `MemoryLink`, for a thread that takes turns: what `FetchSocket` uses of a socket."""

    def __init__(self, lockstep: Lockstep, link: MemoryLink) -> None:
        self._lockstep = lockstep
        self._link = link
        self._buffer = bytearray()
        self._ended = False
        self._error: Exception | None = None
        self._timeout: float | None = None
        self._reader: LockstepThread | None = None
        link.on_data, link.on_end = self._data, self._end

    def _data(self, data: bytes) -> None:
        self._buffer += data
        self._wake()

    def _end(self, error: Exception | None) -> None:
        self._ended, self._error = True, error
        self._wake()

    def _wake(self) -> None:
        if self._reader is not None:
            self._lockstep.wake(self._reader)

    def setsockopt(self, level: int, name: int, value: Any) -> None:
        if name == socket.SO_RCVTIMEO:
            seconds, microseconds = _TIMEVAL.unpack(value)
            self._timeout = seconds + microseconds / 1e6

    def fileno(self) -> Any:
        """Returns the socket itself: what a `SimulatedFetchLoop` sends and receives by."""
        return self

    def sendall(self, data: Any) -> None:
        if self._ended:
            raise BrokenPipeError(errno.EPIPE, "Broken pipe")
        self._link.send(bytes(data))

    def recv_into(self, view: memoryview, flags: int = 0) -> int:
        self._reader = self._lockstep.running
        self._lockstep.wait_until(lambda: len(self._buffer) >= len(view) or self._ended, self._timeout)
        self._reader = None
        count = min(len(view), len(self._buffer))
        if count == 0 and not self._ended:
            raise BlockingIOError(errno.EAGAIN, "Resource temporarily unavailable")
        if count == 0 and self._error is not None:
            raise self._error
        view[:count] = self._buffer[:count]
        del self._buffer[:count]
        return count

    def shutdown(self, how: int) -> None:
        self._link.close()
        self._end(None)

    def close(self) -> None:
        self._link.close()


class Trouble(NamedTuple):
    """A time in which nothing arrives (`extra_s` None: a hole), or later than else. Empty `clients`, `nodes`: all."""

    clients: frozenset[str]
    nodes: frozenset[int]
    end: float
    extra_s: float | None

    def concerns(self, link: tuple[str, int], now: float) -> bool:
        """Whether it lies between a client and a broker now."""
        client, node = link
        return (
            now < self.end
            and (not self.clients or client in self.clients)
            and (not self.nodes or node in self.nodes)
        )


class MemoryNetwork:
    """Connections between clients and the brokers of a cluster. It drives the cluster's machine: the shell of a `FakeKafka`, in
    place of `ClusterSockets`. `on_turn` are called after each turn of it."""

    FASTEST_S, SLOWEST_S = 0.0002, 0.003
    HOST = "broker"

    def __init__(self, loop: SimulatedLoop, cluster: FakeCluster, random: Random) -> None:
        self.cluster = cluster
        self.dialed: dict[int, tuple[Any, MemoryLink]] = {}
        self.links: dict[int, MemoryLink] = {}
        self.dead: set[str] = set()
        self.trace: list[tuple[Any, ...]] = []
        self.on_turn: list[Callable[[], object]] = []
        self._loop = loop
        self._random = random
        self._ports: dict[int, int] = {}
        self._next_port = 9092
        self._troubles: list[Trouble] = []
        self._wake: asyncio.TimerHandle | None = None
        self._context = _nobody()
        loop.network = self

    @property
    def now(self) -> float:
        """The time of the virtual clock."""
        return self._loop.time()

    def note(self, *event: Any) -> None:
        """Adds an event to the trace."""
        self.trace.append((round(self._loop.time(), 6), *event))

    def at(self, when: float, callback: Callable[..., object], *args: Any, context: Any = None) -> None:
        """Calls back at a time of the clock, for nobody or in a client's context."""
        self._loop.call_at(when, callback, *args, context=context or self._context)

    # ---------------------------------------------------------------- faults

    def hole(
        self, seconds: float, *, client: str | None = None, node: int | None = None, clients: Any = ()
    ) -> None:
        """Has nothing arrive between clients and brokers (None: all) for some seconds; then all of it does, as TCP sends it again."""
        self._trouble(seconds, None, client, node, clients)

    def slow(
        self, seconds: float, extra_s: float, *, client: str | None = None, node: int | None = None
    ) -> None:
        """Has all arrive up to `extra_s` later for some seconds."""
        self._trouble(seconds, extra_s, client, node, ())

    def _trouble(
        self, seconds: float, extra_s: float | None, client: str | None, node: int | None, clients: Any
    ) -> None:
        named = frozenset(clients) | (frozenset() if client is None else {client})
        nodes = frozenset() if node is None else frozenset({node})
        now = self._loop.time()
        self._troubles = [trouble for trouble in self._troubles if trouble.end > now]
        self._troubles.append(Trouble(named, nodes, now + seconds, extra_s))

    def heal(self) -> None:
        """Ends all holes and delays. Bytes that are on their way arrive when they would have."""
        self._troubles.clear()

    def disturbed(self, client: str) -> bool:
        """Whether bytes of a client's connections are held up now."""
        now = self._loop.time()
        return any(
            now < trouble.end and (not trouble.clients or client in trouble.clients)
            for trouble in self._troubles
        ) or any(link.held_until > now for link in self._found(client, None))

    def hold(self, seconds: float, *, client: str | None = None, node: int | None = None) -> None:
        """Has nothing arrive on the connections of now for some seconds; those that are opened meanwhile overtake them."""
        for link in self._found(client, node):
            link.held_until = self._loop.time() + seconds

    def cut(
        self, *, client: str | None = None, node: int | None = None, after_bytes: int | None = None
    ) -> int:
        """Breaks connections, now or in the middle of their next response; returns how many."""
        found = self._found(client, node)
        for link in found:
            if after_bytes is None:
                link.reset()
            else:
                link.cut_after = after_bytes
        return len(found)

    def _found(self, client: str | None, node: int | None) -> list[MemoryLink]:
        links = self.links.values()
        return [link for link in links if client in (None, link.client) and node in (None, link.node)]

    def kill_client(self, client: str) -> None:
        """Closes the connections of a client, and opens none for it any more."""
        self.dead.add(client)
        for link in list(self.links.values()):
            if link.client == client:
                link.close()

    # ---------------------------------------------------------------- delays

    def arrival(self, link: MemoryLink, before: float) -> float:
        """The time at which bytes of now arrive, behind those that were sent before."""
        return max(self._arrival(link.client, link.node), before + _STEP_S, link.held_until)

    def _arrival(self, client: str, node: int) -> float:
        now = start = self._loop.time()
        delay = self._random.uniform(self.FASTEST_S, self.SLOWEST_S)
        for trouble in self._troubles:
            if trouble.concerns((client, node), now):
                if trouble.extra_s is None:
                    start = max(start, trouble.end)
                else:
                    delay += self._random.uniform(0, trouble.extra_s)
        return start + delay

    # ---------------------------------------------------------------- connections

    async def dial(self, port: int) -> MemoryLink:
        """Connects the client whose code runs. Raises `ConnectionRefusedError`; takes as long as nothing arrives."""
        client = CLIENT.get()
        while True:
            node = self._node_at(port)
            if client in self.dead:
                await asyncio.get_running_loop().create_future()
            await asyncio.sleep(self._arrival(client, node or 0) - self._loop.time())
            if node is None or self._node_at(port) != node:
                raise ConnectionRefusedError(errno.ECONNREFUSED, "Connection refused")
            if client not in self.dead:
                return self._accept(client, node)

    def dial_blocking(self, port: int, within: float) -> BlockingSocket:
        """Connects as `dial`, in a thread that takes turns. Raises `TimeoutError` too."""
        lockstep, client = self._loop.lockstep, CLIENT.get()
        node = self._node_at(port)
        wait = self._arrival(client, node or 0) - self._loop.time()
        lockstep.sleep(min(wait, within))
        if wait > within or client in self.dead:
            raise TimeoutError
        if node is None or self._node_at(port) != node:
            raise ConnectionRefusedError(errno.ECONNREFUSED, "Connection refused")
        return BlockingSocket(lockstep, self._accept(client, node))

    def _node_at(self, port: int) -> int | None:
        return next((node for node, found in self._ports.items() if found == port), None)

    def _accept(self, client: str, node: int) -> MemoryLink:
        number = self.cluster.connected(node, f"/{client}", self._loop.time())
        link = self.links[number] = MemoryLink(self, client, node, number)
        self.note("connected", client, node)
        return link

    def reached_broker(self, link: MemoryLink, data: bytes) -> None:
        """Hands bytes to the broker."""
        self.note("sent", link.client, link.node, len(data))
        self.cluster.received(link.number, data, self._loop.time())
        self.turn()

    def closed_by_client(self, link: MemoryLink) -> None:
        """Has the broker notice that a connection is gone."""
        if self.links.pop(link.number, None) is not None:
            self.note("closed", link.client, link.node)
            self.cluster.disconnected(link.number, self._loop.time())

    # ---------------------------------------------------------------- the cluster's shell

    def call(self, function: Callable[[], Any]) -> Any:
        """Runs a function on the cluster, lets its machine go on, and returns the function's result."""
        self.cluster.advance(self._loop.time())
        try:
            return function()
        finally:
            self.turn()

    def listen(self, node_id: int, port: int = 0) -> int:
        """Has a broker accept connections; returns its port."""
        if port == 0:
            port, self._next_port = self._next_port, self._next_port + 1
        self._ports[node_id] = port
        return port

    def stop_listening(self, node_id: int) -> None:
        """Refuses connections to a broker."""
        self._ports.pop(node_id, None)

    def stop(self) -> None:
        """Drives the cluster no more."""
        if self._wake is not None:
            self._wake.cancel()

    def turn(self) -> None:
        """Lets the cluster's machine go on, and sends what it wants sent."""
        now = self._loop.time()
        ready = self.cluster.poll(now)
        for action in ready.actions:
            link = self.links.get(action.link)
            if link is None:
                continue
            if isinstance(action, SendBytes):
                link.deliver(action.data)
            else:
                del self.links[action.link]
                link.end()
        if self._wake is not None:
            self._wake.cancel()
            self._wake = None
        if ready.next_wake is not None:
            self._wake = self._loop.call_at(max(now, ready.next_wake), self.turn, context=self._context)
        for call in self.on_turn:
            call()
