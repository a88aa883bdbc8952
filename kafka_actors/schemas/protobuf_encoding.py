"""Programs that write Protobuf messages from columns: the reverse of `protobuf_plan`.

Columns are found by the names of the message's fields. What a column can never give raises `ConfigError` with its path when the program is
made; what depends on the value, such as two members of a oneof, fails for the rows that have it.
"""

from __future__ import annotations

from functools import partial
from operator import attrgetter
from typing import Any

import pyarrow as pa

from kafka_actors.errors import ConfigError

from .avro_column import ROOT, form_of
from .avro_schema import Primitive
from .framing import varint
from .protobuf_column import scalar_form, time_form
from .protobuf_json import payloads
from .protobuf_program import ALWAYS, BARE, NULLABLE, WriteOp, WriteStep, flat
from .protobuf_schema import (
    DURATION,
    DYNAMIC,
    MESSAGES,
    TIMESTAMP,
    WRAPPERS,
    is_map,
    is_nullable,
    is_repeated,
    kind_of_field,
)
from .written_columns import ColumnsProgram, Part, WrittenColumns, field_of, joined, plain_column

_TIMES = {TIMESTAMP: WriteOp.TIMESTAMP, DURATION: WriteOp.DURATION}
_ANY = "google.protobuf.Any"
_WIRE = {
    WriteOp.FIXED64: 1, WriteOp.DOUBLE: 1, WriteOp.FIXED32: 5, WriteOp.FLOAT: 5, WriteOp.BYTES: 2, WriteOp.TEXT: 2, WriteOp.TIMESTAMP: 2,
    WriteOp.DURATION: 2, WriteOp.MESSAGE: 2, WriteOp.GROUP: 3, WriteOp.JSON: 2,
}  # fmt: skip
"""Wire types of tags; 0 of the other steps."""


def message_program(message: Any, columns: pa.Schema) -> ColumnsProgram:
    """The program that writes rows with these columns as a message of this descriptor. Raises `ConfigError`, naming the path."""
    encoding = _MessageEncoding()
    children = encoding.fields(message, pa.struct(list(columns)), ROOT, "")
    root = WriteStep(WriteOp.MESSAGE, ROOT, flags=ALWAYS | BARE, children=children)
    return ColumnsProgram(flat(root), encoding.columns)


