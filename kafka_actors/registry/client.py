"""`SchemaRegistry`: schemas by id, and by subject and version; each is asked for once, however many threads need it."""

from __future__ import annotations

import urllib.parse
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from msgspec import to_builtins

from kafka_actors.base.timeouts import MAX_SOCKET_WAIT_MS
from kafka_actors.config import ClientConfig, build
from kafka_actors.config.security import Secret
from kafka_actors.errors import ConfigError, kind_of
from kafka_actors.schemas.errors import SchemaNotFoundError, SchemaRegistryError
from kafka_actors.schemas.registry import (
    Reference,
    Schema,
    SchemaAddress,
    SchemaKey,
    SchemaType,
    Version,
    is_of_a_context,
)

from .http import Access, HttpClient
from .lookups import SchemaCache

MOST_VERSIONS = 200
"""Versions of a subject that are learned before a pipeline starts; others are asked for when a value has their id."""
MOST_ID = 2**31 - 1
"""The largest id: registries count in Java's int, and refuse any other number as no path of theirs."""
NO_ID = -1
"""Id of a schema that was asked for by its GUID: the registry gives none."""


class SchemaRegistry:
    """Client of a registry with Confluent's API.

        registry = ka.SchemaRegistry("https://registry:8081", basic_auth="${env:SR_KEY}:${env:SR_SECRET}")

    Arguments:
        url: its address, or several of one registry, which are tried in turn.
        basic_auth: `user:password`; `bearer_token`: a token. Both may have references, `${env:NAME}` or `${file:path}`, which are looked
            up in the process that asks: then no secret is in a pickle.
        proxy: address of an HTTP proxy, by default that of the environment.
        request_timeout_ms: limit of one request.
        headers: further headers of all requests.
        options: `ssl_cafile`, `ssl_certfile`, `ssl_keyfile`, `ssl_password` … and, for tokens of OAuth's client credentials,
            `sasl_oauthbearer_…`, as for brokers; also in `config={…}` with dots or underscores.

    It can be pickled, and takes along the schemas that it knows. Methods raise `SchemaNotFoundError` for what isn't there,
    `SchemaRegistryUnavailableError` where no address answers, which may pass, and `SchemaRegistryError` for refusals.
    """

    def __init__(
        self,
        url: str | Iterable[str],
        *,
        basic_auth: str | None = None,
        bearer_token: str | None = None,
        proxy: str | None = None,
        request_timeout_ms: float = 10_000,
        headers: Mapping[str, str] | None = None,
        config: Mapping[str, Any] | None = None,
        **options: Any,
    ) -> None:
        security, oauth = _security(config, options)
        given = [
            name
            for name, value in (("basic_auth", basic_auth), ("bearer_token", bearer_token))
            if value is not None
        ]
        if len(given) + oauth > 1:
            raise ConfigError(given[0], "stands beside another way to authenticate: give one")
        if basic_auth is not None and ":" not in basic_auth:
            raise ConfigError("basic_auth", "has no colon: accepts 'user:password'")
        if request_timeout_ms <= 0:
            raise ConfigError("request_timeout_ms", f"is {request_timeout_ms!r}: must be more than 0")
        access = Access(
            _urls(url),
            security,
            None if basic_auth is None else Secret(basic_auth),
            None if bearer_token is None else Secret(bearer_token),
            oauth,
            proxy,
            min(request_timeout_ms, MAX_SOCKET_WAIT_MS) / 1000,
            tuple((headers or {}).items()),
        )
        self._access = access
        self._cache = SchemaCache()
        self._prepare()

    def _prepare(self) -> None:
        self._http = HttpClient(self._access)
        self._first: Callable[[SchemaAddress], Schema | None] | None = None

    def __getstate__(self) -> dict[str, Any]:
        return {"access": self._access, "cache": self._cache}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self._access, self._cache = state["access"], state["cache"]
        self._prepare()

    def __repr__(self) -> str:
        return f"<SchemaRegistry {', '.join(self._access.urls)}>"

    # ------------------------------------------------------------ reading

    def ask_first(self, other: Callable[[SchemaAddress], Schema | None]) -> None:
        """Has `other` asked first for what isn't known here, as a process that asks for many. It returns None where it can't be asked, and
        raises as the registry."""
        self._first = other

    def schema_by_id(self, schema_id: int) -> Schema:
        """The schema with an id. It never changes, and is asked for once."""
        return self._once(schema_id, lambda: self._fetched(schema_id))

    def _fetched(self, schema_id: int) -> Schema:
        what = f"schema {schema_id}"
        if schema_id > MOST_ID:
            raise SchemaNotFoundError(f"{what}: ids of registries are numbers up to {MOST_ID}")
        answer = self._http.request("GET", ("schemas", "ids", str(schema_id)), what=what)
        return _schema(answer, what, schema_id=schema_id)

    def schema_by_guid(self, guid: str) -> Schema:
        """The schema with a GUID. It never changes, and is asked for once."""
        return self._once(guid, lambda: self._fetched_by_guid(guid))

    def _fetched_by_guid(self, guid: str) -> Schema:
        what = f"schema {guid}"
        # Registries without GUIDs don't know the path, and the bytes of any value may look like one.
        answer = self._http.request("GET", ("schemas", "guids", guid), what=what, may_lack=True)
        return _schema({"guid": guid, **answer}, what, schema_id=NO_ID)

    def schema_of(self, subject: str, version: Version = "latest") -> Schema:
        """The schema of a subject in a version; the latest one is asked for each time."""
        if version != "latest":
            return self._once((subject, version), lambda: self._version(subject, version))
        return self._version(subject, version)

    def _version(self, subject: str, version: Version) -> Schema:
        what = f"subject {subject}, version {version}"
        found = _schema(
            self._http.request("GET", ("subjects", subject, "versions", str(version)), what=what), what
        )
        if not is_of_a_context(subject):  # as a reference may be: its id is another schema's here
            self._cache.known({found.id: found})
        if found.guid:
            self._cache.known({found.guid: found})
        return found

    def _once(self, address: SchemaAddress, ask: Callable[[], Schema]) -> Schema:
        def found() -> Schema:
            return (None if self._first is None else self._first(address)) or ask()

        return self._cache.once(address, found)

    def subjects(self) -> list[str]:
        """The names of all subjects, in order."""
        return sorted(_listed(self._http.request("GET", ("subjects",), what="subjects"), "subjects"))

    def versions(self, subject: str) -> list[int]:
        """The numbers of a subject's versions, in order."""
        what = f"subject {subject}"
        return sorted(
            map(int, _listed(self._http.request("GET", ("subjects", subject, "versions"), what=what), what))
        )

    def known_schemas(self, subject: str) -> Mapping[SchemaKey, Schema]:
        """The newest versions of a subject, by id, and by GUID where the registry has those: what a job's workers needn't ask for."""
        found = [self.schema_of(subject, version) for version in self.versions(subject)[-MOST_VERSIONS:]]
        return {key: schema for schema in found for key in (schema.id, schema.guid) if key != ""}

    def references_of(self, schema: Schema) -> dict[str, str]:
        """Texts of all schemas to which one refers, by the names that it uses; each after those to which it refers itself."""
        found: dict[str, str] = {}
        self._follow(schema, found, (), str(schema))
        return found

    def _follow(self, schema: Schema, found: dict[str, str], above: tuple[Reference, ...], what: str) -> None:
        for reference in schema.references:
            if reference in above:
                raise SchemaRegistryError(f"{what}: its references refer to {reference.name} in a circle")
            if reference.name not in found:
                other = self.schema_of(reference.subject, reference.version)
                self._follow(other, found, (*above, reference), what)
                found.setdefault(reference.name, other.text)

    def look_up(
        self,
        subject: str,
        text: str,
        schema_type: SchemaType = "AVRO",
        references: Sequence[Reference] = (),
    ) -> Schema:
        """The version of a subject that has this schema with these references. Raises `SchemaNotFoundError` where none has."""
        what = f"subject {subject}"
        body = _body(text, schema_type, references)
        answer = self._http.request("POST", ("subjects", subject), what=what, body=body)
        return _schema({"schema": text, "schemaType": schema_type, **answer}, what)

    # ------------------------------------------------------------ writing

    def register(self, subject: str, text: str, schema_type: SchemaType = "AVRO") -> int:
        """Registers a schema, unless the subject has it; returns its id. Raises `SchemaRegistryError` for one that isn't compatible."""
        what = f"subject {subject}"
        answer = self._http.request(
            "POST", ("subjects", subject, "versions"), what=what, body=_body(text, schema_type)
        )
        try:
            return int(answer["id"])
        except (KeyError, TypeError, ValueError):
            raise SchemaRegistryError(f"{what}: the answer has no id") from None

    def compatibility(
        self, subject: str, text: str, schema_type: SchemaType = "AVRO", version: Version = "latest"
    ) -> list[str]:
        """Says what would break if a schema became the subject's next version, by the subject's own rule; empty where nothing would."""
        what = f"subject {subject}, version {version}"
        answer = self._http.request(
            "POST", ("compatibility", "subjects", subject, "versions", str(version)), what=what,
            query={"verbose": "true"}, body=_body(text, schema_type),
        )  # fmt: skip
        if answer.get("is_compatible"):
            return []
        return [str(message) for message in answer.get("messages") or ["it isn't compatible"]]


