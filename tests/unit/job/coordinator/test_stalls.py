"""Partitions on which nothing happens though there is something to read."""

from kafka_actors.job.coordinator.machines.stalls import StallDetector
from kafka_actors.types import TopicPartition

P = TopicPartition("t", 0)


def watch(*reports, limit=10.0):
    stalls = StallDetector(limit)
    return [stalls.observe(P, worker, processed, end, now) for now, worker, processed, end in reports]


def test_a_partition_that_lags_and_does_not_move_is_stalled():
    assert watch((0, "a", 5, 9), (9, "a", 5, 9), (10, "a", 5, 9), (11, "a", 5, 9)) == [None, None, 10, None]


def test_it_is_said_again_after_another_limit():
    assert watch((0, "a", 5, 9), (10, "a", 5, 9), (19, "a", 5, 9), (20, "a", 5, 9))[1:] == [10, None, 10]


def test_progress_starts_the_time_anew():
    assert watch((0, "a", 5, 9), (9, "a", 6, 9), (18, "a", 6, 9)) == [None, None, None]


def test_nothing_to_read_is_no_stall():
    assert watch((0, "a", 9, 9), (50, "a", 9, 9), (51, "a", 9, 12), (59, "a", 9, 12)) == [None] * 4


def test_a_new_owner_has_its_own_time():
    assert watch((0, "a", 5, 9), (9, "b", 5, 9), (12, "b", 5, 9)) == [None, None, None]


def test_a_position_that_never_becomes_known_is_a_stall_too():
    assert watch((0, "a", None, None), (10, "a", None, None)) == [None, 10]
