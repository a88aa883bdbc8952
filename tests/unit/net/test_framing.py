"""The stream of bytes cut into frames."""

from __future__ import annotations

import pytest

from kafka_actors.errors import ProtocolError
from kafka_actors.net.machines.framing import MAX_HANDSHAKE_BYTES, FrameBuffer


def framed(*bodies: bytes) -> bytes:
    return b"".join(len(b).to_bytes(4, "big") + b for b in bodies)


def test_frames_in_any_pieces() -> None:
    stream = framed(b"abcd", b"efghij", b"x" * 1000)
    for size in (1, 2, 3, 5, 7, 100, len(stream)):
        buffer = FrameBuffer()
        got = [f for i in range(0, len(stream), size) for f in buffer.feed(stream[i : i + size])]
        assert got == [b"abcd", b"efghij", b"x" * 1000]


@pytest.mark.parametrize("length", [-1, -(2**31), 0, 3, MAX_HANDSHAKE_BYTES + 1])
def test_impossible_lengths_are_refused_before_any_memory_is_taken(length: int) -> None:
    buffer = FrameBuffer(MAX_HANDSHAKE_BYTES)
    with pytest.raises(ProtocolError, match=f"says it has {length} bytes"):
        list(buffer.feed(length.to_bytes(4, "big", signed=True)))


@pytest.mark.parametrize(
    "answer", [b"HTTP/1.1 400 Bad Request\r\n", bytes.fromhex("15030300020246"), b"SSH-2.0-OpenSSH_9.2\r\n"]
)
def test_what_other_servers_answer_is_no_frame(answer: bytes) -> None:
    with pytest.raises(ProtocolError, match="no Kafka broker, or the port speaks TLS"):
        list(FrameBuffer(MAX_HANDSHAKE_BYTES).feed(answer))


def test_a_http_answer_is_no_frame_even_after_the_handshake() -> None:
    with pytest.raises(ProtocolError):
        list(FrameBuffer().feed(b"HTTP/1.1 200 OK\r\n"))


def test_frames_before_a_bad_one_are_given_out() -> None:
    frames = FrameBuffer().feed(framed(b"good") + b"\xff\xff\xff\xff")
    assert next(frames) == b"good"
    with pytest.raises(ProtocolError):
        next(frames)
