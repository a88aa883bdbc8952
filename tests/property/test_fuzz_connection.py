"""A broker that speaks well until it is asked, and then sends anything: over both kinds of connections."""

from __future__ import annotations

import asyncio
import socket
import struct
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import psutil
import pytest
from fakes.arbitrary import filled
from fakes.asking import answer_to
from hypothesis import given, settings
from hypothesis import strategies as st

from kafka_actors.config import ClientConfig, build
from kafka_actors.errors import KafkaActorsError
from kafka_actors.net import Connection, FetchSocket
from kafka_actors.protocol import (
    ApiKey,
    ApiVersionsResponse,
    MetadataRequest,
    MetadataResponse,
    frame,
    peek_request,
    response_frame,
)
from kafka_actors.protocol.messages.api_versions import ApiVersion

SPOKEN = [
    ApiVersion(ApiKey.METADATA, 0, 9),
    ApiVersion(ApiKey.API_VERSIONS, 0, 3),
    ApiVersion(ApiKey.FETCH, 4, 12),
]
CONFIG = build(ClientConfig, request_timeout_ms=100_000)
GOOD = filled(MetadataResponse, 9)


@contextmanager
def broker(answer: bytes, meanwhile: Callable[[], object] = lambda: None) -> Iterator[int]:
    """Says what it speaks, answers the next request with exactly these bytes, and hangs up. Yields its port."""
    with socket.create_server(("127.0.0.1", 0)) as server:

        def serve() -> None:
            connection, _ = server.accept()
            with connection:
                key, version, correlation_id = peek_request(_received(connection))
                connection.sendall(
                    response_frame(key, version, correlation_id, ApiVersionsResponse(api_keys=SPOKEN))
                )
                _received(connection)
                connection.sendall(answer)
                meanwhile()

        thread = threading.Thread(target=serve)
        thread.start()
        yield server.getsockname()[1]
        thread.join()


def _received(connection: socket.socket) -> bytes:
    size = int.from_bytes(connection.recv(4, socket.MSG_WAITALL), "big")
    return connection.recv(size, socket.MSG_WAITALL)


def over_connection(port: int) -> None:
    async def run() -> None:
        connection = await Connection.open("127.0.0.1", port, CONFIG)
        try:
            await connection.send(MetadataRequest(topics=[]))
        finally:
            connection.close()
            assert connection.in_flight == 0

    asyncio.run(run())


def over_socket(port: int) -> None:
    channel = FetchSocket("127.0.0.1", port, CONFIG).open()
    try:
        answer_to(frame(ApiKey.METADATA, 9, 1, "me", MetadataRequest(topics=[])), channel)
    finally:
        channel.close()


BODIES = st.binary(max_size=200) | st.builds(
    lambda at, bad: GOOD[:at] + bad + GOOD[at + len(bad) :], st.integers(0, len(GOOD)), st.binary(max_size=6)
)
FRAMES = st.builds(
    lambda off, number, tag, body: struct.pack(">ii", len(body) + 4 + len(tag) + off, number) + tag + body,
    st.sampled_from([0, 0, 0, -1, 1, 1 << 29]),
    st.sampled_from([1, 1, 1, 0, 2, -1]),
    st.sampled_from([b"\0", b"\0", b"", b"\1"]),
    BODIES,
)


@pytest.mark.parametrize("ask", [over_connection, over_socket], ids=["asyncio", "blocking"])
@settings(max_examples=120)
@given(answers=st.binary(max_size=60) | st.lists(FRAMES, max_size=3).map(b"".join))
def test_whatever_a_broker_answers_is_an_answer_or_a_named_error(ask, answers: bytes) -> None:
    with broker(answers) as port:
        try:
            ask(port)
        except KafkaActorsError as error:
            said = str(error)
        else:
            return
        assert "\n" not in said


@pytest.mark.parametrize("ask", [over_connection, over_socket], ids=["asyncio", "blocking"])
def test_a_gigabyte_that_is_only_claimed_is_not_taken(ask) -> None:
    taken: list[int] = []

    def look() -> None:
        time.sleep(0.3)  # the other side has read the length by then, and waits for the rest
        taken.append(psutil.Process().memory_info().rss)

    before = psutil.Process().memory_info().rss
    answer = struct.pack(">ii", 1 << 30, 1) + bytes(1_000)
    with broker(answer, look) as port, pytest.raises(KafkaActorsError, match="closed the connection"):
        ask(port)
    assert taken[0] < before + (100 << 20)
