"""Lanes of records, the records of a slice, and which of them are done already."""

from collections import Counter

import numpy as np
import pyarrow as pa
import pytest

from kafka_actors.group.done_offsets import DoneOffsets
from kafka_actors.job.lanes import SliceDone
from kafka_actors.job.worker.slice_records import KnownSlice, lanes, records_of_slice
from kafka_actors.records.kernel import ACTIVE as kernel


def batch(keys, first=0):
    return pa.record_batch(
        {"key": pa.array(keys, pa.binary()), "offset": pa.array(range(first, first + len(keys)), pa.int64())}
    )


def test_slices_share_out_all_records_and_each_key_is_in_one():
    keys = [None if n % 9 == 0 else b"key-%d" % (n % 40) for n in range(400)]
    of = {}
    for part in range(3):
        found, _ = records_of_slice(batch(keys), (part, 3), 64, by_key=True)
        for offset, key in zip(found["offset"].to_pylist(), found["key"].to_pylist(), strict=True):
            of[offset] = part, key
    assert sorted(of) == list(range(400))
    parts = {}
    for part, key in of.values():
        if key is not None:
            parts.setdefault(key, set()).add(part)
    assert all(len(where) == 1 for where in parts.values())
    assert len(Counter(part for part, _ in of.values())) == 3


def test_keys_of_one_partition_use_all_lanes():
    """Kafka's partitioner takes the same hash by the number of partitions, so its lowest bits are alike within one."""
    keys = [key for n in range(40_000) if kernel.murmur2(key := b"user-%d" % n) % 8 == 5]
    used = Counter(lanes([kernel.murmur2(key) for key in keys], np.arange(len(keys)), 64).tolist())
    assert len(used) == 64
    assert max(used.values()) < 2 * len(keys) / 64


def test_the_lane_of_a_key_never_changes():
    """Old and new workers of a job that is deployed anew must agree."""
    assert lanes([kernel.murmur2(b"alice"), None, kernel.murmur2(b"bob")], np.array([5, 70, 7]), 64).tolist() == [
        LANE_OF_ALICE, 70 - 64, LANE_OF_BOB
    ]  # fmt: skip


LANE_OF_ALICE, LANE_OF_BOB = 48, 44


def test_records_without_order_are_dealt_by_offset():
    found, of = records_of_slice(batch([b"one"] * 10), (1, 4), 8, by_key=False)
    assert found["offset"].to_pylist() == [1, 5, 9]
    assert of.tolist() == [1, 5, 1]


@pytest.mark.parametrize(
    ("epoch", "known"), [(3, [0, 0, 1, 0, 1, 0]), (4, [0, 0, 0, 0, 0, 0])], ids=["same log", "log cut since"]
)
def test_what_is_done_of_a_slice_says_nothing_of_others(epoch, known):
    """Lanes 1 and 3 are in slice 1 of 2: of these, below offset 12, and 14."""
    done = SliceDone(1, 2, 12, 3, DoneOffsets([(14, 15)], 3).text(12))
    offsets, of = np.array([9, 10, 11, 12, 14, 16]), np.array([0, 2, 1, 3, 3, 1])
    assert KnownSlice(done).has(offsets, of, epoch).astype(int).tolist() == known
