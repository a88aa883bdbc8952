"""The batch reader: what Spark calls of a `spark.read`, at planning and in tasks."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

from pyspark.sql.datasource import DataSourceReader, Filter, InputPartition

from .gc_settings import leave_imports_out
from .machines.filter_ranges import EVERYTHING, narrowing_of
from .machines.tasks import Task, tasks_of
from .one_line_errors import OneLineErrors
from .options import BatchOptions, ReadOptions
from .schema import SourceColumns

if TYPE_CHECKING:
    import pyarrow as pa

logger = logging.getLogger(__name__)


class KafkaInputPartition(InputPartition):
    """The offset ranges that one task reads."""

    def __init__(self, ranges: Task) -> None:
        super().__init__(ranges)
        self.ranges = ranges


def read_task(
    options: ReadOptions, columns: SourceColumns, partition: InputPartition
) -> Iterator[pa.RecordBatch]:
    """The records of one task as Arrow record batches. Raises as `reading.read_ranges`."""
    from .task_reader import read_ranges
    from .task_tracing import polled, traced_task

    assert isinstance(partition, KafkaInputPartition)
    if partition.ranges:
        with OneLineErrors(), traced_task() as traced:
            batches = read_ranges(options, partition.ranges)
            for batch in polled(batches) if traced else batches:
                yield columns.of(batch)


class KafkaBatchReader(DataSourceReader):
    """Plans the offset ranges once; reads them in the tasks. `columns` are what Spark asked for."""

    def __init__(self, options: BatchOptions, columns: SourceColumns) -> None:
        self._options = options
        self._columns = columns
        self._narrowing = EVERYTHING

    def partitions(self) -> list[InputPartition]:
        """One `KafkaInputPartition` for each task. Raises as `planner.plan`."""
        from .batch_planner import plan

        for note in self._options.notes:
            logger.warning("%s", note)
        with OneLineErrors():
            ranges = plan(self._options, self._narrowing)
        leave_imports_out()
        tasks = tasks_of(
            ranges,
            min_partitions=self._options.min_partitions,
            max_records_per_partition=self._options.max_records_per_partition,
        )
        # Spark makes a partition of its own, without a value we know, of an empty list.
        return [KafkaInputPartition(task) for task in tasks or [()]]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """As `read_task`."""
        return read_task(self._options, self._columns, partition)


class FilteringKafkaBatchReader(KafkaBatchReader):
    """A reader that Spark tells of the query's filters. Spark refuses a reader with this method unless
    `spark.sql.python.filterPushdown.enabled` is true, so only who asks for it gets one."""

    def pushFilters(self, filters: list[Filter]) -> Iterable[Filter]:
        """Narrows the ranges by what is said of partition, offset and timestamp. Spark applies all filters itself."""
        from .pushdown import conditions_of

        self._narrowing = narrowing_of(conditions_of(filters))
        return filters
