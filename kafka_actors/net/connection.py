"""`Connection`: one socket to one broker, under asyncio."""

from __future__ import annotations

import asyncio
import logging
import random
import socket
import ssl
import time
from collections import deque
from collections.abc import Callable, Generator
from dataclasses import dataclass
from typing import Any, TypeVar, cast

from kafka_actors.addresses import format_address
from kafka_actors.config import ClientConfig
from kafka_actors.errors import (
    ConnectionFailedError,
    DisconnectedError,
    KafkaActorsError,
    KafkaTimeoutError,
    NodeNotReadyError,
    UsageError,
)
from kafka_actors.protocol import decode_header, decode_message, frame
from kafka_actors.protocol.schema import Request, Response

from .handshake import advance, handshake
from .machines.framing import MAX_HANDSHAKE_BYTES, MAX_RESPONSE_BYTES, FrameBuffer
from .machines.inflight import InFlightTable
from .machines.releases import limit_of
from .machines.sasl import renew_at
from .machines.versions import ApiVersionTable
from .metrics import metrics_of
from .opening import SocketOptions, connect
from .plaintext import answers_in_plaintext
from .process_bound import ProcessBound
from .security.exchange import authenticate
from .security.tls import context_of, hung_up, no_tls, refusal

log = logging.getLogger(__name__)

R = TypeVar("R", bound=Response)
T = TypeVar("T")


@dataclass(slots=True)
class _Sending:
    """A request on its way. Until it is written, its failure says that it was certainly not carried out."""

    request: Request[Any]
    version: int
    deadline: float
    waiter: asyncio.Future[Response]


