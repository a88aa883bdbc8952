"""`Accumulator`: the batches that still take records, one for each partition."""

from __future__ import annotations

from collections.abc import Callable

from kafka_actors.types import TopicPartition

from .batch import ProducerBatch


class Accumulator:
    """Open batches in the order in which they were begun. A batch is due `linger` seconds after that."""

    def __init__(self, linger: float) -> None:
        self._linger = linger
        self._open: dict[TopicPartition, ProducerBatch] = {}

    def __len__(self) -> int:
        return len(self._open)

    def get(self, partition: TopicPartition) -> ProducerBatch | None:
        """The partition's open batch."""
        return self._open.get(partition)

    def begin(self, partition: TopicPartition, make: Callable[[], ProducerBatch]) -> ProducerBatch:
        """A new open batch of a partition that has none."""
        assert partition not in self._open
        batch = self._open[partition] = make()
        return batch

    def close(self, partition: TopicPartition) -> ProducerBatch:
        """The partition's batch takes no more records."""
        return self._open.pop(partition)

    def due(self, now: float) -> list[TopicPartition]:
        """The partitions whose batches have waited long enough."""
        found = []
        for partition, batch in self._open.items():
            if batch.created + self._linger > now:
                break  # those behind it are younger
            found.append(partition)
        return found

    def all(self) -> list[TopicPartition]:
        """The partitions that have an open batch."""
        return list(self._open)

    def next_due(self) -> float | None:
        """When the next batch is due; None without any."""
        for batch in self._open.values():
            return batch.created + self._linger
        return None
