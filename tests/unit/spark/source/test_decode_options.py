"""Options of decoding: what they mean, what is refused, and that no secret of theirs is shown or looked up early."""

from __future__ import annotations

import pickle
from pathlib import Path

import pytest
from fakes.spark_options import BASE, refusal

from kafka_actors.errors import ConfigError
from kafka_actors.registry import SchemaRegistry
from kafka_actors.spark.source.decode_options import SECRETS, DecodeOptions, RegistryOptions
from kafka_actors.spark.source.options import parse_batch, parse_stream

AVRO = {**BASE, "subscribe": "orders", "decode": "avro", "schema.registry.url": "http://a:1, https://b:2/"}


def parse(**options: str) -> DecodeOptions:
    """Names with `__` for dots."""
    made = parse_batch({**AVRO, **{name.replace("__", "."): value for name, value in options.items()}}).decode
    assert made is not None
    return made


def registry(**options: str) -> RegistryOptions:
    made = parse(**options).registry
    assert made is not None
    return made


def test_without_the_option_nothing_is_decoded() -> None:
    assert parse_batch({**BASE, "subscribe": "orders"}).decode is None


def test_the_names_are_those_of_spark_and_confluent_in_any_case() -> None:
    made = parse_batch(
        {
            **BASE,
            "subscribe": "orders",
            "DECODE": "Avro",
            "Schema.Registry.URL": "http://a:1",
            "schema.registry.subject": "orders-v2",
            "schema.registry.version": "3",
            "decode.mode": "PERMISSIVE",
            "decode.on_new_schema": "fail",
        }
    ).decode
    assert made == DecodeOptions(
        kind="avro",
        registry=RegistryOptions(("http://a:1",), {}),
        subject="orders-v2",
        version=3,
        permissive=True,
        on_new_schema="fail",
    )
    assert made.pinned
    assert not parse().pinned
    assert not parse(schema__registry__version="latest").pinned
    assert parse(schema__registry__id="7").pinned
    assert parse_stream(AVRO, limits=True).decode == parse()


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"decode": "avor"}, "decode: is 'avor': accepts 'avro' or 'protobuf' or 'json_schema' or 'registry'"),
        ({"decode.mode": "DROPMALFORMED"}, "decode.mode: is 'DROPMALFORMED': accepts 'failfast' or 'permissive'"),
        ({"schema.registry.version": "0"}, "schema.registry.version: is '0': accepts a whole number from 1"),
        ({"schema.registry.version": "newest"}, "schema.registry.version: is 'newest': accepts a whole number"),
        (
            {"schema.registry.id": "7", "schema.registry.subject": "s"},
            "schema.registry.id: is given beside a subject or a version",
        ),
        (
            {"schema.registry.subject": ":.prod:orders-value"},
            "schema.registry.subject: is ':.prod:orders-value', of the context .prod, which has ids of its own",
        ),
        ({"schema.registry.url": " , "}, "schema.registry.url: is empty"),
        ({"decode": "registry", "decode.schema": "{}"}, "decode.schema: is not for decode=registry"),
        ({"decode.message": "shop.Order"}, "decode.message: is not for decode=avro"),
        ({"decode.validate": "true"}, "decode.validate: is not for decode=avro"),
        ({"decode": "json_schema", "decode.enums": "number"}, "decode.enums: is not for decode=json_schema"),
        (
            {"decode.schema": "{}", "schema.registry.subject": "s"},
            "schema.registry.subject: is given beside decode.schema",
        ),
        ({"schema.registry.urls": "x"}, "schema.registry.urls: is not an option; did you mean 'schema.registry.url'?"),
        ({"decode.modes": "x"}, "decode.modes: is not an option; did you mean 'decode.mode'?"),
        (
            {"schema.registry.basic.auth.credentials.source": "URL"},
            "schema.registry.basic.auth.credentials.source: is 'URL': accepts 'USER_INFO'",
        ),
        (
            {"schema.registry.ssl.truststore.password": "hush"},
            "schema.registry.ssl.truststore.password: is for a store of Java's: here the file has to be PEM",
        ),
        ({"schema.registry.ssl.truststore.type": "JKS"}, "schema.registry.ssl.truststore.type: is 'JKS'"),
        ({"schema.registry.request.timeout.ms": "0"}, "schema.registry.request.timeout.ms: is '0'"),
    ],
)  # fmt: skip
def test_what_cannot_be_is_refused_by_name(options: dict[str, str], says: str) -> None:
    error = str(refusal({**AVRO, **options}))
    assert error.startswith(says)
    assert "hush" not in error


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"decode": "avro"}, "schema.registry.url: is missing: decode=avro needs the address of a registry, or a schema in decode.schema"),
        ({"decode": "registry"}, "schema.registry.url: is missing: decode=registry needs the address of a registry"),
        ({"schema.registry.url": "http://a:1"}, "schema.registry.url: has no effect without decode"),
        ({"decode.mode": "FAILFAST"}, "decode.mode: has no effect without decode"),
        (
            {"decode": "avro", "decode.schema": "{}", "schema.registry.basic.auth.user.info": "a:b"},
            "schema.registry.basic.auth.user.info: needs a registry: say schema.registry.url",
        ),
        (
            {"decode": "avro", "decode.schema": "{}", "decode.on_new_schema": "fail"},
            "decode.on_new_schema: needs a registry",
        ),
    ],
)  # fmt: skip
def test_what_misses_something_else_is_refused_by_name(options: dict[str, str], says: str) -> None:
    assert str(refusal({**BASE, "subscribe": "orders", **options})).startswith(says)