class _Stream(asyncio.Protocol):
    """Hands on what asyncio's transport says."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._connection._on_made(cast(asyncio.Transport, transport))

    def data_received(self, data: bytes) -> None:
        self._connection._on_data(data)

    def connection_lost(self, exc: Exception | None) -> None:
        self._connection._on_lost(exc)


class Connection(ProcessBound):
    """One socket to one broker. It is live, or it is closed and stays so.

    Requests are pipelined, up to `max_in_flight_requests_per_connection`; the rest wait in order. A request
    that isn't answered in its time closes the connection, because nothing behind it can be answered either;
    so do a wrong correlation id and bytes that don't parse. Closing answers each waiter once: those whose
    request was never written with `NodeNotReadyError`, the others with what happened.

    Made by `open`, in the running event loop, whose it is from then on. Not for use after a fork, nor pickled.
    """

    def __init__(self, host: str, port: int, config: ClientConfig, clock: Callable[[], float]) -> None:
        super().__init__()
        self.host = host
        self.port = port
        self.versions = ApiVersionTable({})
        self.error: Exception | None = None
        self._config = config
        self._clock = clock
        self._loop = asyncio.get_running_loop()
        self._transport: asyncio.Transport | None = None
        self._buffer_size: int | None = None
        self._frames = FrameBuffer(MAX_HANDSHAKE_BYTES)
        self._on_frame: Callable[[bytes], None] = self._on_response
        self._table: InFlightTable[_Sending] = InFlightTable(
            config.max_in_flight_requests_per_connection, clock()
        )
        self._queue: deque[_Sending] = deque()
        self._timer: asyncio.TimerHandle | None = None
        self._closed = False
        self._lost = asyncio.Event()
        self._established = False
        self._answered = False
        self._sasl = config.security_protocol.startswith("SASL")
        self._renew_at = float("inf")
        self._renewal: asyncio.Task[None] | None = None
        self._close_callbacks: list[Callable[[Connection], object]] = []
        self._metrics = metrics_of(config)

    @classmethod
    async def open(
        cls,
        host: str,
        port: int,
        config: ClientConfig,
        *,
        source: tuple[str, int] | None = None,
        buffer_size: int | None = None,
        timeout_ms: float | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> Connection:
        """Connects, over TLS and with SASL where the config says so, and learns what the broker speaks, within
        `timeout_ms`.

        The default of `timeout_ms` is `socket_connection_setup_timeout_ms`; `source` is the local (host, port)
        to come from; `buffer_size` how many bytes are read at once. Raises `ConnectionFailedError`, which names
        each address and why it failed, `UnrecognizedBrokerVersion` and `ProtocolError`; `AuthenticationError`
        where TLS or SASL was refused by either side, and `ConfigError` for files that can't be loaded or socket
        options that the system refuses.
        """
        tls = context_of(config)
        limit = config.socket_connection_setup_timeout_ms if timeout_ms is None else timeout_ms
        end = clock() + limit / 1000
        self = cls(host, port, config, clock)
        self._buffer_size = buffer_size
        sock = await connect(host, port, SocketOptions.of(config, source), limit / 1000)
        try:
            if tls is None:
                await self._loop.create_connection(lambda: _Stream(self), sock=sock)
            else:
                await self._open_tls(sock, tls, end)
            await self._shake_hands(end - clock())
        except BaseException as error:
            sock.close() if self._transport is None else self.close()
            if isinstance(error, (DisconnectedError, OSError)):
                raise ConnectionFailedError(str(error)) from error
            raise
        return self

    async def _open_tls(self, sock: socket.socket, tls: ssl.SSLContext, end: float) -> None:
        try:
            await self._loop.create_connection(
                lambda: _Stream(self),
                sock=sock,
                ssl=tls,
                server_hostname=self.host,
                ssl_handshake_timeout=max(end - self._clock(), 0.001),
            )
        except (OSError, ValueError) as error:  # ValueError: a host that can't be a server's name
            refused = refusal(error, self.host, self.port)
            if hung_up(error) and await answers_in_plaintext(
                self.host, self.port, self._config, end - self._clock()
            ):
                refused = no_tls(self.host, self.port)
            raise refused from error

    def __repr__(self) -> str:
        state = "closed" if self._closed else f"{len(self._table)} in flight"
        return f"<Connection {self.address} {state}>"

    # ------------------------------------------------------------ reading

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

    @property
    def in_flight(self) -> int:
        """How many requests wait for their answers or for their turn."""
        return len(self._table) + len(self._queue)

    def throttle_delay(self) -> float:
        """Seconds for which the broker wants no requests (KIP-219)."""
        return self._table.throttled(self._clock())

    def version(
        self, request: type[Request[Any]], *, min_version: int | None = None, max_version: int | None = None
    ) -> int:
        """The version of a request that both sides speak. Raises `UnsupportedVersionError`."""
        return self.versions.pick(request, lowest=min_version, highest=max_version)

    # ------------------------------------------------------------ sending

    async def send(
        self,
        request: Request[R],
        *,
        timeout_ms: float | None = None,
        min_version: int | None = None,
        max_version: int | None = None,
    ) -> R:
        """Sends a request in the newest version that both sides speak (within bounds) and returns its response.

        `timeout_ms` (default `request_timeout_ms`) covers waiting for a place in the window as well. Error codes
        in the response are the caller's to read.

        Raises, with the request certainly not sent: `UnsupportedVersionError`, `EncodeError` (both leave the
        connection alive), `NodeNotReadyError`, `UsageError`. With its outcome unknown: `DisconnectedError`,
        `KafkaTimeoutError`, `CorrelationIdError`. With the response unreadable: `DecodeError`.
        """
        self._check_usable()
        version = self.version(type(request), min_version=min_version, max_version=max_version)
        limit = self._config.request_timeout_ms if timeout_ms is None else timeout_ms
        sending = _Sending(request, version, self._clock() + limit / 1000, self._loop.create_future())
        self._queue.append(sending)
        self._pump()
        return cast(R, await sending.waiter)

    def _check_usable(self) -> None:
        self._check_process()
        if asyncio.get_running_loop() is not self._loop:
            raise UsageError(f"{self!r} belongs to another event loop")
        if self._closed:
            raise NodeNotReadyError(
                f"{self.address}: the connection is closed: {self.error or 'by this side'}"
            )

    def _pump(self) -> None:
        """Writes what may be written now, and sets the timer for what comes next."""
        now = self._clock()
        while self._queue and not self._table.full and not self._table.throttled(now):
            if now >= self._renew_at:
                self._start_renewal()
                break
            sending = self._queue.popleft()
            if not sending.waiter.done():  # else its caller was cancelled
                self._write(sending, now)
        self._set_timer(now)

    def _write(self, sending: _Sending, now: float) -> None:
        request, transport = sending.request, self._transport
        assert transport is not None  # open() returns only connections that have one
        correlation_id = self._table.next_id()
        try:
            data = frame(request.api_key, sending.version, correlation_id, self._config.client_id, request)
        except KafkaActorsError as error:
            sending.waiter.set_exception(error)
            return
        self._table.add(correlation_id, _api(request), sending, now, sending.deadline - now)
        transport.write(data)
        if self._metrics is not None:
            self._metrics.sent(len(data))

    # ------------------------------------------------------------ receiving

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

    def _on_response(self, data: bytes) -> None:
        now = self._clock()
        entry = self._table.answered(int.from_bytes(data[:4], "big", signed=True), now)
        sending = entry.waiter
        request = sending.request
        self._answered = True
        if self._metrics is not None:
            self._metrics.received(4 + len(data), now - entry.sent)
        try:
            _, body = decode_header(request.api_key, sending.version, "response", data)
            response = decode_message(request.response, sending.version, body)
        except KafkaActorsError as error:
            _fail(sending.waiter, error)
            raise
        self._table.throttle(now, getattr(response, "throttle_time_ms", 0) / 1000)
        if not sending.waiter.done():
            sending.waiter.set_result(response)
        self._pump()

    def _on_lost(self, error: Exception | None) -> None:
        self._lost.set()
        if isinstance(error, ssl.SSLError) and not self._established:  # TLS 1.3 refuses a certificate so late
            self.close(refusal(error, self.host, self.port))
            return
        why = "the broker closed the connection" if error is None else str(error)
        if self._established and not self._answered and not self._sasl:
            why += " before it answered any request: a listener that wants SASL does that (security_protocol)"
        self.close(DisconnectedError(f"{self.address}: {why}"))

    # ------------------------------------------------------------ before and between requests

    async def _shake_hands(self, seconds: float) -> None:
        asked = "ApiVersions"
        try:
            async with asyncio.timeout(seconds):
                self.versions = await self._converse(
                    handshake(self._config.client_id, limit_of(self._config.api_version))
                )
                if self._sasl:
                    asked = "SASL"
                    await self._authenticate()
        except TimeoutError as error:
            raise ConnectionFailedError(
                f"{self.address}: connected, but no answer to {asked} in time"
            ) from error
        self._established = True
        if self._metrics is not None:
            self._metrics.connected()
        self._frames.maximum = MAX_RESPONSE_BYTES
        self._set_timer(self._clock())

    async def _authenticate(self) -> None:
        began = self._clock()
        steps = authenticate(self._config, self.host, self.port, self.versions)
        # In a thread: a step may ask others for a token, and a password is stretched by thousands of hashes.
        lifetime_ms = await self._converse(steps, in_thread=True)
        self._renew_at = renew_at(began, lifetime_ms, random.random())

    def _start_renewal(self) -> None:
        """The session is authenticated anew (KIP-368) when all in flight is answered; requests wait meanwhile.

        The broker takes that even when the session is over, if nothing else comes first.
        """
        if self._renewal is None and not self._table:
            self._renewal = asyncio.create_task(self._renew())

    async def _renew(self) -> None:
        try:
            async with asyncio.timeout(self._config.request_timeout_ms / 1000):
                await self._authenticate()
        except TimeoutError:
            self.close(KafkaTimeoutError(f"{self.address}: the session could not be renewed in time"))
        except Exception as error:  # whatever it is, requests must not wait in vain
            self.close(error)
        finally:
            self._renewal = None
        if not self._closed:
            self._pump()

    async def _converse(self, steps: Generator[bytes, bytes, T], *, in_thread: bool = False) -> T:
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

    # ------------------------------------------------------------ time

    def _set_timer(self, now: float) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if not self._closed:
            self._timer = self._loop.call_later(max(self._next_event(now) - now, 0.0), self._on_time)

    def _next_event(self, now: float) -> float:
        """When something is due: a deadline, the end of throttling, or closing for idleness."""
        due = [s.deadline for s in self._queue]
        if (first := self._table.next_deadline()) is not None:
            due.append(first)
        # What a renewal waits for, and its own end, pump without a timer.
        renewing = now >= self._renew_at and (self._renewal is not None or len(self._table) > 0)
        if self._queue and not self._table.full and not renewing:
            due.append(now + self._table.throttled(now))
        return min(due, default=self._table.idle_since + self._config.connections_max_idle_ms / 1000)

    def _on_time(self) -> None:
        now = self._clock()
        late = self._table.overdue(now)
        if late is not None:
            waited = f"no answer to {late.api} for {now - late.sent:.1f} s"
            _fail(late.waiter.waiter, KafkaTimeoutError(f"{self.address}: {waited}"))
            self.close(DisconnectedError(f"{self.address}: closed, because there was {waited}"))
            return
        for sending in [s for s in self._queue if s.deadline <= now]:
            self._queue.remove(sending)
            _fail(
                sending.waiter, NodeNotReadyError(f"{self.address}: too busy to send {_api(sending.request)}")
            )
        idle = self._table.idle_since + self._config.connections_max_idle_ms / 1000
        if not self.in_flight and now >= idle:
            self.close()
            return
        self._pump()

    # ------------------------------------------------------------ closing

    def close(self, error: Exception | None = None) -> None:
        """Closes it; `error` says why. Each waiter is answered, once. Closing again changes nothing."""
        if self._closed:
            return
        self._closed = True
        self.error = error
        if self._timer is not None:
            self._timer.cancel()
        if self._transport is not None:
            self._transport.abort()
        self._lost.set()
        if self._metrics is not None and self._established:
            self._metrics.disconnected()
        why = str(error) if error is not None else f"{self.address}: the connection was closed"
        kind = type(error) if isinstance(error, (DisconnectedError, KafkaTimeoutError)) else DisconnectedError
        for entry in self._table.drain():
            _fail(entry.waiter.waiter, kind(why))
        while self._queue:
            _fail(self._queue.popleft().waiter, NodeNotReadyError(why))
        log.debug("connection to %s closed: %s", self.address, why)
        for callback in self._close_callbacks:
            callback(self)

    def abort(self) -> None:
        """Closes it; by the name that `Cluster` asks for."""
        self.close()

    def add_close_callback(self, callback: Callable[[Connection], object]) -> None:
        """Call `callback(self)` when it closes; at once if it is closed."""
        if self._closed:
            callback(self)
        else:
            self._close_callbacks.append(callback)


def _fail(waiter: asyncio.Future[Any], error: Exception) -> None:
    if not waiter.done():
        waiter.set_exception(error)


def _api(request: Request[Any]) -> str:
    return type(request).__name__.removesuffix("Request")
