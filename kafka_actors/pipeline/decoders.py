"""Arguments of a pipeline's decoders by schema, checked; all raise `ConfigError` with the stage's name."""

from __future__ import annotations

from typing import Any

from kafka_actors.errors import ConfigError, kind_of
from kafka_actors.schemas import AvroDecoder, ProtobufDecoder
from kafka_actors.schemas.reader_schema import ReaderSchema
from kafka_actors.schemas.registry import Registry, check_subject
from kafka_actors.schemas.results import ValueDecoder

from .json_schema import JsonSchemaDecoder
from .rows import check_names

_CHOICES = {
    "enums": ("name", "number"),
    "on_new_schema": ("keep", "fail"),
    "schema_type": (None, "AVRO", "PROTOBUF", "JSON"),
}


def reader_schema(stage: str, registry: Any, **options: Any) -> ReaderSchema:
    """The reader's schema in a registry."""
    if registry is None:
        raise ConfigError(stage, "needs a schema, or registry=, a kafka_actors.SchemaRegistry")
    check_registry(stage, registry)
    for name in _CHOICES.keys() & options.keys():
        _check_choice(stage, name, options[name])
    subject, version = options.get("subject"), options.get("version", "latest")
    if subject is not None and (not isinstance(subject, str) or not subject):
        raise ConfigError(stage, f"subject is {subject!r}: accepts a subject's name")
    if subject is not None:
        check_subject(f"{stage}: subject", subject)
    if version != "latest" and not _is_number(version, 1):
        raise ConfigError(stage, f"version is {version!r}: accepts a number from 1, or 'latest'")
    check_id(stage, options.get("schema_id"))
    if options.get("schema_id") is not None and subject is not None:
        raise ConfigError(stage, "has a schema_id and a subject: one of them names the schema")
    return ReaderSchema(registry=registry, json_decoder=JsonSchemaDecoder, **options)


def avro_decoder(stage: str, schema: Any, schema_id: Any, registry: Any, on_new_schema: Any) -> ValueDecoder:
    """A decoder by a given schema: of values with one id, of any id that a registry knows, or of values without framing."""
    check_id(stage, schema_id)
    _check_choice(stage, "on_new_schema", on_new_schema)
    if isinstance(schema, Registry):
        raise ConfigError(stage, "has a registry in the place of its schema: give it as registry=")
    if registry is not None:
        check_registry(stage, registry)
        if schema_id is not None:
            raise ConfigError(
                stage, "has a schema, which it is read by, and a schema_id: leave one of them out"
            )
    try:
        made = AvroDecoder(schema, schema_id=schema_id, registry=registry, on_new_schema=on_new_schema)
    except ConfigError as error:
        raise ConfigError(stage, f"{error.option}: {error.message}") from error
    check_names(stage, made.schema)
    return made


def protobuf_decoder(
    stage: str, schema: Any, message: Any, enums: Any, registry: Any, on_new_schema: Any
) -> ValueDecoder:
    """A decoder of a message of a .proto file; of framed values where there is a registry."""
    if registry is not None:
        check_registry(stage, registry)
    _check_choice(stage, "on_new_schema", on_new_schema)
    try:
        made = ProtobufDecoder(
            schema, message=message, enums=enums, registry=registry, on_new_schema=on_new_schema
        )
    except ConfigError as error:
        raise ConfigError(stage, f"{error.option}: {error.message}") from error
    check_names(stage, made.schema)
    return made


def _check_choice(stage: str, name: str, value: Any) -> None:
    if value not in _CHOICES[name]:
        raise ConfigError(stage, f"{name} is {value!r}: accepts {' or '.join(map(repr, _CHOICES[name]))}")


def check_id(stage: str, schema_id: Any) -> None:
    """Checks the id of a schema in a registry."""
    if schema_id is not None and not (_is_number(schema_id, 0) and schema_id < 2**32):
        raise ConfigError(
            stage, f"schema_id is {schema_id!r}, {kind_of(schema_id)}: accepts a number from 0 to 2^32 - 1"
        )


def _is_number(value: Any, least: int) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= least


def check_registry(stage: str, registry: Any) -> None:
    """Checks that it is a registry."""
    if not isinstance(registry, Registry):
        raise ConfigError(
            stage,
            f"registry is {kind_of(registry)}: accepts a SchemaRegistry, SchemaRegistry('http://registry:8081')",
        )
