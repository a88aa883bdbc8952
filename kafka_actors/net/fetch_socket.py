"""`FetchSocket`: a blocking socket for the data path, which receives into memory that is used again (`ReceiveRing`)."""

from __future__ import annotations

import random
import socket
import ssl
import struct
import threading
import time
from collections.abc import Callable, Generator, Iterator
from contextlib import contextmanager
from typing import NoReturn, TypeVar, cast

from kafka_actors.base.addresses import format_address
from kafka_actors.base.fork_guard import ForkGuard
from kafka_actors.base.timeouts import MAX_SOCKET_WAIT_MS
from kafka_actors.config import ClientConfig
from kafka_actors.errors import (
    ConnectionFailedError,
    DisconnectedError,
    KafkaTimeoutError,
    NodeNotReadyError,
    ProtocolError,
)

from .connect import SocketOptions, connect_blocking
from .machines.api_versions import ApiVersionTable, advance, handshake
from .machines.framing import MAX_HANDSHAKE_BYTES, MAX_RESPONSE_BYTES, check_length
from .machines.releases import limit_of
from .machines.sasl import renew_at
from .receive_ring import ReceiveRing
from .security.authentication import authenticate
from .security.tls import context_of, refusal

T = TypeVar("T")

_TIMEVAL = struct.Struct("@ll")


