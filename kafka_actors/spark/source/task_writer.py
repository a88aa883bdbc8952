"""Writing of one task's rows in the executor's Python worker."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress

import pyarrow as pa

from kafka_actors.errors import KafkaActorsError, UsageError
from kafka_actors.producer import BatchFuture, Producer
from kafka_actors.sinks.kafka import producer_of
from kafka_actors.spark.worker_cache import IdlePool

from .sink_options import SinkOptions
from .spark_calls import freeze_imports


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
