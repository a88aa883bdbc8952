"""Tokens signed by RS256, and a broker that validates them as production does: Kafka's own `OAuthBearerValidatorCallbackHandler`."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import jwt
from cryptography.hazmat.primitives.asymmetric import rsa
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat

from kafka_actors.testing import KafkaCluster
from kafka_actors.testing.cluster import TEST_JVM
from kafka_actors.testing.distribution import DEFAULT_VERSION

from .secure import make_files
from .signing_provider import AUDIENCE, ISSUER, KEY_ID

_OAUTH = "org.apache.kafka.common.security.oauthbearer"

_PREFIX = "listener.name.tokens.oauthbearer."


def new_key(path: Path) -> rsa.RSAPrivateKey:
    """A private key of RSA, written to a file as PEM."""
    key = rsa.generate_private_key(65537, 2048)
    path.write_bytes(key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()))
    return key


@contextmanager
def kafka_with_validated_tokens(
    directory: Path, version: str = DEFAULT_VERSION
) -> Iterator[tuple[KafkaCluster, str, Any]]:
    """A broker whose listener TOKENS accepts what the returned key signed, the file of its CA, and that key."""
    files = make_files(directory)
    key = new_key(directory / "issuer.pem")
    public: dict[str, Any] = jwt.algorithms.RSAAlgorithm.to_jwk(key.public_key(), as_dict=True)
    jwks = directory / "jwks.json"
    jwks.write_text(json.dumps({"keys": [{**public, "kid": KEY_ID, "alg": "RS256", "use": "sig"}]}))
    module = _handler_module(version)
    config = {
        "listener.name.tokens.ssl.keystore.type": "PEM",
        "listener.name.tokens.ssl.keystore.location": files.server,
        "listener.name.tokens.sasl.enabled.mechanisms": "OAUTHBEARER",
        _PREFIX + "sasl.jaas.config": f"{_OAUTH}.OAuthBearerLoginModule required "
        'unsecuredLoginStringClaim_sub="broker";',
        _PREFIX + "sasl.server.callback.handler.class": f"{module}.OAuthBearerValidatorCallbackHandler",
        "sasl.oauthbearer.jwks.endpoint.url": jwks.as_uri(),
        "sasl.oauthbearer.expected.audience": AUDIENCE,
        "sasl.oauthbearer.expected.issuer": ISSUER,
        # The default, DefaultJwtValidator, accepts any signature, issuer, audience and time in 4.1.1; in 3.9.2 and 4.4.0 it doesn't.
        "sasl.oauthbearer.jwt.validator.class": f"{_OAUTH}.BrokerJwtValidator",
    }
    with KafkaCluster(
        listeners={"TOKENS": "SASL_SSL"}, broker_config=config, version=version, jvm_options=_jvm(jwks)
    ) as kafka:
        yield kafka, files.ca, key


def _handler_module(version: str) -> str:
    return _OAUTH if tuple(map(int, version.split(".")[:2])) >= (3, 5) else f"{_OAUTH}.secured"


def _jvm(jwks: Path) -> Sequence[str]:
    prefix = "-Dorg.apache.kafka.sasl.oauthbearer.allowed."
    return (*TEST_JVM, f"{prefix}urls={jwks.as_uri()}", f"{prefix}files={jwks}")
