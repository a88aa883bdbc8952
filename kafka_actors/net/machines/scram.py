"""SCRAM as a client speaks it: RFC 5802, with SHA-256 and -512 by RFC 7677 and Kafka (KIP-84)."""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
import re
from collections.abc import Generator

from kafka_actors.config.security import Secret
from kafka_actors.errors import SaslError

Steps = Generator[bytes, bytes, None]
"""Yields what to send, is sent what the broker answers, and returns when the broker has shown who it is."""

MIN_ITERATIONS = 4096
"""What RFC 7677 and Kafka demand. Fewer would make a password that was listened to cheap to guess."""

MAX_ITERATIONS = 1_000_000
"""Kafka's own limit is 16,384. A rogue broker must not be able to keep this process busy for long."""

_FIRST = re.compile(r"r=([\x21-\x2b\x2d-\x7e]+),s=([A-Za-z0-9+/=]+),i=([1-9][0-9]{0,9})(,.*)?", re.DOTALL)
_ERROR = re.compile(r"e=([^,]*)")


def scram(algorithm: str, username: str, password: Secret, nonce: str) -> Steps:
    """One exchange. `algorithm` is hashlib's name; `nonce` is random, printable ASCII without a comma.

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
    """What shows the broker that we know the password, and what it will show us. Keys stay in here: no frame that
    an error passes through holds one."""
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
    found = _FIRST.fullmatch(text)
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
    if found := _ERROR.match(text):
        raise SaslError(f"SCRAM: the broker says {found[1]!r}")


def _text(message: bytes) -> str:
    try:
        return message.decode()
    except UnicodeDecodeError:
        raise SaslError("SCRAM: the broker's message is no UTF-8") from None


def _base64(text: str) -> bytes:
    try:
        return base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError):
        raise SaslError("SCRAM: the broker's message has bad base64") from None
