"""Targets of fuzzing for decoders of values: any bytes are one row or one error, and leave the values beside them alone."""

from __future__ import annotations

import json
from collections.abc import Callable
from functools import cache
from typing import Any

import numpy as np
import pyarrow as pa

from kafka_actors.pipeline.json_schema import JsonSchemaDecoder
from kafka_actors.schemas._reference_avro import ReferenceAvroMachine
from kafka_actors.schemas.avro_resolution import program
from kafka_actors.schemas.avro_schema import parse
from kafka_actors.schemas.kernels import avro_kernel, protobuf_kernel
from kafka_actors.schemas.protobuf_plan import plan
from kafka_actors.schemas.protobuf_runtime import RuntimeProtobufMachine
from kafka_actors.schemas.protobuf_schema import Files, compiled

from .protobuf_messages import PROTO3, sorted_maps

Rows = dict[int, Any]
"""Decoded rows, by the number of their value."""

_ITEM = {
    "type": "record",
    "name": "Item",
    "fields": [{"name": "sku", "type": "string"}, {"name": "n", "type": "int"}],
}
_FIELDS: list[tuple[str, Any]] = [
    ("id", "long"),
    ("text", "string"),
    ("data", "bytes"),
    ("yes", "boolean"),
    ("size", "float"),
    ("weight", "double"),
    ("one", {"type": "enum", "name": "E", "symbols": ["A", "B"]}),
    ("four", {"type": "fixed", "name": "F", "size": 4}),
    ("maybe", ["null", "string"]),
    ("either", ["int", "string", _ITEM]),
    ("items", {"type": "array", "items": "Item"}),
    ("by_name", {"type": "map", "values": "double"}),
    ("cents", {"type": "bytes", "logicalType": "decimal", "precision": 9, "scale": 2}),
    ("at", {"type": "long", "logicalType": "timestamp-micros"}),
    ("uuid", {"type": "string", "logicalType": "uuid"}),
]
WRITER = {"type": "record", "name": "R", "fields": [{"name": name, "type": kind} for name, kind in _FIELDS]}
READER = {
    **WRITER,
    "fields": [
        *(
            {"name": name, "type": "double" if name == "size" else kind}
            for name, kind in (*_FIELDS[1:], _FIELDS[0])
            if name != "yes"
        ),
        {"name": "new", "type": "int", "default": 7},
    ],
}
GOOD_AVRO = (
    b"\x0a\x02t\x02d\x01" + bytes(12) + b"\x02abcd\x02\x02m\x04\x02s\x06\x02\x02x\x08\0\x02\x02k" + bytes(8) + b"\0\x02\x0c\x0e"
    + b"\x48" + b"01234567-89ab-cdef-0123-456789abcdef"
)  # fmt: skip
GOOD_PROTOBUF = b"\x08\x05\x72\x01a\x8a\x01\x04\x08\x01\x12\0\xc2\x01\x05\x0a\x01k\x10\x02"
JSON_SCHEMA = {
    "type": "object",
    "properties": {
        "id": {"type": "integer"},
        "x": {"type": ["number", "null"]},
        "tags": {"type": "array", "items": {"type": "string"}},
        "part": {"type": "object", "properties": {"sku": {"type": "string"}}, "required": ["sku"]},
    },
    "required": ["id"],
}
GOOD_JSON = b'{"id": 5, "x": 1.5, "tags": ["a"], "part": {"sku": "s"}}'


def between(good: bytes, data: bytes) -> pa.Array:
    """The bytes as a value, with a good one on each side."""
    return pa.array([good, data, good], pa.binary())


def checked(batch: pa.RecordBatch, failed: list[int]) -> Rows:
    """Checks that each value is a row or an error, and that the good ones are the same row. Returns the rows."""
    batch.validate(full=True)
    assert set(failed) <= {1}, "a good value failed"
    assert batch.num_rows + len(failed) == 3
    found = batch.to_pylist()
    assert repr(found[0]) == repr(found[-1])
    return dict(zip([n for n in range(3) if n not in failed], found, strict=True))


def run(machine: Any, values: pa.Array, skipped: Any) -> Rows:
    batch, failures = machine.run(values, np.arange(len(values), dtype=np.int32), skipped)
    return checked(batch, [failure[0] for failure in failures])


@cache
def _avro() -> list[tuple[Any, Any]]:
    made = [program(parse(WRITER), parse(reader)) for reader in (WRITER, READER)]
    return [(avro_kernel()[1](one), ReferenceAvroMachine(one)) for one in made]


def avro_values(data: bytes) -> None:
    """Decodes a value by its own schema, and by another reader's; kernel and twin give the same."""
    values = between(GOOD_AVRO, data)
    for ours, twin in _avro():
        assert repr(run(ours, values, 0)) == repr(run(twin, values, 0))  # nan is not itself


@cache
def _protobuf() -> tuple[Any, Any]:
    descriptors = compiled(PROTO3)
    made = plan(Files(descriptors).message("t.All"), descriptors, "name")
    return protobuf_kernel()[1](made), RuntimeProtobufMachine(made)


def protobuf_values(data: bytes) -> None:
    """Decodes a message. What Protobuf's runtime reads the kernel reads as well, and alike; damage in a part that a later one replaces is found by
    the runtime only."""
    values, skipped = between(GOOD_PROTOBUF, data), np.zeros(3, np.int32)
    ours, theirs = (run(machine, values, skipped) for machine in _protobuf())
    for number, row in theirs.items():
        assert repr(sorted_maps(ours[number])) == repr(sorted_maps(row))


@cache
def _json() -> JsonSchemaDecoder:
    return JsonSchemaDecoder(JSON_SCHEMA)


def json_values(data: bytes) -> None:
    """Decodes JSON by a schema."""
    rows = _json().decode(between(GOOD_JSON, data))
    found = checked(rows.batch, [number for number, _ in rows.failures])
    if 1 in found:
        assert isinstance(json.loads(data.decode(errors="replace")), dict)


SCHEMA_TARGETS: dict[str, Callable[[bytes], None]] = {
    "avro-values": avro_values,
    "protobuf-values": protobuf_values,
    "json-values": json_values,
}
SCHEMA_SEEDS = {"avro-values": GOOD_AVRO, "protobuf-values": GOOD_PROTOBUF, "json-values": GOOD_JSON}
