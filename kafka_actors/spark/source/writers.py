"""The writers: the methods that Spark calls for `df.write` and `df.writeStream`, at planning, in tasks and at the end."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from pyspark.sql.datasource import (
    DataSourceArrowWriter,
    DataSourceStreamArrowWriter,
    WriterCommitMessage,
)

from kafka_actors.errors import KafkaActorsError
from kafka_actors.sinks.kafka import check_target, is_final

from .sink_options import SinkOptions
from .spark_calls import OneLineErrors, freeze_imports

if TYPE_CHECKING:
    import pyarrow as pa

logger = logging.getLogger(__name__)

Messages = Sequence[WriterCommitMessage | None]


class WriteCommit(WriterCommitMessage):
    """Result of a task: the number of acknowledged rows; or an error that a retry would only repeat."""

    def __init__(self, rows: int, refused: KafkaActorsError | None = None) -> None:
        self.rows = rows
        self.refused = refused


class _TaskWrites:
    """Base of the writers. Delivery is at least once: rows of a finished task stay in the log even if other tasks fail."""

    def __init__(self, options: SinkOptions) -> None:
        freeze_imports()
        self._options = options
        with OneLineErrors():
            check_target(options.producer, options.topic, "the option topic's topic")
        for note in options.notes:
            logger.warning("%s", note)

    def _write(self, batches: Iterator[pa.RecordBatch]) -> WriteCommit:
        from .task_tracing import traced_task
        from .task_writer import write_batches

        try:
            with OneLineErrors(), traced_task():
                return WriteCommit(write_batches(self._options, batches))
        except KafkaActorsError as error:
            if not is_final(error):
                raise
            return WriteCommit(0, error)  # Spark would retry a task that raises three times

    def _commit(self, messages: Messages) -> None:
        freeze_imports()
        for message in messages:
            if isinstance(message, WriteCommit) and message.refused is not None:
                with OneLineErrors():
                    raise message.refused

    def _abort(self, messages: Messages) -> None:
        rows = sum(message.rows for message in messages if isinstance(message, WriteCommit))
        logger.warning("the write failed; %d rows were written already, and stay written", rows)


class KafkaBatchWriter(_TaskWrites, DataSourceArrowWriter):
    """Writes the rows of a batch."""

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriteCommit:
        """Writes the rows of a task, and returns when they are acknowledged. Raises as `task_writer.write_batches`."""
        return self._write(iterator)

    def commit(self, messages: Messages) -> None:
        """Ends a write of which all tasks have returned. Raises the permanent error of a task."""
        self._commit(messages)

    def abort(self, messages: Messages) -> None:
        """Ends a write of which a task has failed."""
        self._abort(messages)


class KafkaStreamWriter(_TaskWrites, DataSourceStreamArrowWriter):
    """Writes the rows of a stream. A micro-batch that Spark runs again after a crash is written again."""

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriteCommit:
        """Writes the rows of a task, and returns when they are acknowledged. Raises as `task_writer.write_batches`."""
        return self._write(iterator)

    def commit(self, messages: Messages, batchId: int) -> None:
        """Ends a micro-batch of which all tasks have returned. Raises the permanent error of a task."""
        self._commit(messages)

    def abort(self, messages: Messages, batchId: int) -> None:
        """Ends a micro-batch of which a task has failed."""
        self._abort(messages)
