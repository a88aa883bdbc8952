"""Options of TLS and SASL: `Secret`, and the check of options that have to go together.

`kafka_actors.net.security` connects by them.
"""

from __future__ import annotations

import importlib.util
import os
from typing import TYPE_CHECKING, Any

from kafka_actors.errors import ConfigError, kind_of

from .references import refers

if TYPE_CHECKING:
    from . import ClientConfig

__all__ = ["MECHANISMS", "RENAMED", "SECRETS", "Secret", "check_security"]

MECHANISMS = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", "OAUTHBEARER", "GSSAPI")

SECRETS = frozenset(
    {"ssl_password", "sasl_plain_password", "sasl_oauthbearer_client_credentials_client_secret"}
)

_FILES = ("ssl_cafile", "ssl_certfile", "ssl_keyfile", "ssl_crlfile")
_ENDPOINT = (
    "sasl_oauthbearer_token_endpoint_url",
    "sasl_oauthbearer_client_credentials_client_id",
    "sasl_oauthbearer_client_credentials_client_secret",
)
_LOGIN = ("sasl_plain_username", "sasl_plain_password")
_OAUTH = ("sasl_oauth_token_provider", *_ENDPOINT, "sasl_oauthbearer_scope")
_KERBEROS = ("sasl_kerberos_service_name", "sasl_kerberos_domain_name")

_OF_MECHANISM = {
    "PLAIN": _LOGIN,
    "SCRAM-SHA-256": _LOGIN,
    "SCRAM-SHA-512": _LOGIN,
    "OAUTHBEARER": _OAUTH,
    "GSSAPI": _KERBEROS,
}

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
    if config.ssl_context is not None:  # all other ssl_* options have no meaning then
        if not hasattr(config.ssl_context, "wrap_bio"):
            raise ConfigError("ssl_context", f"is {kind_of(config.ssl_context)}: accepts an ssl.SSLContext")
        if travels:
            raise ConfigError(
                "ssl_context",
                "can't be sent to the processes of a job: give ssl_cafile, ssl_certfile and ssl_keyfile, "
                "with files that every node has",
            )
        return
    for name in _FILES:
        path = getattr(config, name)
        if path is not None and not refers(path) and not os.path.isfile(path):
            raise ConfigError(name, f"is {path!r}: there is no such file")
    for name in ("ssl_keyfile", "ssl_password"):
        if getattr(config, name) is not None and config.ssl_certfile is None:
            raise ConfigError(name, "is given without ssl_certfile")


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
    else:
        _require(config, _LOGIN, f"for sasl_mechanism {mechanism!r}")
        if "\0" in str(config.sasl_plain_username):
            raise ConfigError("sasl_plain_username", "contains a NUL character")


def _check_oauth(config: ClientConfig) -> None:
    provider, url = config.sasl_oauth_token_provider, config.sasl_oauthbearer_token_endpoint_url
    if provider is None:
        why = "for sasl_mechanism 'OAUTHBEARER' without a sasl_oauth_token_provider"
        _require(config, _ENDPOINT, why)
        if not refers(str(url)) and not str(url).startswith("https://"):
            raise ConfigError(_ENDPOINT[0], f"is {url!r}: accepts an https:// address")
        return
    for name in _changed(config, "sasl_oauthbearer_"):
        raise ConfigError(name, "has no meaning with a sasl_oauth_token_provider")
    if not callable(getattr(provider, "token", None)):
        raise ConfigError(
            "sasl_oauth_token_provider", f"is {kind_of(provider)}: accepts an object with a method token()"
        )


def _require(config: ClientConfig, names: tuple[str, ...], why: str) -> None:
    for name in names:
        if not getattr(config, name):
            raise ConfigError(name, f"is required {why}")
