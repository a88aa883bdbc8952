"""What Arrow's casts change without a word, though they are the safe ones."""

from __future__ import annotations

import pyarrow as pa
import pyarrow.compute as pc

from .columns import Array
from .nested_types import entries, is_list


def check_cast(column: Array, made: Array) -> None:
    """Raises `ValueError` where a value of the column isn't what was made of it: a date of a time of day, true of 2, infinity of a
    large number. That floats are rounded is no loss, and fields that a struct lacks are passed over."""
    given, wanted = column.type, made.type
    types = pa.types
    if types.is_timestamp(given) and types.is_time(wanted):
        raise ValueError(f"{given} has a date, too")
    if types.is_timestamp(given) and types.is_date(wanted):
        _same(column, made, "has a time of day")
    elif types.is_boolean(wanted) and (types.is_integer(given) or types.is_floating(given)):
        _same(column, made, "is neither 0 nor 1")
    elif types.is_floating(given) and types.is_floating(wanted) and wanted.bit_width < given.bit_width:
        _check_finite(column, made)
    elif types.is_struct(given) and types.is_struct(wanted):
        if column.null_count:  # what is in a null may be anything
            column, made = column.drop_null(), made.drop_null()
        for field in wanted:
            if given.get_field_index(field.name) >= 0:
                check_cast(column.field(field.name), made.field(field.name))
    elif is_list(given) and is_list(wanted):
        check_cast(column.flatten(), made.flatten())
    elif types.is_map(given) and types.is_map(wanted):
        for ours, theirs in zip(entries(column), entries(made), strict=True):
            check_cast(ours, theirs)


def _same(column: Array, made: Array, said: str) -> None:
    different = pc.not_equal(made.cast(column.type), column)
    if (at := pc.index(different, True).as_py()) >= 0:
        raise ValueError(f"{column[at]} {said}")


def _check_finite(column: Array, made: Array) -> None:
    lost = pc.and_not(pc.is_inf(made.cast(column.type)), pc.is_inf(column))
    if (at := pc.index(lost, True).as_py()) >= 0:
        raise ValueError(f"{column[at]} is too large")