def _security(config: Mapping[str, Any] | None, options: dict[str, Any]) -> tuple[ClientConfig, bool]:
    """The options of TLS and OAuth, checked as those of brokers, and whether there is OAuth."""
    named = {str(name).replace(".", "_"): value for name, value in (config or {}).items()} | options
    for name in named:
        if not name.startswith(("ssl_", "sasl_oauthbearer_")):
            raise ConfigError(name, "is no option of a SchemaRegistry: accepts ssl_… and sasl_oauthbearer_…")
    oauth = any(name.startswith("sasl_oauthbearer_") for name in named)
    more = (
        {"security_protocol": "SASL_SSL", "sasl_mechanism": "OAUTHBEARER"}
        if oauth
        else {"security_protocol": "SSL"}
    )
    return build(ClientConfig, None, bootstrap_servers="localhost:1", **more, **named), oauth


def _urls(url: Any) -> tuple[str, ...]:
    found = tuple(part.strip() for part in url.split(",")) if isinstance(url, str) else tuple(url)
    for one in found:
        parts = urllib.parse.urlsplit(one) if isinstance(one, str) else None
        if parts is None or parts.scheme not in ("http", "https") or not parts.hostname:
            raise ConfigError(
                "url",
                f"is {one if parts is None or '@' not in one else '…'!r}: accepts http://host:port or https://host:port",
            )
        if parts.username or parts.password:
            raise ConfigError(
                "url", "has credentials in it, which would be shown in errors: give them as basic_auth"
            )
    if not found:
        raise ConfigError("url", f"is {kind_of(url)} without an address")
    return tuple(one.rstrip("/") for one in found)


