"""Avro schemas for columns: what a pipeline registers where no schema is given."""

from __future__ import annotations

import json
import re
from typing import Any

import pyarrow as pa

from kafka_actors.errors import ConfigError

_NAME = re.compile("[A-Za-z_][A-Za-z0-9_]*")


def derived(columns: pa.Schema, name: str) -> str:
    """The Avro schema of a record with these columns, as JSON text: what columns hold is all of it, so a nullable one is a union with null
    and the default null. `name` is the record's, with characters that Avro doesn't allow replaced. Raises `ConfigError`, naming the
    column, for a type that Avro doesn't have, and for a name that isn't one of Avro's."""
    return json.dumps(_record(pa.struct(list(columns)), avro_name(name), ""))


def avro_name(text: str) -> str:
    """A name of Avro's for any text: `orders-by-country` becomes `orders_by_country`."""
    made = re.sub("[^A-Za-z0-9_]", "_", text)
    return made if _NAME.fullmatch(made) else f"_{made}"


def _record(kind: Any, name: str, path: str) -> dict[str, Any]:
    return {"type": "record", "name": name, "fields": [_field(one, name, path) for one in kind]}


def _field(field: Any, record: str, path: str) -> dict[str, Any]:
    where = f"{path}.{field.name}" if path else field.name
    if not _NAME.fullmatch(field.name):
        raise ConfigError(
            "schema", f"{where}: is no name that Avro allows: give it another one, or give a schema"
        )
    made = _nullable(field, f"{record}_{field.name}", where)
    return {"name": field.name, "type": made, **({"default": None} if isinstance(made, list) else {})}


def _nullable(field: Any, name: str, path: str) -> Any:
    made = _type(field.type, name, path)
    return ["null", made] if field.nullable and made != "null" else made


def _type(kind: Any, name: str, path: str) -> Any:
    """`name`: of a record or a fixed, which are named after the fields around them."""
    types = pa.types
    if types.is_dictionary(kind):
        return _type(kind.value_type, name, path)
    if types.is_struct(kind):
        return _record(kind, name, path)
    if types.is_map(kind) and types.is_string(kind.key_type):
        return {"type": "map", "values": _nullable(kind.item_field, f"{name}_value", f"{path}{{}}")}
    if types.is_list(kind) or types.is_large_list(kind) or types.is_fixed_size_list(kind):
        return {"type": "array", "items": _nullable(kind.value_field, f"{name}_item", f"{path}[]")}
    if types.is_decimal(kind) and 0 <= kind.scale <= kind.precision:
        return {"type": "bytes", "logicalType": "decimal", "precision": kind.precision, "scale": kind.scale}
    if types.is_timestamp(kind):
        return {"type": "long", "logicalType": f"{'' if kind.tz else 'local-'}timestamp-{_UNITS[kind.unit]}"}
    if types.is_time(kind) and kind.unit != "ns":
        wide = kind.unit == "us"
        return {"type": "long" if wide else "int", "logicalType": f"time-{_UNITS[kind.unit]}"}
    if types.is_fixed_size_binary(kind):
        return {"type": "fixed", "name": name, "size": kind.byte_width}
    if kind == pa.month_day_nano_interval():
        return {"type": "fixed", "name": name, "size": 12, "logicalType": "duration"}
    if kind not in _PLAIN:
        raise ConfigError("schema", f"{path}: Avro has no type for {kind}: cast it, or give a schema")
    return _PLAIN[kind]


_UNITS = {"s": "millis", "ms": "millis", "us": "micros", "ns": "nanos"}
_PLAIN: dict[Any, Any] = {
    pa.null(): "null",
    pa.bool_(): "boolean",
    **dict.fromkeys((pa.int8(), pa.int16(), pa.int32(), pa.uint8(), pa.uint16()), "int"),
    **dict.fromkeys((pa.int64(), pa.uint32()), "long"),
    **dict.fromkeys((pa.float16(), pa.float32()), "float"),
    pa.float64(): "double",
    **dict.fromkeys((pa.binary(), pa.large_binary(), pa.binary_view()), "bytes"),
    **dict.fromkeys((pa.string(), pa.large_string(), pa.string_view()), "string"),
    pa.date32(): {"type": "int", "logicalType": "date"},
}
