"""`FrameProtocol`: the frames of one asyncio transport, whole requests out and whole responses in."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Generator
from functools import partial
from typing import TypeVar, cast

from kafka_actors.base.tasks import in_thread
from kafka_actors.errors import DisconnectedError, KafkaActorsError

from .machines.api_versions import advance
from .machines.framing import MAX_HANDSHAKE_BYTES, FrameBuffer

T = TypeVar("T")


class FrameProtocol(asyncio.Protocol):
    """Cuts the received bytes into frames and hands each to `on_frame`, or to the conversation that is under way.

    `on_error` is called with the `KafkaActorsError` of bytes that are no frame, or of `on_frame`; `on_lost` with what asyncio
    says at the transport's end, None where the peer closed it. `buffer_size` is how many bytes are read from the socket at
    once. Until `maximum` is raised, a frame may have `MAX_HANDSHAKE_BYTES`.
    """

    def __init__(
        self,
        on_frame: Callable[[bytes], None],
        on_error: Callable[[KafkaActorsError], None],
        on_lost: Callable[[Exception | None], None],
        buffer_size: int | None = None,
    ) -> None:
        self.transport: asyncio.Transport | None = None
        self._on_frame = on_frame
        self._on_error = on_error
        self._on_lost = on_lost
        self._buffer_size = buffer_size
        self._frames = FrameBuffer(MAX_HANDSHAKE_BYTES)
        self._receiver = on_frame
        self._ended: Exception | None = None
        self._end = asyncio.Event()

    def accept(self, maximum: int) -> None:
        """Accepts frames of up to `maximum` bytes from now on."""
        self._frames.maximum = maximum

    # ------------------------------------------------------------ called by asyncio

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast(asyncio.Transport, transport)
        if self._buffer_size is not None and hasattr(transport, "max_size"):
            transport.max_size = self._buffer_size  # asyncio's own transports have it, other loops' needn't

    def data_received(self, data: bytes) -> None:
        try:
            for received in self._frames.feed(data):
                if self._ended is not None:
                    return
                self._receiver(received)
        except KafkaActorsError as error:
            self._on_error(error)

    def connection_lost(self, exc: Exception | None) -> None:
        self._on_lost(exc)

    # ------------------------------------------------------------ sending

    def write(self, data: bytes | memoryview) -> None:
        """Sends a whole frame, its length in front."""
        assert self.transport is not None  # asyncio has connected it
        self.transport.write(data)

    async def converse(self, steps: Generator[bytes | memoryview, bytes, T], *, in_thread: bool = False) -> T:
        """Sends what the generator yields, each frame after the answer to the one before, and returns its result.

        Frames go to the generator meanwhile, not to `on_frame`. `in_thread`: its steps may block. Raises what it raises, and
        the error given to `abort`, and `DisconnectedError` where the system gives no thread.
        """
        answers: asyncio.Queue[bytes] = asyncio.Queue()
        self._receiver = answers.put_nowait
        received: bytes | None = None
        try:
            while True:
                to_send, result = (
                    await _in_thread(partial(advance, steps, received))
                    if in_thread
                    else advance(steps, received)
                )
                if to_send is None:
                    return cast(T, result)
                if self._ended is not None:
                    raise self._ended
                self.write(to_send)
                received = await self._answer(answers)
        finally:
            self._receiver = self._on_frame

    async def _answer(self, answers: asyncio.Queue[bytes]) -> bytes:
        """The next frame. Raises the error that ended the connection meanwhile."""
        frame = asyncio.ensure_future(answers.get())
        end = asyncio.ensure_future(self._end.wait())
        try:
            await asyncio.wait((frame, end), return_when=asyncio.FIRST_COMPLETED)
            if frame.done():
                return frame.result()
            raise self._ended or DisconnectedError("the connection was closed")
        finally:
            frame.cancel()
            end.cancel()

    def abort(self, error: Exception) -> None:
        """Ends the transport at once; a conversation fails with `error`."""
        self._ended = error
        self._end.set()
        if self.transport is not None:
            self.transport.abort()


def _in_thread(step: Callable[[], T]) -> asyncio.Future[T]:
    """Does a step in a thread. Raises `DisconnectedError` where the system gives none."""
    try:
        return in_thread(step)
    except RuntimeError as error:
        raise DisconnectedError(f"no thread to authenticate in: {error}") from None
