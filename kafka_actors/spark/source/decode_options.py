"""Options `decode`, `decode.…` and `schema.registry.…` of the sources: which schema values are decoded by, and where its registry is.

Names of the registry's options are those of Confluent's clients. Secrets may be references such as `${env:NAME}`: these are looked up only
in the process that asks the registry.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from msgspec import Struct

from kafka_actors.config.references import resolve
from kafka_actors.errors import ConfigError

from .data_source_options import INT_MAX, CaseInsensitiveOptions

if TYPE_CHECKING:
    from kafka_actors.registry import SchemaRegistry

DECODE = "decode"
REGISTRY = "schema.registry."
URL, SUBJECT, VERSION, ID = f"{REGISTRY}url", f"{REGISTRY}subject", f"{REGISTRY}version", f"{REGISTRY}id"
SCHEMA, MESSAGE, MODE = "decode.schema", "decode.message", "decode.mode"
_ENUMS, _VALIDATE, _ON_NEW_SCHEMA = "decode.enums", "decode.validate", "decode.on_new_schema"
_TIMEOUT = f"{REGISTRY}request.timeout.ms"

SECRETS = frozenset(
    REGISTRY + name
    for name in (
        "basic.auth.user.info",
        "bearer.auth.token",
        "bearer.auth.client.secret",
        "ssl.key.password",
    )
)
"""Options whose values are secrets."""

# Options of Confluent's clients, in Java and on librdkafka, with the arguments of `SchemaRegistry`.
_ARGUMENTS = {
    "basic.auth.user.info": "basic_auth",
    "bearer.auth.token": "bearer_token",
    "bearer.auth.issuer.endpoint.url": "sasl_oauthbearer_token_endpoint_url",
    "bearer.auth.client.id": "sasl_oauthbearer_client_credentials_client_id",
    "bearer.auth.client.secret": "sasl_oauthbearer_client_credentials_client_secret",
    "bearer.auth.scope": "sasl_oauthbearer_scope",
    "ssl.truststore.location": "ssl_cafile",
    "ssl.ca.location": "ssl_cafile",
    "ssl.keystore.location": "ssl_certfile",
    "ssl.certificate.location": "ssl_certfile",
    "ssl.key.location": "ssl_keyfile",
    "ssl.key.password": "ssl_password",
    "ssl.crl.location": "ssl_crlfile",
    "ssl.cipher.suites": "ssl_ciphers",
}
_HEADERS = {
    "bearer.auth.logical.cluster": "target-sr-cluster",
    "bearer.auth.identity.pool.id": "Confluent-Identity-Pool-Id",
}
# Options that say what others imply, with the values that are accepted.
_IMPLIED = {
    "basic.auth.credentials.source": ("USER_INFO",),
    "bearer.auth.credentials.source": ("STATIC_TOKEN", "OAUTHBEARER"),
    "ssl.truststore.type": ("PEM",),
    "ssl.keystore.type": ("PEM",),
    "ssl.endpoint.identification.algorithm": ("https", ""),
}
_OF_STORES = ("ssl.truststore.password", "ssl.keystore.password")
_PROXY_HOST, _PROXY_PORT = "proxy.host", "proxy.port"
_CLIENT = (*_ARGUMENTS, *_HEADERS, *_IMPLIED, *_OF_STORES, _PROXY_HOST, _PROXY_PORT)

_CHOICE = (SUBJECT, VERSION, ID)
_OF_REGISTRY = (URL, *_CHOICE, _TIMEOUT, *(REGISTRY + name for name in _CLIENT))
NAMES = (DECODE, SCHEMA, MESSAGE, MODE, _ENUMS, _VALIDATE, _ON_NEW_SCHEMA, *_OF_REGISTRY)

Kind = Literal["avro", "protobuf", "json_schema", "registry"]


class RegistryOptions(Struct, frozen=True):
    """Addresses of a registry, and the options of its client under their names here. Values are never shown, because there are secrets
    among them."""

    urls: tuple[str, ...]
    client: dict[str, str]
    timeout_ms: int = 10_000

    def __repr__(self) -> str:
        return f"<RegistryOptions of {', '.join(self.urls)}: {', '.join(sorted(self.client))}>"

    def registry(self) -> SchemaRegistry:
        """The client. Raises `ConfigError`, which names the option as it was given."""
        from kafka_actors.registry import SchemaRegistry

        origins = {"url": URL, "request_timeout_ms": _TIMEOUT, "proxy": REGISTRY + _PROXY_HOST}
        arguments: dict[str, Any] = {}
        headers: dict[str, str] = {}
        for name, value in self.client.items():
            option = REGISTRY + name
            if name in _HEADERS:
                headers[_HEADERS[name]] = value
            elif (argument := _ARGUMENTS.get(name)) is not None:
                if argument in arguments:
                    raise ConfigError(option, f"is given beside {origins[argument]}, which means the same")
                if argument in ("ssl_cafile", "ssl_certfile"):
                    _check_pem(option, value)
                arguments[argument], origins[argument] = value, option
        if self.client.get("ssl.endpoint.identification.algorithm") == "":
            arguments["ssl_check_hostname"] = False
        if _PROXY_HOST in self.client:
            arguments["proxy"] = f"http://{self.client[_PROXY_HOST]}:{self.client.get(_PROXY_PORT, '8080')}"
        try:
            return SchemaRegistry(self.urls, request_timeout_ms=self.timeout_ms, headers=headers, **arguments)
        except ConfigError as error:
            raise ConfigError(origins.get(error.option, error.option), error.message) from None


class DecodeOptions(Struct, frozen=True, kw_only=True):
    """Checked options of decoding. `schema` is the text or the path of a schema that was given, in place of one in a registry; `version` None
    is the latest. `permissive`: a value that can't be decoded gives nulls and the column `_error`, where the query fails otherwise."""

    kind: Kind
    registry: RegistryOptions | None = None
    subject: str | None = None
    version: int | None = None
    schema_id: int | None = None
    schema: str | None = None
    message: str | None = None
    enums: Literal["name", "number"] = "name"
    validate: bool = False
    permissive: bool = False
    on_new_schema: Literal["keep", "fail"] = "keep"

    @property
    def pinned(self) -> bool:
        """Whether the options name one schema, and not what happens to be the latest."""
        return self.schema is not None or self.schema_id is not None or self.version is not None


