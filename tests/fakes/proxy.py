"""Between clients and one real broker: passes all on; keeps back, or delays, the answers to chosen requests; cuts and loses connections.

    proxy = Proxy()
    with KafkaCluster(broker_config={"advertised.listeners": f"PLAINTEXT://{proxy.address}"}) as kafka, closing(proxy):
        proxy.forward_to(*kafka.address(1))
        with proxy.keeping(ApiKey.OFFSET_COMMIT): ...

The broker carries out what it is asked. Answers of one connection come in order, so behind one that is kept back nothing
passes on that connection any more, for good: what a peer sees whose answer got lost. One that is delayed holds up those behind
it, as a broker does that takes long over a request. One that trickles comes in small pieces.
"""

from __future__ import annotations

import asyncio
import socket
import struct
import threading
from collections import Counter, deque
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager, suppress

from waiting import slow_s

from kafka_actors.protocol import ApiKey

HOST = "127.0.0.1"
_PIECES_S = 0.01


class Proxy:
    """See the module. `kept` counts what was kept back or delayed."""

    def __init__(self) -> None:
        # Bound from the start: nobody else may get the port before it is forwarded. Until then connections wait.
        self._socket = socket.create_server((HOST, 0), backlog=100)
        self._target = (HOST, 0)
        self._withheld: frozenset[ApiKey] = frozenset()
        self._delays: dict[ApiKey, float] = {}
        self.kept: Counter[ApiKey] = Counter()
        self._connections = 0
        self._lost = 0
        self._piece = 0
        self._hole = False
        self._writers: dict[asyncio.StreamWriter, int] = {}
        """Both ends of each connection, with its number."""
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="proxy", daemon=True)

    @property
    def address(self) -> str:
        """`host:port` that the broker is to advertise."""
        return "{}:{}".format(*self._socket.getsockname())

    def forward_to(self, host: str, port: int) -> None:
        """Begins to take connections; or has the next ones go to another address."""
        self._target = (host, port)
        if self._thread.is_alive():
            return
        self._thread.start()
        listening = asyncio.start_server(self._connected, sock=self._socket)
        asyncio.run_coroutine_threadsafe(listening, self._loop).result(slow_s(10))

    @contextmanager
    def withholding(self, *keys: ApiKey) -> Iterator[None]:
        """Answers to these requests are kept back meanwhile."""
        self._withheld = frozenset(keys)
        self.kept.clear()
        try:
            yield
        finally:
            self._withheld = frozenset()

    @contextmanager
    def delaying(self, seconds: float, *keys: ApiKey) -> Iterator[None]:
        """Each answer to these requests comes so much later meanwhile."""
        self._delays = dict.fromkeys(keys, seconds)
        self.kept.clear()
        try:
            yield
        finally:
            self._delays = {}

    @contextmanager
    def trickling(self, piece: int) -> Iterator[None]:
        """Answers come in pieces of so many bytes meanwhile, a hundred pieces a second, and the rest of each at once when it is over."""
        self._piece = piece
        try:
            yield
        finally:
            self._piece = 0

    def cut_connections(self) -> None:
        """Resets the present connections, wherever in a message they are."""

        def cut() -> None:
            for writer in self._writers:
                writer.transport.abort()

        self._loop.call_soon_threadsafe(cut)

    def lose_connections(self) -> None:
        """Drops from now on everything that comes on the present connections, as a router that has forgotten them."""
        self._lost = self._connections

    @contextmanager
    def losing_connections(self) -> Iterator[None]:
        """Loses the present connections, and closes them at the end, for the clients of other tests."""
        self.lose_connections()
        try:
            yield
        finally:
            self._loop.call_soon_threadsafe(self._close_lost)

    @contextmanager
    def holing(self) -> Iterator[None]:
        """Drops all that comes meanwhile, also on new connections, as a firewall does; and what was open then stays lost."""
        self._hole = True
        try:
            yield
        finally:
            self.lose_connections()
            self._hole = False

    def _close_lost(self) -> None:
        for end, number in self._writers.items():
            if number <= self._lost:
                end.close()

    def close(self) -> None:
        if self._thread.is_alive():
            self._loop.call_soon_threadsafe(self._loop.stop)
            self._thread.join(slow_s(10))
        self._socket.close()

    async def _connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        requests: deque[ApiKey] = deque()
        self._connections += 1
        number = self._connections
        with suppress(OSError):
            broker_reader, broker_writer = await asyncio.open_connection(*self._target)
            own = {writer: number, broker_writer: number}
            self._writers |= own
            ways = {
                asyncio.ensure_future(self._requests(number, reader, broker_writer, requests)),
                asyncio.ensure_future(self._answers(number, broker_reader, writer, requests)),
            }
            _, left = await asyncio.wait(ways, return_when=asyncio.FIRST_COMPLETED)
            for way in left:
                way.cancel()
            await asyncio.gather(*ways, return_exceptions=True)
            self._writers = {end: n for end, n in self._writers.items() if n != number}
            broker_writer.close()
        writer.close()

    async def _frames(self, number: int, reader: asyncio.StreamReader) -> AsyncIterator[bytes]:
        """Yields the frames that come, until the connection is one of the lost ones."""
        while True:
            frame = await _frame(reader)
            if number > self._lost and not self._hole:
                yield frame

    async def _requests(
        self, number: int, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, requests: deque[ApiKey]
    ) -> None:
        async for frame in self._frames(number, reader):
            requests.append(ApiKey(struct.unpack_from(">h", frame, 4)[0]))
            writer.write(frame)
            await writer.drain()

    async def _answers(
        self, number: int, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, requests: deque[ApiKey]
    ) -> None:
        async for frame in self._frames(number, reader):
            key = requests.popleft()
            if key in self._withheld:
                self.kept[key] += 1
                await asyncio.Event().wait()  # until the client closes the connection
            if key in self._delays:
                self.kept[key] += 1
                await asyncio.sleep(self._delays[key])
            while (piece := self._piece) and frame:  # once: it may become 0 in between, and a piece go twice
                writer.write(frame[:piece])
                await writer.drain()
                frame = frame[piece:]
                await asyncio.sleep(_PIECES_S)
            writer.write(frame)
            await writer.drain()


async def _frame(reader: asyncio.StreamReader) -> bytes:
    """One message with its length in front."""
    head = await reader.readexactly(4)
    return head + await reader.readexactly(struct.unpack(">i", head)[0])
