"""The stream reader: what Spark calls of a `spark.readStream`, at each trigger and in tasks.

Spark uses one instance where the query is planned, which answers all questions about offsets, and copies of another
in the tasks, which only read.
"""

from __future__ import annotations

import importlib.util
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from pyspark.sql.datasource import DataSourceStreamReader, InputPartition

from .batch_reader import KafkaInputPartition, read_task
from .gc_settings import leave_imports_out
from .one_line_errors import OneLineErrors
from .options import StreamOptions
from .schema import SourceColumns

if TYPE_CHECKING:
    import pyarrow as pa

    from .stream_driver import StreamDriver

LIMITS = importlib.util.find_spec("pyspark.sql.streaming.datasource") is not None
"""Whether this Spark lets a source limit its batches: from 4.2 on."""


def reader_class() -> type[KafkaStreamReader]:
    """The reader for this Spark."""
    if not LIMITS:
        return KafkaStreamReader
    from .limited_stream_reader import LimitedKafkaStreamReader

    return LimitedKafkaStreamReader


class KafkaStreamReader(DataSourceStreamReader):
    """Plans micro-batches and reads them, for Spark before 4.2. `columns` are what Spark asked for."""

    def __init__(self, options: StreamOptions, columns: SourceColumns) -> None:
        leave_imports_out()
        self._options = options
        self._columns = columns
        self._planning: StreamDriver | None = None

    @property
    def _driver(self) -> StreamDriver:
        """Made when it is first asked: what travels to the tasks has none."""
        if self._planning is None:
            from .stream_driver import StreamDriver

            self._planning = StreamDriver(self._options)
        return self._planning

    def initialOffset(self) -> dict[str, Any]:
        """Where a new query starts. Raises `ConfigError`, `NoBrokersAvailable`, `DataLossError`."""
        with OneLineErrors():
            return self._driver.initial()

    def latestOffset(self) -> dict[str, Any]:  # type: ignore[override]  # its form before Spark 4.2
        """The end of the next batch. Raises as `StreamDriver.latest`."""
        with OneLineErrors():
            return self._driver.latest()

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> list[InputPartition]:
        """One `KafkaInputPartition` for each task of the batch between these offsets. Raises `DataLossError`."""
        with OneLineErrors():
            return [KafkaInputPartition(task) for task in self._driver.tasks(start, end)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """As `batch.read_task`."""
        return read_task(self._options, self._columns, partition)

    def commit(self, end: dict[str, Any]) -> None:
        """Spark has finished the batch that ends here. With `commitOffsets` the group's offsets follow."""
        with OneLineErrors():
            self._driver.finished(end)

    def stop(self) -> None:
        """Closes the connections. Spark was not seen to call this; its Python process ends with the query."""
        if self._planning is not None:
            self._planning.close()
            self._planning = None
