"""`FrameProtocol`: frames to one broker and back, under asyncio."""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from collections.abc import Callable, Generator
from typing import TypeVar, cast

from kafka_actors.base.addresses import format_address
from kafka_actors.base.fork_guard import ForkGuard
from kafka_actors.config import ClientConfig
from kafka_actors.errors import DisconnectedError, KafkaActorsError

from .handshake import advance
from .machines.framing import MAX_HANDSHAKE_BYTES, FrameBuffer

T = TypeVar("T")


class FrameStream(asyncio.Protocol):
    """Hands on what asyncio's transport says."""

    def __init__(self, wire: FrameProtocol) -> None:
        self._wire = wire

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._wire._on_made(cast(asyncio.Transport, transport))

    def data_received(self, data: bytes) -> None:
        self._wire._on_data(data)

    def connection_lost(self, exc: Exception | None) -> None:
        self._wire._on_lost(exc)


class FrameProtocol(ForkGuard, ABC):
    """One socket: cuts what comes into frames, and hands each to whoever listens at that moment.

    `error` says why it is closed, None where this side wanted that.
    """

    def __init__(self, host: str, port: int, config: ClientConfig, clock: Callable[[], float]) -> None:
        super().__init__()
        self.host = host
        self.port = port
        self.error: Exception | None = None
        self._config = config
        self._clock = clock
        self._loop = asyncio.get_running_loop()
        self._transport: asyncio.Transport | None = None
        self._buffer_size: int | None = None
        self._frames = FrameBuffer(MAX_HANDSHAKE_BYTES)
        self._on_frame: Callable[[bytes], None] = self._on_response
        self._closed = False
        self._lost = asyncio.Event()

    @property
    def address(self) -> str:
        """`host:port`."""
        return format_address(self.host, self.port)

    @property
    def closed(self) -> bool:
        """Whether it is closed; `error` then says why."""
        return self._closed

    @property
    def closing(self) -> bool:
        """The same, by the name that `Cluster` asks for."""
        return self._closed

    @abstractmethod
    def close(self, error: Exception | None = None) -> None:
        """Closes it; `error` says why. Closing again changes nothing."""

    @abstractmethod
    def _on_response(self, data: bytes) -> None:
        """A frame came in answer to a request."""

    @abstractmethod
    def _on_lost(self, error: Exception | None) -> None:
        """The transport is gone."""

    def _on_made(self, transport: asyncio.Transport) -> None:
        self._transport = transport
        if self._buffer_size is not None and hasattr(transport, "max_size"):
            transport.max_size = self._buffer_size  # asyncio's own transports have it, other loops' needn't

    def _on_data(self, data: bytes) -> None:
        try:
            for received in self._frames.feed(data):
                if self._closed:
                    return
                self._on_frame(received)
        except KafkaActorsError as error:
            self.close(error)

    async def _converse(
        self, steps: Generator[bytes | memoryview, bytes, T], *, in_thread: bool = False
    ) -> T:
        """Sends what the generator yields, each frame after the answer to the one before, and returns its result."""
        answers: asyncio.Queue[bytes] = asyncio.Queue()
        self._on_frame = answers.put_nowait
        received: bytes | None = None
        try:
            while True:
                to_send, result = (
                    await asyncio.to_thread(advance, steps, received)
                    if in_thread
                    else advance(steps, received)
                )
                if to_send is None:
                    return cast(T, result)
                if self._closed or self._transport is None:
                    raise self.error or DisconnectedError(f"{self.address}: the connection was closed")
                self._transport.write(to_send)
                received = await self._answer(answers)
        finally:
            self._on_frame = self._on_response

    async def _answer(self, answers: asyncio.Queue[bytes]) -> bytes:
        """The next frame, or the error that closed the connection meanwhile."""
        got = asyncio.ensure_future(answers.get())
        lost = asyncio.ensure_future(self._lost.wait())
        try:
            await asyncio.wait((got, lost), return_when=asyncio.FIRST_COMPLETED)
            if got.done():
                return got.result()
            raise self.error or DisconnectedError(f"{self.address}: the connection was closed")
        finally:
            got.cancel()
            lost.cancel()
