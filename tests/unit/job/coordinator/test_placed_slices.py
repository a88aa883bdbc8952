"""Partitions that are dealt in slices, and dealt anew."""

from kafka_actors.job.coordinator.machines.placed import PlacementState
from kafka_actors.job.coordinator.machines.placed_slices import PlacedSlices
from kafka_actors.job.coordinator.machines.slicing import Slicing
from kafka_actors.job.lanes import Slice, slice_of
from kafka_actors.types import TopicPartition

P0, P1 = TopicPartition("t", 0), TopicPartition("t", 1)
WORKERS = [f"worker-{n}.1" for n in range(4)]


def made(*partitions):
    placed = {}
    slices = PlacedSlices(placed, Slicing(64))
    slices.assign(partitions)
    return placed, slices


def give(placed, partition, worker):
    placed[partition].become(PlacementState.GRANTED)
    placed[partition].worker = worker


def halves(partition):
    return [slice_of(partition, part, 2) for part in (0, 1)]


def test_partitions_that_nobody_has_are_dealt_at_once():
    placed, slices = made(P0, P1)
    assert slices.deal(WORKERS, 4, 0.0) == (True, [])
    assert list(placed) == [*halves(P0), *halves(P1)]
    assert slices.sources() == {P0, P1}


def test_what_a_worker_has_is_drained_first_and_the_partition_stays_known():
    placed, slices = made(P0)
    give(placed, P0, WORKERS[0])
    changed, drained = slices.deal(WORKERS[:2], 2, 0.0)
    assert (changed, drained) == (True, [placed[P0]])
    assert slices.of(P0) == [P0]
    slices.remove(P0)
    assert slices.sources() == {P0}
    assert slices.deal(WORKERS[:2], 2, 1.0) == (True, [])
    assert slices.of(P0) == halves(P0)


def test_what_others_have_of_a_partition_is_beside_a_slice():
    placed, slices = made(P0, P1)
    slices.deal(WORKERS, 4, 0.0)
    for each, worker in zip((*halves(P0), *halves(P1)), WORKERS, strict=True):
        give(placed, each, worker)
    assert slices.beside([halves(P0)[0]]) == [placed[halves(P0)[1]]]
    assert slices.beside(halves(P0)) == []
    placed[halves(P0)[1]].worker = None
    assert slices.beside([halves(P0)[0]]) == []


def test_new_slices_wait_for_the_last_old_one():
    placed, slices = made(P0)
    slices.deal(WORKERS[:2], 2, 0.0)
    for each, worker in zip(halves(P0), WORKERS, strict=False):
        give(placed, each, worker)
    assert slices.deal(WORKERS, 4, 1.0)[1] == [placed[each] for each in halves(P0)]
    slices.remove(halves(P0)[0])
    assert slices.deal(WORKERS, 4, 2.0)[1] == [placed[halves(P0)[1]]]
    assert slices.of(P0) == halves(P0)[1:]
    slices.remove(halves(P0)[1])
    slices.deal(WORKERS, 4, 3.0)
    assert slices.of(P0) == [Slice("t", 0, part, 4) for part in range(4)]


def test_a_worker_is_found_by_the_partition_that_it_has_a_slice_of():
    placed, slices = made(P0)
    slices.deal(WORKERS[:2], 2, 0.0)
    give(placed, halves(P0)[1], WORKERS[1])
    assert slices.held(WORKERS[1], P0) is placed[halves(P0)[1]]
    assert slices.held(WORKERS[1], halves(P0)[1]) is placed[halves(P0)[1]]
    assert slices.held(WORKERS[0], P0) is None


def test_what_the_group_takes_away_is_not_dealt_again():
    placed, slices = made(P0, P1)
    slices.deal(WORKERS, 4, 0.0)
    assert slices.withdraw([P0]) == [placed[each] for each in halves(P0)]
    for each in halves(P0):
        slices.remove(each)
    slices.deal(WORKERS, 4, 1.0)
    assert slices.sources() == {P1}


def test_what_a_worker_reports_says_how_its_partition_is_dealt():
    placed, slices = made(P0)
    claim = Slice("t", 0, 2, 3)
    assert slices.claimed(claim, assigned=True) is placed[claim]
    assert slices.of(P0) == [Slice("t", 0, part, 3) for part in range(3)]
    give(placed, claim, WORKERS[0])
    assert slices.claimed(halves(P0)[0], assigned=True) is None, "another worker has it dealt otherwise"
    assert slices.claimed(slice_of(P1, 0, 2), assigned=False) is None


def test_nothing_is_drained_of_a_partition_of_which_a_silent_worker_has_a_slice():
    placed, slices = made(P0, P1)
    slices.deal(WORKERS, 4, 0.0)
    for each, worker in zip((*halves(P0), *halves(P1)), WORKERS, strict=True):
        give(placed, each, worker)
    changed, drained = slices.deal(WORKERS[:2], 2, 0.0, silent=WORKERS[3:])
    assert (changed, drained) == (True, [placed[each] for each in halves(P0)])
    assert slices.deal(WORKERS[:2], 2, 1.0)[1] == [placed[each] for each in (*halves(P0), *halves(P1))]