class FetchSocket(ForkGuard):
    """A socket to one broker, used by one thread; only `close` may be called from another.

    A response is received into memory of a ring. The caller slices it as it likes; when the last slice is
    dropped, another response is received there. Any failure closes the socket. `max_response_bytes` bounds the
    length that a response may claim; `ring` is the memory to receive into, by default one of its own.
    """

    def __init__(
        self,
        host: str,
        port: int,
        config: ClientConfig,
        *,
        max_response_bytes: int = MAX_RESPONSE_BYTES,
        ring: ReceiveRing | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        super().__init__()
        self.host = host
        self.port = port
        self.versions = ApiVersionTable({})
        self._config = config
        self._maximum = max_response_bytes
        self._clock = clock
        self._socket: socket.socket | None = None
        # close() may come while another thread is in recv: then only that thread may free the descriptor,
        # because the system would give its number to the next file opened.
        self._lock = threading.Lock()
        self._busy = 0
        self._closed = False
        self._timeout = 0.0
        self._established = False
        self._outstanding = 0
        self._renew_at = float("inf")
        self._ring = ring or ReceiveRing()
        self._head = memoryview(bytearray(4))  # the length of the response that comes

    @property
    def address(self) -> str:
        """`host:port`."""
        return format_address(self.host, self.port)

    @property
    def closed(self) -> bool:
        """Whether it is closed: by `close`, or by a failure."""
        return self._closed

    def open(self, *, timeout_ms: float | None = None, first_address: int = 0) -> FetchSocket:
        """Connects, over TLS and with SASL where the config says so, and learns what the broker speaks, within
        `timeout_ms`. Returns itself.

        The default is `socket_connection_setup_timeout_ms`; `first_address` is the number of the host's address to begin with.
        Raises `ConnectionFailedError`, which names each address and why it failed, `UnrecognizedBrokerVersion` and
        `ProtocolError`; `AuthenticationError` where TLS or SASL was refused by either side, and `ConfigError` for files that
        can't be loaded.
        """
        self._check_process()
        tls = context_of(self._config)
        limit = self._config.socket_connection_setup_timeout_ms if timeout_ms is None else timeout_ms
        limit_s = min(limit, MAX_SOCKET_WAIT_MS) / 1000
        end = self._clock() + limit_s
        options = SocketOptions.of(self._config)
        sock = connect_blocking(self.host, self.port, options, limit_s, self._clock, first=first_address)
        if tls is not None:
            sock = self._wrap(sock, tls, end)
        with self._lock:
            closed = self._closed
            self._socket = None if closed else sock
        if closed:
            sock.close()
            raise ConnectionFailedError(f"{self.address}: closed while connecting")
        try:
            self._shake_hands(end)
        except (DisconnectedError, KafkaTimeoutError) as error:
            self.close()
            raise ConnectionFailedError(f"{self.address}: connected, but: {error}") from error
        except BaseException:
            self.close()
            raise
        return self

    def _wrap(self, sock: socket.socket, tls: ssl.SSLContext, end: float) -> ssl.SSLSocket:
        sock.settimeout(max(end - self._clock(), 0.001))
        try:
            return tls.wrap_socket(sock, server_hostname=self.host)
        except (OSError, ValueError) as error:  # ValueError: a host that can't be a server's name
            sock.close()
            raise refusal(error, self.host, self.port) from error

    def _shake_hands(self, end: float) -> None:
        self.versions = self._converse(
            handshake(self._config.client_id, limit_of(self._config.api_version)), end
        )
        if self._config.security_protocol.startswith("SASL"):
            self._authenticate(end)
        self._established = True

    def _authenticate(self, end: float) -> None:
        began = self._clock()
        renews = self._established
        steps = authenticate(self._config, self.host, self.port, self.versions, renews=renews)
        lifetime_ms = self._converse(steps, end)
        self._renew_at = renew_at(began, self._clock(), lifetime_ms, random.random(), renewed=renews)

    def _converse(self, steps: Generator[bytes | memoryview, bytes, T], end: float) -> T:
        """Sends what the generator yields, each frame after the answer to the one before, and returns its result."""
        received: bytes | None = None
        while True:
            to_send, result = advance(steps, received)
            if to_send is None:
                return cast(T, result)
            left = max(end - self._clock(), 0.001) * 1000
            self._send(to_send, left)
            received = bytes(self._receive(left, MAX_HANDSHAKE_BYTES))

    def _renew(self) -> None:
        """Authenticates the session anew (KIP-368). Any failure closes the socket."""
        try:
            self._authenticate(self._clock() + self._config.request_timeout_ms / 1000)
        except BaseException:
            self.close()
            raise

    def send(self, frame: bytes, *, timeout_ms: float | None = None) -> None:
        """Sends a whole frame, its length in front. Raises as `receive`.

        A session that is soon over is renewed before, when nothing is in flight; this can raise
        `AuthenticationError`.
        """
        if not self._outstanding and self._clock() >= self._renew_at:
            self._renew()
        self._send(frame, timeout_ms)
        self._outstanding += 1

    def _send(self, frame: bytes | memoryview, timeout_ms: float | None) -> None:
        sock = self._enter()
        try:
            self._set_timeout(sock, timeout_ms)
            sock.sendall(frame)
        except BaseException as error:
            self._fail(error)
        finally:
            self._leave()

    def receive(self, *, timeout_ms: float | None = None) -> memoryview:
        """Returns the next response as a whole, without its length, as a view of the ring's memory.

        `timeout_ms` (default `request_timeout_ms`) bounds the wait for its start, and again for its rest.
        Raises `KafkaTimeoutError`, `DisconnectedError` (also when another thread closes the socket),
        `ProtocolError` for an impossible length, `NodeNotReadyError` if it isn't open.
        """
        view = self._receive(timeout_ms, self._maximum)
        self._outstanding -= 1
        return view

    @property
    def is_plain(self) -> bool:
        """Whether bytes go over the network as they are, without TLS."""
        return not self._config.security_protocol.endswith("SSL")

    @property
    def due_in_s(self) -> float:
        """Seconds after which `send` renews the session of SASL, or `receive` gives memory back; infinite where neither is to come."""
        now = self._clock()
        return min(self._renew_at - now, self._ring.gives_back_in_s(now))

    @contextmanager
    def descriptor(self, *, timeout_ms: float) -> Iterator[int]:
        """Lends the system's descriptor of a plain socket to code that sends and receives by itself. `timeout_ms` bounds each of its calls.

        `OSError` and `EOFError` within are raised as by `receive`, and close the socket.
        """
        sock = self._enter()
        try:
            self._set_timeout(sock, timeout_ms)
            yield sock.fileno()
        except BaseException as error:
            self._fail(error)
        finally:
            self._leave()

    def receive_rest(self, size: int, *, timeout_ms: float) -> memoryview:
        """Returns a response whose length was received already. Raises as `receive`."""
        sock = self._enter()
        try:
            self._set_timeout(sock, timeout_ms)
            return self._receive_body(sock, check_length(size, self._maximum))
        except BaseException as error:
            self._fail(error)
        finally:
            self._leave()

    def trim(self) -> None:
        """Gives memory back to the system that responses were received into and nobody reads. For the thread that receives."""
        self._ring.trim(self._clock())

    def _receive(self, timeout_ms: float | None, maximum: int) -> memoryview:
        sock = self._enter()
        try:
            self._set_timeout(sock, timeout_ms)
            self._fill(sock, self._head)
            return self._receive_body(
                sock, check_length(int.from_bytes(self._head, "big", signed=True), maximum)
            )
        except BaseException as error:
            self._fail(error)
        finally:
            self._leave()

    def _receive_body(self, sock: socket.socket, size: int) -> memoryview:
        try:
            view = self._ring.lend(size, self._clock())
        except MemoryError as error:
            raise ProtocolError(f"{self.address}: no memory for a response of {size} bytes") from error
        self._fill(sock, view)
        return view

    def _fill(self, sock: socket.socket, view: memoryview) -> None:
        """Receives until `view` is full, by one system call as a rule: MSG_WAITALL returns less only when the time is over or
        the peer is gone. Over TLS each call returns one TLS record, of 16 KiB at most."""
        flags = 0 if isinstance(sock, ssl.SSLSocket) else socket.MSG_WAITALL
        began = self._clock()
        got, wanted = 0, len(view)
        while got < wanted:
            received = sock.recv_into(view[got:] if got else view, flags=flags)
            if received == 0:
                raise EOFError
            got += received
            if got < wanted and self._clock() >= began + self._timeout / 1000:
                raise KafkaTimeoutError(f"{self.address}: only {got} of {wanted} bytes came in time")

    def _fail(self, error: BaseException) -> NoReturn:
        """Closes the socket after an error, and raises what the caller is to be told."""
        closed_here = self._closed
        self.close()
        if closed_here:
            raise DisconnectedError(f"{self.address}: the connection was closed by this side") from error
        if isinstance(error, EOFError):
            raise DisconnectedError(f"{self.address}: the broker closed the connection") from error
        # The errors of a timeout: that of SO_RCVTIMEO, and that of a TLS socket.
        if isinstance(error, (BlockingIOError, TimeoutError)):
            raise KafkaTimeoutError(f"{self.address}: no answer in time") from error
        if isinstance(error, ssl.SSLError) and not self._established:  # TLS 1.3 refuses a certificate so late
            raise refusal(error, self.host, self.port) from error
        if isinstance(error, OSError):
            raise DisconnectedError(f"{self.address}: {error.strerror or error}") from error
        raise error

    def _enter(self) -> socket.socket:
        self._check_process()
        with self._lock:
            if self._socket is None or self._closed:
                raise NodeNotReadyError(f"{self.address}: the socket is not open")
            self._busy += 1
            return self._socket

    def _leave(self) -> None:
        with self._lock:
            self._busy -= 1
            if self._closed and not self._busy and self._socket is not None:
                self._socket.close()
                self._socket = None

    def _set_timeout(self, sock: socket.socket, timeout_ms: float | None) -> None:
        if timeout_ms is None:
            timeout_ms = self._config.request_timeout_ms
        if timeout_ms != self._timeout and isinstance(sock, ssl.SSLSocket):
            # OpenSSL over a blocking socket takes the system's timeout for a reason to try again, for ever.
            sock.settimeout(max(min(timeout_ms, MAX_SOCKET_WAIT_MS) / 1000, 0.001))
            self._timeout = timeout_ms
        elif timeout_ms != self._timeout:
            seconds, rest = divmod(max(int(timeout_ms * 1000), 1), 1_000_000)
            packed = _TIMEVAL.pack(seconds, rest)
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVTIMEO, packed)
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_SNDTIMEO, packed)
            self._timeout = timeout_ms

    def close(self) -> None:
        """Closes it, from any thread: a `receive` that waits fails at once. Closing again changes nothing."""
        with self._lock:
            self._closed = True
            if self._socket is None:
                return
            try:
                # The plain socket's `shutdown`: that of a TLS socket would remove TLS under a thread that reads.
                socket.socket.shutdown(self._socket, socket.SHUT_RDWR)
            except OSError:  # the peer was faster
                pass
            if not self._busy:
                self._socket.close()
                self._socket = None
