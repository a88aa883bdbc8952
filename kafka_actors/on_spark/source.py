"""The data source of one pipeline: it plans as `kafka_actors` does, and runs the fused stages in its tasks."""

from __future__ import annotations

from collections.abc import Iterator
from typing import ClassVar

import pyarrow as pa
from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition
from pyspark.sql.pandas.types import from_arrow_schema
from pyspark.sql.types import StructType

from kafka_actors.spark.batch import KafkaBatchReader, KafkaInputPartition
from kafka_actors.spark.options import parse_batch
from kafka_actors.spark.reading import read_ranges
from kafka_actors.spark.schema import columns_of, schema

from .plan import SparkPlan, fused_of, rows_for_spark


def source_of(plan: SparkPlan) -> type[DataSource]:
    """A class to register in a session: bound to the plan, so that no secret of it stands in Spark's options."""

    class Bound(PipelineSource):
        bound = plan

    return Bound


class PipelineSource(DataSource):
    """See the module. Its name is the plan's."""

    bound: ClassVar[SparkPlan]

    @classmethod
    def name(cls) -> str:
        return f"kafka_actors_pipeline_{cls.bound.key}"

    def schema(self) -> StructType:
        return from_arrow_schema(self.bound.schema())

    def reader(self, schema: StructType) -> PipelineReader:
        return PipelineReader(self.bound)


class PipelineReader(DataSourceReader):
    """Plans once; in the tasks, each batch goes through the stages before Spark sees a row of it."""

    def __init__(self, plan: SparkPlan) -> None:
        self._plan = plan

    def partitions(self) -> list[InputPartition]:
        """As those of `KafkaBatchReader`."""
        options = parse_batch(self._plan.options)
        return KafkaBatchReader(options, columns_of(schema(True), True)).partitions()

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Raises `StageError`, and as `read_ranges`."""
        assert isinstance(partition, KafkaInputPartition)
        if not partition.ranges:
            return
        fused, columns = fused_of(self._plan), self._plan.schema()
        for batch in read_ranges(parse_batch(self._plan.options), partition.ranges):
            yield from rows_for_spark(self._plan, fused, columns, batch)
