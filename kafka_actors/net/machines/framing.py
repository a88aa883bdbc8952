"""`FrameBuffer`: cuts a stream of bytes into frames.

Theory of operation. A frame is four bytes of length, big-endian, and that many bytes. Bytes come in pieces of any size; a piece may
end within a length. The length is checked as soon as it is there, before memory is taken for it: a port that speaks HTTP or TLS
shows itself by an impossible one. After an error the connection is of no use, because the next frame can't be found.

Frames come out in order, each as soon as it is complete; what is incomplete stays, and takes no more memory
than its bytes.
"""

from __future__ import annotations

from collections.abc import Iterator

from kafka_actors.errors import ProtocolError

MAX_RESPONSE_BYTES = 1 << 30
"""The largest response that is accepted. Kafka's own clients set no limit; an HTTP server's answer reads as 1.13 GiB."""

MAX_HANDSHAKE_BYTES = 1 << 20
"""The largest answer before a connection is in use; a TLS alert reads as 336 MiB."""


def check_length(length: int, maximum: int) -> int:
    """Returns the length. Raises `ProtocolError` for one that no Kafka broker sends."""
    if 4 <= length <= maximum:
        return length
    raise ProtocolError(
        f"a response says it has {length} bytes (at most {maximum} are accepted): "
        "either this is no Kafka broker, or the port speaks TLS"
    )


class FrameBuffer:
    """Collects bytes and yields whole frames. It takes no more memory than the bytes received."""

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
