"""Objects of the user's msgspec Structs as what Arrow takes: structs by the names of attributes, as in the schema."""

from __future__ import annotations

import datetime
import decimal
from collections.abc import Callable
from operator import attrgetter
from typing import Any

import msgspec
from msgspec import inspect as mi

from .schemas import LISTS, RECORDS, optional, plain_values

_AS_THEY_ARE = (bytes, bytearray, datetime.datetime, datetime.date, datetime.time, decimal.Decimal)

Make = Callable[[Any], Any]


def getters_of(struct: type[msgspec.Struct]) -> list[Make]:
    """For each attribute what gets its value out of an object, without objects, enums or ids in it."""
    if plain_values(struct):
        return [attrgetter(name) for name in struct.__struct_fields__]
    info = mi.type_info(struct)
    assert isinstance(info, mi.StructType)
    return [_getter(field) for field in info.fields]


def builtin_getter(attribute: str) -> Make:
    """Gets an attribute as what it is in JSON."""
    get = attrgetter(attribute)
    return lambda row: _builtin(get(row))


def _getter(field: mi.Field) -> Make:
    get, make = attrgetter(field.name), _maker(field.type)
    return lambda row: make(get(row))


def _maker(kind: mi.Type) -> Make:
    """msgspec's own way is much faster, but a Struct then is what it is in JSON: with other names, or as a list, or
    without what is as by default."""
    kind, _ = optional(kind)
    made = _by_attributes(kind) if _differs(kind) else _builtin
    return lambda value: None if value is None or value is msgspec.UNSET else made(value)


def _builtin(value: Any) -> Any:
    return msgspec.to_builtins(value, builtin_types=_AS_THEY_ARE)


def _differs(kind: mi.Type) -> bool:
    """Whether there is a Struct in it that looks different in JSON."""
    kind, _ = optional(kind)
    if isinstance(kind, mi.StructType):
        config = kind.cls.__struct_config__
        if kind.array_like or config.omit_defaults or any(f.name != f.encode_name for f in kind.fields):
            return True
    return any(map(_differs, _inside(kind)))


def _inside(kind: mi.Type) -> list[mi.Type]:
    if isinstance(kind, LISTS):
        return [kind.item_type]
    if isinstance(kind, mi.DictType):
        return [kind.key_type, kind.value_type]
    return [field.type for field in kind.fields] if isinstance(kind, RECORDS) else []


def _by_attributes(kind: mi.Type) -> Make:
    if isinstance(kind, LISTS):
        item = _maker(kind.item_type)
        return lambda values: [item(value) for value in values]
    if isinstance(kind, mi.DictType):
        key, of_key = _maker(kind.key_type), _maker(kind.value_type)
        return lambda pairs: {key(name): of_key(value) for name, value in pairs.items()}
    assert isinstance(kind, RECORDS)
    makers = [(field.name, _maker(field.type)) for field in kind.fields]
    if isinstance(kind, mi.TypedDictType):
        return lambda value: {name: make(value.get(name)) for name, make in makers}
    return lambda value: {name: make(getattr(value, name)) for name, make in makers}
