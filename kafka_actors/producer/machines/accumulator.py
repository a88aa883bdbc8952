"""`Accumulator`: the batches that still take records, one for each partition.

A batch is due `linger` seconds after its first record (`linger_ms`). All batches linger for the same time, so
the order in which they were begun is the order in which they get due: looking for due ones ends at the first that isn't. A batch
that is full is closed by its caller before it is due.
"""

from __future__ import annotations

from collections.abc import Callable

from kafka_actors.types import TopicPartition

from .batch import ProducerBatch


class Accumulator:
    """Open batches in the order in which they were begun; `linger` in seconds."""

    def __init__(self, linger: float) -> None:
        self._linger = linger
        self._open: dict[TopicPartition, ProducerBatch] = {}

    def __len__(self) -> int:
        return len(self._open)

    def get(self, partition: TopicPartition) -> ProducerBatch | None:
        """Returns the partition's open batch, None if it has none."""
        return self._open.get(partition)

    def begin(self, partition: TopicPartition, make: Callable[[], ProducerBatch]) -> ProducerBatch:
        """Adds a new batch, made by `make`, for a partition that has none open."""
        assert partition not in self._open
        batch = self._open[partition] = make()
        return batch

    def close(self, partition: TopicPartition) -> ProducerBatch:
        """Removes and returns the partition's batch, which takes no more records."""
        return self._open.pop(partition)

    def due(self, now: float) -> list[TopicPartition]:
        """Returns the partitions whose batches are due."""
        found = []
        for partition, batch in self._open.items():
            if batch.created + self._linger > now:
                break  # those behind it are younger
            found.append(partition)
        return found

    def all(self) -> list[TopicPartition]:
        """Returns the partitions that have an open batch."""
        return list(self._open)

    def next_due(self) -> float | None:
        """Returns when the next batch is due; None without any."""
        for batch in self._open.values():
            return batch.created + self._linger
        return None
