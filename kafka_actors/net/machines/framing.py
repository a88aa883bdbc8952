"""Cuts the stream of bytes into frames: four bytes of length, then that many bytes."""

from __future__ import annotations

from collections.abc import Iterator

from kafka_actors.errors import ProtocolError

MAX_RESPONSE_BYTES = 1 << 30
"""Kafka's own clients set no limit. A larger length is no Kafka: an HTTP server's answer reads as 1.13 GiB."""

MAX_HANDSHAKE_BYTES = 1 << 20
"""No answer before a connection is in use is larger; a TLS alert reads as 336 MiB."""


def check_length(length: int, maximum: int) -> int:
    """The length itself. Raises `ProtocolError` if no Kafka broker would send it."""
    if 4 <= length <= maximum:
        return length
    raise ProtocolError(
        f"a response says it has {length} bytes (at most {maximum} are accepted): "
        "either this is no Kafka broker, or the port speaks TLS"
    )


class FrameBuffer:
    """Collects bytes and gives out whole frames. It holds no more than was received."""

    def __init__(self, maximum: int = MAX_RESPONSE_BYTES) -> None:
        self.maximum = maximum
        self._data = bytearray()

    def feed(self, data: bytes) -> Iterator[bytes]:
        """Takes in bytes and yields the frames that are complete, without their lengths. Raises `ProtocolError`."""
        self._data += data
        while len(self._data) >= 4:
            length = check_length(int.from_bytes(self._data[:4], "big", signed=True), self.maximum)
            if len(self._data) < 4 + length:
                return
            frame = bytes(memoryview(self._data)[4 : 4 + length])
            del self._data[: 4 + length]
            yield frame
