"""Java's key and trust stores: PEM and PKCS12 are read, JKS is refused with the line that converts it."""

from __future__ import annotations

import secrets
import ssl
import tempfile
from pathlib import Path
from typing import Any

from kafka_actors.errors import ConfigError

__all__ = ["add_keys", "add_trust", "is_pem"]

_PEM = b"-----BEGIN"
_JAVAS = {b"\xfe\xed\xfe\xed": "JKS", b"\xce\xce\xce\xce": "JCEKS"}
_DER = b"\x30"


def is_pem(option: str, path: str) -> bool:
    """Whether the file is PEM; if not it is PKCS12, whatever the type option says: Java looks as well.

    Raises `ConfigError` about `option` for a file that can't be read, and for JKS.
    """
    head = _read(option, path)
    if head[:4] in _JAVAS:
        kind = _JAVAS[head[:4]]
        target = Path(path).with_suffix(".p12")
        raise ConfigError(
            option,
            f"is {path!r}, a {kind} store, which only Java reads; convert it: keytool -importkeystore "
            f"-srckeystore {path} -srcstoretype {kind} -destkeystore {target} -deststoretype PKCS12",
        )
    if _PEM in head:
        return True
    if head[:1] != _DER:
        raise ConfigError(option, f"is {path!r}: neither PEM nor PKCS12")
    return False


def add_trust(context: ssl.SSLContext, option: str, path: str, password: str | None) -> None:
    """The certificates of a PKCS12 store are trusted. Raises `ConfigError` about `option`."""
    _, certificate, others = _open(option, path, password)
    certificates = [each.certificate for each in others]
    if certificate is not None:
        certificates.append(certificate.certificate)
    if not certificates:
        raise ConfigError(option, f"is {path!r}: there is no certificate in it")
    context.load_verify_locations(cadata="".join(_pem(each) for each in certificates))


def add_keys(context: ssl.SSLContext, option: str, path: str, password: str | None) -> None:
    """The key of a PKCS12 store and its certificates are what this side shows. Raises `ConfigError`."""
    from cryptography.hazmat.primitives.serialization import (
        BestAvailableEncryption,
        Encoding,
        PrivateFormat,
    )

    key, certificate, others = _open(option, path, password)
    if key is None or certificate is None:
        raise ConfigError(option, f"is {path!r}: there is no key with a certificate in it")
    # Only a file can be loaded from. For the moment it lives it is encrypted, by a password that nobody has.
    moment = secrets.token_bytes(32).hex().encode()
    pem = key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, BestAvailableEncryption(moment))
    chain = _pem(certificate.certificate) + "".join(_pem(each.certificate) for each in others)
    with tempfile.NamedTemporaryFile(suffix=".pem") as file:
        file.write(pem + chain.encode())
        file.flush()
        context.load_cert_chain(file.name, password=moment)


def _open(option: str, path: str, password: str | None) -> tuple[Any, Any, list[Any]]:
    """Key, its certificate, and the other certificates, as `cryptography` has them."""
    try:
        from cryptography.hazmat.primitives.serialization.pkcs12 import load_pkcs12
    except ImportError:
        raise ConfigError(
            option, f"is {path!r}, a PKCS12 store, which needs the package cryptography: kafka-actors[spark]"
        ) from None
    try:
        store = load_pkcs12(_read(option, path), None if password is None else password.encode())
    except ValueError:
        raise ConfigError(
            option, f"is {path!r}: not a PKCS12 store, or its password is another one"
        ) from None
    return store.key, store.cert, list(store.additional_certs)


def _pem(certificate: Any) -> str:
    from cryptography.hazmat.primitives.serialization import Encoding

    text: str = certificate.public_bytes(Encoding.PEM).decode()
    return text


def _read(option: str, path: str) -> bytes:
    try:
        return Path(path).read_bytes()
    except OSError as error:
        raise ConfigError(option, f"is {path!r}: {error.strerror or error}") from None
