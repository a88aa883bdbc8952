"""The SASL mechanisms as a client speaks them, and the time at which a session is renewed.

Theory of operation. A mechanism is a generator: it yields the client's next message and is sent the broker's answer, so that the
shell alone knows how messages travel (SaslAuthenticate requests, KIP-152). It ends when the exchange is complete, and raises
`SaslError` for an answer that breaks the mechanism's rules. Nonces, tokens and the library's security context are arguments; a
`Secret` is revealed only where its bytes are made. A session has a lifetime when the broker sets one (KIP-368).

Each mechanism keeps to the rule that protects its secret:

- PLAIN sends the password as it is, AWS_MSK_IAM and OAUTHBEARER something that was made from a secret and
  expires. All rely on TLS.
- SCRAM never sends the password, and the broker has to prove that it knows it: an exchange that ends without
  that proof fails, whatever the broker says. Bounds on iterations keep a rogue broker from making the
  password cheap to guess, or the client busy.
- GSSAPI leaves all to the context, and chooses no security layer: Kafka has none behind SASL.

OAUTHBEARER and SCRAM carry errors of the broker within the exchange; these become a `SaslError` with the
broker's words, which never contain what was sent.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
import json
import re
from collections.abc import Generator, Mapping
from typing import Any, Protocol

from kafka_actors.config.security import Secret
from kafka_actors.errors import SaslError

Steps = Generator[bytes, bytes, None]
"""Yields messages to send, is sent the broker's answers, and returns when the broker has proved its identity, where the mechanism
has a proof."""

_TOKEN = re.compile(r"[A-Za-z0-9\-._~+/]+=*")
_EXTENSION_NAME = re.compile(r"[A-Za-z]+")
_EXTENSION_VALUE = re.compile(r"[\x20-\x7e\t\r\n]+")

_MSK_IAM_VERSION = "2020_10_22"

_NO_LAYER = b"\x01\x00\x00\x00"
"""GSSAPI's choice of a security layer: none, and so no size of its messages (RFC 4752, 3.1)."""

MIN_ITERATIONS = 4096
"""The fewest that RFC 7677 and Kafka allow. Fewer would make a password that was listened to cheap to guess."""

MAX_ITERATIONS = 1_000_000
"""Kafka's own limit is 16,384. A rogue broker must not be able to keep this process busy for long."""

_SERVER_FIRST = re.compile(
    r"r=([\x21-\x2b\x2d-\x7e]+),s=([A-Za-z0-9+/=]+),i=([1-9][0-9]{0,9})(,.*)?", re.DOTALL
)
_SERVER_ERROR = re.compile(r"e=([^,]*)")


MIN_RENEWAL_S = 1.1
"""Time between two renewals of a session: a broker takes one a second (`KafkaChannel.MIN_REAUTH_INTERVAL_ONE_SECOND_NANOS`), counted from
when it got the first request of each."""


def renew_at(began: float, ended: float, lifetime_ms: int, rand: float, *, renewed: bool = False) -> float:
    """When a session is to be authenticated anew (KIP-368): after 85 to 95 % of its lifetime, as Java does.

    `began` and `ended`: the present authentication's times. `lifetime_ms` 0 is a session without end. `rand` is 0..1: many connections don't
    renew at once. `renewed`: it was renewed now; one that ends before it may be renewed again ends with its connection.
    """
    if lifetime_ms <= 0:
        return float("inf")
    due_s = lifetime_ms / 1000 * (0.85 + 0.1 * rand)
    # A token may have taken long before the first request was sent.
    return max(began + due_s, ended + MIN_RENEWAL_S) if renewed else began + due_s


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
    if why:  # the broker refuses the token, and sends its error only after this message
        yield b"\x01"
        raise SaslError("OAUTHBEARER: the broker refused the token and did not end the exchange")


