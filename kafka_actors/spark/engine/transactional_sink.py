"""Kafka sinks of a pipeline that deliver exactly once: each task of Spark writes in a transaction of its own to each of them.

The transactions of a task are committed last, when its dead letters are acknowledged and its files complete: a task that is committed isn't
written again, so nothing of it may be missing then.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pyarrow as pa

from kafka_actors.base.callables import type_and_text
from kafka_actors.config import ProducerConfig
from kafka_actors.errors import SinkError
from kafka_actors.pipeline.engines import CheckedSink
from kafka_actors.pipeline.source import ReadKafka, producer_config, transactional_config
from kafka_actors.pipeline.stages import Stage, WriteKafka
from kafka_actors.sinks.kafka import CLOSE_MS, SINK_TOPIC, check_target
from kafka_actors.sinks.sink import Origin, TransactionBroken, Writer
from kafka_actors.sinks.stage import OpenSinks, opened
from kafka_actors.sinks.transactional import NOTHING_TAKEN
from kafka_actors.spark.source.data_source_options import TRANSACTION_TIMEOUT_MS
from kafka_actors.spark.source.machines.plan_operators import check_repeatable_rows
from kafka_actors.spark.source.machines.task_markers import PREFIX, WriteName, splits_digest
from kafka_actors.spark.source.task_transaction import TaskTransaction, task_producer
from kafka_actors.spark.source.transactional import explained, sources_of


def exactly_once(sinks: Iterable[CheckedSink]) -> list[WriteKafka]:
    """The sinks that deliver exactly once."""
    stages = [sink.step.stage for sink in sinks]
    return [stage for stage in stages if isinstance(stage, WriteKafka) and stage.delivery == "exactly_once"]


def checked_splits(df: Any, sinks: Iterable[CheckedSink], options: dict[str, str], *, streaming: bool) -> str:
    """Checks the plan that is written where a sink delivers exactly once, and returns the digest of its split options and of these sinks;
    `options` are those of the pipeline's source. Raises `ConfigError`, naming the sink and the operator."""
    exact = exactly_once(sinks)
    if not exact:
        return ""
    option = f"{exact[0].name}: delivery"
    check_repeatable_rows(explained(df), streaming=streaming, option=option)
    return splits_digest([options, *sources_of(df)], [(s.marker_topic, s.topic, s.format) for s in exact])


def check_topics_of(stage: WriteKafka, source: ReadKafka) -> None:
    """Checks that the topics of a Kafka sink exist. Raises as `sinks.kafka.check_target`."""
    config = producer_config(stage.name, source, stage.options)
    check_target(config, stage.topic, SINK_TOPIC)
    if stage.marker_topic not in (None, stage.topic):
        check_target(config, stage.marker_topic, "the markers' topic")


class TransactionalTaskWriter:
    """Open Kafka sink that writes within the transaction of the present task, and takes rows without sending them where an earlier try has
    committed them."""

    def __init__(self, name: str, config: ProducerConfig, topic: str | None) -> None:
        self._name = name
        self._topic = topic
        self._timeout_s = config.transaction_timeout_ms / 1000
        self._producer = task_producer(config)
        self._transaction: TaskTransaction | None = None

    def transaction(
        self, write: WriteName, sink: str, topic: str, partition: int, splits: str
    ) -> TaskTransaction:
        """The transaction of a task, to be entered before its first row."""
        task = write.task(sink, topic, partition)
        self._transaction = TaskTransaction(self._producer, task, splits, self._timeout_s)
        return self._transaction

    def write(self, batch: pa.RecordBatch, origin: Origin) -> None:
        """Raises what is wrong with these rows (`NOTHING_TAKEN`). After another error some may be on their way: it raises `TransactionBroken`,
        because the transaction has to be aborted, whatever `on_error` says."""
        assert self._transaction is not None  # a task enters it first
        if not self._transaction.writes:
            return
        try:
            self._producer.send_batch(batch, self._topic)
        except Exception as error:
            failure = self._producer.failure
            if isinstance(error, NOTHING_TAKEN) and failure is None:
                raise
            raise TransactionBroken(self._failed(failure or error)) from error

    def _failed(self, cause: Exception) -> SinkError:
        """The error of the sink for what ended its transaction."""
        error = SinkError(self._name, type_and_text(cause))
        error.__cause__ = cause
        return error

    def flush(self) -> None:
        """Waits until all rows are acknowledged; they are read once the task's transaction is committed. Raises `UndeliveredError`."""
        self._producer.flush()

    def close(self) -> None:
        self._producer.close(timeout_ms=CLOSE_MS)

    def __repr__(self) -> str:
        return f"<TransactionalTaskWriter {self._producer!r}>"


class ProcessSinks:
    """Sinks of a pipeline, open in a Python worker for one task after another."""

    def __init__(self, sinks: tuple[CheckedSink, ...], source: ReadKafka, retries: int) -> None:
        self._transactional: list[tuple[str, str, TransactionalTaskWriter]] = []
        self.all = OpenSinks(sinks, source, retries, self._opened)

    def _opened(self, stage: Stage, source: ReadKafka) -> Writer:
        if not isinstance(stage, WriteKafka) or stage.delivery != "exactly_once":
            return opened(stage, source)
        config = transactional_config(stage.name, source, stage.options, PREFIX, TRANSACTION_TIMEOUT_MS)
        topic = stage.marker_topic or stage.topic
        assert topic is not None  # `write_kafka` asks for one
        same = sum(known == topic for _, known, _ in self._transactional)
        writer = TransactionalTaskWriter(stage.name, config, stage.topic)
        self._transactional.append((f"{topic}+{same + 1}" if same else topic, topic, writer))
        return writer

    def transactions(self, write: WriteName, partition: int, splits: str) -> list[TaskTransaction]:
        """The transactions of a task, one for each sink that delivers exactly once."""
        return [
            writer.transaction(write, sink, topic, partition, splits)
            for sink, topic, writer in self._transactional
        ]

    def close(self) -> None:
        self.all.close()
