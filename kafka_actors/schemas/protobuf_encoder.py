"""ValueEncoder of rows as Protobuf messages of one schema."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pyarrow as pa

from .framing import frame
from .kernels import protobuf_writer_kernel
from .protobuf_encoding import message_program
from .protobuf_schema import Files, compiled, proto_text
from .results import Array, EncodedValues, encoded_column
from .written_columns import ColumnsProgram, CompiledPrograms


class ProtobufEncoder:
    """Encodes rows as values of a Protobuf message.

    `schema` is a `.proto` file's path, or its text; `references` are the texts that it imports, by name. `message` is a full name, such as
    `shop.Order`, which may be left out where the file has one message.

    Columns are found by the names of the message's fields. A field without a column is left out; a column without a field, or of a type that
    can't become the field's, raises `ConfigError`, as a required field without a column does. A null leaves out a field with presence. What
    depends on the value is an error of its row: a null in another field, a number beyond the field's type, two members of a oneof, a text
    that is no name of the enum. Enums take names or numbers.

    With `schema_id` each value has a registry's frame in front: the id, and the indexes of the message in its file.
    It can be called with a RecordBatch or a StructArray, for a BinaryArray as long as it; `encode` returns values and failures apart.
    """

    def __init__(
        self,
        schema: str | Path,
        *,
        message: str | None = None,
        references: Mapping[str, str] | None = None,
        schema_id: int | None = None,
    ) -> None:
        self._descriptors = compiled(proto_text(schema), references)
        files = Files(self._descriptors)
        found = files.message(message)
        self._name: str = found.full_name
        self._frame = b"" if schema_id is None else frame(schema_id) + files.indexes(found)
        self._prepare()

    def _prepare(self) -> None:
        self._message = Files(self._descriptors).message(self._name)
        self._programs = CompiledPrograms(self._program, lambda program: protobuf_writer_kernel()[1](program))

    def _program(self, columns: pa.Schema) -> ColumnsProgram:
        return message_program(self._message, columns)

    def __getstate__(self) -> dict[str, Any]:
        return {name: value for name, value in vars(self).items() if name not in ("_message", "_programs")}

    def __setstate__(self, state: dict[str, Any]) -> None:
        vars(self).update(state)
        self._prepare()

    def __repr__(self) -> str:
        return f"<ProtobufEncoder {self._name}>"

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