def _schema(answer: Any, what: str, schema_id: int | None = None) -> Schema:
    """A schema of an answer. Raises `SchemaRegistryError` for an answer that isn't one."""
    try:
        kind: Any = str(answer.get("schemaType") or "AVRO")
        references = tuple(
            Reference(str(one["name"]), str(one["subject"]), int(one["version"]))
            for one in answer.get("references") or ()
        )
        version = answer.get("version") if schema_id is None else None
        return Schema(
            int(answer["id"]) if schema_id is None else schema_id,
            kind,
            str(answer["schema"]),
            references,
            "" if schema_id is not None else str(answer.get("subject") or ""),
            None if version is None else int(version),
            str(answer.get("guid") or ""),
        )
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise SchemaRegistryError(f"{what}: the answer is none of a registry: {error!r}") from None


def _listed(answer: Any, what: str) -> list[Any]:
    if not isinstance(answer, list):
        raise SchemaRegistryError(f"{what}: the answer is {kind_of(answer)}, and not a list")
    return answer


def _body(text: str, schema_type: SchemaType, references: Sequence[Reference] = ()) -> dict[str, Any]:
    body: dict[str, Any] = {"schema": text}
    if schema_type != "AVRO":
        body["schemaType"] = schema_type
    if references:
        body["references"] = to_builtins(references)
    return body
