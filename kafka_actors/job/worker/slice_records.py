"""Records of a slice: the lane of each record, and which of them are done already. What slices are: see `job/lanes.py`."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from kafka_actors.base.batches import numbers, rows_where
from kafka_actors.group.done_offsets import NOTHING_DONE, DoneOffsets
from kafka_actors.job.lanes import SliceDone
from kafka_actors.records.kernel import ACTIVE as kernel

__all__ = ["KnownSlice", "lanes", "records_of_slice"]

Numbers = npt.NDArray[np.int64]


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
    return rows_where(batch, own), found[own]


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


class KnownSlice:
    """Records of one slice that are known to be done, ready to be compared with records."""

    __slots__ = ("beyond", "done")

    def __init__(self, done: SliceDone) -> None:
        self.done = done
        self.beyond = DoneOffsets.of_text(done.done, done.offset) if done.done else NOTHING_DONE

    @property
    def end(self) -> int:
        """The offset from which on nothing is known."""
        return self.beyond.end(self.done.offset)

    def has(self, offsets: Numbers, lanes: Numbers, leader_epoch: int) -> npt.NDArray[np.bool_]:
        """Returns which of these records are done."""
        known, epoch = self.done, max(self.done.leader_epoch, self.beyond.leader_epoch)
        below = (offsets < known.offset) & (leader_epoch <= epoch)
        own = lanes % known.parts == known.part
        found: npt.NDArray[np.bool_] = own & (below | self.beyond.has(offsets, leader_epoch))
        return found