def test_a_registry_gets_what_confluents_clients_have(tmp_path: Path) -> None:
    ca = tmp_path / "ca.pem"
    ca.write_text("-----BEGIN CERTIFICATE-----")
    made = registry(
        schema__registry__basic__auth__user__info="alice:hush",
        schema__registry__basic__auth__credentials__source="USER_INFO",
        schema__registry__ssl__truststore__location=str(ca),
        schema__registry__ssl__truststore__type="PEM",
        schema__registry__ssl__endpoint__identification__algorithm="",
        schema__registry__proxy__host="proxy",
        schema__registry__proxy__port="3128",
        schema__registry__bearer__auth__logical__cluster="lsrc-1",
        schema__registry__request__timeout__ms="500",
    ).registry()
    access = made._access
    assert isinstance(made, SchemaRegistry)
    assert access.urls == ("http://a:1", "https://b:2")
    assert access.basic_auth is not None
    assert access.basic_auth.reveal() == "alice:hush"
    assert (access.security.ssl_cafile, access.security.ssl_check_hostname) == (str(ca), False)
    assert (access.proxy, access.timeout_s) == ("http://proxy:3128", 0.5)
    assert access.headers == (("target-sr-cluster", "lsrc-1"),)


def test_tokens_are_a_literal_one_or_oauths() -> None:
    token = registry(schema__registry__bearer__auth__token="t").registry()._access.bearer_token
    assert token is not None
    assert token.reveal() == "t"
    oauth = registry(
        schema__registry__bearer__auth__credentials__source="OAUTHBEARER",
        schema__registry__bearer__auth__issuer__endpoint__url="https://login/token",
        schema__registry__bearer__auth__client__id="c",
        schema__registry__bearer__auth__client__secret="hush",
    ).registry()
    assert oauth._access.oauth
    assert "hush" not in repr(oauth._access)


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"schema__registry__basic__auth__user__info": "hush"}, "schema.registry.basic.auth.user.info: has no colon"),
        ({"schema__registry__url": "a:1"}, "schema.registry.url: is 'a:1': accepts http://host:port"),
        ({"schema__registry__ssl__ca__location": "/nowhere"}, "schema.registry.ssl.ca.location: is '/nowhere': No such file"),
    ],
)  # fmt: skip
def test_an_error_of_the_client_names_the_option(options: dict[str, str], says: str) -> None:
    with pytest.raises(ConfigError) as caught:
        registry(**options).registry()
    said = str(caught.value)
    assert said.startswith(says)
    assert "hush" not in said


def test_a_file_that_is_no_pem_is_refused_with_what_converts_it(tmp_path: Path) -> None:
    (tmp_path / "store.p12").write_bytes(b"0\x82")
    with pytest.raises(ConfigError, match=r"not PEM: openssl pkcs12 -in store.p12"):
        registry(schema__registry__ssl__ca__location=str(tmp_path / "store.p12")).registry()


def test_two_names_of_one_thing_are_refused(tmp_path: Path) -> None:
    (tmp_path / "ca.pem").write_text("-----BEGIN")
    path = str(tmp_path / "ca.pem")
    with pytest.raises(
        ConfigError, match=r"ssl\.ca\.location: is given beside schema.registry.ssl.truststore"
    ):
        registry(
            schema__registry__ssl__truststore__location=path, schema__registry__ssl__ca__location=path
        ).registry()


@pytest.mark.parametrize("name", sorted(SECRETS))
def test_a_secret_is_shown_by_nothing_and_a_reference_is_not_looked_up(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SR_SECRET", "hush:hush")
    literal = parse_batch({**AVRO, name: "hush:hush"})
    assert "hush" not in repr(literal)
    referred = parse_batch({**AVRO, name: "${env:SR_SECRET}"})
    assert b"hush" not in pickle.dumps(referred)
    if name.endswith("client.secret"):
        more = {"schema.registry.bearer.auth.issuer.endpoint.url": "https://l/t", "schema.registry.bearer.auth.client.id": "c"}  # fmt: skip
        referred = parse_batch({**AVRO, name: "${env:SR_SECRET}", **more})
    if name.endswith("ssl.key.password"):
        return  # of a key that has to be there
    assert referred.decode is not None
    assert referred.decode.registry is not None
    made = referred.decode.registry.registry()
    assert "hush" not in repr(made)
    assert b"hush" not in pickle.dumps(made)


def test_other_values_may_be_references(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SR", "http://c:3")
    assert registry(schema__registry__url="${env:SR}").urls == ("http://c:3",)
