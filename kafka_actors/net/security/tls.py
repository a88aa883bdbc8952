"""TLS: the context that the `ssl_` options describe, and the meaning of a failed handshake in plain words."""

from __future__ import annotations

import asyncio
import logging
import os
import ssl
from functools import lru_cache

from kafka_actors.base.addresses import format_address
from kafka_actors.config import ClientConfig
from kafka_actors.config.references import resolve
from kafka_actors.config.security import Secret
from kafka_actors.errors import ConfigError, ConnectionFailedError, KafkaActorsError, SslAuthenticationError
from kafka_actors.net.connect import SocketOptions, connect
from kafka_actors.net.machines.api_versions import handshake
from kafka_actors.net.machines.framing import MAX_HANDSHAKE_BYTES, check_length
from kafka_actors.net.machines.releases import limit_of

log = logging.getLogger(__name__)

PROBE_S = 2.0
"""Seconds that a port has to answer an ApiVersions request in plaintext."""

_loaded: dict[tuple[object, ...], ssl.SSLContext] = {}
"""The last context of each set of options."""
_NO_TLS = {"WRONG_VERSION_NUMBER", "RECORD_LAYER_FAILURE", "PACKET_LENGTH_TOO_LONG", "HTTP_REQUEST"}
_WHY_NOT_TRUSTED = {
    10: "it has expired",
    9: "it is not valid yet",
    18: "it is self-signed, and ssl_cafile does not hold it",
    19: "it ends in a CA that is not trusted: give that CA as ssl_cafile",
    20: "its CA is not trusted: give that CA as ssl_cafile",
    23: "it was revoked (ssl_crlfile)",
    3: "ssl_crlfile holds no list of its CA",
}


def context_of(config: ClientConfig) -> ssl.SSLContext | None:
    """The context for a config's connections, None where they don't use TLS.

    It is made once per set of options and state of the files: certificates that were renewed are used by the next
    connection. Where they can't be loaded, because they are just being written, the ones loaded before are used. Raises
    `ConfigError` for files that can't be loaded and never could.
    """
    if not config.security_protocol.endswith("SSL"):
        return None
    if config.ssl_context is not None:
        assert isinstance(config.ssl_context, ssl.SSLContext)  # checked with the options
        return config.ssl_context
    files = (config.ssl_cafile, config.ssl_certfile, config.ssl_keyfile, config.ssl_crlfile)
    options = *files, config.ssl_password, config.ssl_ciphers, config.ssl_check_hostname
    try:
        context = _make(*options, tuple(_stamp(file) for file in files))
    except ConfigError as error:
        if options not in _loaded:
            raise
        log.warning("%s; the files as they were before are used", error)
        return _loaded[options]
    _loaded[options] = context
    return context


def _stamp(file: str | None) -> tuple[int, int] | None:
    try:
        found = os.stat(file) if file is not None else None
    except OSError:
        return None
    return None if found is None else (found.st_mtime_ns, found.st_ino)


@lru_cache(maxsize=32)
def _make(
    cafile: str | None,
    certfile: str | None,
    keyfile: str | None,
    crlfile: str | None,
    password: Secret | None,
    ciphers: str | None,
    check_hostname: bool,
    _stamps: tuple[object, ...],
) -> ssl.SSLContext:
    secret = Secret(resolve("ssl_password", password.reveal())) if password else Secret("")
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)  # from TLS 1.2 on, certificates required
    context.check_hostname = check_hostname
    option = "ssl_cafile"
    try:
        if cafile is None:
            context.load_default_certs()
        else:
            context.load_verify_locations(cafile)
        if crlfile is not None:
            option = "ssl_crlfile"
            context.load_verify_locations(crlfile)
            context.verify_flags |= ssl.VERIFY_CRL_CHECK_LEAF
        if certfile is not None:
            option = "ssl_certfile" if keyfile is None else "ssl_keyfile"
            # Without a password OpenSSL would ask at the terminal for one.
            context.load_cert_chain(certfile, keyfile, secret.reveal)
        if ciphers is not None:
            option = "ssl_ciphers"
            context.set_ciphers(ciphers)
    except (OSError, ValueError) as error:  # SSLError is an OSError
        hint = ""
        if option in ("ssl_certfile", "ssl_keyfile"):
            hint = " (a wrong ssl_password?)" if password else " (does the key need ssl_password?)"
        raise ConfigError(option, f"can't be used: {_reason(error)}{hint}") from None
    return context


