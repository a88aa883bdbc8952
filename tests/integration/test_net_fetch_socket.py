"""The blocking socket of the data path."""

from __future__ import annotations

import os
import pickle
import socket
import sys
import threading
import time
import tracemalloc
from collections.abc import Callable, Iterator
from contextlib import suppress

import pyarrow as pa
import pytest
from fakes.asking import answer_to
from waiting import slow_s, until

from kafka_actors.config import ClientConfig, build
from kafka_actors.errors import (
    ConnectionFailedError,
    DisconnectedError,
    KafkaTimeoutError,
    NodeNotReadyError,
    ProtocolError,
)
from kafka_actors.net import FetchSocket
from kafka_actors.protocol import ApiKey, ApiVersionsResponse, FetchRequest, peek_request, response_frame
from kafka_actors.protocol.messages.api_versions import ApiVersion

CONFIG = build(ClientConfig)
Serve = Callable[[socket.socket], None]


def read_frame(conn: socket.socket) -> bytes:
    size = int.from_bytes(conn.recv(4, socket.MSG_WAITALL), "big")
    return conn.recv(size, socket.MSG_WAITALL)


def shake_hands(conn: socket.socket) -> None:
    _, version, correlation_id = peek_request(read_frame(conn))
    known = ApiVersionsResponse(api_keys=[ApiVersion(ApiKey.FETCH, 4, 12)])
    conn.sendall(response_frame(ApiKey.API_VERSIONS, version, correlation_id, known))


@pytest.fixture
def served() -> Iterator[Callable[[Serve], FetchSocket]]:
    """Starts a server for one connection, which shakes hands and then does as told; returns an open socket to it."""
    listeners: list[socket.socket] = []
    threads: list[threading.Thread] = []
    sockets: list[FetchSocket] = []

    def start(serve: Serve) -> FetchSocket:
        listener = socket.create_server(("127.0.0.1", 0))
        listeners.append(listener)

        def run() -> None:
            conn, _ = listener.accept()
            with conn:
                shake_hands(conn)
                serve(conn)

        threads.append(threading.Thread(target=run, daemon=True))
        threads[-1].start()
        fetch = FetchSocket("127.0.0.1", listener.getsockname()[1], CONFIG)
        sockets.append(fetch)
        return fetch.open()

    yield start
    for fetch in sockets:
        fetch.close()
    for listener in listeners:
        listener.close()
    for thread in threads:
        thread.join(slow_s(5))


def until_closed(conn: socket.socket) -> None:
    while conn.recv(1000):
        pass


def test_it_knows_the_versions_after_opening(served: Callable[[Serve], FetchSocket]) -> None:
    assert served(until_closed).versions.pick(FetchRequest) == 12


def test_responses_are_received_whole_and_into_the_same_memory_once_nobody_has_a_slice_of_it(served) -> None:
    body = b"\x00\x00\x00\x01" + bytes(range(256)) * 20_000

    def serve(conn: socket.socket) -> None:
        for _ in range(3):
            assert read_frame(conn) == b"ask"
            conn.sendall(len(body).to_bytes(4, "big"))
            for at in range(0, len(body), 100_000):
                conn.sendall(body[at : at + 100_000])

    fetch = served(serve)
    view = answer_to(b"\x00\x00\x00\x03ask", fetch)
    assert view == body
    first = pa.py_buffer(view).address
    part = pa.py_buffer(view[100:200])
    del view
    second = answer_to(b"\x00\x00\x00\x03ask", fetch)
    assert pa.py_buffer(second).address != first, "a slice keeps it"
    assert part.to_pybytes() == body[100:200]
    del part
    assert pa.py_buffer(answer_to(b"\x00\x00\x00\x03ask", fetch)).address == first
    assert second == body


def test_requests_may_be_in_flight_together(served) -> None:
    def serve(conn: socket.socket) -> None:
        frames = [read_frame(conn), read_frame(conn)]
        for frame in frames:
            conn.sendall(len(frame).to_bytes(4, "big") + frame)

    fetch = served(serve)
    fetch.send(b"\x00\x00\x00\x04aaaa")
    fetch.send(b"\x00\x00\x00\x04bbbb")
    assert [bytes(fetch.receive()), bytes(fetch.receive())] == [b"aaaa", b"bbbb"]


def test_no_answer_in_time_closes_it(served) -> None:
    fetch = served(until_closed)
    with pytest.raises(KafkaTimeoutError, match="no answer in time"):
        fetch.receive(timeout_ms=100)
    assert fetch.closed
    with pytest.raises(NodeNotReadyError):
        fetch.receive()


def test_an_answer_that_trickles_in_is_not_waited_for_for_ever(served) -> None:
    begun = threading.Event()

    def serve(conn: socket.socket) -> None:
        conn.sendall((1_000_000).to_bytes(4, "big") + b"x")
        begun.set()
        with suppress(OSError):  # until the other side closes
            while True:
                conn.sendall(b"x")
                time.sleep(0.05)

    fetch = served(serve)
    assert begun.wait(slow_s(5))
    with pytest.raises(KafkaTimeoutError, match="of 1000000 bytes came in time"):
        fetch.receive(timeout_ms=200)


