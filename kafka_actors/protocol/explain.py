"""Says which field of a message can't be encoded: the slow walk after a compiled encoder has failed."""

from __future__ import annotations

import uuid
from typing import Any

from kafka_actors.errors import kind_of

from .encoder import MAX_STRING
from .schema import Element, FieldSpec, fields_of

_BITS = {"int8": 8, "int16": 16, "int32": 32, "int64": 64}


def explain(message: Element, version: int, path: str = "") -> str | None:
    """The first field of a message that can't be encoded, and why; None if there is none."""
    path = path or type(message).__name__
    for f in fields_of(type(message)):
        if version in f.versions:
            wrong = _field(f, getattr(message, f.name), version, f"{path}.{f.name}")
            if wrong is not None:
                return wrong
    return None


def _field(f: FieldSpec, value: Any, version: int, path: str) -> str | None:
    if value is None:
        return None if version in f.nullable else f"{path} is None, which it can't be in version {version}"
    if f.wire == "array":
        if not isinstance(value, list | tuple):
            return f"{path} is {kind_of(value)}, not a list"
        found = (_field(f.element(), x, version, f"{path}[{i}]") for i, x in enumerate(value))
        return next((wrong for wrong in found if wrong is not None), None)
    if f.wire == "struct":
        assert f.struct is not None
        if not isinstance(value, f.struct):
            return f"{path} is {kind_of(value)}, not a {f.struct.__name__}"
        return explain(value, version, path)
    return _plain(f.wire, value, path)


def _plain(wire: str, value: Any, path: str) -> str | None:
    if wire in _BITS:
        half = 1 << (_BITS[wire] - 1)
        fits = isinstance(value, int) and -half <= value < half
        return None if fits else f"{path} is {value!r}, not an {wire}"
    if wire == "string":
        return _text(value, path)
    if wire == "uuid":
        return None if isinstance(value, uuid.UUID) else f"{path} is {kind_of(value)}, not a UUID"
    if wire in ("bytes", "records"):
        try:
            memoryview(value)
        except TypeError:
            return f"{path} is {kind_of(value)}, not bytes"
    return None


def _text(value: Any, path: str) -> str | None:
    if not isinstance(value, str):
        return f"{path} is {kind_of(value)}, not a str"
    try:
        size = len(value.encode())
    except UnicodeEncodeError:
        return f"{path} holds a lone surrogate, which UTF-8 can't express"
    return None if size <= MAX_STRING else f"{path} has {size} bytes, more than {MAX_STRING}"
