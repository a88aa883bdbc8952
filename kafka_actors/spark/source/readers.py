"""The readers: the methods that Spark calls for `spark.read` and `spark.readStream`, at planning, at each trigger and in tasks.

For a stream Spark uses one instance where the query is planned, for all questions about offsets, and copies of another in
the tasks, which only read.
"""

from __future__ import annotations

import importlib.util
import logging
from collections.abc import Iterable, Iterator
from datetime import datetime
from typing import TYPE_CHECKING, Any, Protocol

from pyspark.sql.datasource import (
    DataSourceReader,
    DataSourceStreamReader,
    EqualTo,
    Filter,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    InputPartition,
    LessThan,
    LessThanOrEqual,
)

from kafka_actors.spark.python_worker import OneLineErrors, freeze_imports

from .machines.offset_ranges import (
    EVERYTHING,
    FilterCondition,
    Operator,
    Task,
    milliseconds_of,
    narrowing_of,
    tasks_of,
)
from .options import BatchOptions, ReadOptions, StreamOptions

if TYPE_CHECKING:
    import pyarrow as pa

    from .query_schema import QuerySchema, ReadBy
    from .stream_driver import StreamDriver

logger = logging.getLogger(__name__)


class KafkaInputPartition(InputPartition):
    """Offset ranges that one task reads. `read_by`: the schema by which values are decoded, where it isn't the one that the query was planned
    with."""

    def __init__(self, ranges: Task, read_by: ReadBy | None = None) -> None:
        super().__init__(ranges)
        self.ranges = ranges
        self.read_by = read_by


