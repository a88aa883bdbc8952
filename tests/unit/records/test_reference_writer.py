"""The kernel's twin on the way out: hashes and groups, as Java and the kernel have them."""

import numpy as np
import pytest
from fakes.records import MURMUR2_OF_JAVA

from kafka_actors.records._reference_writer import group, murmur2


@pytest.mark.parametrize(("key", "hashed"), MURMUR2_OF_JAVA)
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
