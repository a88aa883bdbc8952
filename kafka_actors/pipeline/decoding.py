"""Decoders of a pipeline: its first stages, which make columns of the records' values."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal, Self

from kafka_actors.errors import ConfigError

from . import stages as s
from .decoders import avro_decoder, protobuf_decoder, reader_schema
from .definition import Definition, named
from .schema_stages import Decode, DecodeKey
from .schemas import as_schema, is_struct

if TYPE_CHECKING:
    from kafka_actors.schemas.reader_schema import OnNewSchema
    from kafka_actors.schemas.registry import Registry

OnError = s.OnError


class Decoding(Definition, frozen=True, kw_only=True, eq=False):
    """Base of `Pipeline`: the methods that add a decoder."""

    def decode_json(self, schema: Any, *, name: str | None = None, on_error: OnError | None = None) -> Self:
        """Decodes each value as one JSON object, whose fields become the columns. A nullable field may be missing; fields
        that the schema lacks are ignored. BINARY is base64, timestamps are ISO 8601, and rounded to microseconds.

        A null value counts as a failed record; to drop tombstones, filter them out before this stage.
        """
        stage = named(name, "decode_json")
        row = schema if is_struct(schema) else None
        return self._with(s.DecodeJson, stage, on_error, schema=as_schema(stage, schema), row=row)

    def decode(
        self,
        registry: Registry,
        *,
        subject: str | None = None,
        version: int | Literal["latest"] = "latest",
        schema: Any = None,
        message: str | None = None,
        enums: Literal["name", "number"] = "name",
        validate: bool = False,
        on_new_schema: OnNewSchema = "keep",
        name: str | None = None,
        on_error: OnError | None = None,
    ) -> Self:
        """Decodes each value by its schema in a registry: Avro, Protobuf or JSON Schema, whichever the registry says.

        The columns are those of one schema, the reader's, whatever schema a value was written by: of `subject`, by default
        `{topic}-value`, in `version`. It is chosen when the pipeline is bound to an engine, and kept from then on. `schema` says
        which columns will be found, so that stages that name columns are checked before.

        `message` and `enums` are Protobuf's: see `decode_protobuf`. `validate` checks each value against the whole JSON Schema, which
        costs more than decoding it.
        `on_new_schema="fail"`: values by a schema that wasn't known at the start are failures.
        """
        stage = named(name, "decode")
        reader = reader_schema(
            stage,
            registry,
            subject=subject,
            version=version,
            message=message,
            enums=enums,
            validate=validate,
            on_new_schema=on_new_schema,
        )
        columns = None if schema is None else as_schema(stage, schema)
        return self._with(Decode, stage, on_error, reader=reader, schema=columns)

    def decode_avro(
        self,
        schema: Any = None,
        *,
        schema_id: int | None = None,
        registry: Registry | None = None,
        subject: str | None = None,
        version: int | Literal["latest"] = "latest",
        on_new_schema: OnNewSchema = "keep",
        name: str | None = None,
        on_error: OnError | None = None,
    ) -> Self:
        """Decodes each value as one Avro record.

        With a `schema` (a dict, JSON text, or an `.avsc` file's path) values are of this schema; with `schema_id`, they begin with the five bytes of
        Confluent's serializer, which have to contain that id. With a `registry` values may be by any schema it has, and are read
        by `schema`, or else by that of `subject` (by default `{topic}-value`) in `version`, or by the one with the id `schema_id`.
        """
        stage = named(name, "decode_avro")
        if schema is not None:
            decoder = avro_decoder(stage, schema, schema_id, registry, on_new_schema)
            known_of = registry if on_new_schema == "fail" else None
            return self._with(Decode, stage, on_error, decoder=decoder, registry=known_of)
        reader = reader_schema(
            stage,
            registry,
            subject=subject,
            version=version,
            schema_id=schema_id,
            schema_type="AVRO",
            on_new_schema=on_new_schema,
        )
        return self._with(Decode, stage, on_error, reader=reader)

    def decode_protobuf(
        self,
        source: Any = None,
        *,
        message: str | None = None,
        registry: Registry | None = None,
        subject: str | None = None,
        version: int | Literal["latest"] = "latest",
        enums: Literal["name", "number"] = "name",
        on_new_schema: OnNewSchema = "keep",
        name: str | None = None,
        on_error: OnError | None = None,
    ) -> Self:
        """Decodes each value as one Protobuf message: of a `.proto` file (its path, or its text), without a frame, or with that of a
        `registry`; or of a registry's schema. `message` is a full name, which may be left out where there is one only. `enums`: columns of
        names, or of numbers."""
        stage = named(name, "decode_protobuf")
        if source is not None:
            decoder = protobuf_decoder(stage, source, message, enums, registry, on_new_schema)
            known_of = registry if on_new_schema == "fail" else None
            return self._with(Decode, stage, on_error, decoder=decoder, registry=known_of)
        reader = reader_schema(
            stage,
            registry,
            subject=subject,
            version=version,
            schema_type="PROTOBUF",
            message=message,
            enums=enums,
            on_new_schema=on_new_schema,
        )
        return self._with(Decode, stage, on_error, reader=reader)

    def decode_key(
        self,
        registry: Registry,
        *,
        column: str = "key",
        subject: str | None = None,
        version: int | Literal["latest"] = "latest",
        message: str | None = None,
        enums: Literal["name", "number"] = "name",
        on_new_schema: OnNewSchema = "keep",
        name: str | None = None,
        on_error: OnError | None = None,
    ) -> Self:
        """Decodes each record's key by its schema in a registry into one more column, `column`: a struct, or the key itself where the schema is
        none of a record. A null key is null. Other arguments are those of `decode`; `subject` is by default `{topic}-key`.

        It comes behind the decoder of values. On Spark `version` has to be a number, because a query that is started again keeps the schema
        of values only.
        """
        stage = named(name, "decode_key")
        if not isinstance(column, str) or not column:
            raise ConfigError(stage, f"column is {column!r}: accepts a column's name")
        reader = reader_schema(
            stage,
            registry,
            subject=subject,
            version=version,
            message=message,
            enums=enums,
            on_new_schema=on_new_schema,
            of="key",
        )
        return self._with(DecodeKey, stage, on_error, reader=reader, column=column)

    def raw(self, *, text: bool = False, name: str | None = None, on_error: OnError | None = None) -> Self:
        """Takes the columns `key` and `value` undecoded, as bytes, or with `text` as strings of UTF-8."""
        return self._with(s.Raw, named(name, "raw"), on_error, text=text)