def test_close_from_another_thread_wakes_a_receive_at_once(served) -> None:
    fetch = served(until_closed)
    raised: list[BaseException] = []

    def receive() -> None:
        try:
            fetch.receive(timeout_ms=60_000)
        except DisconnectedError as error:
            raised.append(error)

    thread = threading.Thread(target=receive)
    thread.start()
    # It stands in `recv_into` then, or is about to.
    until(lambda: sys._current_frames()[thread.ident].f_code.co_name == "_fill", 5, "the receive")
    fetch.close()
    thread.join(slow_s(5))
    assert not thread.is_alive()
    assert "closed by this side" in str(raised[0])
    assert fetch._socket is None  # its descriptor is free
    fetch.close()


def test_a_broker_that_hangs_up(served) -> None:
    fetch = served(lambda conn: None)
    with pytest.raises(DisconnectedError, match="closed the connection"):
        fetch.receive()
    assert fetch.closed


def test_a_broker_that_hangs_up_in_the_middle(served) -> None:
    fetch = served(lambda conn: conn.sendall(b"\x00\x00\x10\x00some"))
    with pytest.raises(DisconnectedError):
        fetch.receive()


@pytest.mark.parametrize("length", [b"\xff\xff\xff\xff", b"\x00\x00\x00\x00", b"\x7f\xff\xff\xff", b"HTTP"])
def test_an_impossible_length_is_refused_without_memory(served, length: bytes) -> None:
    def serve(conn: socket.socket) -> None:
        conn.sendall(length)
        until_closed(conn)

    fetch = served(serve)
    tracemalloc.start()
    try:
        with pytest.raises(ProtocolError, match="a response says it has"):
            fetch.receive()
        assert tracemalloc.get_traced_memory()[1] < 1_000_000
    finally:
        tracemalloc.stop()
    assert fetch.closed


def test_its_descriptor_is_lent_and_the_rest_of_a_response_is_received_behind(served) -> None:
    def serve(conn: socket.socket) -> None:
        assert read_frame(conn) == b"ask"
        conn.sendall(b"\x00\x00\x00\x04rest")
        until_closed(conn)

    fetch = served(serve)
    assert fetch.is_plain
    assert fetch.due_in_s == float("inf")
    with fetch.descriptor(timeout_ms=slow_s(5) * 1000) as descriptor:
        os.write(descriptor, b"\x00\x00\x00\x03ask")
        assert int.from_bytes(os.read(descriptor, 4), "big") == 4
    assert bytes(fetch.receive_rest(4, timeout_ms=slow_s(5) * 1000)) == b"rest"
    with pytest.raises(ProtocolError, match="a response says it has"):
        fetch.receive_rest(-1, timeout_ms=100)
    assert fetch.closed


@pytest.mark.parametrize(
    ("error", "becomes", "text"),
    [
        (EOFError(), DisconnectedError, "the broker closed the connection"),
        (BlockingIOError(), KafkaTimeoutError, "no answer in time"),
        (ConnectionResetError(104, "reset by peer"), DisconnectedError, "reset by peer"),
        (MemoryError("too much"), MemoryError, "too much"),
    ],
)
def test_errors_of_whoever_was_lent_the_descriptor_close_it(served, error, becomes, text: str) -> None:
    fetch = served(until_closed)
    with pytest.raises(becomes, match=text), fetch.descriptor(timeout_ms=100):
        raise error
    assert fetch.closed


def test_a_server_that_hangs_up_during_the_handshake() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        thread = threading.Thread(target=lambda: listener.accept()[0].close(), daemon=True)
        thread.start()
        with pytest.raises(ConnectionFailedError):
            FetchSocket("127.0.0.1", listener.getsockname()[1], CONFIG).open()
        thread.join(slow_s(5))


def test_a_server_that_says_nothing_is_given_up_in_time() -> None:
    listener = socket.create_server(("127.0.0.1", 0))
    with listener, pytest.raises(ConnectionFailedError, match="no answer in time"):
        FetchSocket("127.0.0.1", listener.getsockname()[1], CONFIG).open(timeout_ms=200)


def test_a_timeout_that_no_socket_can_have_is_as_long_as_it_can() -> None:
    config = build(ClientConfig, {"socket_connection_setup_timeout_ms": 2**63 - 1})
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
    with pytest.raises(ConnectionFailedError, match="refused"):
        FetchSocket("127.0.0.1", port, config).open()


def test_it_must_be_open() -> None:
    fetch = FetchSocket("127.0.0.1", 1, CONFIG)
    with pytest.raises(NodeNotReadyError, match="not open"):
        fetch.send(b"")
    fetch.close()
    with pytest.raises(TypeError, match="can't be pickled"):
        pickle.dumps(fetch)
