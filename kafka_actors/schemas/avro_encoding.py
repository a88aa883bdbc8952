"""Programs that write Avro values from columns: the reverse of `avro_resolution`.

The same steps as for reading stand for writing: each takes a value from its column and appends it in the writer's type. Columns are found by
name. What a column can never give raises `ConfigError` with its path when the program is made; what depends on the value, such as a null in
a field that has none, fails for the records that have it.
"""

from __future__ import annotations

from operator import attrgetter
from typing import Any

import pyarrow as pa
from msgspec import UNSET

from kafka_actors.errors import ConfigError

from .avro_column import ROOT, ColumnForm, form_of
from .avro_default import encoded_default, long
from .avro_program import Op, Step, flat
from .avro_resolution import described
from .avro_schema import Array, AvroRecord, AvroType, Field, Map, Primitive, Union, is_null, members_of
from .written_columns import ColumnsProgram, Part, WrittenColumns, field_of, joined, plain_column


def writer_program(kind: AvroType, columns: pa.Schema) -> ColumnsProgram:
    """The program that writes rows with these columns. A type that is no record takes the one column `value`. Raises `ConfigError`, naming
    the path."""
    encoding = _Encoding()
    row = kind if isinstance(kind, AvroRecord) else AvroRecord("", [Field("value", kind)])
    try:
        root = encoding.record(row, pa.struct(list(columns)), ROOT, "")
    except _UnfitColumn as unfit:
        raise ConfigError(unfit.option, unfit.message) from unfit.__cause__
    return ColumnsProgram(flat(columns, root), encoding.columns)


class _UnfitColumn(ConfigError):
    """A column that can't give a type: another branch of a union may take it. Outside of this module it is a `ConfigError`."""


def _unfit(path: str, kind: AvroType, arrow: Any) -> _UnfitColumn:
    return _UnfitColumn("schema", f"{path}: the column is {arrow}, the schema has {described(kind)}")


