"""The writers: what Spark calls of a `df.write` and a `df.writeStream`, at planning, in tasks and at the end."""

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
from kafka_actors.sinks.targets import check_target, is_final

from .gc_settings import leave_imports_out
from .one_line_errors import OneLineErrors
from .sink_options import SinkOptions

if TYPE_CHECKING:
    import pyarrow as pa

logger = logging.getLogger(__name__)

Messages = Sequence[WriterCommitMessage | None]


class WriteCommit(WriterCommitMessage):
    """What a task wrote, and the brokers have acknowledged; or the error that a second try would only repeat."""

    def __init__(self, rows: int, refused: KafkaActorsError | None = None) -> None:
        self.rows = rows
        self.refused = refused


class _TaskWrites:
    """Rows are in the log once a task has ended, and stay there whatever becomes of the others: at least once."""

    def __init__(self, options: SinkOptions) -> None:
        leave_imports_out()
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
            return WriteCommit(0, error)  # a task that raises is tried three times more

    def _commit(self, messages: Messages) -> None:
        leave_imports_out()
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
        """All rows of a task, acknowledged when it returns. Raises as `writing.write_batches`."""
        return self._write(iterator)

    def commit(self, messages: Messages) -> None:
        """All tasks have ended. Raises what the brokers refused for good."""
        self._commit(messages)

    def abort(self, messages: Messages) -> None:
        """A task failed for good."""
        self._abort(messages)


class KafkaStreamWriter(_TaskWrites, DataSourceStreamArrowWriter):
    """Writes the rows of a stream. A micro-batch that is done again after a crash is written again."""

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriteCommit:
        """All rows of a task, acknowledged when it returns. Raises as `writing.write_batches`."""
        return self._write(iterator)

    def commit(self, messages: Messages, batchId: int) -> None:
        """All tasks have ended. Raises what the brokers refused for good."""
        self._commit(messages)

    def abort(self, messages: Messages, batchId: int) -> None:
        """A task failed for good."""
        self._abort(messages)
