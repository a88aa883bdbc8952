"""Columns as Avro's simple types: which Arrow types give which, and in which form machines take them."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from msgspec import Struct

from .avro_program import Op, Store
from .avro_schema import Enum, Fixed, Logical, Primitive

ROOT = 0
_MOST_DIGITS = 76
_PER_SECOND = {"s": 1, "ms": 10**3, "us": 10**6, "ns": 10**9}
_UNITS = {"millis": "ms", "micros": "us", "nanos": "ns"}


class ColumnForm(Struct, frozen=True):
    """Form of a column: the step that writes it, the form of its numbers, and the function that makes it of the column's array.

    `size`: of a fixed, in bytes; of a decimal, in digits; of a time, what its number is multiplied by, or, negative, divided by.
    `narrows`: some values of the column's type can't be written.
    """

    op: Op
    store: Store = Store.AS_IT_IS
    size: int = 0
    convert: Callable[[Any], Any] | None = None
    narrows: bool = False


def form_of(kind: Primitive | Fixed | Enum, arrow: Any) -> ColumnForm | None:
    """The form in which a column of the type `arrow` is written as this type; None where it can't be."""
    if isinstance(kind, Enum):
        return _enum(kind, arrow)
    if kind.logical is not None:
        return _logical(kind, kind.logical, arrow)
    if isinstance(kind, Fixed):
        return _fixed(kind.size, arrow)
    return _PLAIN[kind.name](arrow)


# ---------------------------------------------------------------- types without a logical type


def _null(arrow: Any) -> ColumnForm | None:
    return ColumnForm(Op.NULL) if pa.types.is_null(arrow) else None


def _boolean(arrow: Any) -> ColumnForm | None:
    return ColumnForm(Op.BOOLEAN) if pa.types.is_boolean(arrow) else None


_SMALL = (pa.int8(), pa.int16(), pa.int32(), pa.uint8(), pa.uint16())


def _integer(op: Op, arrow: Any) -> ColumnForm | None:
    if arrow in _SMALL:
        return ColumnForm(op, Store.INT32, convert=_cast(arrow, pa.int32()))
    if arrow in (pa.int64(), pa.uint32()):
        return ColumnForm(op, Store.INT64, convert=_cast(arrow, pa.int64()), narrows=op is Op.INT)
    return None


def _floating(op: Op, arrow: Any) -> ColumnForm | None:
    """Integers only where each of the type is a number of this one."""
    exact = (*_SMALL, pa.uint32()) if op is Op.DOUBLE else (pa.int8(), pa.int16(), pa.uint8(), pa.uint16())
    if arrow == pa.float64() or (arrow in exact and op is Op.DOUBLE):
        return ColumnForm(
            op, Store.DOUBLE, convert=_cast(arrow, pa.float64()), narrows=op is Op.FLOAT or arrow in exact
        )
    if arrow in (pa.float16(), pa.float32()) or arrow in exact:
        return ColumnForm(op, Store.FLOAT, convert=_cast(arrow, pa.float32()), narrows=arrow in exact)
    return None


def _string(arrow: Any) -> ColumnForm | None:
    types = pa.types
    if types.is_string(arrow) or types.is_large_string(arrow) or types.is_string_view(arrow):
        return ColumnForm(Op.BYTES, convert=_cast(arrow, pa.string()))
    return None


def _is_binary(arrow: Any) -> bool:
    types = pa.types
    return bool(types.is_binary(arrow) or types.is_large_binary(arrow) or types.is_binary_view(arrow))


def _bytes(arrow: Any) -> ColumnForm | None:
    if _is_binary(arrow) or pa.types.is_fixed_size_binary(arrow):
        return ColumnForm(Op.BYTES, convert=_cast(arrow, pa.binary()))
    return None


def _fixed(size: int, arrow: Any) -> ColumnForm | None:
    if _is_binary(arrow) or (pa.types.is_fixed_size_binary(arrow) and arrow.byte_width == size):
        return ColumnForm(Op.FIXED, size=size, convert=_cast(arrow, pa.binary()))
    return None


