"""ValueEncoder of rows as Avro values of one schema."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pyarrow as pa

from kafka_actors.base.paths import schema_text

from .avro_encoding import writer_program
from .avro_schema import AvroType, parse
from .framing import frame
from .kernels import avro_writer_kernel
from .results import Array, EncodedValues, encoded_column
from .written_columns import ColumnsProgram, CompiledPrograms


class AvroEncoder:
    """Encodes rows as Avro values of `schema`, a dict or JSON text; for one that is no record they have the one column `value`.

    Columns are found by the names of the schema's fields. A field without a column has its default; a column without a field, or of a type
    that can't become the field's, raises `ConfigError`, as a field with neither column nor default does. What depends on the value is an
    error of its row: a null in a field that has none, an int beyond 32 bits, a text that is no symbol of the enum, a time that is no
    whole number in the schema's unit. Unions with null take nullable columns; those of several types a struct of `member0`, `member1` …,
    or a column that fits one of them.

    `references` are the texts of schemas to which it refers. With `schema_id` each value has the five bytes of a registry's frame in front.

    It can be called with a RecordBatch or a StructArray, for a BinaryArray as long as it; `encode` returns values and failures apart.
    """

    def __init__(
        self, schema: Any, *, references: Mapping[str, str] | None = None, schema_id: int | None = None
    ) -> None:
        self._text = schema_text(schema, ".avsc")
        self._references = dict(references or {})
        self._frame = b"" if schema_id is None else frame(schema_id)
        self._prepare()

    def _prepare(self) -> None:
        self._kind: AvroType = parse(self._text, self._references)
        self._programs = CompiledPrograms(self._program, lambda program: avro_writer_kernel()[1](program))

    def _program(self, columns: pa.Schema) -> ColumnsProgram:
        return writer_program(self._kind, columns)

    def __getstate__(self) -> dict[str, Any]:
        return {name: value for name, value in vars(self).items() if name not in ("_kind", "_programs")}

    def __setstate__(self, state: dict[str, Any]) -> None:
        vars(self).update(state)
        self._prepare()

    def __repr__(self) -> str:
        return f"<AvroEncoder {getattr(self._kind, 'name', 'value')}>"

    def __call__(self, rows: Any) -> Array:
        """The rows as a BinaryArray, null where the row is. Raises `SerializationError` for the first one that can't be encoded, and
        `ConfigError` for columns that can never be."""
        return encoded_column(self, rows)

    def check(self, columns: pa.Schema) -> None:
        """Raises `ConfigError`, naming the path, for columns that can't be written by the schema."""
        self._program(columns)

    def encode(self, rows: Any) -> EncodedValues:
        """Encodes a RecordBatch or a StructArray. Raises `ConfigError` for columns that can't be written by the schema."""
        return self._programs.encode(rows, self._frame)
