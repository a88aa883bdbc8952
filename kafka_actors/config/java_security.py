"""Java's forms of credentials: login modules (`sasl.jaas.config`), and key and trust stores.

PEM and PKCS12 stores are read, JKS is refused with the line that converts it.
"""

from __future__ import annotations

import re
import secrets
import ssl
import tempfile
from pathlib import Path
from typing import Any

from kafka_actors.errors import ConfigError

__all__ = ["add_keys", "add_trust", "is_pem", "login_of"]

_OPTION = re.compile(r"""\s*([\w.]+)\s*=\s*(?:"((?:\\.|[^"\\])*)"|'((?:\\.|[^'\\])*)'|([^\s;"']+))""")
_FLAGS = ("required", "requisite", "sufficient", "optional")
_CREDENTIALS = "sasl_oauthbearer_client_credentials_"
_MODULES = {
    "PlainLoginModule": {"username": "sasl_plain_username", "password": "sasl_plain_password"},
    "ScramLoginModule": {"username": "sasl_plain_username", "password": "sasl_plain_password"},
    "OAuthBearerLoginModule": {
        "clientId": _CREDENTIALS + "client_id",
        "clientSecret": _CREDENTIALS + "client_secret",
        "scope": "sasl_oauthbearer_scope",
    },
    "IAMLoginModule": {},
}
_IDENTITY = "sasl_identity"
_OF_IAM = {
    "awsProfileName": "profile_name",
    "awsRoleArn": "role_arn",
    "awsRoleSessionName": "role_session_name",
    "awsRoleExternalId": "role_external_id",
    "awsStsRegion": "sts_region",
}
"""Options of Amazon's login module, with the arguments of `kafka_actors.identity.AwsMsk`."""
_WITHOUT_EFFECT = {"awsDebugCreds", "awsMaxRetries", "awsMaxBackOffTimeMs"}
_OPTIONAL = {"scope", "clientId", "clientSecret"}
_KNOWN = "a PlainLoginModule, ScramLoginModule, OAuthBearerLoginModule or IAMLoginModule"

_PEM_MARK = b"-----BEGIN"
_JAVAS = {b"\xfe\xed\xfe\xed": "JKS", b"\xce\xce\xce\xce": "JCEKS"}
_DER = b"\x30"


def login_of(option: str, jaas: str) -> dict[str, Any]:
    """User and password, client id and secret, or the arguments of AWS's identity, of a login module under their names here.

        org.apache.kafka.common.security.scram.ScramLoginModule required username="u" password="p";

    The module's package is ignored, because shaded modules have other packages. Raises `ConfigError` about `option`, which
    never shows a value.
    """
    words = re.match(r"\s*([\w.$]+)\s+(\w+)(?=[\s;]|$)", jaas)
    module = words[1].rpartition(".")[2] if words else ""
    if module not in _MODULES or words is None or words[2].lower() not in _FLAGS:
        raise ConfigError(
            option,
            f"names {module or 'no module'}: the login of {_KNOWN} is read from it; for other mechanisms give their "
            "own options",
        )
    names = _MODULES[module]
    present = _options(option, module, jaas[words.end() :])
    identity = _identity_in(present) if module in ("IAMLoginModule", "OAuthBearerLoginModule") else {}
    if unknown := sorted(present.keys() - names.keys()):
        read = [*names, *_OF_IAM] if module == "IAMLoginModule" else names
        raise ConfigError(option, f"has {unknown[0]!r} for {module}: {', '.join(read)} are read from it")
    if missing := [name for name in names if name not in present and name not in _OPTIONAL]:
        raise ConfigError(option, f"lacks {' and '.join(missing)} for {module}")
    login: dict[str, Any] = {names[name]: value for name, value in present.items()}
    return {**login, _IDENTITY: identity} if identity else login


def _identity_in(present: dict[str, str]) -> dict[str, str]:
    """Takes the arguments of AWS's identity out of a module's options."""
    for name in _WITHOUT_EFFECT:
        present.pop(name, None)
    return {ours: present.pop(name) for name, ours in _OF_IAM.items() if name in present}


def _options(option: str, module: str, text: str) -> dict[str, str]:
    found: dict[str, str] = {}
    at = 0
    while match := _OPTION.match(text, at):
        value = next(part for part in (*match.groups()[1:], "") if part is not None)
        found[match[1]] = re.sub(r"\\(.)", r"\1", value) if match[4] is None else value
        at = match.end()
    if text[at:].strip() not in ("", ";"):
        raise ConfigError(
            option, f'can\'t be read: options of {module} look like name="value", with ; at the end'
        )
    return found


# ---------------------------------------------------------------- stores


def is_pem(option: str, path: str) -> bool:
    """Whether the file is PEM; a file that isn't is PKCS12, whatever the type option says: Java looks into it as well.

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
    if _PEM_MARK in head:
        return True
    if head[:1] != _DER:
        raise ConfigError(option, f"is {path!r}: neither PEM nor PKCS12")
    return False


def add_trust(context: ssl.SSLContext, option: str, path: str, password: str | None) -> None:
    """Trusts the certificates of a PKCS12 store. Raises `ConfigError` about `option`."""
    _, certificate, others = _open(option, path, password)
    certificates = [each.certificate for each in others]
    if certificate is not None:
        certificates.append(certificate.certificate)
    if not certificates:
        raise ConfigError(option, f"is {path!r}: there is no certificate in it")
    context.load_verify_locations(cadata="".join(_pem(each) for each in certificates))


def add_keys(context: ssl.SSLContext, option: str, path: str, password: str | None) -> None:
    """Loads the key of a PKCS12 store and its certificates, for the client to show. Raises `ConfigError`."""
    from cryptography.hazmat.primitives.serialization import (
        BestAvailableEncryption,
        Encoding,
        PrivateFormat,
    )

    key, certificate, others = _open(option, path, password)
    if key is None or certificate is None:
        raise ConfigError(option, f"is {path!r}: there is no key with a certificate in it")
    # A chain can only be loaded from a file. While the file is there, it is encrypted by a password that nobody has.
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
