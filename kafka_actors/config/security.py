"""Options of TLS and SASL: `Secret`, and the check of options that have to go together.

`kafka_actors.net.security` connects by them.
"""

from __future__ import annotations

import importlib.util
import os
import re
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

import msgspec

from kafka_actors.base import decoders
from kafka_actors.base.addresses import MASKED, without_user_info
from kafka_actors.errors import ConfigError, kind_of

from .references import refers

if TYPE_CHECKING:
    from . import ClientConfig

__all__ = [
    "LOOKED_UP_LATE",
    "MECHANISMS",
    "RENAMED",
    "SECRETS",
    "Secret",
    "check_beside_context",
    "check_security",
    "identity_of",
    "is_secret",
    "without_secrets",
]

MECHANISMS = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", "OAUTHBEARER", "GSSAPI", "AWS_MSK_IAM")

SECRETS = frozenset(
    {
        "ssl_password",
        "sasl_plain_password",
        "sasl_oauthbearer_client_credentials_client_secret",
        "sasl_oauthbearer_assertion_private_key_passphrase",
    }
)

LOOKED_UP_LATE = SECRETS | {"sasl_identity"}
"""Options whose references travel as they are, and are looked up in the process that connects."""

_FILES = ("ssl_cafile", "ssl_certfile", "ssl_keyfile", "ssl_crlfile")
_ENDPOINT = (
    "sasl_oauthbearer_token_endpoint_url",
    "sasl_oauthbearer_client_credentials_client_id",
    "sasl_oauthbearer_client_credentials_client_secret",
)
_ASSERTION = "sasl_oauthbearer_assertion_"
_ASSERTION_FILE, _PRIVATE_KEY = _ASSERTION + "file", _ASSERTION + "private_key_file"
_TEMPLATE, _ISSUER = _ASSERTION + "template_file", _ASSERTION + "claim_iss"
_OF_PRIVATE_KEY = (
    _PRIVATE_KEY,
    _TEMPLATE,
    _ISSUER,
    *(
        _ASSERTION + name
        for name in (
            "private_key_passphrase",
            "algorithm",
            "claim_sub",
            "claim_aud",
            "claim_exp_seconds",
            "claim_nbf_seconds",
            "claim_jti_include",
        )
    ),
)
_PROVIDER, _IDENTITY = "sasl_oauth_token_provider", "sasl_identity"
_LOGIN = ("sasl_plain_username", "sasl_plain_password")
_OAUTH = (
    _PROVIDER,
    _IDENTITY,
    *_ENDPOINT,
    "sasl_oauthbearer_scope",
    _ASSERTION_FILE,
    *_OF_PRIVATE_KEY,
)
_KERBEROS = ("sasl_kerberos_service_name", "sasl_kerberos_domain_name")

_OF_MECHANISM = {
    "PLAIN": _LOGIN,
    "SCRAM-SHA-256": _LOGIN,
    "SCRAM-SHA-512": _LOGIN,
    "OAUTHBEARER": _OAUTH,
    "GSSAPI": _KERBEROS,
    "AWS_MSK_IAM": (_IDENTITY,),
}

_IMPORT_PATH = re.compile(r"[A-Za-z_][\w.]*:[A-Za-z_][\w.]*")
_SECRET_NAME = re.compile(r"secret|passw|passphrase|private_?key|token$|credential", re.IGNORECASE)

# Options of Java's clients and of registries'; an argument of an identity provider may well be called so.
_ALSO_SECRET = re.compile(r"jaas|basic[._]auth|api[._-]?key", re.IGNORECASE)
_OF_VARIABLES = "env_vars"

_PEM = "is Java's; PEM files are read: "
RENAMED = {
    "ssl_truststore_location": _PEM + "the CA certificates as ssl_cafile",
    "ssl_truststore_certificates": _PEM + "the CA certificates as ssl_cafile",
    "ssl_truststore_password": _PEM + "they need no password; the CA certificates as ssl_cafile",
    "ssl_truststore_type": _PEM + "the CA certificates as ssl_cafile",
    "ssl_keystore_location": _PEM + "the certificate as ssl_certfile, its key as ssl_keyfile",
    "ssl_keystore_password": _PEM + "the key's password as ssl_password",
    "ssl_keystore_type": _PEM + "the certificate as ssl_certfile, its key as ssl_keyfile",
    "ssl_keystore_key": _PEM + "the key as ssl_keyfile",
    "ssl_keystore_certificate_chain": _PEM + "the certificate as ssl_certfile",
    "ssl_key_password": "is Java's name of ssl_password",
    "ssl_endpoint_identification_algorithm": "is Java's; ssl_check_hostname=False turns the check off",
    "ssl_ca_location": "is librdkafka's name of ssl_cafile",
    "ssl_certificate_location": "is librdkafka's name of ssl_certfile",
    "ssl_key_location": "is librdkafka's name of ssl_keyfile",
    "ssl_crl_location": "is librdkafka's name of ssl_crlfile",
    "ssl_cipher_suites": "is another client's name of ssl_ciphers (in OpenSSL's format)",
    "sasl_mechanisms": "is librdkafka's name of sasl_mechanism",
    "sasl_username": "is librdkafka's name of sasl_plain_username",
    "sasl_password": "is librdkafka's name of sasl_plain_password",
    "sasl_jaas_config": "is Java's; give sasl_plain_username and sasl_plain_password, or the options of the mechanism",
    "sasl_oauthbearer_client_id": "is librdkafka's name of sasl_oauthbearer_client_credentials_client_id",
    "sasl_oauthbearer_client_secret": "is librdkafka's name of sasl_oauthbearer_client_credentials_client_secret",
}
"""Other clients' names of these options, with the option to give instead."""


