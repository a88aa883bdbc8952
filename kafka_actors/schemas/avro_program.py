"""Programs that read Avro values into columns, or write them: a graph of steps, and its flat form, which kernels and twins carry out.

What arrives is a value's bytes. Each step reads one value of the writer's type and puts it into one column of the reader's, or, with column
`SKIP`, reads over it. A record's steps are in the order in which the writer wrote; constants, which read nothing, put the defaults of
fields that the writer doesn't have. Whether a value can be read is decided by the step that is at it, so a failure has a path.
Writing has the same steps, in the writer's order; `avro_encoding` makes those.
"""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from enum import IntEnum
from typing import Any, Protocol, TypeVar

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from msgspec import Struct, field

SKIP = -1
MOST_DEPTH = 200
"""Nested values that are read, of types that hold themselves."""
MOST_EMPTY = 1_000_000
"""Items that take no bytes, in all arrays of a value."""


class Op(IntEnum):
    """Kinds of steps: a step reads a type of the writer's, or nothing (`CONSTANT`, `FAIL`, `MEMBER`)."""

    NULL = 0
    BOOLEAN = 1
    INT = 2
    LONG = 3
    FLOAT = 4
    DOUBLE = 5
    BYTES = 6  # also string; `store` TEXT is checked to be UTF-8
    FIXED = 7
    ENUM = 8  # `first`, `count`: texts of the writer's symbols
    DECIMAL = 9  # of bytes
    FIXED_DECIMAL = 10
    DURATION = 11
    UUID = 12  # of fixed(16)
    RECORD = 13
    ARRAY = 14
    MAP = 15  # children: key, value
    UNION = 16  # children by the writer's branch
    CONSTANT = 17  # runs its child over text `size`
    FAIL = 18
    MEMBER = 19  # struct of a union, of which child `size` is set by its child


class Store(IntEnum):
    """Form in which a value is put."""

    AS_IT_IS = 0
    INT32 = 1
    INT64 = 2
    FLOAT = 3
    DOUBLE = 4
    TEXT = 5


class Code(IntEnum):
    """Why a value can't be read, or, from `NO_VALUE` on, written. The first two are those of the columns."""

    MEMORY = 1
    FULL = 2
    SHORT = 10
    TRAILING = 11
    VARINT = 12
    RANGE = 13
    LENGTH = 14
    UTF8 = 15
    BRANCH = 16
    SYMBOL = 17
    BOOLEAN = 18
    DECIMAL = 19
    EMPTY = 20
    REFUSED = 21
    DEPTH = 22
    NO_VALUE = 30
    NO_SYMBOL = 31
    SIZE = 32
    UNIT = 33
    UUID = 34
    DURATION = 35
    NO_MEMBER = 36
    MEMBERS = 37
    LONG_RANGE = 38
    FLOAT_RANGE = 39


class Step(Struct, eq=False):
    """One step. `size`: bytes of a fixed, digits of a decimal, a text's number; `texts`: of an enum's symbols, None for one that the
    reader doesn't have; `reason`: of FAIL."""

    op: Op
    column: int = SKIP
    store: Store = Store.AS_IT_IS
    size: int = 0
    children: list[Step] = field(default_factory=list)
    texts: list[bytes | None] = field(default_factory=list)
    path: str = ""
    reason: str = ""


class AvroMachine(Protocol):
    """A program, ready to be carried out on any number of batches: in the kernel, or in its twin."""

    def run(
        self, values: Any, rows: Sequence[int] | npt.NDArray[np.int32], skipped: int
    ) -> tuple[pa.RecordBatch, list[tuple[int, int, int, int]]]:
        """Reads the values with these numbers, each from its byte `skipped` on. Returns a batch of those that could be read, and
        (position in `rows`, code, step, number) of the others. No value may be null."""
        ...


