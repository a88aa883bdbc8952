"""The stream readers: the methods that Spark calls for `spark.readStream`, at each trigger and in tasks.

Spark uses one instance where the query is planned, for all questions about offsets, and copies of another in the
tasks, which only read.
"""

from __future__ import annotations

import importlib.util
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from pyspark.sql.datasource import DataSourceStreamReader, InputPartition

from .batch_reader import KafkaInputPartition, read_task
from .options import StreamOptions
from .schema import SourceColumns
from .spark_calls import OneLineErrors, freeze_imports

if TYPE_CHECKING:
    import pyarrow as pa

    from .stream_driver import StreamDriver

LIMITS = importlib.util.find_spec("pyspark.sql.streaming.datasource") is not None
"""Whether this Spark lets a source limit its batches, as it does from 4.2 on."""


class KafkaStreamReader(DataSourceStreamReader):
    """Plans micro-batches and reads them, for Spark before 4.2. `columns` are those of Spark's schema."""

    def __init__(self, options: StreamOptions, columns: SourceColumns) -> None:
        freeze_imports()
        self._options = options
        self._columns = columns
        self._made_driver: StreamDriver | None = None

    @property
    def _driver(self) -> StreamDriver:
        """The driver, made on first use: copies in tasks have none."""
        if self._made_driver is None:
            from .stream_driver import StreamDriver

            self._made_driver = StreamDriver(self._options)
        return self._made_driver

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
            return [KafkaInputPartition(task) for task in self._driver.tasks(start, end)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Reads one task: see `batch_reader.read_task`."""
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
