"""The frames of a transport, without a socket: who gets them, and what a conversation sees."""

from __future__ import annotations

import asyncio
from collections.abc import Generator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from fakes.loop import in_loop

from kafka_actors.errors import DisconnectedError, KafkaActorsError, ProtocolError
from kafka_actors.net.frame_protocol import FrameProtocol


class Transport(asyncio.Transport):
    def __init__(self) -> None:
        super().__init__()
        self.max_size = 1
        self.written: list[bytes] = []
        self.aborted = False

    def write(self, data: Any) -> None:
        self.written.append(bytes(data))

    def abort(self) -> None:
        self.aborted = True


class Ends:
    def __init__(self, buffer_size: int | None = None) -> None:
        self.frames: list[bytes] = []
        self.errors: list[KafkaActorsError] = []
        self.lost: list[Exception | None] = []
        self.protocol = FrameProtocol(
            self.frames.append, self.errors.append, self.lost.append, buffer_size=buffer_size
        )
        self.transport = Transport()
        self.protocol.connection_made(self.transport)


def framed(body: bytes) -> bytes:
    return len(body).to_bytes(4, "big") + body


@in_loop
async def test_frames_in_pieces_go_to_on_frame() -> None:
    ends = Ends(buffer_size=4096)
    assert ends.transport.max_size == 4096
    data = framed(b"first") + framed(b"second")
    for at in range(0, len(data), 3):
        ends.protocol.data_received(data[at : at + 3])
    assert ends.frames == [b"first", b"second"]
    ends.protocol.connection_lost(None)
    assert ends.lost == [None]


@in_loop
async def test_a_frame_too_long_is_an_error_until_more_is_accepted() -> None:
    ends = Ends()
    long = b"x" * (2 << 20)
    ends.protocol.data_received(framed(long))
    assert [type(error) for error in ends.errors] == [ProtocolError]
    other = Ends()
    other.protocol.accept(4 << 20)
    other.protocol.data_received(framed(long))
    assert other.frames == [long]


@in_loop
async def test_a_conversation_takes_the_frames_until_it_is_over() -> None:
    def steps() -> Generator[bytes, bytes, str]:
        one = yield b"who?"
        two = yield b"why?"
        return (one + two).decode()

    ends = Ends()
    talk = asyncio.ensure_future(ends.protocol.converse(steps()))
    for answer in (b"ABCD", b"EFGH"):
        await asyncio.sleep(0)
        ends.protocol.data_received(framed(answer))
        for _ in range(5):
            await asyncio.sleep(0)
    assert await talk == "ABCDEFGH"
    assert (ends.transport.written, ends.frames) == ([b"who?", b"why?"], [])
    ends.protocol.data_received(framed(b"later"))
    assert ends.frames == [b"later"]


@in_loop
async def test_a_conversation_fails_with_the_error_of_the_end() -> None:
    def steps() -> Generator[bytes, bytes, None]:
        yield b"who?"

    ends = Ends()
    talk = asyncio.ensure_future(ends.protocol.converse(steps()))
    await asyncio.sleep(0)
    ends.protocol.abort(DisconnectedError("the cable is cut"))
    with pytest.raises(DisconnectedError, match="the cable is cut"):
        await talk
    assert ends.transport.aborted
    ends.protocol.data_received(framed(b"late"))
    assert ends.frames == []
    with pytest.raises(DisconnectedError, match="the cable is cut"):
        await ends.protocol.converse(steps())


@in_loop
async def test_a_conversation_in_threads_ends_as_a_lost_connection_where_the_system_gives_none() -> None:
    def steps() -> Generator[bytes, bytes, None]:
        yield b"who?"

    class NoThreads(ThreadPoolExecutor):
        def submit(self, *args: Any, **kwargs: Any) -> Any:
            raise RuntimeError("can't start new thread")

    asyncio.get_running_loop().set_default_executor(NoThreads())
    with pytest.raises(DisconnectedError, match="no thread to authenticate in: can't start new thread"):
        await Ends().protocol.converse(steps(), in_thread=True)
