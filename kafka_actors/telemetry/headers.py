"""W3C trace context in record headers: read from batches that were fetched, written into batches that are sent.

This module is imported only where an SDK records. Headers are processed as Arrow columns, never row by row.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from opentelemetry.trace import Link

from .spans import TRACEPARENT, links_to, parse, spread

__all__ = ["links_of", "with_context"]


def links_of(batch: pa.RecordBatch) -> list[Link]:
    """Links to the trace contexts that the headers of a batch's records carry."""
    values = _traceparents(batch)
    different = [] if values is None else pc.unique(values).to_pylist()
    return links_to(parse(value) for value in spread(different))


def _traceparents(batch: pa.RecordBatch) -> pa.Array | None:
    at = batch.schema.get_field_index("headers")
    if at < 0:
        return None
    column = batch.column(at)
    if pa.types.is_null(column.type) or column.null_count == len(column):
        return None
    headers = column.flatten()
    return pc.filter(headers.field("value"), _named(headers))


def _named(headers: pa.StructArray) -> pa.BooleanArray:
    return pc.fill_null(pc.equal(headers.field("key").cast(pa.string()), TRACEPARENT), False)


def with_context(batch: pa.RecordBatch, value: str) -> tuple[pa.RecordBatch, bool]:
    """Returns the batch with a `traceparent` header added to each record that has none, and whether any record had one."""
    rows, at = batch.num_rows, batch.schema.get_field_index("headers")
    column = batch.column(at) if at >= 0 else pa.nulls(rows)
    if pa.types.is_null(column.type) or column.null_count == rows:
        return _set(
            batch, at, _lists(np.arange(rows + 1), _header(value), np.zeros(rows, dtype=np.int64))
        ), False
    headers = column.flatten()
    lengths = pc.fill_null(pc.list_value_length(column), 0).to_numpy(zero_copy_only=False).astype(np.int64)
    has = np.zeros(rows, dtype=bool)
    has[np.repeat(np.arange(rows), lengths)[_named(headers).to_numpy(zero_copy_only=False)]] = True
    offsets = np.concatenate([[0], np.cumsum(lengths + ~has)])
    # Index of the header for each place: existing headers keep their order, the new one comes last in its row.
    places = np.zeros(int(offsets[-1]), dtype=np.int64)
    new = np.zeros(len(places), dtype=bool)
    new[offsets[1:][~has] - 1] = True
    places[~new] = np.arange(len(headers))
    places[new] = len(headers)
    plain = pa.StructArray.from_arrays(
        [headers.field("key").cast(pa.string()), headers.field("value").cast(pa.binary())], ["key", "value"]
    )
    both = pa.concat_arrays([plain, _header(value)])
    return _set(batch, at, _lists(offsets, both, places)), bool(has.any())


def _header(value: str) -> pa.StructArray:
    return pa.StructArray.from_arrays(
        [pa.array([TRACEPARENT]), pa.array([value.encode()], pa.binary())], ["key", "value"]
    )


def _lists(offsets: Any, headers: pa.StructArray, places: Any) -> pa.ListArray:
    return pa.ListArray.from_arrays(pa.array(offsets, pa.int32()), headers.take(pa.array(places)))


def _set(batch: pa.RecordBatch, at: int, headers: pa.ListArray) -> pa.RecordBatch:
    if at >= 0:
        return batch.set_column(at, "headers", headers)
    return batch.append_column("headers", headers)
