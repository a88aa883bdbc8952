"""What a task needs to know to run the fused stages: it travels to Spark's Python processes, never into a Spark plan."""

from __future__ import annotations

import atexit
from collections.abc import Iterator
from typing import Any

import msgspec
import numpy as np
import pyarrow as pa

from kafka_actors.batches import HEADERS_TYPE
from kafka_actors.config import JobConfig
from kafka_actors.errors import ConfigError
from kafka_actors.pipeline import Pipeline
from kafka_actors.pipeline.arrays import cast_to
from kafka_actors.pipeline.checking import Step
from kafka_actors.pipeline.columns import KAFKA_FIELD
from kafka_actors.pipeline.fused import Fused
from kafka_actors.pipeline.rows import Failed, Rows
from kafka_actors.pipeline.source import ReadKafka
from kafka_actors.security import Secret

from .types import as_spark

ERROR = "_error"
ERROR_FIELD = pa.field(
    ERROR,
    pa.struct(
        [
            pa.field("stage", pa.string()),
            pa.field("reason", pa.string()),
            pa.field("key", pa.binary()),
            pa.field("value", pa.binary()),
            pa.field("headers", HEADERS_TYPE),
            pa.field("topic", pa.string()),
            pa.field("partition", pa.int32()),
            pa.field("offset", pa.int64()),
        ]
    ),
)
"""What a failed record is, under "dead_letter": a row of its own, whose other columns are null."""


class SparkPlan(msgspec.Struct, frozen=True, eq=False):
    """The stages that are fused into the source. `key` tells the plans of a process apart; `options` are the source's."""

    key: str
    pipeline: Pipeline
    steps: tuple[Step, ...]
    columns: Any
    kafka: bool
    options: dict[str, str]

    @property
    def dead_letters(self) -> bool:
        return any(step.on_error == "dead_letter" for step in self.steps)

    def schema(self) -> pa.Schema:
        """The columns of the rows that reach the JVM."""
        schema = as_spark("pipeline", self.columns, nullable=self.dead_letters)
        if self.kafka:
            schema = schema.append(KAFKA_FIELD)
        return schema.append(ERROR_FIELD) if self.dead_letters else schema


def source_options(source: ReadKafka) -> dict[str, str]:
    """The pipeline's options as those of the data source: what only a job has stays behind."""
    found = (
        {"subscribe": ",".join(source.topics)}
        if source.topics
        else {"subscribePattern": source.pattern or ""}
    )
    for name, value in source.options.items():
        if name in _OF_JOBS or value is None:
            continue
        found["kafka." + name.replace("_", ".")] = _text(name, value)
    return {**found, "includeHeaders": "true"}


_OF_JOBS = frozenset(JobConfig.__struct_fields__) - frozenset(
    name
    for name in JobConfig.__struct_fields__
    if name.startswith(("bootstrap", "client", "security", "ssl", "sasl", "fetch", "request", "reconnect"))
    or name in ("isolation_level", "max_partition_fetch_bytes", "check_crcs", "max_decompressed_batch_bytes")
)


def _text(name: str, value: Any) -> str:
    if isinstance(value, Secret):
        return value.reveal()
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, (list, tuple)) and all(isinstance(part, str) for part in value):
        return ",".join(value)
    if isinstance(value, (str, int, float)):
        return str(value)
    raise ConfigError(name, "can't be sent to Spark's executors: it is no text or number")


# ---------------------------------------------------------------- in a Python worker

_MADE: dict[str, Fused] = {}
"""Spark uses a Python worker for many tasks: classes are made once in each."""


def fused_of(plan: SparkPlan) -> Fused:
    """The stages of a plan, made once per process; closed as it ends, if there is time."""
    if plan.key not in _MADE:
        made = _MADE[plan.key] = Fused(plan.steps, retries=plan.pipeline.retries)
        atexit.register(made.close)
    return _MADE[plan.key]


def rows_for_spark(
    plan: SparkPlan, fused: Fused, schema: pa.Schema, batch: pa.RecordBatch
) -> Iterator[pa.RecordBatch]:
    """The rows of one batch, and behind them its failed records. Raises `StageError`."""
    outcome = fused.run(batch)
    for rows in outcome.rows:
        yield _row_batch(plan, schema, rows, batch)
    policies = {step.stage.name: step.on_error for step in plan.steps}
    dead = [f for f in outcome.failures if policies[f.stage] == "dead_letter"]
    if dead:
        yield _error_batch(plan, schema, dead, batch)


def _row_batch(plan: SparkPlan, schema: pa.Schema, rows: Rows, source: pa.RecordBatch) -> pa.RecordBatch:
    made = rows.with_kafka(source) if plan.kafka else rows.batch
    if plan.dead_letters:
        made = made.append_column(ERROR_FIELD, pa.nulls(made.num_rows, ERROR_FIELD.type))
    return cast_to(schema, made)


def _error_batch(
    plan: SparkPlan, schema: pa.Schema, dead: list[Failed], source: pa.RecordBatch
) -> pa.RecordBatch:
    numbers = np.array([f.record for f in dead], dtype=np.int32)
    taken = source.take(pa.array(numbers))
    texts = {"stage": pa.array([f.stage for f in dead]), "reason": pa.array([f.reason for f in dead])}
    fields = list(ERROR_FIELD.type)
    error = pa.StructArray.from_arrays(
        [texts[field.name] if field.name in texts else taken.column(field.name) for field in fields],
        fields=fields,
    )
    made = [pa.nulls(len(dead), field.type) for field in as_spark("pipeline", plan.columns, nullable=True)]
    if plan.kafka:
        made.append(Rows(taken, np.arange(len(dead), dtype=np.int32)).with_kafka(taken).column("_kafka"))
    return pa.RecordBatch.from_arrays([*made, error], schema=schema)
