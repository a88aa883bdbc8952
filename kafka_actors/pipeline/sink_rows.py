"""What a sink is given: rows with the columns, the keys and the encoding that its stage says."""

from __future__ import annotations

from collections.abc import Callable

import pyarrow as pa

from .check import CheckedPipeline
from .columns import NO_RECORD, Array
from .encode import json_values, key_values
from .expressions import evaluate, uses_kafka
from .rows import StageRows
from .stages import SENDABLE, WithKey, WriteFunction, WriteKafka, WriteParquet

Prepare = Callable[[StageRows, pa.RecordBatch], pa.RecordBatch]


def preparing(checked: CheckedPipeline) -> Prepare:
    """How rows are made ready for the sink of a definition that has one."""
    assert checked.sink is not None
    stage = checked.sink.stage
    if isinstance(stage, WriteKafka):
        return _columns if stage.format == "columns" else _json(checked)
    assert isinstance(stage, (WriteParquet, WriteFunction))
    if stage.kafka:
        return lambda rows, source: rows.with_kafka(source)
    return lambda rows, source: rows.batch


def _columns(rows: StageRows, source: pa.RecordBatch) -> pa.RecordBatch:
    return rows.batch.select([name for name in rows.batch.schema.names if name in SENDABLE])


def _json(checked: CheckedPipeline) -> Prepare:
    key = _key(checked)

    def prepare(rows: StageRows, source: pa.RecordBatch) -> pa.RecordBatch:
        return pa.RecordBatch.from_arrays(
            [key_values(key(rows, source)), json_values(rows.batch)], names=["key", "value"]
        )

    return prepare


def _key(checked: CheckedPipeline) -> Callable[[StageRows, pa.RecordBatch], Array]:
    """What with_key says; otherwise the key of the record that a row came from."""
    if checked.key is None:
        return _own_key
    stage, columns = checked.key.stage, checked.columns
    assert isinstance(stage, WithKey)
    assert columns is not None
    expression = stage.expression(columns)
    kafka = uses_kafka([expression], columns)

    def key(rows: StageRows, source: pa.RecordBatch) -> Array:
        batch = rows.with_kafka(source) if kafka else rows.batch
        return evaluate([expression], batch)[0]

    return key


def _own_key(rows: StageRows, source: pa.RecordBatch) -> Array:
    return source.column("key").take(pa.array(rows.origin, mask=rows.origin == NO_RECORD))
