"""Framing of values as Confluent's serializers write it: before the value itself stand a zero byte and the schema's id in four bytes, or a
one and its GUID in sixteen; or those bytes are a header of the record, `__value_schema_id` or `__key_schema_id`.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable
from typing import Any, Literal, NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from kafka_actors.errors import ConfigError

from .registry import SchemaKey
from .results import Array, DecodedRows, Failure

MAGIC, GUID_MAGIC = 0, 1
FRAME_BYTES, GUID_FRAME_BYTES = 5, 17
NO_FRAME = -1
"""Takes the place of an id for values without a frame."""
HEADERS = {"value": "__value_schema_id", "key": "__key_schema_id"}
"""Names of the headers that hold a frame, by column."""
NULL = "the value is null (a tombstone): drop those first with .filter(pc.field('value').is_valid())"

Rows: TypeAlias = npt.NDArray[np.int32]


class Frames(NamedTuple):
    """Framed values: by id or GUID of the schema the numbers of those that have it, ascending; and the values without a frame."""

    by_schema: dict[SchemaKey, Rows]
    failures: list[Failure]


def frame_bytes(key: SchemaKey) -> int:
    """The length of a frame with this id or GUID."""
    if key == NO_FRAME:
        return 0
    return GUID_FRAME_BYTES if isinstance(key, str) else FRAME_BYTES


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


def framed(batch: pa.RecordBatch, column: Literal["key", "value"] = "value") -> Array:
    """The keys or values of a batch of records, each with its frame in front: where the frame is in a header, it is put there. Of several such
    headers of a record the last one counts, as in Java's deserializer."""
    return with_header_frames(batch.column(column), batch.column("headers"), column)


def with_header_frames(values: Array, headers: Array, column: Literal["key", "value"] = "value") -> Array:
    """Puts frames that are in headers in front of their values; `headers` are those of the records, in the same order."""
    pairs = headers.flatten()
    if not len(pairs):
        return values
    is_frame = pc.equal(pairs.field("key"), HEADERS[column]).to_numpy(zero_copy_only=False).astype(bool)
    if not is_frame.any():
        return values
    at = np.flatnonzero(is_frame)
    record = pc.list_parent_indices(headers).to_numpy()[at]
    header = np.full(len(values), -1, dtype=np.int64)
    header[record] = at  # a later one takes an earlier one's place
    found = pairs.field("value").take(pa.array(header, mask=header < 0))
    return pc.binary_join_element_wise(pc.fill_null(found, b""), values, b"")


def frames(values: Array, is_framed: bool = True) -> Frames:
    """Reads the frames of a binary array, without a Python object for each value. Values that aren't framed have `NO_FRAME` as their id.
    Raises `TypeError` for other arrays, whose offsets are of another form."""
    if not isinstance(values, (pa.Array, pa.ChunkedArray)):
        raise TypeError(
            f"the values are {type(values).__name__}: give a binary array, such as column('value') of a batch"
        )
    rows, failures = _valid(values)
    if not len(rows):
        return Frames({}, failures)
    if not isinstance(values, pa.Array) or values.type not in (pa.binary(), pa.string()):
        form, call = (" in chunks", "combine_chunks") if isinstance(values, pa.ChunkedArray) else ("", "cast")
        raise TypeError(f"the values are {values.type}{form}: give binary, as the array's {call}() makes it")
    if not is_framed:
        return Frames({NO_FRAME: rows}, failures)
    _, offsets, data = values.buffers()
    ends = np.frombuffer(offsets, np.int32, len(values) + 1, 4 * values.offset)
    starts = ends[rows]
    sizes = ends[rows + 1] - starts
    octets = np.frombuffer(data, np.uint8) if data is not None else np.zeros(0, np.uint8)
    magic = np.full(len(rows), -1, dtype=np.int16)
    magic[sizes > 0] = octets[starts[sizes > 0]]
    with_id = (magic == MAGIC) & (sizes >= FRAME_BYTES)
    with_guid = (magic == GUID_MAGIC) & (sizes >= GUID_FRAME_BYTES)
    wrong = ~(with_id | with_guid)
    for row, at, size in zip(rows[wrong], starts[wrong], sizes[wrong], strict=True):
        failures.append((int(row), _unframed_reason(bytes(octets[at : at + min(size, 1)]))))
    failures.sort()
    found = _by_id(rows[with_id], starts[with_id], octets)
    if with_guid.any():
        found |= _by_guid(rows[with_guid], starts[with_guid], octets)
    return Frames(found, failures)


