"""Columns as Protobuf's scalar types and times: which Arrow types give which, and in which form machines take them."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from msgspec import Struct

from .avro_column import form_of
from .avro_program import Store
from .avro_schema import Primitive
from .protobuf_program import NO_SYMBOL, NumberRange, Stored, WriteOp

_PER_SECOND = {"s": 1, "ms": 10**3, "us": 10**6, "ns": 10**9}
_INT32 = (pa.int8(), pa.int16(), pa.int32(), pa.uint8(), pa.uint16())
_OPS = {
    1: WriteOp.DOUBLE, 2: WriteOp.FLOAT, 3: WriteOp.VARINT, 4: WriteOp.VARINT, 5: WriteOp.VARINT, 6: WriteOp.FIXED64, 7: WriteOp.FIXED32,
    8: WriteOp.BOOL, 9: WriteOp.TEXT, 12: WriteOp.BYTES, 13: WriteOp.VARINT, 14: WriteOp.ENUM, 15: WriteOp.FIXED32, 16: WriteOp.FIXED64,
    17: WriteOp.ZIGZAG, 18: WriteOp.ZIGZAG,
}  # fmt: skip
_RANGES = {
    "int32": NumberRange.INT32,
    "uint32": NumberRange.UINT32,
    "int64": NumberRange.INT64,
    "uint64": NumberRange.UINT64,
}
_STORES = {Store.FLOAT: Stored.FLOAT, Store.DOUBLE: Stored.DOUBLE}


class ProtobufForm(Struct, frozen=True):
    """Form of a column: the step that writes it, the form of its numbers, and the function that makes it of the column's array."""

    op: WriteOp
    stored: Stored = Stored.AS_IT_IS
    size: int = 0
    convert: Callable[[Any], Any] | None = None


def scalar_form(field: Any, kind: str, arrow: Any) -> ProtobufForm | None:
    """The form in which a column of the type `arrow` is written as a field's scalar; None where it can't be."""
    if field.enum_type is not None:
        return _enum(field.enum_type, arrow)
    op = _OPS[field.type]
    if kind in _RANGES:
        return _integer(op, _RANGES[kind], arrow)
    found = form_of(Primitive({"bool": "boolean"}.get(kind, kind)), arrow)
    if found is None:
        return None
    if kind == "string":
        return ProtobufForm(op, convert=lambda array: array.cast(pa.string()).view(pa.binary()))
    return ProtobufForm(op, _STORES.get(found.store, Stored.AS_IT_IS), convert=found.convert)


def time_form(op: WriteOp, arrow: Any) -> ProtobufForm | None:
    """The form in which a column is written as a Timestamp, which needs a zone, or as a Duration."""
    types = pa.types
    fits = (
        types.is_timestamp(arrow) and arrow.tz is not None
        if op is WriteOp.TIMESTAMP
        else types.is_duration(arrow)
    )
    if not fits:
        return None
    return ProtobufForm(op, Stored.INT64, _PER_SECOND[arrow.unit], lambda array: array.view(pa.int64()))


def _integer(op: WriteOp, size: NumberRange, arrow: Any) -> ProtobufForm | None:
    if arrow in _INT32:
        return ProtobufForm(op, Stored.INT32, size, _cast(arrow, pa.int32()))
    if arrow in (pa.int64(), pa.uint32()):
        return ProtobufForm(op, Stored.INT64, size, _cast(arrow, pa.int64()))
    if arrow == pa.uint64():
        return ProtobufForm(op, Stored.UINT64, size)
    if pa.types.is_decimal128(arrow) and arrow.scale == 0:
        return ProtobufForm(op, Stored.DECIMAL, size)
    return None


def _cast(arrow: Any, wanted: Any) -> Callable[[Any], Any] | None:
    return None if arrow == wanted else lambda array: array.cast(wanted)


def _enum(enum: Any, arrow: Any) -> ProtobufForm | None:
    """Numbers, or names, as which an open enum takes numbers in digits, too: so the decoder gives those that have no name."""
    known = pa.array(sorted({value.number for value in enum.values}), pa.int64()) if enum.is_closed else None
    if form_of(Primitive("string"), arrow) is not None:
        names = pa.array([value.name for value in enum.values], pa.string())
        numbers = pa.array([value.number for value in enum.values], pa.int64())
        return ProtobufForm(
            WriteOp.ENUM, Stored.INT64, NumberRange.INT32, partial(_by_name, names, numbers, known)
        )
    if arrow in (*_INT32, pa.int64(), pa.uint32()):
        return ProtobufForm(WriteOp.ENUM, Stored.INT64, NumberRange.INT32, partial(_by_number, known))
    return None


def _by_number(known: Any, array: Any) -> Any:
    numbers = array.cast(pa.int64())
    if known is None:
        return numbers
    return pc.if_else(pc.or_(pc.is_in(numbers, value_set=known), pc.is_null(numbers)), numbers, NO_SYMBOL)


def _by_name(names: Any, numbers: Any, closed: Any, array: Any) -> Any:
    texts = array.cast(pa.string())
    found = numbers.take(pc.index_in(texts, value_set=names))
    if found.null_count == texts.null_count:
        return found
    missing = NO_SYMBOL
    if closed is None:
        digits = pc.match_substring_regex(texts, r"^(0|-?[1-9][0-9]{0,9})$")
        missing = pc.coalesce(
            pc.if_else(digits, texts, None).cast(pa.int64()), pa.scalar(NO_SYMBOL, pa.int64())
        )
    return pc.if_else(texts.is_valid(), pc.coalesce(found, missing), pa.scalar(None, pa.int64()))
