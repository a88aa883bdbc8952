"""The batch reader: the methods that Spark calls for `spark.read`, at planning and in tasks."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator
from datetime import datetime
from typing import TYPE_CHECKING, Any

from pyspark.sql.datasource import (
    DataSourceReader,
    EqualTo,
    Filter,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    InputPartition,
    LessThan,
    LessThanOrEqual,
)

from .machines.filter_ranges import EVERYTHING, FilterCondition, Operator, narrowing_of
from .machines.tasks import Task, tasks_of
from .options import BatchOptions, ReadOptions
from .schema import SourceColumns
from .spark_calls import OneLineErrors, freeze_imports

if TYPE_CHECKING:
    import pyarrow as pa

logger = logging.getLogger(__name__)


class KafkaInputPartition(InputPartition):
    """Offset ranges that one task reads."""

    def __init__(self, ranges: Task) -> None:
        super().__init__(ranges)
        self.ranges = ranges


def read_task(
    options: ReadOptions, columns: SourceColumns, partition: InputPartition
) -> Iterator[pa.RecordBatch]:
    """Reads the records of one task as Arrow record batches. Raises as `task_reader.read_ranges`."""
    from .task_reader import read_ranges
    from .task_tracing import polled, traced_task

    assert isinstance(partition, KafkaInputPartition)
    if partition.ranges:
        with OneLineErrors(), traced_task() as traced:
            batches = read_ranges(options, partition.ranges)
            for batch in polled(batches) if traced else batches:
                yield columns.of(batch)


class KafkaBatchReader(DataSourceReader):
    """Plans the offset ranges once, and reads them in the tasks. `columns` are those of Spark's schema."""

    def __init__(self, options: BatchOptions, columns: SourceColumns) -> None:
        self._options = options
        self._columns = columns
        self._narrowing = EVERYTHING

    def partitions(self) -> list[InputPartition]:
        """Plans: one `KafkaInputPartition` for each task. Raises as `planning.plan`."""
        from .planning import plan

        for note in self._options.notes:
            logger.warning("%s", note)
        with OneLineErrors():
            ranges = plan(self._options, self._narrowing)
        freeze_imports()
        tasks = tasks_of(
            ranges,
            min_partitions=self._options.min_partitions,
            max_records_per_partition=self._options.max_records_per_partition,
        )
        # For an empty list Spark would make a partition of its own, with another value.
        return [KafkaInputPartition(task) for task in tasks or [()]]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Reads one task: see `read_task`."""
        return read_task(self._options, self._columns, partition)


class FilteringKafkaBatchReader(KafkaBatchReader):
    """Reader to which Spark passes the query's filters. Spark refuses a reader with this method unless
    `spark.sql.python.filterPushdown.enabled` is true, so it is used only with the option `pushFilters`."""

    def pushFilters(self, filters: list[Filter]) -> Iterable[Filter]:
        """Narrows the ranges by filters on partition, offset and timestamp. Returns all of them: Spark applies them as well."""
        from .batch_reader import conditions_of

        self._narrowing = narrowing_of(conditions_of(filters))
        return filters


_OPERATORS: dict[type[Filter], Operator] = {
    EqualTo: "=",
    GreaterThan: ">",
    GreaterThanOrEqual: ">=",
    LessThan: "<",
    LessThanOrEqual: "<=",
    In: "in",
}


def conditions_of(filters: Iterable[Filter]) -> Iterator[FilterCondition]:
    """The filters that compare a column with numbers or times, as conditions; others can't narrow what is read."""
    for each in filters:
        operator = _OPERATORS.get(type(each))
        if operator is None:
            continue
        pushed: Any = each
        values = [_number(value) for value in (pushed.value if operator == "in" else [pushed.value])]
        if None not in values:
            yield FilterCondition(
                ".".join(pushed.attribute), operator, values if operator == "in" else values[0]
            )


def _number(value: Any) -> int | None:
    """An integer as it is, a time as milliseconds, rounded down; None for any other value."""
    if isinstance(value, datetime):
        return None if value.tzinfo is None else int(value.timestamp() * 1000 // 1)
    return value if isinstance(value, int) and not isinstance(value, bool) else None
