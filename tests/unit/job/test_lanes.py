"""Slices of partitions: keys of their own, which know their partition."""

import pickle

from kafka_actors.job.lanes import in_topic, slice_of, source
from kafka_actors.types import TopicPartition

P3 = TopicPartition("t", 3)


def test_slices_are_keys_of_their_own_and_know_their_partition():
    one, other = slice_of(P3, 0, 2), slice_of(P3, 1, 2)
    assert len({one, other, P3}) == 3
    assert (one.topic, one.partition, one.part, one.parts) == ("t", 3, 0, 2)
    assert source(one) == source(other) == source(P3) == P3
    assert type(source(one)) is TopicPartition
    assert slice_of(P3, 0, 1) is P3
    assert repr(other) == "Slice('t', 3, 1 of 2)"
    assert pickle.loads(pickle.dumps(other)) == other


def test_a_slice_has_its_like_in_another_topic():
    other = slice_of(P3, 1, 2)
    assert in_topic(P3, "u") == TopicPartition("u", 3)
    assert in_topic(other, "u") == slice_of(TopicPartition("u", 3), 1, 2)
    assert in_topic(other, "t") is other
