"""The Python data source: what Spark calls, at planning and in tasks. Everything heavy is imported when it is used,
because Spark imports this module at its first look-up of any data source."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from types import TracebackType
from typing import TYPE_CHECKING, NoReturn

from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition

from kafka_actors.errors import KafkaActorsError, UsageError

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql.types import StructType

    from .machines.ranges import OffsetRange
    from .options import BatchOptions
    from .schema import Columns

NAME = "kafka_actors"

logger = logging.getLogger(__name__)


class _ClearErrors:
    """Spark shows the traceback of a Python error, and again for each try of a task: ours say all in one line."""

    def __enter__(self) -> None:
        return None

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if isinstance(error, KafkaActorsError):
            logger.debug("where it was raised", exc_info=error)
            raise error.with_traceback(None) from None


class KafkaDataSource(DataSource):
    """Kafka topics as a batch `DataFrame` with the columns, types and options of Spark's own `kafka` source.

        spark.read.format("kafka_actors").option("kafka.bootstrap.servers", "…").option("subscribe", "orders").load()

    Wrong options are a `ConfigError` from `.load()`, before anything connects; with a `.schema(…)` of one's own,
    which may name fewer columns, from the first action.

    Spark plans a Python data source once per `DataFrame`: the offsets are fixed at its first action, and records that
    come later need another `.load()`. (Spark's own source looks for the end anew at each action.)
    """

    @classmethod
    def name(cls) -> str:
        return NAME

    def schema(self) -> StructType:
        from .schema import schema

        with _ClearErrors():
            return schema(self._parsed().include_headers)

    def reader(self, schema: StructType) -> KafkaBatchReader:
        from .schema import columns_of

        with _ClearErrors():
            options = self._parsed()
            return KafkaBatchReader(options, columns_of(schema, options.include_headers))

    def streamReader(self, schema: StructType) -> NoReturn:
        raise UsageError("kafka_actors reads batches: use spark.read; there is no readStream so far")

    def writer(self, schema: StructType, overwrite: bool) -> NoReturn:
        raise UsageError("kafka_actors reads: there is no write to Kafka from Spark so far")

    def streamWriter(self, schema: StructType, overwrite: bool) -> NoReturn:
        self.writer(schema, overwrite)

    def _parsed(self) -> BatchOptions:
        from .options import parse_batch

        return parse_batch(self.options)


class KafkaInputPartition(InputPartition):
    """The offset ranges that one task reads."""

    def __init__(self, ranges: tuple[OffsetRange, ...]) -> None:
        super().__init__(ranges)
        self.ranges = ranges


class KafkaBatchReader(DataSourceReader):
    """Plans the offset ranges once; reads them in the tasks. `columns` are what Spark asked for."""

    def __init__(self, options: BatchOptions, columns: Columns) -> None:
        self._options = options
        self._columns = columns

    def partitions(self) -> list[InputPartition]:
        """One `KafkaInputPartition` for each task. Raises as `planner.plan`."""
        from .machines.tasks import tasks_of
        from .planner import plan

        for note in self._options.notes:
            logger.warning("%s", note)
        with _ClearErrors():
            ranges = plan(self._options)
        tasks = tasks_of(
            ranges,
            min_partitions=self._options.min_partitions,
            max_records_per_partition=self._options.max_records_per_partition,
        )
        # Spark makes a partition of its own, without a value we know, of an empty list.
        return [KafkaInputPartition(task) for task in tasks or [()]]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """The records of one task as Arrow record batches. Raises as `reading.read_ranges`."""
        from .reading import read_ranges

        assert isinstance(partition, KafkaInputPartition)
        if partition.ranges:
            with _ClearErrors():
                for batch in read_ranges(self._options, partition.ranges):
                    yield self._columns.of(batch)
