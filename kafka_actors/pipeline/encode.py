"""Rows as what a sink takes: JSON objects and keys for Kafka."""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import msgspec
import pyarrow as pa

from .columns import Array
from .nested import with_children

_ENCODE = msgspec.json.Encoder(decimal_format="number").encode


def json_values(batch: pa.RecordBatch) -> Array:
    """Each row as a JSON object of its columns. Bytes become base64, times ISO 8601, NaN and infinities null.

    Raises what Arrow and msgspec raise for values that JSON has not.
    """
    columns = [_plain(column).to_pylist(maps_as_pydicts="strict") for column in batch.columns]
    row = _row_type(tuple(batch.schema.names))
    return pa.array(list(map(_ENCODE, map(row, *columns))), pa.binary())


def _plain(column: Array) -> Array:
    """Nanoseconds would come as objects of pandas: microseconds if they are whole."""
    plain = _in_microseconds(column.type)
    return column if plain == column.type else column.cast(plain)


@lru_cache(maxsize=1024)
def _in_microseconds(kind: Any) -> Any:
    if pa.types.is_timestamp(kind) and kind.unit == "ns":
        return pa.timestamp("us", tz=kind.tz)
    return with_children(kind, _in_microseconds)


_ROW_TYPES: dict[tuple[str, ...], Any] = {}


def _row_type(names: tuple[str, ...]) -> Any:
    """A Struct is encoded much faster than a dict."""
    if names not in _ROW_TYPES:
        fields = [(f"f{number}", Any) for number in range(len(names))]
        rename = {f"f{number}": name for number, name in enumerate(names)}
        _ROW_TYPES[names] = msgspec.defstruct("Row", fields, rename=rename, gc=False)
    return _ROW_TYPES[names]


_BYTES = (
    pa.types.is_binary,
    pa.types.is_large_binary,
    pa.types.is_fixed_size_binary,
    pa.types.is_binary_view,
)


def key_values(column: Array) -> Array:
    """Keys as bytes: texts in UTF-8, numbers and the like as their text, null as no key."""
    if pa.types.is_dictionary(column.type):
        column = column.dictionary_decode()
    if any(is_bytes(column.type) for is_bytes in _BYTES):
        return column.cast(pa.binary())
    return column.cast(pa.string()).cast(pa.binary())
