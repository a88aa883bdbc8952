"""The writers: the methods that Spark calls for `df.write` and `df.writeStream`, at planning, in tasks and at the end."""

from __future__ import annotations

import logging
import uuid
from collections.abc import Iterator, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING

import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql.datasource import (
    DataSourceArrowWriter,
    DataSourceStreamArrowWriter,
    WriterCommitMessage,
)

from kafka_actors.errors import KafkaActorsError, UsageError
from kafka_actors.producer import BatchFuture, Producer
from kafka_actors.sinks.kafka import check_target, is_final, producer_of
from kafka_actors.spark.python_worker import IdlePool, OneLineErrors, freeze_imports

from .machines.task_markers import WriteName
from .sink_options import SinkOptions, TransactionalOptions
from .task_transaction import TaskTransaction, ends_the_write, task_producer
from .task_transaction import producers as task_producers

if TYPE_CHECKING:
    import pyarrow as pa


def write_batches(options: SinkOptions, batches: Iterator[pa.RecordBatch]) -> int:
    """Sends all rows and waits until the brokers have acknowledged them. Returns their number.

    Raises `UndeliveredError`, which names topic and partition, `UsageError` for a row without a topic or with a
    partition that doesn't exist, and as `Producer.send_batch`.
    """
    freeze_imports()
    rows = 0
    futures: list[BatchFuture] = []
    with producers.lend(options.client.key, lambda: producer_of(options.producer)) as producer:
        for batch in batches:
            rows += batch.num_rows
            futures.append(producer.send_batch(_columns_of(options, batch), topic=options.topic))
            while futures and futures[0].done():  # an error ends the task at once, and memory is freed
                futures.pop(0).result()
        producer.flush()
        for future in futures:
            future.result()
    return rows


def write_transaction(
    options: SinkOptions,
    transactional: TransactionalOptions,
    name: WriteName,
    batches: Iterator[pa.RecordBatch],
) -> int:
    """Sends all rows of a task in one transaction, unless an earlier try has committed them. Returns their number.

    Raises as `write_batches` and as `TaskTransaction`.
    """
    freeze_imports()
    config = options.transactional_producer
    topic = transactional.marker_topic
    task = name.task(topic, topic, partition_of_task())
    rows = 0
    with (
        task_producers.lend(options.client.key, lambda: task_producer(config)) as producer,
        TaskTransaction(
            producer, task, transactional.splits, config.transaction_timeout_ms / 1000
        ) as transaction,
    ):
        for batch in batches:
            rows += batch.num_rows
            if transaction.writes:
                producer.send_batch(_columns_of(options, batch), topic=options.topic)
        transaction.commit(rows)
    return rows


def partition_of_task() -> int:
    """Number of the partition of the plan that this task writes."""
    context = TaskContext.get()
    assert context is not None  # a task runs it
    return context.partitionId()


def micro_batch_of_task() -> tuple[str, int]:
    """Id of the query and number of the micro-batch that this task writes."""
    context = TaskContext.get()
    assert context is not None  # a task runs it
    query, batch_id = map(context.getLocalProperty, ("sql.streaming.queryId", "streaming.sql.batchId"))
    assert query is not None  # Spark sets both for a stream's tasks
    assert batch_id is not None
    return query, int(batch_id)


def _close(producer: Producer) -> None:
    """Closes a producer without waiting. Rows that are not acknowledged belong to a failed task, which has raised already."""
    with suppress(KafkaActorsError):
        producer.close(timeout_ms=0)


producers: IdlePool[tuple[tuple[str, str], ...], Producer] = IdlePool(_close)


def _columns_of(options: SinkOptions, batch: pa.RecordBatch) -> pa.RecordBatch:
    selected = batch.select(list(options.columns))
    if "topic" in options.columns and selected.column("topic").null_count:
        raise UsageError(
            "column 'topic' is null in a row: the option topic says where all rows go, or give each row its own"
        )
    return selected


logger = logging.getLogger(__name__)

Messages = Sequence[WriterCommitMessage | None]


class WriteCommit(WriterCommitMessage):
    """Result of a task: the number of acknowledged rows; or an error that a retry would only repeat."""

    def __init__(self, rows: int, refused: KafkaActorsError | None = None) -> None:
        self.rows = rows
        self.refused = refused


class _TaskWrites:
    """Base of the writers. Delivery is at least once, unless the options are transactional: rows of a finished task stay in the log even if
    other tasks fail. `plans`: whether it plans a write, and so looks at its topics; one that only ends a micro-batch asks no broker."""

    def __init__(self, options: SinkOptions, *, plans: bool = True) -> None:
        freeze_imports()
        self._options = options
        if not plans:
            return
        with OneLineErrors():
            check_target(options.producer, options.topic, "the option topic's topic")
            if options.transactional is not None and options.transactional.marker_topic != options.topic:
                check_target(options.producer, options.transactional.marker_topic, "the markers' topic")
        for note in options.notes:
            logger.warning("%s", note)

    def _write(self, batches: Iterator[pa.RecordBatch]) -> WriteCommit:
        from .task_tracing import traced_task

        transactional = self._options.transactional
        final = is_final if transactional is None else ends_the_write
        try:
            with OneLineErrors(), traced_task():
                if transactional is None:
                    return WriteCommit(write_batches(self._options, batches))
                name = self._name(transactional)
                return WriteCommit(write_transaction(self._options, transactional, name, batches))
        except KafkaActorsError as error:
            if not final(error):
                raise
            return WriteCommit(0, error)  # Spark would retry a task that raises three times

    def _name(self, transactional: TransactionalOptions) -> WriteName:
        """The name of the write that this task belongs to."""
        raise NotImplementedError

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
    """Writes the rows of a batch. The writer is made when a write is planned, and travels to its tasks: so a transactional write has an identity
    of its own, by which a task that is retried finds what it has committed, and a write that is started again is another one."""

    def __init__(self, options: SinkOptions) -> None:
        super().__init__(options)
        self._id = str(uuid.uuid4())

    def _name(self, transactional: TransactionalOptions) -> WriteName:
        return WriteName(self._id, 0, streaming=False)

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriteCommit:
        """Writes the rows of a task, and returns when they are acknowledged. Raises as `write_batches`."""
        return self._write(iterator)

    def commit(self, messages: Messages) -> None:
        """Ends a write of which all tasks have returned. Raises the permanent error of a task."""
        self._commit(messages)

    def abort(self, messages: Messages) -> None:
        """Ends a write of which a task has failed."""
        self._abort(messages)


class KafkaStreamWriter(_TaskWrites, DataSourceStreamArrowWriter):
    """Writes the rows of a stream. A micro-batch that Spark runs again after a crash is written again, unless the write is transactional."""

    def _name(self, transactional: TransactionalOptions) -> WriteName:
        query, batch = micro_batch_of_task()
        return WriteName(query, batch, transactional.checkpoint)

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriteCommit:
        """Writes the rows of a task, and returns when they are acknowledged. Raises as `write_batches`."""
        return self._write(iterator)

    def commit(self, messages: Messages, batchId: int) -> None:
        """Ends a micro-batch of which all tasks have returned. Raises the permanent error of a task."""
        self._commit(messages)

    def abort(self, messages: Messages, batchId: int) -> None:
        """Ends a micro-batch of which a task has failed."""
        self._abort(messages)
