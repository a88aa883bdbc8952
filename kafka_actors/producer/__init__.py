"""`Producer` and `AsyncProducer`: records to Kafka, by the Arrow batch or one at a time."""

from .async_producer import AsyncProducer
from .futures import BatchFuture, BatchMetadata, OffsetRange, RecordFuture, RecordMetadata
from .producer import Producer

__all__ = [
    "AsyncProducer",
    "BatchFuture",
    "BatchMetadata",
    "OffsetRange",
    "Producer",
    "RecordFuture",
    "RecordMetadata",
]
