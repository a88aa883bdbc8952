"""Plans that read Protobuf messages into columns, in flat form for the kernel.

A message is read in two passes. The first goes over its bytes once and notes, for each field, where it occurs first and last; unknown fields
are passed over. The second puts one value into each column: of a singular field the last one, or, of a message that occurs several times,
all its parts one behind the other, which is how Protobuf merges them; of a repeated field all that lie between the first and the last. A
field of a oneof that another one follows counts as absent. So nothing is put that has to be taken back, and columns are filled in order.
"""

from __future__ import annotations

from array import array
from enum import IntEnum
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from msgspec import Struct

from .avro_program import count_columns
from .protobuf_schema import (
    DURATION,
    DYNAMIC,
    MESSAGES,
    TIMESTAMP,
    WRAPPERS,
    arrow_schema,
    is_map,
    is_nullable,
    is_proto2,
    is_repeated,
)


class Wire(IntEnum):
    """Form of a field's values on the wire, by its type."""

    VARINT = 0  # signed 64 bits, cut to the column's
    ZIGZAG = 1
    UNSIGNED = 2  # 32 or 64 bits
    BOOL = 3
    ENUM = 4
    FIXED32 = 5
    FIXED64 = 6
    UFIXED32 = 7
    UFIXED64 = 8
    FLOAT = 9
    DOUBLE = 10
    BYTES = 11
    TEXT = 12
    MESSAGE = 13
    GROUP = 14
    TIMESTAMP = 15
    DURATION = 16
    WRAPPER = 17
    JSON = 18  # a Struct, Value or ListValue: its bytes, of which `protobuf_json` makes a text


_WIRE = {
    1: Wire.DOUBLE, 2: Wire.FLOAT, 3: Wire.VARINT, 4: Wire.UNSIGNED, 5: Wire.VARINT, 6: Wire.UFIXED64, 7: Wire.UFIXED32, 8: Wire.BOOL,
    9: Wire.TEXT, 10: Wire.GROUP, 11: Wire.MESSAGE, 12: Wire.BYTES, 13: Wire.UNSIGNED, 14: Wire.ENUM, 15: Wire.FIXED32,
    16: Wire.FIXED64, 17: Wire.ZIGZAG, 18: Wire.ZIGZAG,
}  # fmt: skip

SINGULAR, LIST, MAP = 0, 1, 2
NULLABLE, REQUIRED, CLOSED, GROUPED, UNCHECKED = 1, 2, 4, 8, 16
"""Bits of a field's flags. CLOSED: unknown numbers of its enum count as unknown fields. GROUPED: its message is delimited by tags.
UNCHECKED: its text may be none where a later one replaces it, as in proto2."""


class ProtobufCode(IntEnum):
    """Why a value can't be read. The first two are those of the columns."""

    MEMORY = 1
    FULL = 2
    SHORT = 10
    VARINT = 11
    TAG = 12
    GROUP = 13
    UTF8 = 14
    REQUIRED = 15
    RANGE = 16
    JSON = 17


_TEXTS = {
    ProtobufCode.MEMORY: "there is no memory left",
    ProtobufCode.FULL: "one column has more than 2 GiB: read smaller batches",
    ProtobufCode.SHORT: "the value ends within a field",
    ProtobufCode.VARINT: "a number has more than ten bytes",
    ProtobufCode.TAG: "there is no such field number or wire type",
    ProtobufCode.GROUP: "a group doesn't end as it began",
    ProtobufCode.UTF8: "a string is not UTF-8",
    ProtobufCode.REQUIRED: "a required field is missing",
    ProtobufCode.RANGE: "a time is out of range",
    ProtobufCode.JSON: "the value can't be given as JSON",
}


class ProtobufMachine(Protocol):
    """A plan, ready to be carried out on any number of batches: in the kernel, or by Protobuf's own runtime."""

    def run(
        self, values: Any, rows: npt.NDArray[np.int32], skipped: npt.NDArray[np.int32]
    ) -> tuple[pa.RecordBatch, list[tuple[int, int, int]]]:
        """Reads the values with these numbers, each from its own byte `skipped` on. Returns a batch of those that could be read, and
        (position in `rows`, code, field) of the others; field -1 is none. No value may be null."""
        ...


class Plan(Struct, eq=False):
    """Messages and fields in flat form. `messages` has for each message its first field and their number. `fields` has `WIDTH` numbers for
    each: number, wire, shape, flags, column, oneof (-1: none), a message (of a wrapper its value's wire), an enum, and an enum's default among `defaults` (-1: 0)."""

    descriptors: bytes
    message: str
    enums: str
    schema: pa.Schema
    messages: array[int]
    fields: array[int]
    symbols: list[list[tuple[int, bytes]]]
    defaults: list[bytes]
    paths: list[str]

    def reason(self, code: int, field: int) -> str:
        """Says why a value failed, and at which field."""
        where = f"{self.paths[field]}: " if 0 <= field < len(self.paths) else ""
        return where + _TEXTS[ProtobufCode(code)]