class _MessageEncoding:
    """Makes the steps, and numbers the columns that they read."""

    def __init__(self) -> None:
        self.columns = WrittenColumns()

    def fields(self, message: Any, arrow: Any, column: int, path: str) -> list[WriteStep]:
        """The steps of a message's fields, from the columns of a struct."""
        if message.full_name == _ANY:
            raise ConfigError(
                "schema", f"{path or 'the message'}: {message.full_name} can't be written from columns"
            )
        names = [one.name for one in arrow]
        known = message.fields_by_name
        for name in names:
            if name not in known:
                raise ConfigError(
                    "schema",
                    f"{joined(path, name)}: {message.full_name} has no such field, so the column would be lost",
                )
            if names.count(name) > 1:
                raise ConfigError("schema", f"{joined(path, name)}: there is more than one such column")
        made: dict[str, WriteStep] = {}
        for field in sorted(message.fields, key=attrgetter("number")):
            inside = joined(path, field.name)
            if field.name in names:
                at = names.index(field.name)
                if pa.types.is_null(arrow.field(at).type) and is_nullable(field):
                    continue
                made[field.name] = self._field(field, arrow.field(at).type, column, field_of(at), inside)
            elif field.is_required:
                raise ConfigError("schema", f"{inside}: there is no such column, and the field is required")
        return [*_oneofs(message, made, column, path), *made.values()]

    def _field(self, field: Any, arrow: Any, parent: int, part: Part, path: str) -> WriteStep:
        arrow, part = plain_column(arrow, part)
        if is_map(field):
            return self._map(field, arrow, parent, part, path)
        if is_repeated(field):
            return self._list(field, arrow, parent, part, path)
        presence = NULLABLE if is_nullable(field) else 0
        return self._one(field, arrow, parent, part, path, presence | ALWAYS * bool(field.has_presence))

    def _list(self, field: Any, arrow: Any, parent: int, part: Part, path: str) -> WriteStep:
        column = self.columns.add_list(arrow, parent, part)
        if column is None:
            raise _unfit(path, field, arrow)
        inner, items = plain_column(arrow.value_type, attrgetter("values"))
        item = self._one(field, inner, column, items, f"{path}[]", ALWAYS)
        if not field.is_packed:
            return WriteStep(WriteOp.LIST, column, children=[item], path=path)
        item.tag = b""
        return WriteStep(WriteOp.PACKED, column, tag=_tag(field, 2), children=[item], path=path)

    def _map(self, field: Any, arrow: Any, parent: int, part: Part, path: str) -> WriteStep:
        if not pa.types.is_map(arrow):
            raise _unfit(path, field, arrow)
        column = self.columns.add(parent, part)
        children = []
        for name, of, where in (("key", arrow.key_type, "keys"), ("value", arrow.item_type, "items")):
            inner, entries = plain_column(of, attrgetter(where))
            one = field.message_type.fields_by_name[name]
            children.append(self._one(one, inner, column, entries, f"{path}{{}}", ALWAYS))
        return WriteStep(WriteOp.MAP, column, tag=_tag(field, 2), children=children, path=path)

    def _one(self, field: Any, arrow: Any, parent: int, part: Part, path: str, flags: int) -> WriteStep:
        """The step that writes a field, or one of its items, from a column of the type `arrow`, which is `part` of another column."""
        if field.type not in MESSAGES:
            return self._scalar(field, field, arrow, parent, part, path, flags)
        message = field.message_type
        time = _TIMES.get(message.full_name)
        if time is not None:
            form = time_form(time, arrow)
            if form is None:
                raise _unfit(path, field, arrow)
            column = self.columns.add(parent, part, form.convert)
            return WriteStep(
                time, column, form.stored, form.size, flags, _tag(field, 2), path=path, kind=message.full_name
            )
        if message.full_name in DYNAMIC:
            if form_of(Primitive("string"), arrow) is None:
                raise _unfit(path, field, arrow)
            column = self.columns.add(parent, part, partial(payloads, message.full_name))
            return WriteStep(
                WriteOp.JSON, column, flags=flags, tag=_tag(field, 2), path=path, kind=message.full_name
            )
        op = WriteOp.GROUP if field.type == MESSAGES[0] else WriteOp.MESSAGE
        tag = _tag(field, _WIRE[op])
        if message.full_name in WRAPPERS:
            value = self._scalar(message.fields_by_number[1], field, arrow, parent, part, path, 0)
            return WriteStep(op, value.column, flags=flags, tag=tag, children=[value], path=path)
        if not pa.types.is_struct(arrow):
            raise _unfit(path, field, arrow)
        column = self.columns.add(parent, part)
        children = self.fields(message, arrow, column, path)
        return WriteStep(op, column, flags=flags, tag=tag, children=children, path=path)

    def _scalar(
        self, field: Any, named: Any, arrow: Any, parent: int, part: Part, path: str, flags: int
    ) -> WriteStep:
        kind = kind_of_field(field)
        form = scalar_form(field, kind, arrow)
        if form is None:
            raise _unfit(path, named, arrow)
        column = self.columns.add(parent, part, form.convert)
        kind = kind if field.enum_type is None else field.enum_type.full_name
        tag = _tag(field, _WIRE.get(form.op, 0))
        return WriteStep(form.op, column, form.stored, form.size, flags, tag, path=path, kind=kind)


def _oneofs(message: Any, made: dict[str, WriteStep], column: int, path: str) -> list[WriteStep]:
    """A step for each oneof of which more than one member has a column."""
    found = []
    for oneof in message.oneofs:
        members = [made[field.name] for field in oneof.fields if field.name in made]
        if len(members) > 1:
            names = tuple(field.name for field in oneof.fields if field.name in made)
            where = joined(path, oneof.name)
            found.append(WriteStep(WriteOp.ONEOF, column, children=members, path=where, members=names))
    return found


def _tag(field: Any, wire: int) -> bytes:
    return varint(field.number << 3 | wire)


def _unfit(path: str, field: Any, arrow: Any) -> ConfigError:
    if is_map(field):
        what = "a map"
    else:
        what = kind_of_field(field) if field.type not in MESSAGES else field.message_type.full_name
        what = what if field.enum_type is None else f"enum {field.enum_type.full_name}"
        what = f"repeated {what}" if is_repeated(field) and not path.endswith("[]") else what
    return ConfigError("schema", f"{path}: the column is {arrow}, the schema has {what}")