def _valid(values: Array) -> tuple[Rows, list[Failure]]:
    """The numbers of the values that are not null, and a failure for each other one."""
    if not values.null_count:
        return np.arange(len(values), dtype=np.int32), []
    valid = np.asarray(values.is_valid())
    return np.flatnonzero(valid).astype(np.int32), [(int(row), NULL) for row in np.flatnonzero(~valid)]


def _by_id(rows: Rows, starts: npt.NDArray[Any], octets: npt.NDArray[Any]) -> dict[SchemaKey, Rows]:
    if not len(rows):
        return {}
    ids = np.zeros(len(rows), dtype=np.uint32)
    for at in range(1, FRAME_BYTES):
        ids = ids << np.uint32(8) | octets[starts + at]
    if (ids == ids[0]).all():
        return {int(ids[0]): rows}
    different, number = np.unique(ids, return_inverse=True)
    return dict(zip(map(int, different), _grouped(rows, number, len(different)), strict=True))


def _by_guid(rows: Rows, starts: npt.NDArray[Any], octets: npt.NDArray[Any]) -> dict[SchemaKey, Rows]:
    guids = octets[starts[:, None] + np.arange(1, GUID_FRAME_BYTES)]
    different, number = np.unique(guids, axis=0, return_inverse=True)
    keys = (str(uuid.UUID(bytes=one.tobytes())) for one in different)
    return dict(zip(keys, _grouped(rows, number.reshape(-1), len(different)), strict=True))


def _grouped(rows: Rows, number: npt.NDArray[Any], count: int) -> list[Rows]:
    """The rows of each number below `count`, ascending. Broken values may have as many ids as there are values."""
    order = np.argsort(number, kind="stable")
    return np.split(rows[order], np.searchsorted(number[order], np.arange(1, count)))


def _unframed_reason(data: bytes) -> str:
    if not data:
        return "the value is empty"
    if data[0] not in (MAGIC, GUID_MAGIC):
        return f"the value begins with byte {data[0]}, not with the frame of a registry's serializer: 0 and a schema id, or 1 and a schema's GUID"
    what = "five bytes of a schema id's" if data[0] == MAGIC else "17 bytes of a schema GUID's"
    return f"the value is shorter than the {what} frame"


Part = tuple[pa.RecordBatch | None, list[Failure]]


def joined(schema: pa.Schema, found: Frames, decode: Callable[[SchemaKey, Rows], Part]) -> DecodedRows:
    """Decodes the values of each schema by themselves, and puts the rows back in the order of the values."""
    failures = list(found.failures)
    batches, numbers, schemas = [], [], []
    for key, rows in found.by_schema.items():
        batch, failed = decode(key, rows)
        failures += failed
        if batch is not None:
            batches.append(batch)
            numbers.append(_without(rows, failed))
            schemas.append(key)
    failures.sort()
    if not batches:
        return DecodedRows(_empty(schema), np.zeros(0, np.int32), failures)
    if len(batches) == 1:
        return DecodedRows(batches[0], numbers[0], failures, tuple(schemas))
    table = pa.Table.from_batches(batches, schema=schema)
    records = np.concatenate(numbers)
    order = np.argsort(records, kind="stable")
    taken = table.take(pa.array(order)).combine_chunks().to_batches()
    batch = taken[0] if taken else _empty(schema)
    return DecodedRows(batch, records[order].astype(np.int32), failures, tuple(schemas))


def _without(rows: Rows, failed: list[Failure]) -> Rows:
    if not failed:
        return rows
    return rows[~np.isin(rows, [row for row, _ in failed])]


def _empty(schema: pa.Schema) -> pa.RecordBatch:
    return pa.RecordBatch.from_arrays([pa.array([], field.type) for field in schema], schema=schema)
