"""The twin of `_avro_kernel.pyx` in plain Python: the same programs, with the same rows and the same failures."""

from __future__ import annotations

import struct
import uuid
from array import array
from collections.abc import Sequence
from decimal import Context, Decimal
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from ._reference_columns import Columns
from .avro_program import MOST_DEPTH, MOST_EMPTY, WIDTH, AvroMachine, Code, Op, Program, Store

_MANY_DIGITS = Context(prec=100)


class _ReadFailed(Exception):
    def __init__(self, code: Code, number: int = 0) -> None:
        super().__init__(code, number)
        self.code = code
        self.number = number


class ReferenceAvroMachine(AvroMachine):
    """Program in plain Python."""

    def __init__(self, program: Program) -> None:
        self._program = program

    def run(
        self, values: Any, rows: Sequence[int] | npt.NDArray[np.int32], skipped: int
    ) -> tuple[pa.RecordBatch, list[tuple[int, int, int, int]]]:
        """Reads the values with these numbers, each from its byte `skipped` on. Returns a batch of those that could be read, and
        (position in `rows`, code, step, number) of the others. No value may be null."""
        columns = Columns(self._program.schema)
        failures = []
        good = 0
        for position, row in enumerate(rows):
            value = values[int(row)].as_py()
            reading = _Reading(self._program, columns, value, skipped)
            try:
                if skipped > len(value):
                    raise _ReadFailed(Code.SHORT)
                reading.run(0)
                if left := len(value) - reading.p:
                    reading.at = 0
                    raise _ReadFailed(Code.TRAILING, left)
            except _ReadFailed as failed:
                columns.truncate(0, good)
                failures.append((position, int(failed.code), reading.at, failed.number))
                continue
            good += 1
        return columns.finish(), failures