class Program(Struct, eq=False):
    """Steps in flat form. `steps` has `WIDTH` numbers for each: op, column, store, size, and the first and the number of its children
    (of an enum: of its texts). The first step reads the value."""

    schema: pa.Schema
    steps: array[int]
    children: array[int]
    texts: list[bytes | None]
    paths: list[str]
    reasons: list[str]

    def reason(self, code: int, step: int, number: int) -> str:
        """Says why a value failed at a step; `number` is what was found there."""
        where = f"{self.paths[step]}: " if self.paths[step] else ""
        return (
            where + _TEXTS[Code(code)].format(number=number)
            if code != Code.REFUSED
            else where + self.reasons[step]
        )


WIDTH = 6
_TEXTS = {
    Code.MEMORY: "there is no memory left",
    Code.FULL: "one column has more than 2 GiB: read smaller batches",
    Code.SHORT: "the value ends before the schema does",
    Code.TRAILING: "{number} bytes follow the record that the schema describes",
    Code.VARINT: "a number has more than ten bytes",
    Code.RANGE: "{number} is no int of 32 bits",
    Code.LENGTH: "a length is {number}",
    Code.UTF8: "a string is not UTF-8",
    Code.BRANCH: "there is no branch {number} in the union",
    Code.SYMBOL: "symbol {number} is none that the reader's enum has, and it has no default",
    Code.BOOLEAN: "a boolean is {number}",
    Code.DECIMAL: "a decimal has more digits than its precision",
    Code.EMPTY: "arrays have more than 1,000,000 items that take no bytes",
    Code.DEPTH: "values are nested more than 200 deep",
    Code.NO_VALUE: "the value is null, which the schema doesn't allow",
    Code.NO_SYMBOL: "the text is none of the enum's symbols",
    Code.SIZE: "there are {number} bytes, and the schema has a fixed size",
    Code.UNIT: "{number} is no whole number in the schema's unit: round it before",
    Code.UUID: "the text is no UUID",
    Code.DURATION: "a duration is negative, or has parts of a millisecond",
    Code.NO_MEMBER: "no member of the union is set, and null is none of its types",
    Code.MEMBERS: "{number} members of the union are set",
    Code.LONG_RANGE: "{number} is too large in the schema's unit",
    Code.FLOAT_RANGE: "a double is too large for a float",
}


class Branching(Protocol):
    """A step that leads to others."""

    children: list[Any]


S = TypeVar("S", bound=Branching)


def ordered(root: S) -> tuple[list[S], dict[int, int]]:
    """The steps of a graph, each before its children and once, and their numbers by `id`."""
    order: list[S] = []
    numbers: dict[int, int] = {}

    def visit(step: S) -> None:
        if id(step) in numbers:
            return
        numbers[id(step)] = len(order)
        order.append(step)
        for child in step.children:
            visit(child)

    visit(root)
    return order, numbers


def flat(schema: pa.Schema, root: Step) -> Program:
    """The flat form of a graph of steps, in which a step that is reached twice stands once."""
    order, numbers = ordered(root)
    steps, children, texts = array("q"), array("q"), list[bytes | None]()
    for step in order:
        if step.op is Op.ENUM:
            first, count = len(texts), len(step.texts)
        else:
            first, count = len(children), len(step.children)
            children.extend(numbers[id(child)] for child in step.children)
        size = len(texts) if step.op is Op.CONSTANT else step.size
        texts += step.texts
        steps.extend((step.op, step.column, step.store, size, first, count))
    return Program(schema, steps, children, texts, [s.path for s in order], [s.reason for s in order])


def count_columns(kind: pa.DataType) -> int:
    """Columns of a type, itself and those inside it: an item, a key, a value and each field of a struct."""
    types = pa.types
    if types.is_struct(kind):
        return 1 + sum(count_columns(one.type) for one in kind)
    if types.is_map(kind):
        return 1 + count_columns(kind.key_type) + count_columns(kind.item_type)
    return 1 + (count_columns(kind.value_type) if types.is_list(kind) else 0)
