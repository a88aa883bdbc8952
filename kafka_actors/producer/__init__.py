"""`Producer` and `AsyncProducer`: records to Kafka, by the Arrow batch or one at a time."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kafka_actors.lazy import lazily

if TYPE_CHECKING:
    from .async_producer import AsyncProducer
    from .futures import BatchFuture, BatchMetadata, OffsetRange, RecordFuture, RecordMetadata
    from .producer import Producer

# Loaded at the first use of a name: the definition of a sink names errors of a producer, and needs none.
_HOMES = {
    "AsyncProducer": "async_producer",
    "BatchFuture": "futures",
    "BatchMetadata": "futures",
    "OffsetRange": "futures",
    "Producer": "producer",
    "RecordFuture": "futures",
    "RecordMetadata": "futures",
}

__all__ = [
    "AsyncProducer",
    "BatchFuture",
    "BatchMetadata",
    "OffsetRange",
    "Producer",
    "RecordFuture",
    "RecordMetadata",
]

__getattr__ = lazily(__name__, _HOMES)


def __dir__() -> list[str]:
    return __all__