def decode_options(options: CaseInsensitiveOptions) -> DecodeOptions | None:
    """The options of decoding; None where values stay as they are. Raises `ConfigError` with the option's name and what it accepts."""
    given = options.present(NAMES)
    if options.text(DECODE) is None:
        if given:
            raise ConfigError(given[0], f"has no effect without {DECODE}, which says what values are")
        return None
    kind: Any = options.choice(DECODE, ("avro", "protobuf", "json_schema", "registry"), "")
    schema = options.text(SCHEMA)
    _check_together(options, kind, schema)
    version = options.text(VERSION)
    if version is not None and version.lower() == "latest":
        number = None
    else:
        number = options.number(VERSION, None, 1, INT_MAX)
    if subject := options.text(SUBJECT):
        from kafka_actors.schemas.registry import check_subject

        check_subject(SUBJECT, subject := resolve(SUBJECT, subject))
    schema_id = options.number(ID, None, 0, 2**32 - 1)
    if schema_id is not None and (subject or number):
        raise ConfigError(ID, "is given beside a subject or a version: one of them names the schema")
    return DecodeOptions(
        kind=kind,
        registry=_registry(options),
        subject=subject or None,
        version=number,
        schema_id=schema_id,
        schema=None if schema is None else resolve(SCHEMA, schema),
        message=options.text(MESSAGE),
        enums=options.choice(_ENUMS, ("name", "number"), "name"),  # type: ignore[arg-type]
        validate=options.boolean(_VALIDATE, False),
        permissive=options.choice(MODE, ("failfast", "permissive"), "failfast") == "permissive",
        on_new_schema=options.choice(_ON_NEW_SCHEMA, ("keep", "fail"), "keep"),  # type: ignore[arg-type]
    )


def _check_together(options: CaseInsensitiveOptions, kind: Kind, schema: str | None) -> None:
    """Checks that options which are given fit each other."""
    for name, kinds in (
        (SCHEMA, ("avro", "protobuf", "json_schema")),
        (MESSAGE, ("protobuf", "registry")),
        (_ENUMS, ("protobuf", "registry")),
        (_VALIDATE, ("json_schema", "registry")),
    ):
        if options.present((name,)) and kind not in kinds:
            raise ConfigError(name, f"is not for {DECODE}={kind}: it is for {' and '.join(kinds)}")
    if options.text(URL) is None:
        if schema is None:
            raise ConfigError(
                URL,
                f"is missing: {DECODE}={kind} needs the address of a registry"
                + ("" if kind == "registry" else f", or a schema in {SCHEMA}"),
            )
        for name in options.present((*_OF_REGISTRY, _ON_NEW_SCHEMA)):
            raise ConfigError(name, f"needs a registry: say {URL}")
    elif schema is not None:
        for name in options.present(_CHOICE):
            raise ConfigError(name, f"is given beside {SCHEMA}, which is the schema that values are read by")


def _registry(options: CaseInsensitiveOptions) -> RegistryOptions | None:
    text = options.text(URL)
    if text is None:
        return None
    urls = tuple(part.strip() for part in resolve(URL, text).split(",") if part.strip())
    if not urls:
        raise ConfigError(
            URL, "is empty: accepts http://host:port or https://host:port, several separated by commas"
        )
    client: dict[str, str] = {}
    for name in _CLIENT:
        option = REGISTRY + name
        value = options.text(option)
        if value is None:
            continue
        if name in _OF_STORES:
            raise ConfigError(option, f"is for a store of Java's: here the file has to be PEM; {_CONVERTED}")
        if name in _IMPLIED:
            _check_implied(option, value, _IMPLIED[name])
        client[name] = value if option in SECRETS else resolve(option, value)
    timeout = options.number(_TIMEOUT, 10_000, 1, INT_MAX)
    assert timeout is not None
    return RegistryOptions(urls, client, timeout)


def _check_implied(option: str, value: str, accepted: Iterable[str]) -> None:
    if value.upper() not in {one.upper() for one in accepted}:
        raise ConfigError(option, f"is {value!r}: accepts {' or '.join(map(repr, accepted))}")


_CONVERTED = "openssl pkcs12 -in store.p12 -out store.pem -nodes makes one of PKCS12, to which keytool -importkeystore converts JKS"


def _check_pem(option: str, path: str) -> None:
    """Checks that a file is PEM. Raises `ConfigError` for one that isn't, or that can't be read."""
    try:
        with open(Path(path), "rb") as file:
            is_pem = b"-----BEGIN" in file.read(1 << 20)
    except OSError as error:
        raise ConfigError(option, f"is {path!r}: {error.strerror}") from None
    if not is_pem:
        raise ConfigError(option, f"is {path!r}, which is not PEM: {_CONVERTED}")
