"""Certificates, logins and listeners for a Kafka that wants TLS and SASL.

    with secure_kafka(directory) as (kafka, files):
        options = {"bootstrap_servers": kafka.bootstrap("TLS"), "security_protocol": "SSL", "ssl_cafile": files.ca}

The brokers' certificate is for 127.0.0.1 alone, so that `localhost` is a wrong host name.
"""

from __future__ import annotations

import base64
import datetime
import ipaddress
import json
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import trustme
from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import (
    BestAvailableEncryption,
    Encoding,
    NoEncryption,
    PrivateFormat,
    load_pem_private_key,
)
from cryptography.x509.oid import NameOID
from waiting import slow_s, until

from kafka_actors.config import ClientConfig, build
from kafka_actors.errors import SaslAuthenticationFailedError
from kafka_actors.net import FetchSocket
from kafka_actors.testing import KafkaCluster

USER, PASSWORD, KEY_PASSWORD = "alice", "al,ice=päss word", "key-päss"
MECHANISMS = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", "OAUTHBEARER")
RENEW_MS = 1_500
LASTING_MS = 30_000
"""How long sessions last that are over soon, and those of which a test brings the renewal forward: at the end of a session a broker closes
a connection on which a request comes late."""
ONE_CIPHER = (
    "ECDHE-ECDSA-AES256-GCM-SHA384",
    "TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384",
)  # OpenSSL's name, Java's

LISTENERS = {
    "TLS": "SSL",
    "MTLS": "SSL",
    "EXPIRED": "SSL",
    "SELF_SIGNED": "SSL",
    "ONE_CIPHER": "SSL",
    "LOGIN": "SASL_PLAINTEXT",
    "ONE_LOGIN": "SASL_PLAINTEXT",
    "SECURE": "SASL_SSL",
    "RENEW": "SASL_SSL",
    "LASTING": "SASL_SSL",
}


@dataclass
class Files:
    """Paths of PEM files."""

    ca: str
    other_ca: str
    certificate: str
    key: str
    crl: str
    revoked: str
    other_crl: str
    stranger: str
    server: str
    expired: str
    self_signed: str


def make_files(directory: Path) -> Files:
    """A CA with a server's certificate, an expired one, a client's with an encrypted key, and lists of revoked ones;
    what another CA issued; and a server's certificate that no CA did."""
    ca, other = trustme.CA(), trustme.CA()
    now = datetime.datetime.now(datetime.UTC)
    server = ca.issue_cert("127.0.0.1")
    expired = ca.issue_cert(
        "127.0.0.1", not_before=now - datetime.timedelta(9), not_after=now - datetime.timedelta(2)
    )
    client = ca.issue_cert("client@example.org", common_name="client")
    stranger = other.issue_cert("client@example.org", common_name="stranger")
    ca.cert_pem.write_to_path(str(directory / "ca.pem"))
    other.cert_pem.write_to_path(str(directory / "other-ca.pem"))
    (directory / "server.pem").write_bytes(_key(server) + _chain(server))
    (directory / "expired.pem").write_bytes(_key(expired) + _chain(expired))
    (directory / "client.pem").write_bytes(_chain(client))
    (directory / "client.key").write_bytes(_key(client, KEY_PASSWORD))
    (directory / "stranger.pem").write_bytes(_key(stranger) + _chain(stranger))
    (directory / "self-signed.pem").write_bytes(_self_signed())
    serial = x509.load_pem_x509_certificate(_chain(server)).serial_number
    (directory / "crl.pem").write_bytes(_crl(ca, [serial + 1]))
    (directory / "revoked.pem").write_bytes(_crl(ca, [serial]))
    (directory / "other-crl.pem").write_bytes(_crl(other, []))
    return Files(
        ca=str(directory / "ca.pem"),
        other_ca=str(directory / "other-ca.pem"),
        certificate=str(directory / "client.pem"),
        key=str(directory / "client.key"),
        crl=str(directory / "crl.pem"),
        revoked=str(directory / "revoked.pem"),
        other_crl=str(directory / "other-crl.pem"),
        stranger=str(directory / "stranger.pem"),
        server=str(directory / "server.pem"),
        expired=str(directory / "expired.pem"),
        self_signed=str(directory / "self-signed.pem"),
    )


def _self_signed() -> bytes:
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "kafka")])
    now = datetime.datetime.now(datetime.UTC)
    address = x509.IPAddress(ipaddress.ip_address("127.0.0.1"))
    certificate = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(1)
        .not_valid_before(now - datetime.timedelta(1))
        .not_valid_after(now + datetime.timedelta(1))
        .add_extension(x509.SubjectAlternativeName([address]), critical=False)
        .sign(key, hashes.SHA256())
    )
    private = key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
    return private + certificate.public_bytes(Encoding.PEM)


def _key(issued: trustme.LeafCert, password: str | None = None) -> bytes:
    """PKCS#8: Java reads no other."""
    key = load_pem_private_key(issued.private_key_pem.bytes(), None)
    how = BestAvailableEncryption(password.encode()) if password else NoEncryption()
    return key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, how)


def _chain(issued: trustme.LeafCert) -> bytes:
    return b"".join(blob.bytes() for blob in issued.cert_chain_pems)


