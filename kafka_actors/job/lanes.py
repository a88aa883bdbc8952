"""Lanes of a partition, and slices: what one worker has of a partition that several workers share.

A partition has a fixed number of lanes (`lanes_per_partition`). A record's lane follows from its key's bytes, and without a key, or where
no order holds, from its offset; so it doesn't depend on the number of workers, and one key is always in one lane. A partition that is shared
by `parts` workers is dealt in that many slices: slice `part` has the lanes whose number leaves the remainder `part`.
"""

from __future__ import annotations

from typing import cast

import msgspec

from kafka_actors.types import TopicPartition

__all__ = ["Slice", "SliceDone", "in_topic", "slice_of", "source"]


class Slice(TopicPartition):
    """Slice `part` of the `parts` of a partition: a partition to those who place and commit. A tuple of four, so two slices are two keys."""

    __slots__ = ()

    def __new__(cls, topic: str, partition: int, part: int, parts: int) -> Slice:
        return tuple.__new__(cls, (topic, partition, part, parts))

    @property
    def part(self) -> int:
        return cast(tuple[str, int, int, int], self)[2]

    @property
    def parts(self) -> int:
        return cast(tuple[str, int, int, int], self)[3]

    def __repr__(self) -> str:
        return f"Slice({self.topic!r}, {self.partition}, {self.part} of {self.parts})"


def slice_of(partition: TopicPartition, part: int, parts: int) -> TopicPartition:
    """Returns a slice of a partition; the partition itself where it is the only one."""
    return partition if parts == 1 else Slice(partition.topic, partition.partition, part, parts)


def source(partition: TopicPartition) -> TopicPartition:
    """Returns the partition that a slice is of; a partition itself."""
    return TopicPartition(partition[0], partition[1]) if isinstance(partition, Slice) else partition


def in_topic(partition: TopicPartition, topic: str) -> TopicPartition:
    """Returns the partition of the same number in another topic, or the same slice of it; itself where it is of that topic."""
    if partition.topic == topic:
        return partition
    if isinstance(partition, Slice):
        return Slice(topic, partition.partition, partition.part, partition.parts)
    return TopicPartition(topic, partition.partition)


class SliceDone(msgspec.Struct, frozen=True):
    """Records of slice `part` of `parts` that are done: those below `offset`, and of others what the text `done` has
    (`group.done_offsets`). `leader_epoch`: of the newest one below the offset; a record of a later epoch has taken another's place."""

    part: int
    parts: int
    offset: int
    leader_epoch: int
    done: str = ""
