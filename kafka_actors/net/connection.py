"""`Connection`: one socket to one broker, under asyncio."""

from __future__ import annotations

import asyncio
import logging
import random
import socket
import ssl
import time
from collections.abc import Callable
from inspect import GEN_RUNNING, getgeneratorstate
from typing import Any, TypeVar

from kafka_actors.base.addresses import format_address
from kafka_actors.base.fork_guard import ForkGuard
from kafka_actors.cluster.future import call_each
from kafka_actors.config import ClientConfig
from kafka_actors.errors import (
    ConnectionFailedError,
    DisconnectedError,
    KafkaTimeoutError,
    NodeNotReadyError,
    UsageError,
)
from kafka_actors.protocol.schema import Request, Response

from .connect import SocketOptions, connect
from .frame_protocol import FrameProtocol
from .machines.api_versions import ApiVersionTable, handshake
from .machines.framing import MAX_RESPONSE_BYTES
from .machines.releases import limit_of
from .machines.sasl import renew_at
from .metrics import metrics_of
from .request_queue import RequestQueue
from .security.authentication import Authentication, authenticate
from .security.tls import answers_in_plaintext, context_of, hung_up, no_tls, refusal

log = logging.getLogger(__name__)

R = TypeVar("R", bound=Response)


class Connection(ForkGuard):
    """One socket to one broker, ready for requests. It is live, or it is closed and stays so.

    Requests are pipelined, up to `max_in_flight_requests_per_connection`; the rest wait in order. A request that isn't
    answered in its time closes the connection, because nothing behind it can be answered either; so do a wrong correlation id
    and bytes that don't parse. Closing answers each waiter once: those whose request was never written with
    `NodeNotReadyError`, the others with the reason. `error` says why it is closed, None where this side wanted that;
    `versions` is what the broker speaks.

    Made by `open`, in the running event loop, and used in that loop only. Not for use after a fork, nor pickled.
    """

    def __init__(
        self,
        host: str,
        port: int,
        config: ClientConfig,
        clock: Callable[[], float],
        buffer_size: int | None = None,
    ) -> None:
        super().__init__()
        self.host = host
        self.port = port
        self.error: Exception | None = None
        self.versions = ApiVersionTable({})
        self._config = config
        self._clock = clock
        self._loop = asyncio.get_running_loop()
        self._metrics = metrics_of(config)
        self._sasl = config.security_protocol.startswith("SASL")
        self._established = False
        self._closed = False
        self._close_callbacks: list[Callable[[Connection], object]] = []
        self._login: Authentication | None = None
        self._renewal: asyncio.Task[None] | None = None
        self._frames = FrameProtocol(self._on_response, self.close, self._on_lost, buffer_size)
        self._requests = RequestQueue(
            self.address,
            config,
            clock,
            self._metrics,
            write=self._frames.write,
            close=self.close,
            renew=self._start_renewal,
        )

    def __repr__(self) -> str:
        state = "closed" if self._closed else f"{len(self._requests.in_flight)} in flight"
        return f"<Connection {self.address} {state}>"

    # ------------------------------------------------------------ opening

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
        first_address: int = 0,
        clock: Callable[[], float] = time.monotonic,
    ) -> Connection:
        """Connects, over TLS and with SASL where the config says so, and learns what the broker speaks, within
        `timeout_ms`.

        The default of `timeout_ms` is `socket_connection_setup_timeout_ms`; `source` is the local (host, port)
        to come from; `buffer_size` how many bytes are read at once; `first_address` the number of the host's address
        to begin with. Raises `ConnectionFailedError`, which names each address and why it failed,
        `UnrecognizedBrokerVersion` and `ProtocolError`; `AuthenticationError` where TLS or SASL was refused by either
        side, and `ConfigError` for files that can't be loaded or socket options that the system refuses.
        """
        tls = context_of(config)
        limit = config.socket_connection_setup_timeout_ms if timeout_ms is None else timeout_ms
        end = clock() + limit / 1000
        self = cls(host, port, config, clock, buffer_size)
        sock = await connect(host, port, SocketOptions.of(config, source), limit / 1000, first=first_address)
        try:
            if tls is None:
                await self._loop.create_connection(lambda: self._frames, sock=sock)
            else:
                await self._open_tls(sock, tls, end)
            await self._shake_hands(end - clock())
        except BaseException as error:
            sock.close() if self._frames.transport is None else self.close()
            if isinstance(error, (DisconnectedError, OSError)):
                why = str(error)
                raise ConnectionFailedError(
                    why if self.address in why else f"{self.address}: {why}"
                ) from error
            raise
        return self

    async def _open_tls(self, sock: socket.socket, tls: ssl.SSLContext, end: float) -> None:
        try:
            await self._loop.create_connection(
                lambda: self._frames,
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

    async def _shake_hands(self, seconds: float) -> None:
        awaited = "answer to ApiVersions"
        try:
            async with asyncio.timeout(seconds):
                self.versions = await self._frames.converse(
                    handshake(self._config.client_id, limit_of(self._config.api_version))
                )
                if self._sasl:
                    awaited = "answer to SASL"
                    await self._authenticate()
        except TimeoutError as error:
            raise ConnectionFailedError(
                f"{self.address}: connected, but no {self._login_awaited() or awaited} in time"
            ) from error
        self._established = True
        if self._metrics is not None:
            self._metrics.connected()
        self._frames.accept(MAX_RESPONSE_BYTES)
        self._requests.resume()

    # ------------------------------------------------------------ the session

    async def _authenticate(self) -> None:
        began = self._clock()
        renews = self._established
        self._login = authenticate(self._config, self.host, self.port, self.versions, renews=renews)
        # In a thread: a step may ask others for a token, and a password is stretched by thousands of hashes.
        lifetime_ms = await self._frames.converse(self._login, in_thread=True)
        self._requests.renew_at = renew_at(began, self._clock(), lifetime_ms, random.random(), renewed=renews)

    def _login_awaited(self) -> str:
        """Words for what a login still waits for on this side, as from a token endpoint; empty while the broker is to answer."""
        making = self._login is not None and getgeneratorstate(self._login) == GEN_RUNNING
        return f"credentials of {self._config.sasl_mechanism} from where they are fetched" if making else ""

    def _start_renewal(self) -> None:
        self._renewal = asyncio.create_task(self._renew())

    async def _renew(self) -> None:
        """Authenticates the session anew (KIP-368), while requests wait."""
        try:
            async with asyncio.timeout(self._config.request_timeout_ms / 1000):
                await self._authenticate()
        except TimeoutError:
            awaited = self._login_awaited() or "answer to SASL"
            self.close(KafkaTimeoutError(f"{self.address}: the session is not renewed: no {awaited} in time"))
        except Exception as error:  # any error ends the connection: requests must not wait for ever
            self.close(error)
        finally:
            self._renewal = None
        self._requests.resume()

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
        """Whether it is closed, under the name that `Cluster` reads."""
        return self._closed

    @property
    def in_flight(self) -> int:
        """The number of requests that wait for their answers or for their turn."""
        return len(self._requests)

    def throttle_delay(self) -> float:
        """Seconds for which the broker wants no requests (KIP-219)."""
        return self._requests.throttle_delay()

    def version(
        self, request: type[Request[Any]], *, min_version: int | None = None, max_version: int | None = None
    ) -> int:
        """The version of a request that both sides speak. Raises `UnsupportedVersionError`."""
        return self.versions.pick(request, lowest=min_version, highest=max_version)

    # ------------------------------------------------------------ requests

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
        return await self._requests.send(request, version, limit / 1000)

    def _check_usable(self) -> None:
        self._check_process()
        if asyncio.get_running_loop() is not self._loop:
            raise UsageError(f"{self!r} belongs to another event loop")
        if self._closed:
            raise NodeNotReadyError(
                f"{self.address}: the connection is closed: {self.error or 'by this side'}"
            )

    def _on_response(self, data: bytes) -> None:
        self._requests.on_response(data)

    # ------------------------------------------------------------ closing

    def _on_lost(self, error: Exception | None) -> None:
        if isinstance(error, ssl.SSLError) and not self._established:  # TLS 1.3 refuses a certificate so late
            self.close(refusal(error, self.host, self.port))
            return
        why = "the broker closed the connection" if error is None else str(error)
        if self._established and not self._requests.answered and not self._sasl:
            why += " before it answered any request: a listener that wants SASL does that (security_protocol)"
        self.close(DisconnectedError(f"{self.address}: {why}"))

    def close(self, error: Exception | None = None) -> None:
        """Closes it; `error` says why. Each waiter is answered, once. Closing again changes nothing."""
        if self._closed:
            return
        self._closed = True
        self.error = error
        reason = error or DisconnectedError(f"{self.address}: the connection was closed")
        self._frames.abort(reason)
        if self._metrics is not None and self._established:
            self._metrics.disconnected()
        self._requests.fail(reason)
        log.debug("connection to %s closed: %s", self.address, reason)
        call_each(self._close_callbacks, self)

    def abort(self) -> None:
        """Closes it, under the name that `Cluster` calls."""
        self.close()

    def add_close_callback(self, callback: Callable[[Connection], object]) -> None:
        """Calls `callback(self)` when it closes; at once if it is closed. An exception of it is logged."""
        if self._closed:
            call_each([callback], self)
        else:
            self._close_callbacks.append(callback)