class _Reading:
    """One value that is read. `at` is the step that reads now."""

    def __init__(self, program: Program, columns: Columns, data: bytes, p: int) -> None:
        self._program = program
        self._columns = columns
        self._data = data
        self.p = p
        self.at = 0
        self._depth = 0
        self._empty = 0

    def run(self, at: int) -> None:
        program = self._program
        op, column, store, size, first, count = program.steps[WIDTH * at : WIDTH * (at + 1)]
        self.at = at
        children = program.children[first : first + count] if op != Op.ENUM else array("i")
        match Op(op):
            case Op.NULL:
                if column >= 0:
                    self._columns.put_null(column)
            case Op.INT | Op.LONG:
                number = self._long()
                if op == Op.INT and not -(2**31) <= number < 2**31:
                    raise _ReadFailed(Code.RANGE, number)
                self._put(column, _number(number, Store(store)))
            case Op.BYTES:
                data = self._bytes()
                if column >= 0:
                    self._put(column, _text(data) if store == Store.TEXT else data)
            case Op.DECIMAL:
                data = self._bytes()
                if column >= 0:
                    self._decimal(column, data, size)
            case Op.FLOAT:
                self._put(column, struct.unpack("<f", self._take(4))[0])
            case Op.DOUBLE:
                self._put(column, struct.unpack("<d", self._take(8))[0])
            case Op.BOOLEAN:
                if (byte := self._peek()) > 1:
                    raise _ReadFailed(Code.BOOLEAN, byte)
                self.p += 1
                self._put(column, byte == 1)
            case Op.ENUM:
                number = self._long()
                if not 0 <= number < count or program.texts[first + number] is None:
                    raise _ReadFailed(Code.SYMBOL, number)
                self._put(column, (program.texts[first + number] or b"").decode())
            case Op.UNION:
                number = self._long()
                if not 0 <= number < count:
                    raise _ReadFailed(Code.BRANCH, number)
                self.run(children[number])
            case Op.RECORD:
                self._deeper()
                for child in children:
                    self.run(child)
                self._depth -= 1
                if column >= 0:
                    self._columns.close_struct(column)
            case Op.ARRAY | Op.MAP:
                self._deeper()
                self._items(at, children)
                self._depth -= 1
                if column >= 0:
                    self._columns.close_list(column)
            case Op.CONSTANT:
                data, p = self._data, self.p
                self._data, self.p = program.texts[size] or b"", 0
                self.run(children[0])
                self._data, self.p = data, p
            case Op.MEMBER:
                for number, child in enumerate(self._columns.nodes[column].children):
                    if number == size:
                        self.run(children[0])
                    else:
                        self._columns.put_null(child)
                self._columns.close_struct(column)
            case Op.FAIL:
                raise _ReadFailed(Code.REFUSED)
            case _:
                self._fixed(Op(op), column, size)

    def _fixed(self, op: Op, column: int, size: int) -> None:
        data = self._take(size & 0xFFFFFFFF)
        if column < 0:
            return
        if op is Op.FIXED_DECIMAL:
            self._decimal(column, data, size >> 32)
        elif op is Op.UUID:
            self._put(column, str(uuid.UUID(bytes=data)))
        elif op is Op.DURATION:
            months, days, millis = struct.unpack("<III", data)
            if max(months, days) >= 2**31:
                raise _ReadFailed(Code.RANGE)
            self._put(column, (months, days, millis * 1_000_000))
        else:
            self._put(column, data)

    def _put(self, column: int, value: Any) -> None:
        if column >= 0:
            self._columns.put(column, value)

    def _decimal(self, column: int, data: bytes, digits: int) -> None:
        number = int.from_bytes(data, "big", signed=True)
        if abs(number) >= 10**digits:
            raise _ReadFailed(Code.DECIMAL)
        scale = self._columns.nodes[column].kind.scale
        self._put(column, Decimal(number).scaleb(-scale, _MANY_DIGITS))

    def _deeper(self) -> None:
        if self._depth >= MOST_DEPTH:
            raise _ReadFailed(Code.DEPTH)
        self._depth += 1

    def _items(self, at: int, children: Sequence[int]) -> None:
        while True:
            self.at = at
            count = self._long()
            if count == 0:
                return
            if count < 0:
                size = self._long()
                if size < 0 or count == -(2**63):
                    raise _ReadFailed(Code.LENGTH, size if size < 0 else count)
                count = -count
            for _ in range(count):
                before = self.p
                for child in children:
                    self.run(child)
                if self.p == before:
                    self._empty += 1
                    if self._empty > MOST_EMPTY:
                        self.at = at
                        raise _ReadFailed(Code.EMPTY)

    def _peek(self) -> int:
        if self.p == len(self._data):
            raise _ReadFailed(Code.SHORT)
        return self._data[self.p]

    def _take(self, size: int) -> bytes:
        if len(self._data) - self.p < size:
            raise _ReadFailed(Code.SHORT)
        self.p += size
        return self._data[self.p - size : self.p]

    def _bytes(self) -> bytes:
        size = self._long()
        if size < 0:
            raise _ReadFailed(Code.LENGTH, size)
        return self._take(size)

    def _long(self) -> int:
        value = shift = 0
        p = self.p
        while True:
            if p == len(self._data):
                raise _ReadFailed(Code.SHORT)
            byte = self._data[p]
            p += 1
            if shift == 63 and byte > 1:
                raise _ReadFailed(Code.VARINT)
            value |= (byte & 0x7F) << shift
            if byte < 0x80:
                break
            shift += 7
        self.p = p
        return (value >> 1) ^ -(value & 1)


def _number(value: int, store: Store) -> int | float:
    if store is Store.FLOAT:
        made: float = struct.unpack("<f", struct.pack("<f", value))[0]
        return made
    return float(value) if store is Store.DOUBLE else value


def _text(data: bytes) -> str:
    try:
        return data.decode()
    except UnicodeDecodeError:
        raise _ReadFailed(Code.UTF8) from None
