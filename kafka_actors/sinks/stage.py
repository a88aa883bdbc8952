"""The sink of a pipeline as its last stage, for every engine."""

from __future__ import annotations

import time
from collections.abc import Callable

import pyarrow as pa

from kafka_actors.config import ClientConfig
from kafka_actors.pipeline.check import CheckedPipeline, CheckedStage
from kafka_actors.pipeline.rows import StageRows
from kafka_actors.pipeline.sink_rows import preparing
from kafka_actors.pipeline.source import ReadKafka, producer_config
from kafka_actors.pipeline.stage_guard import StageGuard
from kafka_actors.pipeline.stages import WriteFunction, WriteKafka, WriteParquet

from .kafka import KafkaWriter
from .parquet import ParquetWriter
from .user import UserSink
from .writer import Writer


def opened(step: CheckedStage, source: ReadKafka) -> Writer:
    """The sink of a pipeline, open. Raises what keeps it from opening."""
    stage = step.stage
    if isinstance(stage, WriteKafka):
        return KafkaWriter(producer_config(stage.name, source, stage.options), stage.topic)
    if isinstance(stage, WriteParquet):
        return ParquetWriter(stage.path, stage.compression)
    assert isinstance(stage, WriteFunction)
    return UserSink(stage.target, stage.arguments).open(ClientConfig())


class SinkStage:
    """The sink as the last stage: what it refuses at once is an error of its rows, with the sink's policy."""

    retriable = True

    def __init__(
        self, checked: CheckedPipeline, write: Callable[[pa.RecordBatch, pa.RecordBatch], None]
    ) -> None:
        self._prepare = preparing(checked)
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
    """The sink's writing with its policy and retries."""
    assert checked.sink is not None
    return StageGuard(
        checked.sink.stage.name, checked.sink.on_error, retries, SinkStage(checked, write), time.sleep
    )
