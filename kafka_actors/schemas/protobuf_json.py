"""Protobuf's Struct, Value and ListValue, whose form depends on the value, as columns of JSON text, both ways.

The kernels read and write the bytes of such a message as they are. What is in them Protobuf's own runtime says, by its rules for JSON, an
object for each value: keys in order, numbers as doubles, neither NaN nor infinity.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any, NamedTuple, TypeAlias

import msgspec
import numpy as np
import numpy.typing as npt
import pyarrow as pa

from .protobuf_plan import Plan, ProtobufCode, ProtobufMachine
from .protobuf_schema import DYNAMIC, Files, is_map, is_repeated

GOOD, BAD = b"\1", b"\0"
"""First byte of a value in the form that machines write: the message's bytes follow, or the text is none of such a message."""


class JsonColumn(NamedTuple):
    """Column of texts. `path`: that of its field in the plan."""

    message: str
    path: str


JsonTree: TypeAlias = JsonColumn | dict[int, "JsonTree"]
"""Columns of texts by their place: in a struct the field's number, in a list 0, in a map 1."""


def json_tree(message: Any, path: str = "") -> dict[int, JsonTree]:
    """The columns of a message that are texts; empty without any."""
    found = {at: _of_field(field, f"{path}{field.name}") for at, field in enumerate(message.fields)}
    return {at: tree for at, tree in found.items() if tree}


def _of_field(field: Any, path: str) -> JsonTree:
    of = field.message_type
    if of is None:
        return {}
    tree = JsonColumn(of.full_name, path) if of.full_name in DYNAMIC else json_tree(of, f"{path}.")
    return {0: tree} if tree and is_repeated(field) and not is_map(field) else tree


def text_of(message: Any) -> str:
    """The JSON text of a Struct, Value or ListValue. Raises `ValueError` or an error of the runtime's where it has none, as for NaN."""
    from google.protobuf import json_format

    return msgspec.json.encode(json_format.MessageToDict(message), order="sorted").decode()


@cache
def class_of(name: str) -> Any:
    """The runtime's class of one of the three messages."""
    from google.protobuf import struct_pb2

    return getattr(struct_pb2, name.rpartition(".")[2])


@cache
def json_errors() -> tuple[type[Exception], ...]:
    """Errors of bytes that are no message, of texts that are no JSON, and of values that have none."""
    from google.protobuf import json_format, message

    return message.DecodeError, json_format.Error, ValueError


# ---------------------------------------------------------------- reading


class JsonTexts(ProtobufMachine):
    """A machine whose columns of texts have the bytes of messages, followed by their conversion. A value with one that can't be converted
    fails as a whole."""

    def __init__(self, plan: Plan, machine: ProtobufMachine, tree: JsonTree) -> None:
        self._plan = plan
        self._machine = machine
        self._tree = tree

    def run(
        self, values: Any, rows: npt.NDArray[np.int32], skipped: npt.NDArray[np.int32]
    ) -> tuple[pa.RecordBatch, list[tuple[int, int, int]]]:
        batch, failures = self._machine.run(values, rows, skipped)
        count = batch.num_rows
        conversion = _Conversion()
        made = conversion.converted(batch.to_struct_array(), self._tree, np.arange(count))
        batch = pa.RecordBatch.from_struct_array(made)
        if not conversion.failed:
            return batch, failures
        good = np.ones(count, dtype=bool)
        good[list(conversion.failed)] = False
        # The position in `rows` of each row of the batch.
        positions = np.delete(np.arange(len(rows)), [position for position, _, _ in failures])
        failures += [
            (int(positions[row]), int(ProtobufCode.JSON), self._plan.paths.index(path))
            for row, path in conversion.failed.items()
        ]
        return batch.filter(pa.array(good)), sorted(failures)


class _Conversion:
    """Converts columns. `failed`: row → path of its first value that can't be converted."""

    def __init__(self) -> None:
        self.failed: dict[int, str] = {}

    def converted(self, array: Any, tree: JsonTree, rows: npt.NDArray[np.int64]) -> Any:
        """An array with texts in place of messages; `rows` are those that its values belong to."""
        if isinstance(tree, JsonColumn):
            return self._texts(array.view(pa.binary()), tree, rows)
        kind, validity = array.type, array.buffers()[0]
        if pa.types.is_struct(kind):
            children = [array.field(at) for at in range(kind.num_fields)]
            for at, inner in tree.items():
                children[at] = self.converted(children[at], inner, rows)
            return _like(array, [validity], children)
        ends = np.frombuffer(array.buffers()[1], np.int32, len(array) + 1)
        below = np.repeat(rows, np.diff(ends))
        if pa.types.is_map(kind):
            entries = [array.keys, self.converted(array.items, tree[1], below)]
            of = pa.struct([kind.key_field, kind.item_field])
            inside = pa.StructArray.from_buffers(of, len(below), [None], 0, 0, entries)
        else:
            inside = self.converted(array.values, tree[0], below)
        return _like(array, array.buffers()[:2], [inside])

    def _texts(self, payloads: Any, column: JsonColumn, rows: npt.NDArray[np.int64]) -> Any:
        made: list[str | None] = []
        parse = class_of(column.message).FromString
        for payload, row in zip(payloads.to_pylist(), rows, strict=True):
            text = None
            if payload is not None:
                try:
                    text = text_of(parse(payload))
                except json_errors():
                    self.failed.setdefault(int(row), column.path)
                    text = ""
            made.append(text)
        return pa.array(made, pa.string())


def _like(array: Any, buffers: list[Any], children: list[Any]) -> Any:
    return pa.Array.from_buffers(array.type, len(array), buffers, array.null_count, 0, children)


def with_texts(machine: Callable[[Plan], ProtobufMachine]) -> Callable[[Plan], ProtobufMachine]:
    """A function that makes a machine for a plan, with the conversion of its columns of texts where it has any."""

    def make(plan: Plan) -> ProtobufMachine:
        tree = json_tree(Files(plan.descriptors).message(plan.message))
        return JsonTexts(plan, machine(plan), tree) if tree else machine(plan)

    return make


# ---------------------------------------------------------------- writing


def payloads(name: str, array: Any) -> Any:
    """The form in which machines write texts as a message: its bytes behind `GOOD`, or `BAD` alone; nulls stay."""
    from google.protobuf import json_format

    of, made = class_of(name), []
    for text in array.cast(pa.string()).view(pa.binary()).to_pylist():
        payload = None
        if text is not None:
            try:
                message = json_format.Parse(text.decode(), of())
                text_of(message)  # it will be read as JSON, too
                payload = GOOD + message.SerializeToString(deterministic=True)
            except json_errors():
                payload = BAD
        made.append(payload)
    return pa.array(made, pa.binary())