def _enum(kind: Enum, arrow: Any) -> ColumnForm | None:
    if _string(arrow) is None:
        return None
    return ColumnForm(Op.ENUM, Store.INT32, convert=partial(_symbols, pa.array(kind.symbols, pa.string())))


def _symbols(known: Any, array: Any) -> Any:
    """Numbers of symbols; -1 for a text that is none of them, null for null."""
    texts = array.cast(pa.string())
    numbers = pc.fill_null(pc.index_in(texts, value_set=known), -1)
    return pc.if_else(texts.is_valid(), numbers, pa.scalar(None, pa.int32())) if texts.null_count else numbers


_PLAIN: dict[str, Callable[[Any], ColumnForm | None]] = {
    "null": _null,
    "boolean": _boolean,
    "int": partial(_integer, Op.INT),
    "long": partial(_integer, Op.LONG),
    "float": partial(_floating, Op.FLOAT),
    "double": partial(_floating, Op.DOUBLE),
    "bytes": _bytes,
    "string": _string,
}


def _cast(arrow: Any, wanted: Any) -> Callable[[Any], Any] | None:
    return None if arrow == wanted else lambda array: array.cast(wanted)


# ---------------------------------------------------------------- logical types


def _logical(kind: Primitive | Fixed, logical: Logical, arrow: Any) -> ColumnForm | None:
    types = pa.types
    if logical.name == "decimal":
        return _decimal(kind, logical, arrow)
    if logical.name == "uuid":
        return _uuid(kind, arrow)
    if logical.name == "duration":
        return ColumnForm(Op.DURATION, narrows=True) if arrow == pa.month_day_nano_interval() else None
    if logical.name == "date":
        return (
            ColumnForm(Op.INT, Store.INT32, convert=_number(arrow, pa.date32()))
            if types.is_date(arrow)
            else None
        )
    base, _, unit = logical.name.rpartition("-")
    op = Op.INT if kind.name == "int" else Op.LONG
    if base == "time":
        return _in_unit(op, arrow, _UNITS[unit]) if types.is_time(arrow) else None
    zoned = base == "timestamp"
    return (
        _in_unit(op, arrow, _UNITS[unit])
        if types.is_timestamp(arrow) and (arrow.tz is not None) == zoned
        else None
    )


def _number(arrow: Any, wanted: Any) -> Callable[[Any], Any]:
    """Makes the numbers of dates and times."""
    number = pa.int32() if wanted.bit_width == 32 else pa.int64()
    return lambda array: (array if arrow == wanted else array.cast(wanted)).view(number)


def _in_unit(op: Op, arrow: Any, unit: str) -> ColumnForm:
    ours, theirs = _PER_SECOND[arrow.unit], _PER_SECOND[unit]
    factor = theirs // ours if theirs > ours else -(ours // theirs) if ours > theirs else 1
    store = Store.INT32 if arrow.bit_width == 32 else Store.INT64
    return ColumnForm(op, store, factor, _number(arrow, arrow), narrows=factor != 1)


def _decimal(kind: Primitive | Fixed, logical: Logical, arrow: Any) -> ColumnForm | None:
    """Decimals of the same scale, or of a smaller one, to which zeros are added."""
    if not pa.types.is_decimal(arrow):
        return None
    more = logical.scale - arrow.scale
    if more < 0 or arrow.precision + more > _MOST_DIGITS:
        return None
    digits = max(arrow.precision + more, 1)
    wanted = pa.decimal128(digits, logical.scale) if digits <= 38 else pa.decimal256(digits, logical.scale)
    convert = _cast(arrow, wanted)
    if isinstance(kind, Fixed):
        return ColumnForm(Op.FIXED_DECIMAL, size=kind.size | logical.precision << 32, convert=convert)
    return ColumnForm(Op.DECIMAL, size=logical.precision, convert=convert)


def _uuid(kind: Primitive | Fixed, arrow: Any) -> ColumnForm | None:
    if not isinstance(kind, Fixed):
        return _string(arrow)
    text = _string(arrow)
    return _fixed(16, arrow) if text is None else ColumnForm(Op.UUID, convert=text.convert, narrows=True)
