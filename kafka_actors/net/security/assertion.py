"""The JWT by which a client proves to a token endpoint who it is, in place of a secret (RFC 7523, KIP-1258)."""

from __future__ import annotations

import base64
import json
import time
import uuid
from pathlib import Path
from typing import Any

from kafka_actors.config import ClientConfig
from kafka_actors.config.security import Secret
from kafka_actors.errors import SaslError

__all__ = ["ASSERTION_TYPE", "assertion_of"]

ASSERTION_TYPE = "urn:ietf:params:oauth:client-assertion-type:jwt-bearer"
_PREFIX = "sasl_oauthbearer_assertion_"
_PEM_MARK = b"-----BEGIN"


def assertion_of(config: ClientConfig, now: float | None = None) -> Secret | None:
    """Returns the JWT of `sasl_oauthbearer_assertion_file`, or a new one signed with the private key; None without either option.

    Files are read each time, so that renewed ones are used. `now`: seconds since 1970. Raises `SaslError`, which names the option.
    """
    if config.sasl_oauthbearer_assertion_file is not None:
        text = _read("file", config.sasl_oauthbearer_assertion_file).decode("ascii", "replace").strip()
        if text.count(".") != 2:
            raise SaslError(f"OAUTHBEARER: {_PREFIX}file holds no JWT")
        return Secret(text)
    if config.sasl_oauthbearer_assertion_private_key_file is None:
        return None
    header, payload = _template(config)
    header = {**header, "alg": config.sasl_oauthbearer_assertion_algorithm, "typ": "JWT"}
    moment = int(time.time() if now is None else now)  # wall clock: claims are times of day
    payload |= {
        "iat": moment,
        "exp": moment + config.sasl_oauthbearer_assertion_claim_exp_seconds,
        "nbf": moment - config.sasl_oauthbearer_assertion_claim_nbf_seconds,
    }
    if config.sasl_oauthbearer_assertion_claim_jti_include:
        payload["jti"] = str(uuid.uuid4())
    content = f"{_encoded(_json(header))}.{_encoded(_json(payload))}"
    return Secret(f"{content}.{_encoded(_signature(config, content.encode()))}")


def _template(config: ClientConfig) -> tuple[dict[str, Any], dict[str, Any]]:
    """Header and payload of the options' claims, then those of the template file, which win, as in Kafka."""
    claims = {
        "aud": config.sasl_oauthbearer_assertion_claim_aud,
        "iss": config.sasl_oauthbearer_assertion_claim_iss,
        "sub": config.sasl_oauthbearer_assertion_claim_sub,
    }
    payload: dict[str, Any] = {name: value for name, value in claims.items() if value is not None}
    path = config.sasl_oauthbearer_assertion_template_file
    if path is None:
        return {}, payload
    try:
        found: Any = json.loads(_read("template_file", path))
        return dict(found.get("header") or {}), payload | dict(found.get("payload") or {})
    except (ValueError, TypeError, AttributeError, RecursionError):
        raise SaslError(
            f'OAUTHBEARER: {_PREFIX}template_file is {path!r}: accepts JSON with "header" and "payload"'
        ) from None


def _signature(config: ClientConfig, content: bytes) -> bytes:
    try:
        from cryptography.hazmat.primitives import hashes
        from cryptography.hazmat.primitives.asymmetric import ec, padding, rsa, utils
    except ImportError:
        raise SaslError(
            f"OAUTHBEARER: {_PREFIX}private_key_file needs the package cryptography: "
            'pip install "kafka-actors[oauth]", on every node that connects'
        ) from None
    key = _private_key(config)
    algorithm = config.sasl_oauthbearer_assertion_algorithm
    if algorithm == "RS256" and isinstance(key, rsa.RSAPrivateKey):
        return key.sign(content, padding.PKCS1v15(), hashes.SHA256())
    if algorithm == "ES256" and isinstance(key, ec.EllipticCurvePrivateKey) and key.curve.key_size == 256:
        r, s = utils.decode_dss_signature(key.sign(content, ec.ECDSA(hashes.SHA256())))
        return r.to_bytes(32, "big") + s.to_bytes(32, "big")  # RFC 7518, 3.4
    raise SaslError(
        f"OAUTHBEARER: {_PREFIX}private_key_file has a key that can't sign by {algorithm}: RS256 needs one of RSA, "
        "ES256 one of the curve P-256"
    )


def _private_key(config: ClientConfig) -> Any:
    """The key of a PEM file, or of PKCS#8 in base64 without PEM's lines, as Kafka 4.1 has it."""
    from cryptography.hazmat.primitives.serialization import load_der_private_key, load_pem_private_key

    path = str(config.sasl_oauthbearer_assertion_private_key_file)
    data = _read("private_key_file", path)
    passphrase = config.sasl_oauthbearer_assertion_private_key_passphrase
    password = passphrase.reveal().encode() if passphrase else None
    try:
        if _PEM_MARK in data:
            return load_pem_private_key(data, password)
        return load_der_private_key(base64.b64decode(data), password)
    except (ValueError, TypeError):  # TypeError: a password is missing, or one too many
        hint = "a wrong passphrase?" if passphrase else f"does it need {_PREFIX}private_key_passphrase?"
        raise SaslError(
            f"OAUTHBEARER: {_PREFIX}private_key_file is {path!r}: can't be read ({hint})"
        ) from None


def _read(option: str, path: str) -> bytes:
    try:
        return Path(path).read_bytes()
    except OSError as error:
        raise SaslError(f"OAUTHBEARER: {_PREFIX}{option} is {path!r}: {error.strerror or error}") from None


def _json(value: dict[str, Any]) -> bytes:
    return json.dumps(value, separators=(",", ":")).encode()


def _encoded(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).decode().rstrip("=")