class OutputColumns(Protocol):
    """Columns that Spark gets of a batch of records."""

    def of(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """These columns of a batch."""
        ...

    def reading_by(self, read_by: ReadBy) -> OutputColumns:
        """The columns of values that are decoded by another schema."""
        ...

    @property
    def schema(self) -> QuerySchema | None:
        """The schema by which values are decoded, for the stream's driver; None where they aren't decoded by a registry's."""
        ...


def read_task(
    options: ReadOptions, columns: OutputColumns, partition: InputPartition
) -> Iterator[pa.RecordBatch]:
    """Reads the records of one task as Arrow record batches. Raises as `task_reader.read_ranges`."""
    from .task_reader import read_ranges
    from .task_tracing import polled, traced_task

    assert isinstance(partition, KafkaInputPartition)
    if partition.read_by is not None:
        columns = columns.reading_by(partition.read_by)
    if partition.ranges:
        with OneLineErrors(), traced_task() as traced:
            batches = read_ranges(options, partition.ranges)
            for batch in polled(batches) if traced else batches:
                yield columns.of(batch)


class KafkaBatchReader(DataSourceReader):
    """Plans the offset ranges once, and reads them in the tasks. `columns` are those of Spark's schema."""

    def __init__(self, options: BatchOptions, columns: OutputColumns) -> None:
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
        within: str | None = None
        if self._options.decode is not None:
            from kafka_actors.pipeline.rows import KAFKA

            within = KAFKA
        self._narrowing = narrowing_of(conditions_of(filters, within))
        return filters


_OPERATORS: dict[type[Filter], Operator] = {
    EqualTo: "=",
    GreaterThan: ">",
    GreaterThanOrEqual: ">=",
    LessThan: "<",
    LessThanOrEqual: "<=",
    In: "in",
}


def conditions_of(filters: Iterable[Filter], within: str | None = None) -> Iterator[FilterCondition]:
    """The filters that compare a column with numbers or times, as conditions; others can't narrow what is read. `within`: the struct
    that has Kafka's own columns, whose names may be those of decoded ones."""
    for each in filters:
        operator = _OPERATORS.get(type(each))
        if operator is None:
            continue
        pushed: Any = each
        path = pushed.attribute
        if within is not None:
            if path[0] != within:
                continue
            path = path[1:]
        values = [_number(value) for value in (pushed.value if operator == "in" else [pushed.value])]
        if None not in values:
            yield FilterCondition(".".join(path), operator, values if operator == "in" else values[0])


def _number(value: Any) -> int | None:
    """An integer as it is, a time as milliseconds, rounded down; None for any other value."""
    if isinstance(value, datetime):
        return None if value.tzinfo is None else milliseconds_of(value)
    return value if isinstance(value, int) and not isinstance(value, bool) else None


LIMITS = importlib.util.find_spec("pyspark.sql.streaming.datasource") is not None
"""Whether this Spark lets a source limit its batches, as it does from 4.2 on."""


class KafkaStreamReader(DataSourceStreamReader):
    """Plans micro-batches and reads them, for Spark before 4.2. `columns` are those of Spark's schema."""

    def __init__(self, options: StreamOptions, columns: OutputColumns) -> None:
        freeze_imports()
        self._options = options
        self._columns = columns
        self._made_driver: StreamDriver | None = None

    @property
    def _driver(self) -> StreamDriver:
        """The driver, made on first use: copies in tasks have none."""
        if self._made_driver is None:
            from .stream_driver import StreamDriver

            self._made_driver = StreamDriver(self._options, schema=self._query_schema)
        return self._made_driver

    @property
    def _query_schema(self) -> QuerySchema | None:
        """The schema by which values are decoded, None where they aren't by a registry's."""
        return self._columns.schema

    def initialOffset(self) -> dict[str, Any]:
        """The start of a new query. Raises `ConfigError`, `NoBrokersAvailable`, `DataLossError`."""
        with OneLineErrors():
            return self._driver.initial()

    def latestOffset(self) -> dict[str, Any]:  # type: ignore[override]  # the signature before Spark 4.2
        """The end of the next batch. Raises as `StreamDriver.latest`."""
        with OneLineErrors():
            return self._driver.latest()

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> list[InputPartition]:
        """One `KafkaInputPartition` for each task of the batch between these offsets. Raises `DataLossError`."""
        with OneLineErrors():
            read_by = self._driver.read_by(start, end)
            return [KafkaInputPartition(task, read_by) for task in self._driver.tasks(start, end)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Reads one task: see `read_task`."""
        return read_task(self._options, self._columns, partition)

    def commit(self, end: dict[str, Any]) -> None:
        """Takes the end of a finished batch, which is committed for the group with `commitOffsets`."""
        with OneLineErrors():
            self._driver.finished(end)

    def stop(self) -> None:
        """Closes the connections. Spark doesn't call it, as far as was seen, but ends the Python process with the query."""
        if self._made_driver is not None:
            self._made_driver.close()
            self._made_driver = None


if LIMITS:
    from pyspark.sql.streaming.datasource import (
        ReadAllAvailable,
        ReadLimit,
        ReadMaxRows,
        ReadMinRows,
        SupportsTriggerAvailableNow,
    )

    class LimitedKafkaStreamReader(SupportsTriggerAvailableNow, KafkaStreamReader):
        """Reader for Spark from 4.2 on: batches have limits, and Trigger.AvailableNow ends."""

        def getDefaultReadLimit(self) -> ReadLimit:
            """The limit of the options. A Python source can't combine two limits: `latestOffset` applies both."""
            if self._options.max_offsets is not None:
                return ReadMaxRows(self._options.max_offsets)
            if self._options.min_offsets is not None:
                return ReadMinRows(self._options.min_offsets)
            return ReadAllAvailable()

        def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:  # type: ignore[override]  # as 4.2 calls it
            """The end of the next batch, within the options' limits unless Spark wants all. Raises as
            `StreamDriver.latest`."""
            with OneLineErrors():
                return self._driver.latest(start, limited=not isinstance(limit, ReadAllAvailable))

        def prepareForTriggerAvailableNow(self) -> None:
            """Fixes the query's target: all records that exist now."""
            with OneLineErrors():
                self._driver.prepare_available_now()

        def reportLatestOffset(self) -> dict[str, Any] | None:
            """The ends of the logs and the lag, for the query's progress."""
            return self._driver.reported()

        def commit(self, end: dict[str, Any]) -> None:
            """Takes the offsets in the checkpoint. It is called a batch late, so `latestOffset` commits for the group."""
            with OneLineErrors():
                self._driver.checkpointed(end)


def reader_class() -> type[KafkaStreamReader]:
    """The reader for this Spark."""
    return LimitedKafkaStreamReader if LIMITS else KafkaStreamReader