class _Encoding:
    """Makes the steps, and numbers the columns that they read."""

    def __init__(self) -> None:
        self.columns = WrittenColumns()

    def step(self, kind: AvroType, arrow: Any, parent: int, part: Part, path: str) -> Step:
        """The step that writes a value of this type from a column of the type `arrow`, which is `part` of another column."""
        arrow, part = plain_column(arrow, part)
        if isinstance(kind, Union):
            return self._union(kind, arrow, parent, part, path)
        if isinstance(kind, AvroRecord):
            if not pa.types.is_struct(arrow):
                raise _unfit(path, kind, arrow)
            return self.record(kind, arrow, self.columns.add(parent, part), path)
        if isinstance(kind, Array):
            return self._array(kind, arrow, parent, part, path)
        if isinstance(kind, Map):
            return self._map(kind, arrow, parent, part, path)
        form = form_of(kind, arrow)
        if form is None:
            raise _unfit(path, kind, arrow)
        return self._leaf(form, parent, part, path)

    def _leaf(self, form: ColumnForm, parent: int, part: Part, path: str) -> Step:
        return Step(form.op, self.columns.add(parent, part, form.convert), form.store, form.size, path=path)

    def _array(self, kind: Array, arrow: Any, parent: int, part: Part, path: str) -> Step:
        column = self.columns.add_list(arrow, parent, part)
        if column is None:
            raise _unfit(path, kind, arrow)
        item = self.step(kind.items, arrow.value_type, column, attrgetter("values"), f"{path}[]")
        return Step(Op.ARRAY, column, children=[item], path=path)

    def _map(self, kind: Map, arrow: Any, parent: int, part: Part, path: str) -> Step:
        form = form_of(_TEXT, arrow.key_type) if pa.types.is_map(arrow) else None
        if form is None:
            raise _unfit(path, kind, arrow)
        column = self.columns.add(parent, part)
        key = self._leaf(form, column, attrgetter("keys"), path)
        value = self.step(kind.values, arrow.item_type, column, attrgetter("items"), f"{path}{{}}")
        return Step(Op.MAP, column, children=[key, value], path=path)

    # ------------------------------------------------------------ records

    def record(self, kind: AvroRecord, arrow: Any, column: int, path: str) -> Step:
        names = [field.name for field in arrow]
        known = [field.name for field in kind.fields]
        for name in names:
            if name not in known:
                raise _UnfitColumn(
                    "schema",
                    f"{joined(path, name)}: the schema has no such field, so the column would be lost",
                )
            if names.count(name) > 1:
                raise _UnfitColumn("schema", f"{joined(path, name)}: there is more than one such column")
        children = [
            self.step(
                field.type, arrow.field(names.index(field.name)).type, column,
                field_of(names.index(field.name)), joined(path, field.name),
            )
            if field.name in names
            else _default(field, joined(path, field.name))
            for field in kind.fields
        ]  # fmt: skip
        return Step(Op.RECORD, column, children=children, path=path)

    # ------------------------------------------------------------ unions

    def _union(self, kind: Union, arrow: Any, parent: int, part: Part, path: str) -> Step:
        """A struct of `member0` … where the union has several types; otherwise the first branch that the column fits."""
        null = next((number for number, one in enumerate(kind.branches) if is_null(one)), -1)
        if pa.types.is_null(arrow) and null >= 0:
            return Step(Op.UNION, self.columns.add(parent, part), size=null, path=path)
        if len(members_of(kind)) > 1 and _has_members(arrow):
            return self._members(kind, arrow, null, parent, part, path)
        for branch in sorted(kind.branches, key=lambda one: _precision(one, arrow)):
            before = len(self.columns)
            try:
                child = self.step(branch, arrow, parent, part, path)
            except _UnfitColumn as unfit:
                self.columns.cut(before)
                if len(kind.branches) == 1 + (null >= 0) and not is_null(branch):
                    raise
                problem = unfit
                continue
            number = next(at for at, one in enumerate(kind.branches) if one is branch)
            member = Step(Op.MEMBER, child.column, size=number, children=[child], path=path)
            return Step(Op.UNION, child.column, size=null, children=[member], path=path)
        raise _unfit(path, kind, arrow) from ConfigError(problem.option, problem.message)

    def _members(self, kind: Union, arrow: Any, null: int, parent: int, part: Part, path: str) -> Step:
        column = self.columns.add(parent, part)
        branches = [(number, one) for number, one in enumerate(kind.branches) if not is_null(one)]
        children = []
        for at, field in enumerate(arrow):
            which = int(field.name.removeprefix("member"))
            if which >= len(branches):
                raise _UnfitColumn(
                    "schema", f"{joined(path, field.name)}: the union has {len(branches)} types"
                )
            number, branch = branches[which]
            child = self.step(branch, field.type, column, field_of(at), joined(path, field.name))
            children.append(Step(Op.MEMBER, child.column, size=number, children=[child], path=path))
        return Step(Op.UNION, column, size=null, children=children, path=path)


_TEXT = Primitive("string")


def _default(field: Field, path: str) -> Step:
    if field.default is UNSET:
        raise _UnfitColumn("schema", f"{path}: there is no such column, and the schema has no default for it")
    kind, data = encoded_default(field.type, field.default, path)
    if isinstance(field.type, Union):
        data = long(next(at for at, one in enumerate(field.type.branches) if one is kind)) + data
    return Step(Op.CONSTANT, texts=[data], path=path)


def _has_members(arrow: Any) -> bool:
    return bool(
        pa.types.is_struct(arrow)
        and arrow.num_fields
        and all(f.name.startswith("member") and f.name[6:].isdigit() for f in arrow)
    )


def _precision(branch: AvroType, arrow: Any) -> int:
    """Order in which branches are tried: those that hold every value of the column come first."""
    form = None if isinstance(branch, (Union, AvroRecord, Array, Map)) else form_of(branch, arrow)
    return 1 if form is not None and form.narrows else 0