def refusal(error: BaseException, host: str, port: int) -> KafkaActorsError:
    """The error for a TLS handshake, or a first answer, that failed with `error`.

    `SslAuthenticationError` where a retry changes nothing; `ConnectionFailedError` where the connection merely
    ended, which a broker that restarts does as well as one whose port speaks no TLS.
    """
    address = format_address(host, port)
    if isinstance(error, ssl.SSLCertVerificationError):
        why = _WHY_NOT_TRUSTED.get(error.verify_code, error.verify_message.rstrip("."))
        return SslAuthenticationError(f"{address}: the broker's certificate is refused: {why}")
    if isinstance(error, ssl.SSLError) and not isinstance(error, (ssl.SSLEOFError, ssl.SSLZeroReturnError)):
        reason = _openssl(error)
        if reason in _NO_TLS:
            return no_tls(host, port)
        if "ALERT" in reason:
            return SslAuthenticationError(f"{address}: the broker refused TLS: {_reason(error)}")
        return SslAuthenticationError(f"{address}: TLS failed: {_reason(error)}")
    if isinstance(error, (TimeoutError, ConnectionAbortedError)):  # asyncio raises the latter for a timeout
        return ConnectionFailedError(
            f"{address}: connected, but no answer to the TLS handshake in time: does the port speak TLS?"
        )
    return ConnectionFailedError(
        f"{address}: the connection ended during the TLS handshake: a port that does not speak TLS does that"
    )


def no_tls(host: str, port: int) -> SslAuthenticationError:
    """The error for a port that doesn't speak TLS."""
    return SslAuthenticationError(
        f"{format_address(host, port)}: the port does not speak TLS, and security_protocol asks for it"
    )


def hung_up(error: BaseException) -> bool:
    """Whether the peer ended the connection during the handshake without an alert."""
    if isinstance(error, (ssl.SSLEOFError, ssl.SSLZeroReturnError)):
        return True
    # asyncio raises the second one for its own timeout of the handshake as well, without an error number
    return isinstance(error, ConnectionResetError) or (
        isinstance(error, ConnectionAbortedError) and error.errno is not None
    )


async def answers_in_plaintext(host: str, port: int, config: ClientConfig, within: float) -> bool:
    """Whether a Kafka broker answers there without TLS, within that many seconds (two at most).

    A plaintext listener takes the first bytes of TLS for an impossible length and closes the connection, as a broker does that
    goes down. An ApiVersions request in plaintext tells them apart, so that a wrong `security_protocol` is named at once and a
    restart is waited for. Nothing secret goes over the wire.
    """
    steps = handshake(config.client_id, limit_of(config.api_version))
    try:
        async with asyncio.timeout(min(within, PROBE_S)):
            sock = await connect(host, port, SocketOptions.of(config), min(within, PROBE_S))
            reader, writer = await asyncio.open_connection(sock=sock)
            try:
                request = next(steps)
                while True:
                    writer.write(request)
                    size = int.from_bytes(await reader.readexactly(4), "big", signed=True)
                    request = steps.send(await reader.readexactly(check_length(size, MAX_HANDSHAKE_BYTES)))
            finally:
                writer.close()
    except StopIteration:  # an answer was understood
        return True
    except (OSError, TimeoutError, EOFError, KafkaActorsError):
        return False


def _openssl(error: ssl.SSLError) -> str:
    """OpenSSL's name of an error, empty for an error that Python itself made: that has not even the attribute."""
    return getattr(error, "reason", None) or ""


def _reason(error: BaseException) -> str:
    if isinstance(error, ssl.SSLError) and _openssl(error):
        return _openssl(error).replace("_", " ").lower()
    return getattr(error, "strerror", None) or str(error)
