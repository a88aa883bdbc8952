"""ValueDecoder of Avro values into the columns of one schema, the reader's, whatever schema each value was written by."""

from __future__ import annotations

import threading
from collections.abc import Mapping
from copy import copy
from typing import Any, Literal

import pyarrow as pa

from kafka_actors.base.paths import schema_text
from kafka_actors.errors import ConfigError

from .avro_resolution import program
from .avro_schema import AvroRecord, AvroType, arrow_schema, parse
from .errors import SchemaNotFoundError
from .framing import NO_FRAME, Part, Rows, frame_bytes, frames, joined
from .kernels import avro_kernel
from .registry import Registry, Schema, SchemaKey, Version, check_subject, named_schema, schema_at
from .results import Array, DecodedRows, decoded_struct


class AvroDecoder:
    """Decodes Avro values into the columns of `schema`, a dict, JSON text, or an `.avsc` file's path; one that is no record gives one column `value`.

    In place of a schema it takes a registry: then the columns are those of `subject` in `version`, or, without a subject, of the schema that
    the first value it gets was written by.

    With a `registry` values are framed, and each is read by the schema with its id, resolved to this one as Avro's specification says.
    With `schema_id` they are framed by this one id. With neither they have no frame, and were written by `writer`, by default `schema`.

    `references` are the texts of schemas to which it refers. `known` are schemas by id or GUID that needn't be asked for. `on_new_schema="fail"`
    makes values by any other one fail. `subject` is for errors.

    It can be called with a binary column, for a StructArray as long as it; `decode` returns rows and failures apart.
    """

    def __init__(
        self,
        schema: Any,
        *,
        references: Mapping[str, str] | None = None,
        registry: Registry | None = None,
        subject: str | None = None,
        version: Version = "latest",
        schema_id: int | None = None,
        writer: Any = None,
        known: Mapping[SchemaKey, Schema] | None = None,
        on_new_schema: Literal["keep", "fail"] = "keep",
    ) -> None:
        if registry is not None and (schema_id is not None or writer is not None):
            raise ConfigError(
                "registry", "knows which schema a value was written by: leave schema_id and writer out"
            )
        if registry is None and on_new_schema == "fail":
            raise ConfigError("on_new_schema", "is for values whose schemas a registry has: give registry=")
        if isinstance(schema, Registry):
            registry, schema = schema, None
            if subject is not None:
                check_subject("subject", subject)
                schema, references = _of(registry, registry.schema_of(subject, version))
        self._text = schema_text(schema, ".avsc")
        self._references = dict(references or {})
        self._registry = registry
        self._subject = subject
        self._schema_id = schema_id
        self._writer = schema_text(writer, ".avsc")
        self._known = dict(known or {})
        self._on_new_schema = on_new_schema
        self._prepare()
        if registry is None:
            self._machine(NO_FRAME)  # a writer that can't be read as the reader is refused here

    def _prepare(self) -> None:
        self._lock = threading.Lock()
        self._machines: dict[SchemaKey, WriterProgram] = {}
        self._reader: AvroType | None = None
        self.schema: pa.Schema = pa.schema([])
        if self._text is not None:
            self._reader = parse(self._text, self._references)
            self.schema = arrow_schema(self._reader)

    def __getstate__(self) -> dict[str, Any]:
        made = ("_lock", "_machines", "_reader", "schema")
        return {name: value for name, value in vars(self).items() if name not in made}

    def __setstate__(self, state: dict[str, Any]) -> None:
        vars(self).update(state)
        self._prepare()

    def __repr__(self) -> str:
        return f"<AvroDecoder {', '.join(self.schema.names)}>"

    @property
    def framed(self) -> bool:
        """Whether values have the frame of a registry's serializer."""
        return self._registry is not None or self._schema_id is not None

    @property
    def of_records(self) -> bool:
        """Whether values are records; otherwise the only column, `value`, is the value itself."""
        return isinstance(self._reader, AvroRecord)

    @property
    def fails_again(self) -> bool:
        """Whether a value that fails does so each time it is decoded; not where its schema may be in the registry by then."""
        return self._registry is None or self._on_new_schema == "fail"

    def __call__(self, values: Array) -> Array:
        """The values as a StructArray, null where the value is. Raises `DeserializationError` for the first one that can't be decoded."""
        return decoded_struct(self, values)

    def decode(self, values: Array) -> DecodedRows:
        """Decodes a binary array. Raises `SchemaRegistryError` where the registry can't be asked for a schema."""
        found = frames(values, self.framed)
        if self._reader is None:
            self._choose(found.by_schema)
        return joined(self.schema, found, lambda key, rows: self._decoded(values, key, rows))

    def _choose(self, by_schema: Mapping[SchemaKey, Rows]) -> None:
        """Makes the schema of the first value that the registry has one for the reader's."""
        assert self._registry is not None
        for key in sorted(by_schema, key=lambda key: int(by_schema[key][0])):
            try:
                found = self._known.get(key) or schema_at(self._registry, key)
            except SchemaNotFoundError:
                continue  # a failure of its values
            if found.type != "AVRO":
                continue
            text, references = _of(self._registry, found)
            with self._lock:
                if self._reader is None:
                    self._text, self._references = text, references
                    self._reader = parse(text, references)
                    self.schema = arrow_schema(self._reader)
            return

    def _decoded(self, values: Array, key: SchemaKey, rows: Rows) -> Part:
        if self._registry is None and key not in (NO_FRAME, self._schema_id):
            reason = f"the value was written with schema id {key}, not {self._schema_id}"
            return None, [(int(row), reason) for row in rows]
        machine = self._machine(NO_FRAME if self._registry is None else key)
        if isinstance(machine, str):
            return None, [(int(row), machine) for row in rows]
        batch, failed = machine.run(values, rows, frame_bytes(key))
        return batch, [
            (int(rows[at]), machine.reason(code, step, number)) for at, code, step, number in failed
        ]

    def _machine(self, key: SchemaKey) -> WriterProgram | str:
        """The program for values by this schema; or why no value by it can be decoded."""
        found = self._machines.get(key)
        if found is None:
            found = self._made(key)
            if found.is_kept:
                with self._lock:
                    found = self._machines.setdefault(key, found)
        return found.refused or found

    def _made(self, key: SchemaKey) -> WriterProgram:
        if key == NO_FRAME:
            writer = self._reader if self._writer is None else parse(self._writer)
            return WriterProgram(writer, self._reader, "")
        assert self._registry is not None
        what = named_schema(key, self._known, self._subject)
        if key not in self._known and self._on_new_schema == "fail":
            return WriterProgram.refusing(
                f"{what} wasn't known when the pipeline was made ready, and on_new_schema is 'fail'",
                is_kept=False,
            )
        try:
            schema = self._known.get(key) or schema_at(self._registry, key)
            if schema.type != "AVRO":
                return WriterProgram.refusing(f"{what} is of type {schema.type}, not AVRO")
            writer = parse(schema.text, self._registry.references_of(schema))
            return WriterProgram(writer, self._reader, what)
        except SchemaNotFoundError as error:
            return WriterProgram.refusing(f"{what}: {error}", is_kept=False)
        except ConfigError as error:
            return WriterProgram.refusing(f"{what} can't be read by the reader's: {error.message}")

    def read_by(self, schema: Schema, references: Mapping[str, str]) -> AvroDecoder:
        """A decoder of the same values by another reader's schema. Raises `ConfigError`."""
        made = copy(self)
        made._text, made._references = schema.text, dict(references)
        made._prepare()
        return made

    def knowing(self, known: Mapping[SchemaKey, Schema]) -> AvroDecoder:
        """A decoder of the same values that knows more writers' schemas beforehand."""
        made = copy(self)
        made._known = {**self._known, **known}
        return made

    def refusal(self, schema: Schema) -> str:
        """Why no value by a writer's schema can be decoded; empty where there is no such reason."""
        if schema.type != "AVRO":
            return f"it is of type {schema.type}, not AVRO"
        if self._reader is None:
            return ""  # the first value's schema will be the reader's
        references = {} if self._registry is None else self._registry.references_of(schema)
        try:
            program(parse(schema.text, references), self._reader)
        except ConfigError as error:
            return error.message
        return ""


def _of(registry: Registry, schema: Schema) -> tuple[str, dict[str, str]]:
    """A schema's text, and the texts to which it refers."""
    return schema.text, dict(registry.references_of(schema))


class WriterProgram:
    """Program of one writer's schema, and its texts of failures. `refused`: why there is none; `is_kept`: False where the registry doesn't have
    it, perhaps not yet, and where broken values may have any id."""

    def __init__(self, writer: AvroType | None, reader: AvroType | None, what: str) -> None:
        self.refused = ""
        self.is_kept = True
        self._what = f"{what}: " if what else ""
        if writer is not None and reader is not None:
            self._program = program(writer, reader)
            self._machine = avro_kernel()[1](self._program)

    @classmethod
    def refusing(cls, reason: str, is_kept: bool = True) -> WriterProgram:
        made = cls(None, None, "")
        made.refused, made.is_kept = reason, is_kept
        return made

    def run(
        self, values: Array, rows: Rows, skipped: int
    ) -> tuple[pa.RecordBatch, list[tuple[int, int, int, int]]]:
        return self._machine.run(values, rows, skipped)

    def reason(self, code: int, step: int, number: int) -> str:
        return self._what + self._program.reason(code, step, number)
