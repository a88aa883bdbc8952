"""How many slices partitions are dealt in, and which workers take which."""

import pytest

from kafka_actors.job.coordinator.machines.slicing import SETTLE_S, Slicing, parts_for
from kafka_actors.job.lanes import Slice
from kafka_actors.types import TopicPartition

P0 = TopicPartition("t", 0)


def names(*numbers, incarnation=1):
    return [f"worker-{n}.{incarnation}" for n in numbers]


def teams(slicing, workers):
    """Workers of each slice."""
    slices = slicing.slices(P0)
    return [[w for w in workers if slicing.takes(w, each)] for each in slices]


@pytest.mark.parametrize(
    ("workers", "partitions", "parts"),
    [
        (8, 8, 1),  # one each
        (3, 8, 1),
        (16, 8, 2),
        (12, 8, 3),  # 24 slices over 12 workers; 16 would leave some with twice as much
        (16, 2, 8),
        (16, 1, 16),
        (5, 2, 5),
        (7, 4, 3),  # with 7 all would read all partitions, for a sixth more
        (7, 0, 1),
    ],
)
def test_partitions_are_dealt_so_that_no_worker_has_much_more_than_others(workers, partitions, parts):
    assert parts_for(workers, partitions, 64) == parts


def test_there_are_no_more_slices_than_lanes():
    assert parts_for(100, 1, 64) == 64


def test_each_slice_has_a_team_and_teams_are_of_one_size():
    slicing, workers = Slicing(64), names(*range(16))
    assert slicing.decide(workers, 16, 8, 0.0)
    assert slicing.slices(P0) == [Slice("t", 0, 0, 2), Slice("t", 0, 1, 2)]
    assert [len(team) for team in teams(slicing, workers)] == [8, 8]
    assert not slicing.decide(workers, 16, 8, 1.0)


def test_a_partition_that_nobody_has_begun_is_not_dealt():
    slicing = Slicing(64, begun=lambda partition: partition != P0)
    slicing.decide(names(0, 1), 2, 1, 0.0)
    assert slicing.slices(P0) == [P0]
    assert len(slicing.slices(TopicPartition("t", 1))) == 2
    assert all(slicing.takes(worker, P0) for worker in names(0, 1))


def test_without_lanes_nothing_is_dealt():
    slicing = Slicing(1)
    slicing.decide(names(0, 1), 2, 1, 0.0)
    assert slicing.slices(P0) == [P0]
    assert slicing.wakes(0.0) == []


def test_workers_that_are_up_do_not_wait_for_the_last_one_where_they_want_twice_as_many_slices():
    slicing = Slicing(64)
    dealt = []
    for up in range(1, 17):
        slicing.decide(names(*range(up)), 16, 2, up * 0.5)
        dealt.append(slicing.parts)
    assert dealt == [1, 1, *[3] * 9, *[6] * 4, 8]
    assert [len(team) for team in teams(slicing, names(*range(16)))] == [2] * 8


def test_a_worker_that_died_is_waited_for_and_its_successor_takes_its_place():
    slicing, workers = Slicing(64), names(0, 1, 2)
    slicing.decide(workers, 3, 1, 0.0)
    before = teams(slicing, workers)
    assert slicing.parts == 3
    slicing.decide(names(0, 2), 3, 1, 20.0)
    assert slicing.parts == 3
    assert slicing.wakes(20.0) == [20.0 + SETTLE_S]
    there = [*names(0, 2), *names(1, incarnation=2)]
    slicing.decide(there, 3, 1, 23.0)
    assert [[w.partition(".")[0] for w in team] for team in teams(slicing, there)] == [
        [w.partition(".")[0] for w in team] for team in before
    ]


def test_workers_that_are_all_silent_for_long_find_their_places_again():
    slicing, workers = Slicing(64), names(*range(5))
    slicing.decide(names(*range(4)), 4, 2, 0.0)
    slicing.decide(names(0, 3), 2, 1, 1.0)
    slicing.decide(workers, 5, 2, 2.0)
    before = teams(slicing, workers)
    for now in (20.0, 20.0 + SETTLE_S):
        assert not slicing.decide([], 5, 2, now)
    slicing.decide(workers, 5, 2, 40.0)
    assert teams(slicing, workers) == before


def test_a_worker_that_does_not_come_back_is_not_waited_for_forever():
    slicing = Slicing(64)
    slicing.decide(names(0, 1, 2), 3, 1, 0.0)
    slicing.decide(names(0, 2), 3, 1, 20.0)
    assert slicing.decide(names(0, 2), 3, 1, 20.0 + SETTLE_S)
    assert slicing.parts == 2
    assert [len(team) for team in teams(slicing, names(0, 2))] == [1, 1]


def test_fewer_workers_that_are_wanted_are_dealt_to_at_once():
    slicing = Slicing(64)
    slicing.decide(names(0, 1, 2), 3, 1, 0.0)
    assert slicing.decide(names(0), 1, 1, 1.0)
    assert slicing.slices(P0) == [P0]


def test_a_team_that_lost_most_gets_others():
    slicing, twelve = Slicing(64), names(*range(12))
    slicing.decide(twelve, 12, 6, 0.0)
    first, second = teams(slicing, twelve)
    left = [*first, *second[:4]]
    assert slicing.decide(left, 10, 5, 30.0)
    assert list(map(len, teams(slicing, left))) == [5, 5]
    assert set(teams(slicing, left)[0]) < set(first), "only those move that have to"


def test_what_a_worker_has_from_an_older_coordinator_says_how_partitions_are_dealt():
    slicing = Slicing(64)
    slicing.adopt("worker-3.1", Slice("t", 0, 1, 2))
    assert slicing.parts == 2
    assert slicing.takes("worker-3.1", Slice("t", 5, 1, 2))
    assert not slicing.takes("worker-3.1", Slice("t", 5, 0, 2))
