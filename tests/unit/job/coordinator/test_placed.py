"""Partitions, workers, and the two waits of a start, as the placement knows them."""

from __future__ import annotations

import pytest

from kafka_actors.job.coordinator.machines.placed import (
    GATHER_S,
    LEGAL,
    DrainEnd,
    Gathering,
    PlacedPartition,
    PlacedWorker,
    PlacementState,
    Recovery,
    Withdrawal,
    entries_of_facts,
)
from kafka_actors.types import TopicPartition

UP = PlacedWorker(ready=True)
STARTING = PlacedWorker()


@pytest.mark.parametrize("before", PlacementState)
@pytest.mark.parametrize("after", PlacementState)
def test_a_partition_takes_only_steps_of_the_table(before: PlacementState, after: PlacementState) -> None:
    placed = PlacedPartition(TopicPartition("t", 0), state=before)
    if after in LEGAL[before]:
        placed.become(after)
        assert placed.state is after
    else:
        with pytest.raises(RuntimeError, match=f"{before.value} can't become {after.value}"):
            placed.become(after)
        assert placed.state is before


def test_a_partition_that_the_group_revokes_is_never_granted_again() -> None:
    assert LEGAL[PlacementState.LEAVING] == frozenset()


@pytest.mark.parametrize(("ready", "connected"), [(True, False), (False, True)])
def test_a_worker_takes_part_once_it_is_ready_and_connected(ready: bool, connected: bool) -> None:
    assert not PlacedWorker(ready=ready, connected=connected).takes_part
    assert PlacedWorker(ready=True, connected=True).takes_part


# ---------------------------------------------------------------- gathering


def test_nobody_is_gathered_before_a_worker_gets_ready() -> None:
    gathering = Gathering()
    gathering.expected = 3
    assert not gathering.over([UP], 5.0)
    assert gathering.wakes() == []


def test_the_time_to_gather_counts_from_the_first_newcomer_and_ends_once() -> None:
    gathering = Gathering()
    gathering.expected, gathering.open = 3, True
    assert not gathering.over([UP, STARTING, STARTING], 5.0)
    assert gathering.wakes() == [5.0 + GATHER_S]
    gathering.open = True  # a second newcomer makes it no longer
    assert not gathering.over([UP, UP, STARTING], 5.0 + GATHER_S - 0.1)
    assert gathering.wakes() == [5.0 + GATHER_S]
    assert gathering.over([UP, UP, STARTING], 5.0 + GATHER_S)
    assert (gathering.open, gathering.wakes()) == (False, [])
    assert not gathering.over([UP, UP, STARTING], 5.0 + GATHER_S)


@pytest.mark.parametrize(
    ("workers", "ends"),
    [
        ([UP, UP], True),
        ([UP], False),  # one that is expected isn't known yet
        ([UP, STARTING], False),
        ([UP, UP, PlacedWorker(retiring=True)], True),  # nobody waits for one that is to go
        ([UP, PlacedWorker(ready=True, retiring=True)], False),  # nor does it count as one of those expected
    ],
)
def test_gathering_ends_early_once_all_expected_workers_are_up(
    workers: list[PlacedWorker], ends: bool
) -> None:
    gathering = Gathering()
    gathering.expected, gathering.open = 2, True
    assert gathering.over(workers, 0.0) is ends
    assert gathering.open is not ends


# ---------------------------------------------------------------- recovery


def test_without_workers_of_an_older_incarnation_there_is_no_recovery() -> None:
    recovery = Recovery()
    recovery.begin({})
    assert recovery.over(0.0)
    assert not recovery.awaits("a")


def test_a_recovery_needs_the_assignment_even_if_all_workers_have_registered() -> None:
    recovery = Recovery()
    recovery.begin({"a": 3.0})
    recovery.settled("a")
    assert not recovery.over(10.0)
    assert recovery.awaits("a"), "what it may keep isn't known before the group has assigned partitions"
    recovery.assigned = True
    assert not recovery.awaits("a")
    assert recovery.over(10.0)


def test_each_worker_is_waited_for_until_its_time_is_over() -> None:
    recovery = Recovery()
    recovery.begin({"a": 3.0, "b": 5.0})
    recovery.assigned = True
    assert (recovery.over(1.0), recovery.wakes(1.0)) == (False, [5.0])
    recovery.settled("b")
    assert (recovery.awaits("a"), recovery.awaits("b")) == (True, False)
    assert (recovery.over(1.0), recovery.wakes(1.0)) == (False, [3.0])
    assert recovery.over(3.0)
    assert recovery.wakes(3.0) == []
    assert not recovery.awaits("a")


def test_a_lease_makes_the_wait_longer_and_never_shorter() -> None:
    recovery = Recovery()
    recovery.begin({"a": 3.0})
    recovery.assigned = True
    recovery.leased("a", 8.0)
    recovery.leased("a", 4.0)
    recovery.leased("unknown", 99.0)
    assert recovery.wakes(0.0) == [8.0]
    assert not recovery.over(7.9)
    assert recovery.over(8.0)


def test_partitions_that_move_for_one_cause_are_one_line() -> None:
    facts = [Withdrawal(TopicPartition("t", n), "worker-0.1", "worker_died") for n in range(5)]
    facts += [Withdrawal(TopicPartition("t", 9), "worker-1.1", "balance")]
    facts += [DrainEnd(TopicPartition("u", n), "worker-2.1", "released") for n in range(2)]
    facts += [DrainEnd(TopicPartition("u", 7), "worker-2.1", "forced")]
    assert entries_of_facts(facts) == [
        ("move", "worker-0.1 gives up 5 partitions: worker died"),
        ("move", "worker-1.1 gives up t-9: balance"),
        ("drain", "worker-2.1 has drained u-0, u-1"),
        ("forced", "worker-2.1 had not drained u-7 by the deadline"),
    ]
    assert entries_of_facts([]) == []
