"""Lanes of a partition, and slices: what one worker has of a partition that several workers share.

A partition has a fixed number of lanes (`lanes_per_partition`). A record's lane follows from its key's bytes, and without a key, or where
no order holds, from its offset; so it doesn't depend on the number of workers, and one key is always in one lane. A partition that is shared
by `parts` workers is dealt in that many slices: slice `part` has the lanes whose number leaves the remainder `part`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import cast

import msgspec
import numpy as np
import numpy.typing as npt
import pyarrow as pa

from kafka_actors.base.batches import numbers
from kafka_actors.group.done_offsets import NOTHING_DONE, DoneOffsets
from kafka_actors.records.kernel import ACTIVE as kernel
from kafka_actors.types import TopicPartition

__all__ = ["Slice", "SliceDone", "lanes", "records_of_slice", "slice_of", "source"]

Numbers = npt.NDArray[np.int64]


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


class SliceDone(msgspec.Struct, frozen=True):
    """Records of slice `part` of `parts` that are done: those below `offset`, and of others what the text `done` has
    (`group.done_offsets`). `leader_epoch`: of the newest one below the offset; a record of a later epoch has taken another's place."""

    part: int
    parts: int
    offset: int
    leader_epoch: int
    done: str = ""

    def has(self, offsets: Numbers, lanes: Numbers, leader_epoch: int) -> npt.NDArray[np.bool_]:
        """Returns which of these records are done, by what is known of this slice."""
        beyond = DoneOffsets.of_text(self.done, self.offset) if self.done else NOTHING_DONE
        below = (offsets < self.offset) & (leader_epoch <= max(self.leader_epoch, beyond.leader_epoch))
        found: npt.NDArray[np.bool_] = (lanes % self.parts == self.part) & (
            below | beyond.has(offsets, leader_epoch)
        )
        return found


def records_of_slice(
    batch: pa.RecordBatch, dealt: tuple[int, int] | None, count: int, *, by_key: bool
) -> tuple[pa.RecordBatch, Numbers]:
    """Returns the records of a slice, part and number of parts, with their lanes; all records where it is None. `count`: how many lanes a
    partition has; `by_key`: whether keys decide."""
    keys = batch["key"].to_pylist() if by_key else [None] * batch.num_rows
    found = lanes(
        [None if key is None else kernel.murmur2(key) for key in keys], numbers(batch["offset"]), count
    )
    if dealt is None:
        return batch, found
    part, parts = dealt
    own = found % parts == part
    return batch.filter(pa.array(own)), found[own]


def lanes(hashes: Sequence[int | None], offsets: Numbers, count: int) -> Numbers:
    """Returns the lane of each record. `hashes`: of the keys (murmur2), None where the lane follows from the offset.

    All keys of a partition have murmur2 hashes that agree in their remainder by the number of partitions, because Kafka's partitioner
    takes it by that; so the bits are mixed once more.
    """
    mixed = np.array([0 if each is None else each & 0xFFFFFFFF for each in hashes], np.uint64)
    for shift, factor in ((16, 0x85EBCA6B), (13, 0xC2B2AE35)):
        mixed ^= mixed >> np.uint64(shift)
        mixed = mixed * np.uint64(factor) & np.uint64(0xFFFFFFFF)
    mixed ^= mixed >> np.uint64(16)
    without = np.fromiter((each is None for each in hashes), bool, len(hashes))
    return np.where(without, offsets, mixed.astype(np.int64)) % count
