"""Whose turn it is."""

from kafka_actors.fetch.machines.buffer import Buffer, FetchedBytes
from kafka_actors.fetch.messages import Fetched
from kafka_actors.protocol.types import TopicPartition


def test_a_partition_taken_over_goes_before_what_waits_of_the_others():
    buffer = Buffer(1_000)
    old, new = TopicPartition("t", 0), TopicPartition("t", 1)
    response = buffer.hold(1, 100)
    for start in (0, 10, 20):
        buffer.add(_bytes(old, start, response), paused=False)
    assert buffer.take().partition == old
    assert not buffer.newcomer
    buffer.add(_bytes(new, 0, response), paused=False)
    assert buffer.newcomer
    assert [buffer.take().partition for _ in range(3)] == [new, old, old]
    buffer.drop(new, in_hand=True)
    buffer.add(_bytes(new, 0, response), paused=False)
    assert buffer.newcomer


def _bytes(tp, start, response):
    fetched = Fetched(tp.topic, tp.partition, (1, 1), fetch_offset=start, next_offset=start + 10)
    return FetchedBytes(tp, memoryview(b"x"), fetched, response)
