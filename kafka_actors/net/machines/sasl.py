"""The SASL mechanisms beside SCRAM, as a client speaks them, and when a session is renewed."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Protocol

from kafka_actors.config.security import Secret
from kafka_actors.errors import SaslError

from .scram import Steps

_TOKEN = re.compile(r"[A-Za-z0-9\-._~+/]+=*")
_EXTENSION_NAME = re.compile(r"[A-Za-z]+")
_EXTENSION_VALUE = re.compile(r"[\x20-\x7e\t\r\n]+")

_NO_LAYER = b"\x01\x00\x00\x00"
"""GSSAPI's choice of a security layer: none, and so no size of its messages (RFC 4752, 3.1)."""


class GssContext(Protocol):
    """The initiator's side of a security context, as `gssapi.SecurityContext`."""

    @property
    def complete(self) -> bool: ...
    def step(self, token: bytes | None = None) -> bytes | None: ...
    def unwrap(self, message: bytes) -> Any: ...
    def wrap(self, message: bytes, encrypt: bool) -> Any: ...


def plain(username: str, password: Secret) -> Steps:
    """PLAIN (RFC 4616): the password in clear, so only over TLS where others may listen."""
    yield f"\0{username}\0{password.reveal()}".encode()


def oauthbearer(token: Secret, extensions: Mapping[str, str] | None = None) -> Steps:
    """OAUTHBEARER (RFC 7628, KIP-255) with SASL extensions (KIP-342). Raises `SaslError` for what can't be sent."""
    if not _TOKEN.fullmatch(token.reveal()):
        raise SaslError("OAUTHBEARER: the token has characters that no bearer token has (RFC 6750)")
    pairs = [""]
    for name, value in (extensions or {}).items():
        if name == "auth" or not (_is(_EXTENSION_NAME, name) and _is(_EXTENSION_VALUE, value)):
            raise SaslError(f"OAUTHBEARER: {name!r} is no SASL extension that can be sent")
        pairs.append(f"{name}={value}")
    why = yield (f"n,,\x01auth=Bearer {token.reveal()}" + "\x01".join(pairs) + "\x01\x01").encode()
    if why:  # the broker refuses, and waits for this before it says so as an error
        yield b"\x01"
        raise SaslError("OAUTHBEARER: the broker refused the token and did not end the exchange")


def _is(pattern: re.Pattern[str], value: object) -> bool:
    return isinstance(value, str) and pattern.fullmatch(value) is not None


def gssapi(context: GssContext) -> Steps:
    """GSSAPI (RFC 4752) without a security layer of its own: privacy is TLS's matter.

    Raises what the context raises, and `SaslError` where the broker insists on a layer.
    """
    received: bytes | None = None
    while not context.complete:
        received = yield context.step(received) or b""
    offer = context.unwrap(received or b"").message
    if len(offer) != 4 or not offer[0] & _NO_LAYER[0]:
        raise SaslError("GSSAPI: the broker insists on a security layer of SASL, which Kafka does not have")
    yield context.wrap(_NO_LAYER, False).message


def renew_at(now: float, lifetime_ms: int, rand: float) -> float:
    """When a session is to be authenticated anew (KIP-368): after 85 to 95 % of its lifetime, as Java does.

    `lifetime_ms` 0 is a session without end. `rand` is 0..1: many connections don't renew at once.
    """
    return now + lifetime_ms / 1000 * (0.85 + 0.1 * rand) if lifetime_ms > 0 else float("inf")
