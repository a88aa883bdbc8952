"""`Connection`: one socket to one broker, under asyncio."""

from __future__ import annotations

import asyncio
import random
import socket
import ssl
import time
from collections.abc import Callable

from kafka_actors.config import ClientConfig
from kafka_actors.errors import ConnectionFailedError, DisconnectedError, KafkaTimeoutError

from .connect import SocketOptions, connect
from .frame_protocol import FrameStream
from .handshake import handshake
from .machines.framing import MAX_RESPONSE_BYTES
from .machines.releases import limit_of
from .machines.sasl import renew_at
from .plaintext_probe import answers_in_plaintext
from .request_queue import RequestQueue
from .security.authentication import authenticate
from .security.tls import context_of, hung_up, no_tls, refusal


class Connection(RequestQueue):
    """One socket to one broker, ready for requests. It is live, or it is closed and stays so.

    Made by `open`, in the running event loop, whose it is from then on. Not for use after a fork, nor pickled.
    """

    def __init__(self, host: str, port: int, config: ClientConfig, clock: Callable[[], float]) -> None:
        super().__init__(host, port, config, clock)
        self._sasl = config.security_protocol.startswith("SASL")

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
                await self._loop.create_connection(lambda: FrameStream(self), sock=sock)
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
                lambda: FrameStream(self),
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
