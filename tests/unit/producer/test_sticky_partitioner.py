"""The choice of a partition for records without a key."""

import random

from kafka_actors.producer.machines.sticky_partitioner import StickyPartitioner


def test_kip_794_each_partition_gets_its_share_of_bytes_and_batches_get_full():
    made = StickyPartitioner(1000, random.Random(1).random)
    given, changes, last = dict.fromkeys(range(4), 0), 0, None
    for _ in range(40_000):
        partition = made.choose(range(4))
        made.spend(10)
        given[partition] += 10
        changes += partition != last
        last = partition
    assert changes == 400
    assert max(given.values()) < 1.5 * min(given.values())


def test_a_partition_that_lost_its_leader_is_left_at_once():
    made = StickyPartitioner(1000, lambda: 0.0)
    first = made.choose([0, 1])
    assert made.choose([1 - first]) == 1 - first


def test_a_topic_of_one_partition_has_no_other():
    made = StickyPartitioner(10, lambda: 0.99)
    assert made.choose([0]) == 0
    made.spend(10)
    assert made.choose([0]) == 0
