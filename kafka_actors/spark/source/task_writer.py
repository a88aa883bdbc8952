"""Writes the rows of one task in the executor's Python worker."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress

import pyarrow as pa

from kafka_actors.errors import KafkaActorsError, UsageError
from kafka_actors.producer import BatchFuture, Producer
from kafka_actors.sinks.targets import producer_of

from .gc_settings import leave_imports_out
from .pool import IdlePool
from .sink_options import SinkOptions


def write_batches(options: SinkOptions, batches: Iterator[pa.RecordBatch]) -> int:
    """Sends all rows and waits until the brokers have acknowledged them. Returns how many there were.

    Raises `UndeliveredError`, which names topic and partition, `UsageError` for a row without a topic or with a
    partition that there isn't, and what `Producer.send_batch` raises.
    """
    leave_imports_out()
    rows = 0
    futures: list[BatchFuture] = []
    with producers.lend(options.client.key, lambda: producer_of(options.producer)) as producer:
        for batch in batches:
            rows += batch.num_rows
            futures.append(producer.send_batch(_taken(options, batch), topic=options.topic))
            while futures and futures[0].done():  # an error ends the task at once, and memory is freed
                futures.pop(0).result()
        producer.flush()
        for future in futures:
            future.result()
    return rows


def _close(producer: Producer) -> None:
    """What isn't acknowledged belongs to a task that failed, and says so there."""
    with suppress(KafkaActorsError):
        producer.close(timeout_ms=0)


producers: IdlePool[tuple[tuple[str, str], ...], Producer] = IdlePool(_close)


def _taken(options: SinkOptions, batch: pa.RecordBatch) -> pa.RecordBatch:
    taken = batch.select(list(options.columns))
    if "topic" in options.columns and taken.column("topic").null_count:
        raise UsageError(
            "column 'topic' is null in a row: the option topic says where all rows go, or give each row its own"
        )
    return taken