WIDTH = 9


def plan(message: Any, descriptors: bytes, enums: str) -> Plan:
    """The plan of a message's descriptor. Raises `ConfigError`, naming the field, for what no column can hold."""
    schema = arrow_schema(message, enums)
    made = Plan(descriptors, message.full_name, enums, schema, array("q"), array("q"), [], [], [])
    _Planner(made).message(message, 1, pa.struct(list(schema)), "")
    return made


class _Planner:
    """Adds messages, each with its fields one behind the other, and the messages inside it behind them."""

    def __init__(self, made: Plan) -> None:
        self._plan = made
        self._proto2: dict[str, bool] = {}
        """Whether a file is in proto2, by its name."""

    def message(self, message: Any, column: int, kind: Any, path: str) -> int:
        """Adds a message whose first field has this column; returns its number."""
        made = self._plan
        number, first = len(made.messages) // 2, len(made.fields) // WIDTH
        made.messages.extend((first, len(message.fields)))
        made.fields.extend([0] * (WIDTH * len(message.fields)))
        made.paths += [f"{path}{field.name}" for field in message.fields]
        for at, field in enumerate(message.fields, first):
            of = kind.field(at - first).type
            row = self._field(field, column, of, made.paths[at])
            made.fields[WIDTH * at : WIDTH * (at + 1)] = array("q", row)
            column += count_columns(of)
        return number

    def _is_proto2(self, file: Any) -> bool:
        if file.name not in self._proto2:
            self._proto2[file.name] = is_proto2(file)
        return self._proto2[file.name]

    def _field(self, field: Any, column: int, kind: Any, path: str) -> list[int]:
        wire, shape, inner = self._wire(field), SINGULAR, -1
        if is_map(field):
            shape = MAP
            entry = pa.struct([pa.field("key", kind.key_type), pa.field("value", kind.item_type)])
            inner = self.message(field.message_type, column + 1, entry, f"{path}.")
        elif field.type in MESSAGES:
            at, of = (column + 2, kind.value_type) if is_repeated(field) else (column + 1, kind)
            if wire in (Wire.MESSAGE, Wire.GROUP):
                inner = self.message(field.message_type, at, of, f"{path}.")
        if is_repeated(field) and not is_map(field):
            shape = LIST
        # A map's entry without its value has an empty one.
        of_entry = bool(field.containing_type.GetOptions().map_entry)
        flags = NULLABLE * (shape == SINGULAR and is_nullable(field) and not of_entry) + REQUIRED * bool(
            field.is_required
        )
        of_enum, default = -1, -1
        if field.enum_type is not None:
            flags |= CLOSED * bool(field.enum_type.is_closed)
            if self._plan.enums == "name" or field.enum_type.is_closed:
                of_enum = self._symbols(field.enum_type)
        if field.type == 10:
            flags |= GROUPED
        if wire is Wire.TEXT and self._is_proto2(field.file):
            flags |= UNCHECKED
        if shape == SINGULAR and field.type not in MESSAGES and not flags & NULLABLE:
            default = self._default(field)
        oneof = field.containing_oneof
        alone = oneof is None or len(oneof.fields) == 1  # one of its own is how proto3's `optional` is kept
        if wire is Wire.WRAPPER:
            inner = int(self._wire_of_wrapped(field))
        elif wire is Wire.JSON:
            inner = DYNAMIC.index(field.message_type.full_name)
        return [
            field.number,
            int(wire),
            shape,
            flags,
            column,
            -1 if alone else oneof.index,
            inner,
            of_enum,
            default,
        ]

    def _wire(self, field: Any) -> Wire:
        if field.type in MESSAGES:
            name = field.message_type.full_name
            if name == TIMESTAMP:
                return Wire.TIMESTAMP
            if name == DURATION:
                return Wire.DURATION
            if name in DYNAMIC:
                return Wire.JSON
            return Wire.WRAPPER if name in WRAPPERS else Wire.MESSAGE
        return _WIRE[field.type]

    def _wire_of_wrapped(self, field: Any) -> Wire:
        return _WIRE[field.message_type.fields_by_number[1].type]

    def _symbols(self, enum: Any) -> int:
        self._plan.symbols.append(
            sorted({value.number: value.name.encode() for value in reversed(enum.values)}.items())
        )
        return len(self._plan.symbols) - 1

    def _default(self, field: Any) -> int:
        """The name that an enum without presence has where it is absent; other fields without presence are 0 or empty then."""
        if field.enum_type is None or self._plan.enums != "name":
            return -1
        self._plan.defaults.append(field.enum_type.values_by_number[field.default_value].name.encode())
        return len(self._plan.defaults) - 1
