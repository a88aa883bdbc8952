"""Defaults of fields: from the form that they have in a schema's JSON to Avro's bytes.

A union's default is of its first branch, or, since Avro 1.12, of any that it fits.
"""

from __future__ import annotations

import struct
from typing import Any

from msgspec import UNSET

from kafka_actors.errors import ConfigError

from .avro_schema import Array, AvroRecord, AvroType, Enum, Fixed, Map, Union
from .framing import varint


class _Unfit(Exception):
    """The default isn't one of the type."""


def encoded_default(kind: AvroType, value: Any, path: str) -> tuple[AvroType, bytes]:
    """The type of the default, a branch where `kind` is a union, and its bytes, without a branch's number. Raises `ConfigError`."""
    for branch in kind.branches if isinstance(kind, Union) else [kind]:
        try:
            return branch, _encoded(branch, value)
        except _Unfit:
            continue
    raise ConfigError("schema", f"{path}: the default {value!r} is none of its type")


def long(number: int) -> bytes:
    """A long in zigzag form."""
    return varint((number << 1) ^ (number >> 63))


def _encoded(kind: AvroType, value: Any) -> bytes:
    if isinstance(kind, Union):
        for number, branch in enumerate(kind.branches):
            try:
                return long(number) + _encoded(branch, value)
            except _Unfit:
                continue
        raise _Unfit
    if isinstance(kind, AvroRecord):
        return _record(kind, value)
    if isinstance(kind, Array):
        items = [_encoded(kind.items, item) for item in _checked(value, list)]
        return (long(len(items)) + b"".join(items) if items else b"") + long(0)
    if isinstance(kind, Map):
        pairs = [_text(key) + _encoded(kind.values, item) for key, item in _checked(value, dict).items()]
        return (long(len(pairs)) + b"".join(pairs) if pairs else b"") + long(0)
    if isinstance(kind, Enum):
        if value not in kind.symbols:
            raise _Unfit
        return long(kind.symbols.index(value))
    if isinstance(kind, Fixed):
        data = _bytes(value)
        if len(data) != kind.size:
            raise _Unfit
        return data
    return _primitive(kind.name, value)


def _record(kind: AvroRecord, value: Any) -> bytes:
    _checked(value, dict)
    made = b""
    for field in kind.fields:
        given = value.get(field.name, field.default)
        if given is UNSET:
            raise _Unfit
        made += _encoded(field.type, given)
    return made


def _primitive(name: str, value: Any) -> bytes:
    if name == "null":
        if value is not None:
            raise _Unfit
        return b""
    if name == "boolean":
        return bytes([_checked(value, bool)])
    if name in ("int", "long"):
        bits = 31 if name == "int" else 63
        if isinstance(value, float) and value.is_integer():
            value = int(value)
        if isinstance(value, bool) or not isinstance(value, int) or not -(2**bits) <= value < 2**bits:
            raise _Unfit
        return long(value)
    if name in ("float", "double"):
        if isinstance(value, bool) or not isinstance(value, (int, float, str)):
            raise _Unfit
        try:
            return struct.pack("<f" if name == "float" else "<d", float(value))
        except (ValueError, OverflowError):
            raise _Unfit from None
    if name == "string":
        return _text(value)
    data = _bytes(value)
    return long(len(data)) + data


def _text(value: Any) -> bytes:
    data: bytes = _checked(value, str).encode()
    return long(len(data)) + data


def _bytes(value: Any) -> bytes:
    """Bytes, each of which is the code point of a character in JSON."""
    try:
        made: bytes = _checked(value, str).encode("latin-1")
    except UnicodeEncodeError:
        raise _Unfit from None
    return made


def _checked(value: Any, kind: type) -> Any:
    if not isinstance(value, kind):
        raise _Unfit
    return value
