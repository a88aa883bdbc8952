"""The kernel's twin on the way out: hashes and groups, as Java and the kernel have them."""

import numpy as np
import pytest

from kafka_actors.records._reference_writer import group, murmur2


# Java's UtilsTest.testMurmur2, without the sign bit, as `Utils.toPositive` takes it.
@pytest.mark.parametrize(
    ("key", "hashed"),
    [
        (b"21", -973932308),
        (b"foobar", -790332482),
        (b"a-little-bit-long-string", -985981536),
        (b"a-little-bit-longer-string", -1486304829),
        (b"lkjh234lh9fiuh90y23oiuhsafujhadof229phr9h19h89h8", -58897971),
        (b"abc", 479470107),
    ],
)
def test_keys_hash_as_in_java(key, hashed):
    assert murmur2(key) == hashed & 0x7FFFFFFF


@pytest.mark.parametrize(
    ("partitions", "count", "order", "bounds"),
    [
        ([2, 0, 2, 0], 3, [1, 3, 0, 2], [0, 2, 2, 4]),
        ([], 2, [], [0, 0, 0]),
        ([1, 1], 2, [0, 1], [0, 0, 2]),
    ],
)
def test_rows_are_grouped_by_partition_in_their_order(partitions, count, order, bounds):
    found, edges = np.zeros(len(partitions), dtype=np.int32), np.zeros(count + 1, dtype=np.int64)
    group(np.array(partitions, dtype=np.int32), found, edges)
    assert found.tolist() == order
    assert edges.tolist() == bounds
