"""SASL on a broker's side: PLAIN, SCRAM-SHA-256 and SCRAM-SHA-512.

Theory of operation. Arrives: SaslHandshake with a mechanism, then tokens of the client, each in a
SaslAuthenticate, or, after a handshake of version 0, as frames without any header. Decided: the next token
for the client, whether it is authenticated, and whether the connection is to be closed. What is kept of an
exchange is kept with its connection (`ClientLink`), so two connections never mix:

    no mechanism ── handshake ──► mechanism chosen ── last good token ──► principal known
                                       └── bad token ──► error, connection closed

- Before the handshake a client may send `OPEN_APIS` only; anything else closes its connection (`FakeCluster`),
  as a real broker does, so that a client that forgets to authenticate learns it. Between the handshake and the
  last token it may send tokens only; anything else is ILLEGAL_SASL_STATE, and then the connection is closed. A
  mechanism that brokers don't have ends it, too, once the client has been told those that they have.
- PLAIN is one token with name and password. SCRAM is two: the client's first message is answered with a salt,
  a count of iterations and the client's nonce with the server's behind it; the second proves the password,
  and is answered with the server's proof, which clients have to check. Salt and nonce come from the cluster's
  own randomness.
- A wrong password, an unknown name and a token of another mechanism are all SASL_AUTHENTICATION_FAILED, and
  end the connection; after a handshake of version 0 there is no place for an error, so the connection just
  ends.
- Where sessions end (`connections.max.reauth.ms`), clients are told for how long theirs lasts. They
  authenticate again on the same connection, as the same user; the connection of one that has not when its
  session is over is closed with its next request (KIP-368). A renewal less
  than a second after the one before is ILLEGAL_SASL_STATE.
- A cluster without users wants no SASL, and refuses a handshake with ILLEGAL_SASL_STATE.

Source: `SaslServerAuthenticator`, `ScramSaslServer`, `PlainSaslServer`; RFC 4616, RFC 5802; KIP-43, KIP-84,
KIP-152, KIP-368.
"""

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
MIN_RENEWAL_S = 1.0
OPEN_APIS = (ApiKey.API_VERSIONS, ApiKey.SASL_HANDSHAKE)
"""Requests that a client may send before it begins to authenticate."""


class _Failed(Exception):
    """The client's name or password is wrong, or its message is none of the mechanism."""


class BrokerSasl:
    """Authenticates connections by these users (name → password). Without users every connection counts as authenticated.

    lifetime_ms: how long a session lasts, 0 for as long as its connection.
    """

    def __init__(self, users: Mapping[str, str] | None, random: Random, lifetime_ms: int = 0) -> None:
        self._users = users
        self._random = random
        self._lifetime_ms = lifetime_ms

    @property
    def required(self) -> bool:
        """Whether clients have to authenticate."""
        return self._users is not None

    def admits(self, link: ClientLink, api: ApiKey, now: float) -> bool:
        """Whether a request may be answered: the connection is authenticated and its session not over, or it begins to authenticate."""
        if not self.required or link.sasl is not None or api == ApiKey.SASL_HANDSHAKE:
            return True
        if link.principal is None:
            return api in OPEN_APIS
        return link.session_ends is None or now <= link.session_ends

    def _begin_session(self, link: ClientLink, user: str, now: float) -> None:
        link.principal, link.sasl, link.raw_sasl = user, None, False
        if self._lifetime_ms:
            link.session_ends = now + self._lifetime_ms / 1000

    def handshake(self, call: BrokerCall) -> SaslHandshakeResponse:
        """Answers SaslHandshake. After version 0 the tokens come as they are, without requests around them."""
        request: SaslHandshakeRequest = call.request
        if not self.required or (call.link.principal is not None and not self._lifetime_ms):
            return SaslHandshakeResponse(errors.IllegalSaslStateError.code)
        if call.link.principal is not None and not self._may_renew(call):
            return SaslHandshakeResponse(errors.IllegalSaslStateError.code)
        if request.mechanism not in MECHANISMS:
            call.closes = True
            return SaslHandshakeResponse(errors.UnsupportedSaslMechanismError.code, list(MECHANISMS))
        call.link.raw_sasl = call.version == 0
        call.link.sasl = (
            _Plain(self._users or {})
            if request.mechanism == "PLAIN"
            else _Scram(request.mechanism, self._users or {}, self._random)
        )
        return SaslHandshakeResponse(0, list(MECHANISMS))

    def _may_renew(self, call: BrokerCall) -> bool:
        """Whether the last renewal on this connection was a second ago, or there was none; then this is one."""
        last, link = call.link.renewed_at, call.link
        if last is not None and call.at - last < MIN_RENEWAL_S:
            return False
        link.renewed_at = call.at
        return True

    def authenticate(self, call: BrokerCall) -> SaslAuthenticateResponse:
        """Answers SaslAuthenticate. After an error the broker closes the connection."""
        request: SaslAuthenticateRequest = call.request
        exchange: Any = call.link.sasl
        if exchange is None:
            return SaslAuthenticateResponse(errors.IllegalSaslStateError.code, "no SaslHandshake before")
        try:
            token = exchange.step(bytes(request.auth_bytes))
            if exchange.user is not None and call.link.principal not in (None, exchange.user):
                raise _Failed(f"Cannot change principals during re-authentication from {call.link.principal}")
        except (_Failed, ValueError) as error:
            call.closes = True
            code = errors.SaslAuthenticationFailedError.code
            return SaslAuthenticateResponse(code, f"Authentication failed: {error}")
        if exchange.user is not None:
            self._begin_session(call.link, exchange.user, call.at)
            return SaslAuthenticateResponse(0, None, token, self._lifetime_ms)
        return SaslAuthenticateResponse(0, None, token)

    def raw_token(self, link: ClientLink, token: bytes, now: float) -> bytes | None:
        """Returns the answer to a token that came after SaslHandshake 0; None where the connection is to be closed."""
        try:
            answer: bytes = link.sasl.step(token)
        except (_Failed, ValueError):
            return None
        if link.sasl.user is not None:
            self._begin_session(link, link.sasl.user, now)
        return answer


class _Plain:
    """One exchange of PLAIN (RFC 4616): authorization id, name and password, each behind a zero byte but for the
    first.
    """

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
    """One exchange of SCRAM (RFC 5802) over SHA-256 or SHA-512.

    Passwords are known here, so the keys that Kafka stores are made anew each time.
    """

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
        """Answers the client's first message with nonce, salt and iterations.

        A name is read with its commas and equals signs restored.
        """
        gs2, _, bare = text.partition(",,") if text.startswith("n,,") else text.partition(",a=")
        if not gs2:
            raise _Failed("Invalid SCRAM message")
        fields = _fields(bare)
        if "n" not in fields:
            raise _Failed("Invalid SCRAM message")
        self._name = fields["n"].replace("=2C", ",").replace("=3D", "=")
        if self._name not in self._users:
            raise _Failed("Invalid user credentials")
        self._nonce = f"{fields['r']}{self._random.getrandbits(96):024x}"
        self._salt = self._random.randbytes(16)
        challenge = f"r={self._nonce},s={base64.b64encode(self._salt).decode()},i={ITERATIONS}"
        self._first = f"{bare},{challenge}"
        return challenge.encode()

    def _finish(self, text: str) -> bytes:
        """Checks the client's proof against its password, and answers with the server's own."""
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
