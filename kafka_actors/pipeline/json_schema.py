"""Decoder of JSON values by a JSON Schema of a registry: its properties are the columns."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from copy import copy
from typing import Any, Literal

import pyarrow as pa

from kafka_actors.base import decoders
from kafka_actors.errors import ConfigError
from kafka_actors.schemas.framing import NO_FRAME, Part, Rows, frame_bytes, frames, joined
from kafka_actors.schemas.json_schema import arrow_schema, loaded
from kafka_actors.schemas.registry import Registry, Schema, SchemaKey
from kafka_actors.schemas.results import Array, DecodedRows, decoded_struct

from .casts import one_line
from .decode import json_rows, row_type


class JsonSchemaDecoder:
    """Decodes JSON values into the columns of a JSON Schema, a dict or JSON text.

    With a `registry` values are framed. Whatever schema a value was written by, it is read by this one: properties by name; those that are
    missing have to be nullable. `references` are texts by the addresses by which the schema refers to them. With `validate` each value is
    checked against the whole schema by the package jsonschema, which costs much more than decoding it. `known` are schemas by id or GUID;
    `on_new_schema="fail"` makes values by any other one fail.
    """

    of_records = True
    fails_again = True
    """Whether a value that fails does so each time it is decoded, as it does where no writer's schema is asked for."""

    def __init__(
        self,
        schema: Any,
        *,
        references: Mapping[str, str] | None = None,
        registry: Registry | None = None,
        subject: str | None = None,
        validate: bool = False,
        known: Mapping[SchemaKey, Schema] | None = None,
        on_new_schema: Literal["keep", "fail"] = "keep",
    ) -> None:
        self._document = loaded(schema)
        self._references = dict(references or {})
        self._registry = registry
        self._subject = subject
        self._validate = validate
        self._known = frozenset(known or ())
        self._on_new_schema = on_new_schema
        self._prepare()

    def _prepare(self) -> None:
        self.schema: pa.Schema = arrow_schema(self._document, self._references)
        self._decode = decoders.json(row_type("decode", self.schema)).decode
        self._problem = _validator(self._document, self._references) if self._validate else None

    def __getstate__(self) -> dict[str, Any]:
        made = ("schema", "_decode", "_problem")
        return {name: value for name, value in vars(self).items() if name not in made}

    def __setstate__(self, state: dict[str, Any]) -> None:
        vars(self).update(state)
        self._prepare()

    def __repr__(self) -> str:
        return f"<JsonSchemaDecoder {', '.join(self.schema.names)}>"

    @property
    def framed(self) -> bool:
        """Whether values have the frame of a registry's serializer."""
        return self._registry is not None

    def __call__(self, values: Array) -> Array:
        """The values as a StructArray, null where the value is. Raises `DeserializationError` for the first one that can't be decoded."""
        return decoded_struct(self, values)

    def decode(self, values: Array) -> DecodedRows:
        """Decodes a binary array."""
        found = frames(values, self.framed)
        return joined(self.schema, found, lambda key, rows: self._decoded(values, key, rows))

    def _decoded(self, values: Array, key: SchemaKey, rows: Rows) -> Part:
        if self._on_new_schema == "fail" and key not in (NO_FRAME, *self._known):
            reason = (
                f"schema {key} wasn't known when the pipeline was made ready, and on_new_schema is 'fail'"
            )
            return None, [(int(row), reason) for row in rows]
        skipped = frame_bytes(key)
        bodies = [value[skipped:] for value in values.take(pa.array(rows)).to_pylist()]
        made = json_rows(self.schema, self._checked if self._problem is not None else self._decode, bodies)
        return made.batch, [(int(rows[at]), reason) for at, reason in made.failures]

    def _checked(self, value: bytes) -> Any:
        assert self._problem is not None
        if problem := self._problem(value):
            raise ValueError(problem)
        return self._decode(value)

    def read_by(self, schema: Schema, references: Mapping[str, str]) -> JsonSchemaDecoder:
        """A decoder of the same values by another reader's schema. Raises `ConfigError`."""
        made = copy(self)
        made._document, made._references = loaded(schema.text), dict(references)
        made._prepare()
        return made

    def knowing(self, known: Mapping[SchemaKey, Schema]) -> JsonSchemaDecoder:
        """A decoder of the same values that knows more writers' schemas beforehand."""
        made = copy(self)
        made._known = self._known | frozenset(known)
        return made

    def refusal(self, schema: Schema) -> str:
        """Why no value by a writer's schema can be decoded; empty where there is no such reason."""
        if schema.type != "JSON":
            return f"it is of type {schema.type}, not JSON"
        references = {} if self._registry is None else self._registry.references_of(schema)
        try:
            writer = arrow_schema(schema.text, references)
        except ConfigError as error:
            return error.message
        for field in self.schema:
            at = writer.get_field_index(field.name)
            if at < 0 and not field.nullable:
                return f"{field.name}: the writer doesn't have it, and the reader requires it"
            if (
                at >= 0
                and writer.field(at).type != field.type
                and not _widens(writer.field(at).type, field.type)
            ):
                return f"{field.name}: writer {writer.field(at).type}, reader {field.type}"
        return ""


def _widens(writer: Any, reader: Any) -> bool:
    return bool(pa.types.is_int64(writer) and pa.types.is_float64(reader))


def _validator(document: dict[str, Any], references: Mapping[str, str]) -> Callable[[bytes], str]:
    """A function that says what is wrong with a value; empty where nothing is. Raises `ConfigError` where jsonschema isn't installed, or
    doesn't take the schema."""
    try:
        import jsonschema
        from referencing import Registry as Documents
        from referencing import Resource
    except ModuleNotFoundError:
        raise ConfigError("validate", "needs jsonschema: pip install 'kafka-actors[jsonschema]'") from None
    kind = jsonschema.validators.validator_for(document, default=jsonschema.Draft202012Validator)
    try:
        kind.check_schema(document)
    except jsonschema.SchemaError as error:
        raise ConfigError("schema", f"is no JSON Schema: {one_line(error)}") from None
    others = [
        (name, Resource.from_contents(loaded(text), default_specification=_specification(kind)))
        for name, text in references.items()
    ]
    validator = kind(
        document, registry=Documents().with_resources(others), format_checker=kind.FORMAT_CHECKER
    )
    parse = decoders.json(object).decode

    def problem(value: bytes) -> str:
        found = next(iter(validator.iter_errors(parse(value))), None)
        return (
            ""
            if found is None
            else f"{found.json_path.removeprefix('$').lstrip('.') or 'the value'}: {found.message}"
        )

    return problem


def _specification(kind: Any) -> Any:
    from referencing.jsonschema import DRAFT202012, specification_with

    dialect = kind.META_SCHEMA.get("$schema") or kind.META_SCHEMA.get("$id")
    return specification_with(dialect) if dialect else DRAFT202012
