"""Data source of one pipeline: it plans as the data source `kafka_actors` does, and runs the fused stages in its tasks."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, ClassVar

import msgspec
import pyarrow as pa
from pyspark.sql.datasource import DataSource, InputPartition
from pyspark.sql.types import StructType

from kafka_actors.spark.source.batch_reader import KafkaBatchReader, read_task
from kafka_actors.spark.source.machines.stream_offsets import StreamOffsets
from kafka_actors.spark.source.options import ReadOptions, parse_batch, parse_stream
from kafka_actors.spark.source.schema import SourceColumns, columns_of, schema
from kafka_actors.spark.source.spark_calls import OneLineErrors, freeze_imports
from kafka_actors.spark.source.stream_reader import LIMITS, KafkaStreamReader, reader_class

from .frames import spark_schema
from .fusion import FusedStages

_ALL: SourceColumns = columns_of(schema(True), True)

if TYPE_CHECKING:
    _StreamReader = KafkaStreamReader
else:
    _StreamReader = reader_class()


class SourcePlan(msgspec.Struct, frozen=True, eq=False):
    """Read of a pipeline. `options` are those of the data source `kafka_actors`; `ends`: the offsets at which a backfill's stream
    has to end; `begin`: the offsets at which a stream has to begin."""

    name: str
    fusion: FusedStages
    options: dict[str, str]
    ends: StreamOffsets | None = None
    begin: StreamOffsets | None = None

    def __repr__(self) -> str:
        return f"<SourcePlan {self.name}>"  # passwords are among the options


def initial_offsets(options: Mapping[str, str], ends: StreamOffsets | None) -> StreamOffsets:
    """Resolves the start of a new stream with these options and ends. Raises as `StreamDriver.initial`."""
    from kafka_actors.spark.source.stream_driver import StreamDriver

    driver = StreamDriver(msgspec.structs.replace(parse_stream(options, limits=LIMITS), ends=ends))
    try:
        return StreamOffsets.from_json(driver.initial())
    finally:
        driver.close()


def source_of(plan: SourcePlan) -> type[DataSource]:
    """Makes a class to register in a session, bound to the plan, so that Spark's options have none of its secrets."""

    class Bound(PipelineSource):
        bound = plan

    return Bound


class PipelineSource(DataSource):
    """Data source of a pipeline's read; see the module. Its name is the plan's."""

    bound: ClassVar[SourcePlan]

    @classmethod
    def name(cls) -> str:
        return cls.bound.name

    def schema(self) -> StructType:
        freeze_imports()
        return spark_schema(self.bound.fusion.behind.schema)

    def reader(self, schema: StructType) -> PipelineReader:
        with OneLineErrors():
            return PipelineReader(self.bound)

    def streamReader(self, schema: StructType) -> PipelineStreamReader:
        with OneLineErrors():
            return PipelineStreamReader(self.bound)


class PipelineReader(KafkaBatchReader):
    """Reads a batch: plans once; in the tasks each batch of records passes the stages before Spark gets its rows."""

    def __init__(self, plan: SourcePlan) -> None:
        super().__init__(parse_batch(plan.options), _ALL)
        self._fusion = plan.fusion

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Reads one task. Raises `StageError`, and as `read_ranges`."""
        return _read(self._fusion, self._options, partition)


class PipelineStreamReader(_StreamReader):
    """Reads micro-batches through the stages; offsets, limits and lag are those of the data source `kafka_actors`."""

    def __init__(self, plan: SourcePlan) -> None:
        options = parse_stream(plan.options, limits=LIMITS)
        super().__init__(msgspec.structs.replace(options, ends=plan.ends, begin=plan.begin), _ALL)
        self._fusion = plan.fusion

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Reads one task. Raises `StageError`, and as `read_ranges`."""
        return _read(self._fusion, self._options, partition)


def _read(fusion: FusedStages, options: ReadOptions, partition: InputPartition) -> Iterator[pa.RecordBatch]:
    for batch in read_task(options, _ALL, partition):
        yield from fusion.run(batch)
