"""Framing of values: a zero byte and the schema's id in four bytes before the value itself, as Confluent's serializers write."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from kafka_actors.errors import ConfigError

from .decoded import DecodedRows, Failure

MAGIC = 0
FRAME_BYTES = 5
NULL = "the value is null (a tombstone): drop those first with .filter(pc.field('value').is_valid())"

Rows: TypeAlias = npt.NDArray[np.int32]


class Frames(NamedTuple):
    """Framed values: by schema id the numbers of those that have it, ascending; and the values without a frame."""

    by_id: dict[int, Rows]
    failures: list[Failure]


def frame(schema_id: int) -> bytes:
    """The five bytes before a value. Raises `ConfigError` for what is no id."""
    if not isinstance(schema_id, int) or isinstance(schema_id, bool) or not 0 <= schema_id < 2**32:
        raise ConfigError("schema_id", f"is {schema_id!r}: accepts a number from 0 to 2^32 - 1")
    return bytes([MAGIC]) + schema_id.to_bytes(4, "big")


def varint(number: int) -> bytes:
    """A number's lowest 64 bits, seven in a byte, as Protobuf and, of numbers in zigzag form, Avro write."""
    left, made = number & (1 << 64) - 1, bytearray()
    while left > 0x7F:
        made.append(left & 0x7F | 0x80)
        left >>= 7
    made.append(left)
    return bytes(made)


def unframed(values: Any) -> tuple[Rows, list[Failure]]:
    """The numbers of the values that are not null, and a failure for each other one."""
    if not values.null_count:
        return np.arange(len(values), dtype=np.int32), []
    valid = np.asarray(values.is_valid())
    return np.flatnonzero(valid).astype(np.int32), [(int(row), NULL) for row in np.flatnonzero(~valid)]


def frames(values: Any) -> Frames:
    """Reads the frames of a binary array, without a Python object for each value."""
    rows, failures = unframed(values)
    if not len(rows):
        return Frames({}, failures)
    _, offsets, data = values.buffers()
    ends = np.frombuffer(offsets, np.int32, len(values) + 1, 4 * values.offset)
    starts = ends[rows]
    sizes = ends[rows + 1] - starts
    octets = np.frombuffer(data, np.uint8) if data is not None else np.zeros(0, np.uint8)
    long = sizes >= FRAME_BYTES
    framed = long.copy()
    framed[long] = octets[starts[long]] == MAGIC
    if not framed.all():
        for row, at, size in zip(rows[~framed], starts[~framed], sizes[~framed], strict=True):
            failures.append((int(row), _unframed_reason(bytes(octets[at : at + min(size, FRAME_BYTES)]))))
        failures.sort()
        rows, starts = rows[framed], starts[framed]
    return Frames(_by_id(rows, starts, octets), failures)


def _by_id(rows: Rows, starts: npt.NDArray[Any], octets: npt.NDArray[Any]) -> dict[int, Rows]:
    if not len(rows):
        return {}
    ids = np.zeros(len(rows), dtype=np.uint32)
    for at in range(1, FRAME_BYTES):
        ids = ids << np.uint32(8) | octets[starts + at]
    if (ids == ids[0]).all():
        return {int(ids[0]): rows}
    return {int(one): rows[ids == one] for one in np.unique(ids)}


def _unframed_reason(data: bytes) -> str:
    if not data:
        return "the value is empty"
    if data[0] != MAGIC:
        return f"the value begins with byte {data[0]}, not with the 0 and the schema id of a registry's serializer"
    return "the value is shorter than the five bytes of a schema id's frame"


Part = tuple[pa.RecordBatch | None, list[Failure]]


def joined(schema: pa.Schema, found: Frames, decode: Callable[[int, Rows], Part]) -> DecodedRows:
    """Decodes the values of each schema id by themselves, and puts the rows back in the order of the values."""
    failures = list(found.failures)
    batches, numbers = [], []
    for schema_id, rows in found.by_id.items():
        batch, failed = decode(schema_id, rows)
        failures += failed
        if batch is not None:
            batches.append(batch)
            numbers.append(_without(rows, failed))
    failures.sort()
    if not batches:
        return DecodedRows(_empty(schema), np.zeros(0, np.int32), failures)
    if len(batches) == 1:
        return DecodedRows(batches[0], numbers[0], failures)
    table = pa.Table.from_batches(batches, schema=schema)
    records = np.concatenate(numbers)
    order = np.argsort(records, kind="stable")
    taken = table.take(pa.array(order)).combine_chunks().to_batches()
    return DecodedRows(taken[0] if taken else _empty(schema), records[order].astype(np.int32), failures)


def _without(rows: Rows, failed: list[Failure]) -> Rows:
    if not failed:
        return rows
    return rows[~np.isin(rows, [row for row, _ in failed])]


def _empty(schema: pa.Schema) -> pa.RecordBatch:
    return pa.RecordBatch.from_arrays([pa.array([], field.type) for field in schema], schema=schema)
