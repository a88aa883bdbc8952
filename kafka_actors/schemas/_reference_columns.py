"""The columns of `_columns.pxi` in plain Python: the same nodes, by the same numbers, with lists for buffers."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
from msgspec import Struct, field


class Column(Struct):
    """Node of a schema's type tree. `values` are a leaf's; of a list or map it has the ends of each."""

    kind: Any
    children: list[int] = field(default_factory=list)
    valid: list[bool] = field(default_factory=list)
    values: list[Any] = field(default_factory=list)

    @property
    def is_struct(self) -> bool:
        return bool(pa.types.is_struct(self.kind))

    @property
    def is_list(self) -> bool:
        return bool(pa.types.is_list(self.kind) or pa.types.is_map(self.kind))


class Columns:
    """Columns of a schema under construction; column 0 is the row itself."""

    def __init__(self, schema: pa.Schema) -> None:
        self.schema = schema
        self.nodes: list[Column] = []
        self._collect(pa.struct(list(schema)))

    def _collect(self, kind: Any) -> int:
        node, at = Column(kind), len(self.nodes)
        self.nodes.append(node)
        inner: list[Any] = []
        if pa.types.is_struct(kind):
            inner = [one.type for one in kind]
        elif pa.types.is_map(kind):
            inner = [kind.key_type, kind.item_type]
        elif pa.types.is_list(kind):
            inner = [kind.value_type]
        node.children = [self._collect(one) for one in inner]
        return at

    def put(self, at: int, value: Any) -> None:
        node = self.nodes[at]
        node.valid.append(True)
        node.values.append(value)

    def put_null(self, at: int) -> None:
        node = self.nodes[at]
        if node.is_struct:
            for child in node.children:
                self.put_null(child)
        node.valid.append(False)
        node.values.append(self.length(node.children[0]) if node.is_list else None)

    def close_list(self, at: int) -> None:
        self.put(at, self.length(self.nodes[at].children[0]))

    def close_struct(self, at: int) -> None:
        self.put(at, None)

    def length(self, at: int) -> int:
        return len(self.nodes[at].valid)

    def truncate(self, at: int, rows: int) -> None:
        """Forgets what was put into a node and below it after `rows` values."""
        node = self.nodes[at]
        del node.valid[rows:], node.values[rows:]
        below = rows
        if node.is_list:
            below = node.values[-1] if node.values else 0
        for child in node.children:
            self.truncate(child, below)

    def finish(self) -> pa.RecordBatch:
        root = self.nodes[0]
        arrays = [self._array(child, one) for child, one in zip(root.children, self.schema, strict=True)]
        if not arrays:
            return pa.RecordBatch.from_struct_array(pa.array([{}] * len(root.valid), pa.struct([])))
        return pa.RecordBatch.from_arrays(arrays, schema=self.schema)

    def _array(self, at: int, of: Any) -> Any:
        node = self.nodes[at]
        nulls = of.nullable and not all(node.valid)
        valid = pa.array(node.valid, pa.bool_()).buffers()[1] if nulls else None
        if node.is_struct:
            inner = [self._array(child, one) for child, one in zip(node.children, node.kind, strict=True)]
            return pa.Array.from_buffers(node.kind, len(node.valid), [valid], children=inner)
        if not node.is_list:
            values = (
                node.values if of.nullable else [_without_null(node.kind, value) for value in node.values]
            )
            return pa.array(values, node.kind)
        ends = pa.array([0, *node.values], pa.int32()).buffers()[1]
        if pa.types.is_list(node.kind):
            items = self._array(node.children[0], node.kind.value_field)
            return pa.Array.from_buffers(node.kind, len(node.valid), [valid, ends], children=[items])
        keys = self._array(node.children[0], node.kind.key_field)
        values = self._array(node.children[1], node.kind.item_field)
        entries = pa.StructArray.from_arrays(
            [keys, values], fields=[node.kind.key_field, node.kind.item_field]
        )
        return pa.Array.from_buffers(node.kind, len(node.valid), [valid, ends], children=[entries])


def _without_null(kind: Any, value: Any) -> Any:
    """The value, or the placeholder that a NOT NULL column has below a null struct."""
    types = pa.types
    if value is not None or types.is_null(kind):
        return value
    if types.is_string(kind):
        return ""
    if types.is_binary(kind):
        return b""
    if types.is_fixed_size_binary(kind):
        return b"\0" * kind.byte_width
    if types.is_boolean(kind):
        return False
    return (0, 0, 0) if kind == pa.month_day_nano_interval() else 0
