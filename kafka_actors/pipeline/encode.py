"""Rows as what a sink takes: JSON objects and keys for Kafka."""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from typing import Any

import msgspec
import pyarrow as pa

from .columns import Array
from .nested_types import with_children

_ENCODE = msgspec.json.Encoder(decimal_format="number").encode


def json_values(batch: pa.RecordBatch) -> Array:
    """Each row as a JSON object of its columns. Bytes become base64, times ISO 8601, NaN and infinities null.

    Raises what Arrow and msgspec raise for values that JSON has not.
    """
    columns = [_plain(column).to_pylist(maps_as_pydicts="strict") for column in batch.columns]
    row = _row_of(tuple(batch.schema.names))
    return pa.array(list(map(_ENCODE, map(row, *columns))), pa.binary())


def _plain(column: Array) -> Array:
    """With what msgspec writes as JSON. Raises where nanoseconds are not whole microseconds."""
    plain = _plain_type(column.type)
    return column if plain == column.type else column.cast(plain)


@lru_cache(maxsize=1024)
def _plain_type(kind: Any) -> Any:
    """Nanoseconds would come as objects of pandas; decimal numbers as names of fields without quotes, true not at all. Spark
    knows instants in UTC only, so that is how all engines write them."""
    types = pa.types
    if types.is_timestamp(kind):
        return pa.timestamp("us" if kind.unit == "ns" else kind.unit, tz=None if kind.tz is None else "UTC")
    if types.is_duration(kind) and kind.unit == "ns":
        return pa.duration("us")
    if types.is_time64(kind):
        return pa.time64("us")
    if types.is_map(kind) and (types.is_decimal(kind.key_type) or types.is_boolean(kind.key_type)):
        return pa.map_(pa.string(), kind.item_field.with_type(_plain_type(kind.item_type)))
    return with_children(kind, _plain_type)


@lru_cache(maxsize=1024)
def _row_of(names: tuple[str, ...]) -> Callable[..., Any]:
    """What makes a row of its values. A Struct is encoded much faster than a dict, but not with every name."""
    fields = [(f"f{number}", Any) for number in range(len(names))]
    rename = {f"f{number}": name for number, name in enumerate(names)}
    try:
        return msgspec.defstruct("Row", fields, rename=rename, gc=False)
    except ValueError:
        return lambda *values: dict(zip(names, values, strict=True))


_BYTES = (
    pa.types.is_binary,
    pa.types.is_large_binary,
    pa.types.is_fixed_size_binary,
    pa.types.is_binary_view,
)


def key_values(column: Array) -> Array:
    """Keys as bytes: texts in UTF-8, numbers and the like as their text, null as no key. Times as Spark has them, in
    microseconds and UTC: an engine that wrote others would send a key elsewhere."""
    if pa.types.is_dictionary(column.type):
        column = column.dictionary_decode()
    if any(is_bytes(column.type) for is_bytes in _BYTES):
        return column.cast(pa.binary())
    if pa.types.is_timestamp(column.type):
        column = column.cast(pa.timestamp("us", tz=None if column.type.tz is None else "UTC"))
    return column.cast(pa.string()).cast(pa.binary())
