"""The twin of `_protobuf_kernel.pyx`: the same plans by Protobuf's own runtime, which is slower and says what is right."""

from __future__ import annotations

from collections.abc import Callable
from decimal import Decimal
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from .protobuf_json import json_errors, text_of
from .protobuf_plan import Plan, ProtobufCode, ProtobufMachine
from .protobuf_schema import (
    DURATION,
    DYNAMIC,
    MESSAGES,
    TIMESTAMP,
    WRAPPERS,
    Files,
    is_map,
    is_nullable,
    is_repeated,
    kind_of_field,
)

_MAX_SECONDS = {TIMESTAMP: (-62_135_596_800, 253_402_300_799), DURATION: (-315_576_000_000, 315_576_000_000)}


class _OutOfRange(Exception):
    """A time that isn't one."""


class _NoJson(Exception):
    """A Struct, Value or ListValue that has no JSON text."""


class RuntimeProtobufMachine(ProtobufMachine):
    """Plan that Protobuf's runtime carries out. The field of a failure isn't known."""

    def __init__(self, plan: Plan) -> None:
        from google.protobuf import message, message_factory

        self._error = message.DecodeError
        self._schema = plan.schema
        self._message = Files(plan.descriptors).message(plan.message)
        self._class = message_factory.GetMessageClass(self._message)
        self._row = _row_maker(self._message, plan.enums)

    def run(
        self, values: Any, rows: npt.NDArray[np.int32], skipped: npt.NDArray[np.int32]
    ) -> tuple[pa.RecordBatch, list[tuple[int, int, int]]]:
        found, failures = [], []
        for position, (row, first) in enumerate(zip(rows, skipped, strict=True)):
            made = self._read(values[int(row)].as_py()[int(first) :])
            if isinstance(made, ProtobufCode):
                failures.append((position, int(made), -1))
            else:
                found.append(made)
        columns = [pa.array([row[field.name] for row in found], field.type) for field in self._schema]
        if not columns:
            return pa.RecordBatch.from_struct_array(pa.array([{}] * len(found), pa.struct([]))), failures
        return pa.RecordBatch.from_arrays(columns, schema=self._schema), failures

    def _read(self, data: bytes) -> dict[str, Any] | ProtobufCode:
        message = self._class()
        try:
            message.ParseFromString(data)
            if not message.IsInitialized():
                return ProtobufCode.REQUIRED
            made: dict[str, Any] = self._row(message)
        except self._error:
            return ProtobufCode.SHORT
        except _NoJson:
            return ProtobufCode.JSON
        except (UnicodeDecodeError, ValueError):
            return ProtobufCode.UTF8
        except _OutOfRange:
            return ProtobufCode.RANGE
        return made


Make = Callable[[Any], Any]


def _row_maker(message: Any, enums: str) -> Make:
    """A function that makes a row of a message."""
    makers = [(field.name, _column(field, enums)) for field in message.fields]
    return lambda found: {name: make(found) for name, make in makers}


def _column(field: Any, enums: str) -> Make:
    name = field.name
    if is_map(field):
        key, value = (_value(field.message_type.fields_by_name[of], enums) for of in ("key", "value"))
        return lambda message: [(key(one), value(item)) for one, item in getattr(message, name).items()]
    make = _value(field, enums)
    if is_repeated(field):
        return lambda message: [make(item) for item in getattr(message, name)]
    if is_nullable(field):
        return lambda message: make(getattr(message, name)) if message.HasField(name) else None
    return lambda message: make(getattr(message, name))


def _value(field: Any, enums: str) -> Make:
    if field.type in MESSAGES:
        full_name = field.message_type.full_name
        if full_name in _MAX_SECONDS:
            return lambda time: _time(time, full_name)
        if full_name in DYNAMIC:
            return _json
        if full_name in WRAPPERS:
            inner = _value(field.message_type.fields_by_number[1], enums)
            return lambda wrapper: inner(wrapper.value)
        return _row_maker(field.message_type, enums)
    if field.enum_type is not None:
        names = {value.number: value.name for value in reversed(field.enum_type.values)}
        return (lambda number: names.get(number, str(number))) if enums == "name" else int
    kind = kind_of_field(field)
    return Decimal if kind == "uint64" else _text if kind == "string" else lambda value: value


def _text(value: Any) -> Any:
    """A text; in proto2 the runtime reads one that is not UTF-8, too, and gives its bytes. Raises `ValueError`."""
    if isinstance(value, bytes):
        raise ValueError("not UTF-8")
    return value


def _json(message: Any) -> str:
    try:
        return text_of(message)
    except json_errors():
        raise _NoJson from None


def _time(time: Any, full_name: str) -> Any:
    """Microseconds; what is less than one is cut off."""
    first, last = _MAX_SECONDS[full_name]
    seconds, nanos = time.seconds, time.nanos
    low = -999_999_999 if full_name == DURATION else 0
    if (
        not first <= seconds <= last
        or not low <= nanos <= 999_999_999
        or (seconds * nanos < 0 and full_name == DURATION)
    ):
        raise _OutOfRange
    return seconds * 1_000_000 + (nanos // 1000 if nanos >= 0 else -(-nanos // 1000))
