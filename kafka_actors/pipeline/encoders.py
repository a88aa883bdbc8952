"""Formats of `write_kafka` by schemas of a registry, and its arguments, checked; all raise `ConfigError` with the stage's name."""

from __future__ import annotations

import json
from collections.abc import Mapping
from functools import partial
from typing import Any, get_args

from kafka_actors.base.paths import schema_text
from kafka_actors.errors import ConfigError, kind_of
from kafka_actors.schemas import AvroEncoder, ProtobufEncoder
from kafka_actors.schemas.avro_derived import derived
from kafka_actors.schemas.avro_schema import AvroRecord, parse
from kafka_actors.schemas.json_schema import loaded
from kafka_actors.schemas.protobuf_schema import Files, compiled, imports_others, proto_text
from kafka_actors.schemas.writer_schema import SubjectNameStrategy, ValueFormat, WriterSchema

from .decoders import check_registry
from .json_encoder import JsonSchemaEncoder
from .stages import Format


def avro_record(text: str) -> str:
    """The full name of a schema's record."""
    kind = parse(text)
    if not isinstance(kind, AvroRecord):
        raise ConfigError("schema", "is of no record, whose name would be the subject: say subject=")
    return kind.name


def json_title(text: str) -> str:
    """The title of a JSON Schema, which Confluent's serializers take for a record's name."""
    title = loaded(text).get("title")
    if not isinstance(title, str) or not title:
        raise ConfigError("schema", "has no title, which would be the subject: say subject=")
    return title


def message_name(text: str, message: str | None = None) -> str:
    """The full name of a schema's message."""
    return message or str(Files(compiled(text)).message(None).full_name)


FORMATS = {
    "avro": ValueFormat("AVRO", AvroEncoder, avro_record, derived),
    "json_schema": ValueFormat("JSON", JsonSchemaEncoder, json_title),
    "protobuf": ValueFormat("PROTOBUF", ProtobufEncoder, message_name),
}
"""Formats by schemas of a registry."""


def writer_schema(
    stage: str,
    form: Any,
    registry: Any,
    *,
    subject: Any,
    schema: Any,
    message: Any,
    register: Any,
    strategy: Any,
) -> WriterSchema | None:
    """The writer's schema in a registry; None for a format without one."""
    if form not in get_args(Format):
        raise ConfigError(stage, f"format is {form!r}: accepts {', '.join(map(repr, get_args(Format)))}")
    if form not in FORMATS:
        given = {
            "registry": registry, "subject": subject, "schema": schema, "message": message, "register": register or None,
        }  # fmt: skip
        for name, value in given.items():
            if value is not None:
                raise ConfigError(stage, f"{name} is for format={' or '.join(map(repr, FORMATS))}")
        return None
    if registry is None:
        raise ConfigError(stage, f"has format={form!r}: say registry=, a kafka_actors.SchemaRegistry")
    check_registry(stage, registry)
    if subject is not None and (not isinstance(subject, str) or not subject):
        raise ConfigError(stage, f"subject is {subject!r}: accepts a subject's name")
    if not isinstance(register, bool):
        raise ConfigError(stage, f"register is {register!r}: accepts True or False")
    if strategy not in get_args(SubjectNameStrategy):
        accepted = ", ".join(map(repr, get_args(SubjectNameStrategy)))
        raise ConfigError(stage, f"subject_name_strategy is {strategy!r}: accepts {accepted}")
    made = WriterSchema(
        registry=registry,
        format=_with_message(stage, form, message),
        subject=subject,
        strategy=strategy,
        text=_text(stage, form, schema),
        register=register,
    )
    if made.text is not None:
        _check_text(stage, made)
    return made


def _with_message(stage: str, form: str, message: Any) -> ValueFormat:
    """The format, of this message of a Protobuf schema."""
    made = FORMATS[form]
    if message is None:
        return made
    if form != "protobuf":
        raise ConfigError(stage, "message is for format='protobuf'")
    if not isinstance(message, str) or not message:
        raise ConfigError(
            stage, f"message is {message!r}: accepts a message's full name, such as 'shop.Order'"
        )
    encoder, name = partial(ProtobufEncoder, message=message), partial(message_name, message=message)
    return made._replace(encoder=encoder, record_name=name)


def _text(stage: str, form: str, schema: Any) -> str | None:
    try:
        if form == "protobuf" and schema is not None:
            return proto_text(schema)
        schema = schema_text(schema, ".avsc" if form == "avro" else ".json")
    except ConfigError as error:
        raise ConfigError(stage, f"{error.option} {error.message}") from error
    if schema is None or isinstance(schema, str):
        return schema
    if not isinstance(schema, (Mapping, list)):
        raise ConfigError(stage, f"schema is {kind_of(schema)}: accepts a schema, a dict or text")
    return json.dumps(schema)


def _check_text(stage: str, made: WriterSchema) -> None:
    if made.format.schema_type == "PROTOBUF" and imports_others(str(made.text)):
        return  # the registry has the texts that it imports
    try:
        made.format.encoder(made.text)
    except ConfigError as error:
        raise ConfigError(stage, f"{error.option}: {error.message}") from error