def aws_msk_iam(payload: Secret) -> Steps:
    """AWS_MSK_IAM (`aws-msk-iam-auth`, version 2020_10_22): a signed message, which the broker answers with the id of the request.

    Raises `SaslError` for an answer without it, as Amazon's client does.
    """
    answer = yield payload.reveal().encode()
    try:
        found: Any = json.loads(answer)
        known = found["version"] == _MSK_IAM_VERSION and isinstance(found["request-id"], str)
    except (ValueError, KeyError, TypeError, RecursionError):
        known = False
    if not known:
        raise SaslError(
            "AWS_MSK_IAM: the broker's answer is not that of Amazon MSK: is it another one's port?"
        )


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


def scram(algorithm: str, username: str, password: Secret, nonce: str) -> Steps:
    """SCRAM (RFC 5802), with SHA-256 and -512 by RFC 7677 and Kafka (KIP-84): both sides prove that they know the password.

    `algorithm` is hashlib's name; `nonce` is random, printable ASCII without a comma.

    Names and passwords go as UTF-8 without SASLprep, as Kafka stores them. Raises `SaslError` for an answer that
    breaks the rules, iterations out of bounds, and a broker that doesn't know the password.
    """
    bare = f"n={_escaped(username)},r={nonce}"
    first = yield f"n,,{bare}".encode()
    server_nonce, salt, iterations = _server_first(first, nonce)
    without_proof = f"c=biws,r={server_nonce}".encode()
    signed = b",".join((bare.encode(), first, without_proof))
    proof, expected = _proofs(algorithm, password, salt, iterations, signed)
    final = yield without_proof + b",p=" + base64.b64encode(proof)
    _check_server_final(final, expected)


def _proofs(
    algorithm: str, password: Secret, salt: bytes, iterations: int, signed: bytes
) -> tuple[bytes, bytes]:
    """The client's proof that it knows the password, and the broker's own that is expected. Keys stay in here: no frame
    that an error passes through holds one."""
    salted = hashlib.pbkdf2_hmac(algorithm, password.reveal().encode(), salt, iterations)
    client_key = hmac.digest(salted, b"Client Key", algorithm)
    signature = hmac.digest(hashlib.new(algorithm, client_key).digest(), signed, algorithm)
    proof = bytes(a ^ b for a, b in zip(client_key, signature, strict=True))
    server_key = hmac.digest(salted, b"Server Key", algorithm)
    return proof, hmac.digest(server_key, signed, algorithm)


def _escaped(username: str) -> str:
    return username.replace("=", "=3D").replace(",", "=2C")


def _server_first(message: bytes, nonce: str) -> tuple[str, bytes, int]:
    text = _text(message)
    _raise_for_error(text)
    found = _SERVER_FIRST.fullmatch(text)
    if found is None:
        raise SaslError("SCRAM: the broker's first message can't be read")
    server_nonce, salt, iterations = found[1], _base64(found[2]), int(found[3])
    if not server_nonce.startswith(nonce) or server_nonce == nonce:
        raise SaslError("SCRAM: the broker's nonce does not go on from ours")
    if not MIN_ITERATIONS <= iterations <= MAX_ITERATIONS:
        raise SaslError(
            f"SCRAM: the broker asks for {iterations} iterations: "
            f"{MIN_ITERATIONS} to {MAX_ITERATIONS} are accepted"
        )
    return server_nonce, salt, iterations


def _check_server_final(message: bytes, expected: bytes) -> None:
    text = _text(message)
    _raise_for_error(text)
    verifier = text.partition(",")[0]
    if not verifier.startswith("v=") or not hmac.compare_digest(_base64(verifier[2:]), expected):
        raise SaslError("SCRAM: the broker did not prove that it knows the password: it may be an impostor")


def _raise_for_error(text: str) -> None:
    if found := _SERVER_ERROR.match(text):
        raise SaslError(f"SCRAM: the broker says {found[1]!r}")


def _text(message: bytes) -> str:
    try:
        return message.decode()
    except UnicodeDecodeError:
        raise SaslError("SCRAM: the broker's message is not UTF-8") from None


def _base64(text: str) -> bytes:
    try:
        return base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError):
        raise SaslError("SCRAM: the broker's message has bad base64") from None
