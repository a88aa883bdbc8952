"""The columns a pipeline begins with, and the hidden `_kafka` that says which record a row came from."""

from __future__ import annotations

from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from kafka_actors.base.batches import SCHEMA
from kafka_actors.errors import ConfigError

Array: TypeAlias = Any  # pyarrow publishes no types of its own
Numbers: TypeAlias = npt.NDArray[np.int32]

KAFKA = "_kafka"
KAFKA_FIELDS = ("topic", "partition", "offset", "timestamp", "key", "headers")
KAFKA_TYPE = pa.struct([SCHEMA.field(name) for name in KAFKA_FIELDS])
KAFKA_FIELD = pa.field(KAFKA, KAFKA_TYPE)
"""The hidden column: expressions may name it (`pc.field("_kafka", "offset")`), functions get it if they ask."""

NO_RECORD = -1


def with_kafka(schema: pa.Schema) -> pa.Schema:
    """The schema with the hidden column at its end."""
    return schema.append(KAFKA_FIELD)


def kafka_struct(source: pa.RecordBatch, origin: Numbers) -> Array:
    """The `_kafka` column of rows; null for a row that belongs to no single record."""
    none = origin == NO_RECORD
    if none.any():
        at = pa.array(origin, mask=none)
        children = [source.column(name).take(at) for name in KAFKA_FIELDS]
        return pa.StructArray.from_arrays(children, fields=list(KAFKA_TYPE), mask=pa.array(none))
    columns = [source.column(name) for name in KAFKA_FIELDS]
    if not _is_all(origin, source.num_rows):
        at = pa.array(origin)
        columns = [column.take(at) for column in columns]
    return pa.StructArray.from_arrays(columns, fields=list(KAFKA_TYPE))


def _is_all(origin: Numbers, rows: int) -> bool:
    return len(origin) == rows and bool((origin == np.arange(rows, dtype=np.int32)).all())


def check_names(stage: str, schema: pa.Schema) -> None:
    """Raises `ConfigError` for a schema with a name twice, or with the hidden column's."""
    names = schema.names
    for name in names:
        if name == KAFKA:
            raise ConfigError(
                stage, f"has a column {KAFKA!r}: that name is the hidden column's; give it another"
            )
        if names.count(name) > 1:
            raise ConfigError(stage, f"has more than one column {name!r}")
