"""The sink of a pipeline as its last stage: the same on every engine."""

from __future__ import annotations

import time
from collections.abc import Callable

import pyarrow as pa

from kafka_actors.config import ClientConfig
from kafka_actors.pipeline.check import CheckedPipeline, CheckedStage
from kafka_actors.pipeline.rows import StageRows
from kafka_actors.pipeline.sink_rows import preparation
from kafka_actors.pipeline.source import ReadKafka, producer_config
from kafka_actors.pipeline.stage_guard import StageGuard
from kafka_actors.pipeline.stages import WriteFunction, WriteKafka, WriteParquet

from .kafka import KafkaWriter
from .parquet import ParquetWriter
from .user import UserSink
from .writer import Writer


def opened(step: CheckedStage, source: ReadKafka) -> Writer:
    """Opens the sink of a pipeline. Raises what its constructor raises."""
    stage = step.stage
    if isinstance(stage, WriteKafka):
        return KafkaWriter(producer_config(stage.name, source, stage.options), stage.topic)
    if isinstance(stage, WriteParquet):
        return ParquetWriter(stage.path, stage.compression)
    assert isinstance(stage, WriteFunction)
    return UserSink(stage.target, stage.arguments).open(ClientConfig())


class SinkStage:
    """Last stage, which writes to the sink: an error that `write` raises is one of its rows, for the sink's `on_error` policy."""

    retriable = True

    def __init__(
        self, checked: CheckedPipeline, write: Callable[[pa.RecordBatch, pa.RecordBatch], None]
    ) -> None:
        self._prepare = preparation(checked)
        self._write = write

    def run(self, rows: StageRows, source: pa.RecordBatch) -> list[StageRows]:
        if rows.batch.num_rows:
            self._write(self._prepare(rows, source), source)
        return []

    def close(self) -> None:
        pass


def guarded(
    checked: CheckedPipeline, write: Callable[[pa.RecordBatch, pa.RecordBatch], None], retries: int
) -> StageGuard:
    """The sink's stage with its `on_error` policy and retries."""
    assert checked.sink is not None
    return StageGuard(
        checked.sink.stage.name, checked.sink.on_error, retries, SinkStage(checked, write), time.sleep
    )
