"""Columns that values are written of, whatever the format: how each is reached from the rows, and a program over them, ready to be carried out."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Protocol

import pyarrow as pa
from msgspec import Struct

from .avro_column import ROOT
from .results import NULL_ROW, Array, EncodedValues, numbers_without, struct_of

Part = Callable[[Any], Any]
"""A function from a column's array to that of a column inside it."""


class WriterMachine(Protocol):
    """A program, ready to be carried out on any number of batches: in a kernel, or in its twin."""

    def run(
        self, columns: Sequence[Any], rows: int, frame: bytes
    ) -> tuple[Any, list[tuple[int, int, int, int]]]:
        """Writes so many rows, each behind `frame`. Returns a binary array of those that could be written, and
        (row, code, step, number) of the others. Raises `OverflowError` where the values have more than 2 GiB."""
        ...


class FlatProgram(Protocol):
    """Steps in the flat form that machines take."""

    def reason(self, code: int, at: int, number: int) -> str:
        """Says why a row failed at a step; `number` is what was found there."""
        ...


class _Column(Struct, eq=False):
    """Column that is read: where it is in the column `parent`, whose number is lower, and how it gets the form that machines take."""

    parent: int
    part: Part
    convert: Part | None = None

    def array(self, found: Sequence[Any]) -> Any:
        made = self.part(found[self.parent])
        return made if self.convert is None else self.convert(made)


class WrittenColumns:
    """Columns by number; column 0 (`ROOT`) is the row itself."""

    def __init__(self) -> None:
        self._columns = [_Column(ROOT, lambda rows: rows)]

    def __len__(self) -> int:
        return len(self._columns)

    def add(self, parent: int, part: Part, convert: Part | None = None) -> int:
        """Adds the column that is `part` of another one. Returns its number."""
        self._columns.append(_Column(parent, part, convert))
        return len(self._columns) - 1

    def add_list(self, arrow: Any, parent: int, part: Part) -> int | None:
        """Adds a list of any kind as a plain one. Returns its number, None where the type is no list."""
        types = pa.types
        others = (types.is_large_list, types.is_fixed_size_list, types.is_list_view, types.is_large_list_view)
        if not types.is_list(arrow) and not any(is_other(arrow) for is_other in others):
            return None
        wanted = pa.list_(arrow.value_field)
        return self.add(parent, part, None if arrow == wanted else lambda array: array.cast(wanted))

    def cut(self, count: int) -> None:
        """Drops all but the first columns."""
        del self._columns[count:]

    def arrays(self, rows: Any) -> list[Any]:
        """The arrays of all columns, from the StructArray of the rows."""
        found = [rows]
        for column in self._columns[1:]:
            found.append(column.array(found))
        return found


class ColumnsProgram(Struct, eq=False):
    """Steps, and the columns by whose numbers they name them."""

    program: FlatProgram
    columns: WrittenColumns


class CompiledPrograms:
    """Programs of one schema for rows of any types, each made when such rows come first. It may be used by several threads.

    `make` makes the program for columns; `machine` the one that carries it out.
    """

    def __init__(
        self, make: Callable[[pa.Schema], ColumnsProgram], machine: Callable[[Any], WriterMachine]
    ) -> None:
        self._make = make
        self._machine = machine
        self._made: dict[Any, tuple[ColumnsProgram, WriterMachine]] = {}

    def encode(self, rows: Any, frame: bytes) -> EncodedValues:
        """Encodes a RecordBatch or a StructArray, each value behind `frame`. Raises as `make`."""
        given = struct_of(rows)
        if given.type not in self._made:
            made = self._make(pa.schema(list(given.type)))
            self._made[given.type] = made, self._machine(made.program)
        made, machine = self._made[given.type]
        values, failed = machine.run(made.columns.arrays(given), len(given), frame)
        nulls = _nulls(given)
        failures = [
            (row, NULL_ROW if row in nulls else made.program.reason(code, step, number))
            for row, code, step, number in failed
        ]
        return EncodedValues(values, numbers_without(len(given), failures), failures)


def _nulls(rows: Array) -> set[int]:
    if not rows.null_count:
        return set()
    return {at for at, there in enumerate(rows.is_valid().to_pylist()) if not there}


def plain_column(arrow: Any, part: Part) -> tuple[Any, Part]:
    """A type without extensions and dictionaries, and the function that gives such an array."""
    if isinstance(arrow, pa.BaseExtensionType):
        return plain_column(arrow.storage_type, lambda array: part(array).storage)
    if pa.types.is_dictionary(arrow):
        return plain_column(arrow.value_type, lambda array: part(array).dictionary_decode())
    return arrow, part


def field_of(at: int) -> Part:
    """The part that is a struct's field."""
    return lambda array: array.field(at)


def joined(path: str, name: str) -> str:
    """The path of a field."""
    return f"{path}.{name}" if path else name
