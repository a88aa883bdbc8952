"""SASL on a broker's side: PLAIN, SCRAM-SHA-256 and SCRAM-SHA-512 (RFC 4616, RFC 5802; KIP-43, KIP-84, KIP-152)."""

from __future__ import annotations

import base64
import hashlib
import hmac
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from kafka_actors import errors
from kafka_actors.protocol import (
    ApiKey,
    SaslAuthenticateRequest,
    SaslAuthenticateResponse,
    SaslHandshakeRequest,
    SaslHandshakeResponse,
)

from .calls import BrokerCall, ClientLink

if TYPE_CHECKING:
    from random import Random

MECHANISMS = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512")
ITERATIONS = 4_096
OPEN_APIS = (ApiKey.API_VERSIONS, ApiKey.SASL_HANDSHAKE, ApiKey.SASL_AUTHENTICATE)
"""Requests that a client may send before it is authenticated."""


class _Failed(Exception):
    """The client's name or password is wrong, or its message is none of the mechanism."""


class BrokerSasl:
    """Authenticates connections by these users (name → password). Without users every connection counts as authenticated."""

    def __init__(self, users: Mapping[str, str] | None, random: Random) -> None:
        self._users = users
        self._random = random

    @property
    def required(self) -> bool:
        """Whether clients have to authenticate."""
        return self._users is not None

    def handshake(self, call: BrokerCall) -> SaslHandshakeResponse:
        """Answers SaslHandshake. After version 0 the tokens come as they are, without requests around them."""
        request: SaslHandshakeRequest = call.request
        if not self.required or call.link.principal is not None:
            return SaslHandshakeResponse(errors.IllegalSaslStateError.code)
        if request.mechanism not in MECHANISMS:
            return SaslHandshakeResponse(errors.UnsupportedSaslMechanismError.code, list(MECHANISMS))
        call.link.raw_sasl = call.version == 0
        call.link.sasl = (
            _Plain(self._users or {})
            if request.mechanism == "PLAIN"
            else _Scram(request.mechanism, self._users or {}, self._random)
        )
        return SaslHandshakeResponse(0, list(MECHANISMS))

    def authenticate(self, call: BrokerCall) -> SaslAuthenticateResponse:
        """Answers SaslAuthenticate. After an error the broker closes the connection."""
        request: SaslAuthenticateRequest = call.request
        exchange: Any = call.link.sasl
        if exchange is None:
            return SaslAuthenticateResponse(errors.IllegalSaslStateError.code, "no SaslHandshake before")
        try:
            token = exchange.step(bytes(request.auth_bytes))
        except (_Failed, ValueError) as error:
            call.closes = True
            code = errors.SaslAuthenticationFailedError.code
            return SaslAuthenticateResponse(code, f"Authentication failed: {error}")
        if exchange.user is not None:
            call.link.principal = exchange.user
            call.link.sasl = None
        return SaslAuthenticateResponse(0, None, token)

    def raw_token(self, link: ClientLink, token: bytes) -> bytes | None:
        """Returns the answer to a token that came after SaslHandshake 0; None where the connection is to be closed."""
        try:
            answer: bytes = link.sasl.step(token)
        except (_Failed, ValueError):
            return None
        if link.sasl.user is not None:
            link.principal, link.sasl, link.raw_sasl = link.sasl.user, None, False
        return answer


class _Plain:
    def __init__(self, users: Mapping[str, str]) -> None:
        self._users = users
        self.user: str | None = None

    def step(self, token: bytes) -> bytes:
        parts = token.split(b"\0")
        if len(parts) != 3:
            raise _Failed("Invalid SASL/PLAIN response")
        _, user, password = (part.decode() for part in parts)
        if not hmac.compare_digest(self._users.get(user, "\0").encode(), password.encode()):
            raise _Failed("Invalid username or password")
        self.user = user
        return b""


class _Scram:
    def __init__(self, mechanism: str, users: Mapping[str, str], random: Random) -> None:
        self._hash = mechanism.removeprefix("SCRAM-").replace("-", "").lower()
        self._users = users
        self._random = random
        self._first = ""
        self._nonce = ""
        self._name = ""
        self._salt = b""
        self.user: str | None = None

    def step(self, token: bytes) -> bytes:
        text = token.decode()
        return self._challenge(text) if not self._nonce else self._finish(text)

    def _challenge(self, text: str) -> bytes:
        gs2, _, bare = text.partition(",,") if text.startswith("n,,") else text.partition(",a=")
        if not gs2:
            raise _Failed("Invalid SCRAM message")
        fields = _fields(bare)
        self._name = fields["n"].replace("=2C", ",").replace("=3D", "=")
        if self._name not in self._users:
            raise _Failed("Invalid user credentials")
        self._nonce = f"{fields['r']}{self._random.getrandbits(96):024x}"
        self._salt = self._random.randbytes(16)
        challenge = f"r={self._nonce},s={base64.b64encode(self._salt).decode()},i={ITERATIONS}"
        self._first = f"{bare},{challenge}"
        return challenge.encode()

    def _finish(self, text: str) -> bytes:
        without_proof, _, proof = text.rpartition(",p=")
        if _fields(without_proof).get("r") != self._nonce:
            raise _Failed("Invalid nonce")
        signed = f"{self._first},{without_proof}".encode()
        password = self._users[self._name].encode()
        salted = hashlib.pbkdf2_hmac(self._hash, password, self._salt, ITERATIONS)
        client_key = self._mac(salted, b"Client Key")
        stored = hashlib.new(self._hash, client_key).digest()
        signature = self._mac(stored, signed)
        wanted = bytes(a ^ b for a, b in zip(client_key, signature, strict=True))
        if not hmac.compare_digest(wanted, base64.b64decode(proof)):
            raise _Failed("Invalid client credentials")
        self.user = self._name
        return b"v=" + base64.b64encode(self._mac(self._mac(salted, b"Server Key"), signed))

    def _mac(self, key: bytes, data: bytes) -> bytes:
        return hmac.new(key, data, self._hash).digest()


def _fields(text: str) -> dict[str, str]:
    found = dict(part.split("=", 1) for part in text.split(",") if "=" in part)
    if "r" not in found:
        raise _Failed("Invalid SCRAM message")
    return found