class Secret:
    """A password. Only `reveal()` shows its text: never repr, str, format, nor the repr of an object that holds it.

    It is pickled with its text, because the processes of a job need it.
    """

    __slots__ = ("_text",)

    def __init__(self, text: str) -> None:
        self._text = text

    def reveal(self) -> str:
        """The text."""
        return self._text

    def __repr__(self) -> str:
        return "Secret(***)"

    __str__ = __repr__

    def __bool__(self) -> bool:
        return bool(self._text)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Secret) and other._text == self._text

    def __hash__(self) -> int:
        return hash(self._text)

    def __reduce__(self) -> tuple[type[Secret], tuple[str]]:
        return Secret, (self._text,)

    @classmethod
    def of(cls, option: str, value: Any) -> Secret | None:
        """The value of a secret option. Raises `ConfigError`, which does not show it."""
        if value is None or isinstance(value, cls):
            return value
        if not isinstance(value, str):
            raise ConfigError(option, f"is {kind_of(value)}: accepts a str")
        return cls(value)


def check_security(config: ClientConfig, *, travels: bool) -> None:
    """Raises `ConfigError` for options of TLS and SASL that don't go together, or files that aren't there.

    `travels`: the config is sent to other processes, as a job's is.
    """
    tls, sasl = config.security_protocol.endswith("SSL"), config.security_protocol.startswith("SASL")
    protocol = f"security_protocol is {config.security_protocol!r}"
    if not tls and (present := _changed(config, "ssl_")):
        raise ConfigError(present[0], f"is given, but {protocol}: TLS needs 'SSL' or 'SASL_SSL'")
    if not sasl and (present := _changed(config, "sasl_")):
        raise ConfigError(present[0], f"is given, but {protocol}: SASL needs 'SASL_PLAINTEXT' or 'SASL_SSL'")
    if tls:
        _check_tls(config, travels)
    if sasl:
        _check_sasl(config, protocol)


def _changed(config: ClientConfig, prefix: str) -> list[str]:
    defaults = type(config)()
    names = [name for name in config.__struct_fields__ if name.startswith(prefix)]
    return [name for name in names if getattr(config, name) != getattr(defaults, name)]


def _check_tls(config: ClientConfig, travels: bool) -> None:
    if config.ssl_context is not None:
        if not hasattr(config.ssl_context, "wrap_bio"):
            raise ConfigError("ssl_context", f"is {kind_of(config.ssl_context)}: accepts an ssl.SSLContext")
        if travels:
            raise ConfigError(
                "ssl_context",
                "can't be sent to the processes of a job: give ssl_cafile, ssl_certfile and ssl_keyfile, "
                "with files that every node has",
            )
        check_beside_context(_changed(config, "s"), "ssl_context")
        return
    for name in _FILES:
        path = getattr(config, name)
        if path is not None and not refers(path) and not os.path.isfile(path):
            raise ConfigError(name, f"is {path!r}: there is no such file")
    for name in ("ssl_keyfile", "ssl_password"):
        if getattr(config, name) is not None and config.ssl_certfile is None:
            raise ConfigError(name, "is given without ssl_certfile")


def check_beside_context(options: Iterable[str], context: str) -> None:
    """Raises `ConfigError` for the first of these options that a context takes the place of. `context`: its name in the error."""
    names = list(options)
    of_endpoint = {"ssl_cafile"} if _ENDPOINT[0] in names else set()  # its CA: the context is for brokers
    for name in names:
        if name.startswith("ssl_") and name not in {"ssl_context", *of_endpoint}:
            raise ConfigError(
                name,
                f"has no effect beside {context}, which takes the place of all other ssl_ options: give PEM files instead",
            )


def _check_sasl(config: ClientConfig, protocol: str) -> None:
    mechanism = config.sasl_mechanism
    if mechanism is None:
        raise ConfigError(
            "sasl_mechanism", f"is required, because {protocol}: one of {', '.join(MECHANISMS)}"
        )
    own = ("sasl_mechanism", *_OF_MECHANISM[mechanism])
    for name in _changed(config, "sasl_"):
        if name not in own:
            raise ConfigError(name, f"has no meaning for sasl_mechanism {mechanism!r}")
    if mechanism == "OAUTHBEARER":
        _check_oauth(config)
    elif mechanism == "GSSAPI":
        if importlib.util.find_spec("gssapi") is None:
            raise ConfigError(
                "sasl_mechanism", "is 'GSSAPI', which needs the package gssapi: kafka-actors[gssapi]"
            )
    elif mechanism == "AWS_MSK_IAM":
        _check_identity(config)
    else:
        _require(config, _LOGIN, f"for sasl_mechanism {mechanism!r}")
        if "\0" in str(config.sasl_plain_username):
            raise ConfigError("sasl_plain_username", "contains a NUL character")


