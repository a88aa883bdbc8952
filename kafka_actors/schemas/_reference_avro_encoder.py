"""The twin of `_avro_encoder_kernel.pyx` in plain Python: the same programs, with the same values and the same failures."""

from __future__ import annotations

import re
import struct
import uuid
from collections.abc import Sequence
from decimal import Context, Decimal
from typing import Any

import pyarrow as pa

from .avro_default import long
from .avro_program import WIDTH, Code, Op, Program
from .written_columns import WriterMachine

_MANY_DIGITS = Context(prec=100)
_UUID = re.compile("[0-9a-fA-F]{8}(-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}")


class _WriteFailed(Exception):
    def __init__(self, code: Code, number: int = 0) -> None:
        super().__init__(code, number)
        self.code = code
        self.number = number


class ReferenceAvroWriterMachine(WriterMachine):
    """Program in plain Python."""

    def __init__(self, program: Program) -> None:
        self._program = program

    def run(
        self, columns: Sequence[Any], rows: int, frame: bytes
    ) -> tuple[Any, list[tuple[int, int, int, int]]]:
        """Writes so many rows, each behind `frame`. Returns a binary array of those that could be written, and
        (row, code, step, number) of the others."""
        writing = _Writing(self._program, [values_of(column) for column in columns])
        values, failures = [], []
        for row in range(rows):
            writing.out = bytearray(frame)
            try:
                writing.write(0, row)
            except _WriteFailed as failed:
                failures.append((row, int(failed.code), writing.at, failed.number))
                continue
            values.append(bytes(writing.out))
        return pa.array(values, pa.binary()), failures


def values_of(column: Any) -> list[Any]:
    """The values of a column; of lists and maps the begin and end of each, of structs whether they are there."""
    types = pa.types
    if types.is_struct(column.type):
        return [True if valid else None for valid in column.is_valid().to_pylist()]
    if types.is_list(column.type) or types.is_map(column.type):
        ends = column.offsets.to_pylist()
        bounds = zip(ends[:-1], ends[1:], column.is_valid().to_pylist(), strict=True)
        return [(begin, end) if valid else None for begin, end, valid in bounds]
    values: list[Any] = column.to_pylist()
    return values


class _Writing:
    """Columns of a batch, and the value that is written. `at` is the step that writes now."""

    def __init__(self, program: Program, columns: list[list[Any]]) -> None:
        self._program = program
        self._columns = columns
        self.out = bytearray()
        self.at = 0

    def write(self, at: int, row: int) -> None:
        program = self._program
        op, column, _, size, first, count = program.steps[WIDTH * at : WIDTH * (at + 1)]
        children = program.children[first : first + count]
        self.at = at
        if op == Op.CONSTANT:
            self.out += program.texts[size] or b""
        elif op == Op.UNION:
            self._union(column, size, children, row)
        elif op != Op.NULL:
            value = self._columns[column][row]
            if value is None:
                raise _WriteFailed(Code.NO_VALUE)
            self._value(Op(op), size, value, children, row)

    def _union(self, column: int, null: int, children: Sequence[int], row: int) -> None:
        members = [self._program.steps[WIDTH * child : WIDTH * (child + 1)] for child in children]
        there = self._columns[column][row] is not None
        found = [one for one in members if there and self._columns[one[1]][row] is not None]
        if len(found) > 1:
            raise _WriteFailed(Code.MEMBERS, len(found))
        if found:
            _, _, _, branch, first, _ = found[0]
            self.out += long(branch)
            self.write(self._program.children[first], row)
        elif null < 0:
            raise _WriteFailed(Code.NO_MEMBER if there else Code.NO_VALUE)
        else:
            self.out += long(null)

    def _value(self, op: Op, size: int, value: Any, children: Sequence[int], row: int) -> None:
        match op:
            case Op.RECORD:
                for child in children:
                    self.write(child, row)
            case Op.ARRAY | Op.MAP:
                self._items(value[0], value[1], children)
            case Op.INT | Op.LONG:
                self.out += long(_in_unit(op, size, value))
            case Op.DOUBLE:
                self.out += struct.pack("<d", value)
            case Op.FLOAT:
                self.out += _float(value)
            case Op.BOOLEAN:
                self.out.append(value)
            case Op.ENUM:
                if value < 0:
                    raise _WriteFailed(Code.NO_SYMBOL)
                self.out += long(value)
            case Op.DECIMAL | Op.FIXED_DECIMAL:
                self.out += _decimal(op, size, value)
            case Op.DURATION:
                self.out += _duration(*value)
            case Op.UUID:
                self.out += _uuid(value)
            case _:
                self._bytes(op, size, value.encode() if isinstance(value, str) else value)

    def _items(self, begin: int, end: int, children: Sequence[int]) -> None:
        if end > begin:
            self.out += long(end - begin)
        for item in range(begin, end):
            for child in children:
                self.write(child, item)
        self.out += long(0)

    def _bytes(self, op: Op, size: int, data: bytes) -> None:
        if op is Op.FIXED and len(data) != size:
            raise _WriteFailed(Code.SIZE, len(data))
        self.out += data if op is Op.FIXED else long(len(data)) + data


def _in_unit(op: Op, factor: int, number: int) -> int:
    if factor > 1:
        if abs(number) > (2**63 - 1) // factor:
            raise _WriteFailed(Code.LONG_RANGE, number)
        number *= factor
    elif factor < -1:
        if number % -factor:
            raise _WriteFailed(Code.UNIT, number)
        number //= -factor
    if op is Op.INT and not -(2**31) <= number < 2**31:
        raise _WriteFailed(Code.RANGE, number)
    return number


def _float(value: float) -> bytes:
    try:
        return struct.pack("<f", value)
    except OverflowError:
        raise _WriteFailed(Code.FLOAT_RANGE) from None


def _decimal(op: Op, size: int, value: Decimal) -> bytes:
    _, _, exponent = value.as_tuple()
    assert isinstance(exponent, int)
    number = int(value.scaleb(-exponent, _MANY_DIGITS))
    digits = size if op is Op.DECIMAL else size >> 32
    if abs(number) >= 10**digits:
        raise _WriteFailed(Code.DECIMAL)
    needed = (number if number >= 0 else ~number).bit_length() // 8 + 1
    if op is Op.DECIMAL:
        return long(needed) + number.to_bytes(needed, "big", signed=True)
    if needed > size & 0xFFFFFFFF:
        raise _WriteFailed(Code.DECIMAL)
    return number.to_bytes(size & 0xFFFFFFFF, "big", signed=True)


def _duration(months: int, days: int, nanos: int) -> bytes:
    millis, rest = divmod(nanos, 1_000_000)
    if min(months, days, nanos) < 0 or rest or millis >= 2**32:
        raise _WriteFailed(Code.DURATION)
    return struct.pack("<III", months, days, millis)


def _uuid(text: str) -> bytes:
    if not _UUID.fullmatch(text):
        raise _WriteFailed(Code.UUID)
    return uuid.UUID(text).bytes