def _crl(ca: trustme.CA, serials: list[int]) -> bytes:
    now = datetime.datetime.now(datetime.UTC)
    issuer = x509.load_pem_x509_certificate(ca.cert_pem.bytes())
    builder = (
        x509.CertificateRevocationListBuilder()
        .issuer_name(issuer.subject)
        .last_update(now - datetime.timedelta(1))
        .next_update(now + datetime.timedelta(1))
    )
    for serial in serials:
        revoked = x509.RevokedCertificateBuilder().serial_number(serial).revocation_date(now)
        builder = builder.add_revoked_certificate(revoked.build())
    key: Any = load_pem_private_key(ca.private_key_pem.bytes(), None)
    return builder.sign(key, hashes.SHA256()).public_bytes(Encoding.PEM)


def _broker_config(files: Files) -> dict[str, str]:
    own = {"EXPIRED": files.expired, "SELF_SIGNED": files.self_signed}
    config = {}
    for name, protocol in LISTENERS.items():
        prefix = f"listener.name.{name.lower()}."
        if protocol.endswith("SSL"):
            config[prefix + "ssl.keystore.type"] = "PEM"
            config[prefix + "ssl.keystore.location"] = own.get(name, files.server)
        if protocol.startswith("SASL"):
            config |= {prefix + key: value for key, value in _sasl().items()}
    config["listener.name.one_login.sasl.enabled.mechanisms"] = "SCRAM-SHA-512"
    config["listener.name.one_cipher.ssl.enabled.protocols"] = "TLSv1.2"
    config["listener.name.one_cipher.ssl.cipher.suites"] = ONE_CIPHER[1]
    config["listener.name.mtls.ssl.client.auth"] = "required"
    config["listener.name.mtls.ssl.truststore.type"] = "PEM"
    config["listener.name.mtls.ssl.truststore.location"] = files.ca
    for mechanism in MECHANISMS:
        for listener, lasts_ms in (("renew", RENEW_MS), ("lasting", LASTING_MS)):
            config[f"listener.name.{listener}.{mechanism.lower()}.connections.max.reauth.ms"] = str(lasts_ms)
    return config


def _sasl() -> dict[str, str]:
    security = "org.apache.kafka.common.security"
    escaped = PASSWORD.encode("unicode_escape").decode().replace("\\xe4", "\\u00e4")
    scram = f"{security}.scram.ScramLoginModule required;"
    return {
        "sasl.enabled.mechanisms": ",".join(MECHANISMS),
        "plain.sasl.jaas.config": f'{security}.plain.PlainLoginModule required user_{USER}="{escaped}";',
        "scram-sha-256.sasl.jaas.config": scram,
        "scram-sha-512.sasl.jaas.config": scram,
        "oauthbearer.sasl.jaas.config": f"{security}.oauthbearer.OAuthBearerLoginModule required "
        'unsecuredLoginStringClaim_sub="broker";',
    }


@contextmanager
def secure_kafka(directory: Path) -> Iterator[tuple[KafkaCluster, Files]]:
    """A broker with all of `LISTENERS`, where `USER` may log in with each mechanism."""
    files = make_files(directory)
    with KafkaCluster(listeners=LISTENERS, broker_config=_broker_config(files)) as kafka:
        add_scram_user(kafka, USER, PASSWORD)
        yield kafka, files


def add_scram_user(kafka: KafkaCluster, user: str, password: str) -> None:
    """Gives a user this password, for a new one or in place of the last, and waits until the broker accepts it: the controller says that it is
    noted, and the broker hears of it later."""
    from confluent_kafka.admin import (
        ScramCredentialInfo,
        ScramMechanism,
        UserScramCredentialUpsertion,
    )

    for kind in (
        ScramMechanism.SCRAM_SHA_256,
        ScramMechanism.SCRAM_SHA_512,
    ):  # one user, one change a request
        change = UserScramCredentialUpsertion(user, ScramCredentialInfo(kind, 4096), password.encode())
        for done in kafka.admin.alter_user_scram_credentials([change]).values():
            done.result(slow_s(30))
    for mechanism in ("SCRAM-SHA-256", "SCRAM-SHA-512"):
        login = {"sasl_plain_username": user, "sasl_plain_password": password}
        config = build(ClientConfig, security_protocol="SASL_PLAINTEXT", sasl_mechanism=mechanism, **login)
        until(lambda config=config: _accepts(kafka, config), 20, f"{user} to be accepted by {mechanism}")


def _accepts(kafka: KafkaCluster, config: ClientConfig) -> bool:
    try:
        FetchSocket(*kafka.address(1, "LOGIN"), config).open().close()
    except SaslAuthenticationFailedError:
        return False
    return True


def remove_scram_user(kafka: KafkaCluster, user: str) -> None:
    from confluent_kafka.admin import ScramMechanism, UserScramCredentialDeletion

    for kind in (ScramMechanism.SCRAM_SHA_256, ScramMechanism.SCRAM_SHA_512):
        change = UserScramCredentialDeletion(user, kind)
        for done in kafka.admin.alter_user_scram_credentials([change]).values():
            done.result(slow_s(30))


def unsecured_token(seconds: float, subject: str = USER) -> str:
    """A JWT without a signature, which Kafka accepts where no validator is set."""
    now = time.time()
    parts = {"alg": "none"}, {"sub": subject, "iat": now, "exp": now + seconds}
    encoded = [base64.urlsafe_b64encode(json.dumps(p).encode()).rstrip(b"=").decode() for p in parts]
    return ".".join(encoded) + "."