def _check_oauth(config: ClientConfig) -> None:
    provider = config.sasl_oauth_token_provider
    if provider is None:
        _check_endpoint(config)
        return
    for name in _changed(config, "sasl_oauthbearer_"):
        raise ConfigError(name, "has no meaning with a sasl_oauth_token_provider")
    if isinstance(provider, str) and _IMPORT_PATH.fullmatch(provider):
        _check_identity(config)
        return
    if not callable(getattr(provider, "token", None)):
        raise ConfigError(
            _PROVIDER,
            f"is {kind_of(provider)}: accepts an object with a method token(), or its import path as "
            "'package.module:name'",
        )
    if config.sasl_identity is not None:
        raise ConfigError(_IDENTITY, f"has no meaning for a {_PROVIDER} that is not named by its import path")


def _check_endpoint(config: ClientConfig) -> None:
    why = "for sasl_mechanism 'OAUTHBEARER' without a sasl_oauth_token_provider"
    url_option, _, secret = _ENDPOINT
    if config.sasl_identity is not None:
        raise ConfigError(_IDENTITY, f"is given without {_PROVIDER}")
    _require(config, _ENDPOINT[:1], why)
    url = str(config.sasl_oauthbearer_token_endpoint_url)
    if not refers(url) and (not url.startswith("https://") or "@" in url.split("/")[2]):
        shown = without_user_info(url, bare=True)
        raise ConfigError(url_option, f"is {shown!r}: accepts an https:// address, without a user in it")
    proofs = [name for name in (_ASSERTION_FILE, _PRIVATE_KEY, secret) if getattr(config, name) is not None]
    if len(proofs) > 1:
        raise ConfigError(proofs[1], f"is given beside {proofs[0]}: one of them proves who the client is")
    if proofs != [_PRIVATE_KEY]:
        for name in _changed(config, _ASSERTION):
            if name != _ASSERTION_FILE:
                raise ConfigError(name, f"is given without {_PRIVATE_KEY}")
    if proofs in ([], [secret]):
        _require(config, _ENDPOINT[1:], why)
        return
    for name in (_ASSERTION_FILE, _PRIVATE_KEY, _TEMPLATE):
        path = getattr(config, name)
        if path is not None and not refers(path) and not os.path.isfile(path):
            raise ConfigError(name, f"is {path!r}: there is no such file")
    if proofs == [_PRIVATE_KEY] and config.sasl_oauthbearer_assertion_template_file is None:
        _require(config, (_ISSUER,), f"for {_PRIVATE_KEY} without {_TEMPLATE}")


def identity_of(value: Any) -> dict[str, Any] | None:
    """The value of `sasl_identity`, a table or its JSON. Raises `ConfigError`, which does not show it: it may have a secret in it."""
    if isinstance(value, str):
        try:
            value = msgspec.json.decode(value)
        except decoders.UNREADABLE:
            raise ConfigError(
                _IDENTITY, 'is no table: as text it is JSON, such as {"name": "value"}'
            ) from None
    if value is not None and not (isinstance(value, dict) and all(isinstance(name, str) for name in value)):
        raise ConfigError(_IDENTITY, f"is {kind_of(value)}: accepts a table of arguments")
    return value


def _check_identity(config: ClientConfig) -> None:
    """Refuses a secret that is written out: the arguments of a provider are shown and pickled, and references are not."""
    for name, value in (config.sasl_identity or {}).items():
        if _SECRET_NAME.search(name) and not (isinstance(value, str) and refers(value)):
            raise ConfigError(
                _IDENTITY,
                f"has {name!r} written out: give a reference, such as ${{env:NAME}} or ${{file:/path}}",
            )


def _require(config: ClientConfig, names: tuple[str, ...], why: str) -> None:
    for name in names:
        if not getattr(config, name):
            raise ConfigError(name, f"is required {why}")


def without_secrets(table: Mapping[Any, Any], *, of_variables: bool = False) -> dict[Any, Any]:
    """A table of options with `MASKED` in the place of each secret, which its name tells, unless it is a reference to one.
    `of_variables`: the table is of variables of the environment, each of which may be one."""
    found: dict[Any, Any] = {}
    for key, value in table.items():
        secret = of_variables or is_secret(str(key))
        if key == _OF_VARIABLES and isinstance(value, Mapping):
            found[key] = without_secrets(value, of_variables=True)
        else:
            found[key] = MASKED if secret and not (isinstance(value, str) and refers(value)) else value
    return found


def is_secret(name: str) -> bool:
    """Whether an option in a table, of ours, of Java's or of a schema registry's client, holds a secret."""
    return _SECRET_NAME.search(name) is not None or _ALSO_SECRET.search(name) is not None
