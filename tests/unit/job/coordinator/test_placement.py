"""The member's partitions over the job's workers."""

from collections import Counter

import pytest

import assignors
from kafka_actors.job.coordinator.machines.placed import GATHER_S
from kafka_actors.job.coordinator.machines.placement import (
    PlacedPartition,
    Placement,
    PlacementState,
    Withdrawal,
)
from kafka_actors.job.coordinator.machines.slicing import Slicing
from kafka_actors.job.lanes import slice_of, source
from kafka_actors.job.messages import HeldReport
from kafka_actors.types import TopicPartition

DRAIN = 5.0
EVERY = frozenset(PlacementState)


class Stepped(Placement):
    """A placement polled by hand, whose events are kept."""

    def __init__(self, *args):
        super().__init__(*args)
        self.now = 0.0
        self.events = []

    def step(self, now):
        """Polls it. Returns when it wants to be polled again."""
        self.now = now
        ready = self.poll(now)
        self.events += ready.events
        return ready.next_wake


def partitions(*numbers):
    return [TopicPartition("t", n) for n in numbers]


def made(*workers, incarnation=1, slicing=None):
    placement = Stepped(incarnation, assignors.get("sticky"), DRAIN, None, slicing)
    for worker in workers:
        placement.set_worker(worker)
        placement.worker_ready(worker)
    return placement


def held(placement, worker, *states):
    wanted = frozenset(states or (PlacementState.GRANTED,))
    return {s.partition.partition for s in placement.held(worker, wanted)}


def holdings(placement, worker):
    """What a worker reports that holds exactly what it may."""
    return [HeldReport(s.partition, s.epoch) for s in placement.held(worker, EVERY)]


def test_partitions_are_spread_evenly_and_every_grant_has_an_epoch_of_its_own():
    placement = made("a", "b")
    placement.assign(partitions(1, 4, 7, 9))
    placement.step(0.0)
    assert len(held(placement, "a")) == len(held(placement, "b")) == 2
    assert held(placement, "a") | held(placement, "b") == {1, 4, 7, 9}
    epochs = [slot.epoch for slot in placement.partitions.values()]
    assert len(set(epochs)) == 4
    assert {incarnation for incarnation, _ in epochs} == {1}


def test_nothing_is_granted_to_a_worker_that_is_not_ready():
    placement = made()
    placement.set_worker("a")
    placement.assign(partitions(0))
    placement.step(0.0)
    assert held(placement, "a") == set()
    placement.worker_ready("a")
    placement.step(0.0)
    assert held(placement, "a") == {0}


def test_a_new_worker_gets_its_share_after_a_drain_and_nothing_else_moves():
    placement = made("a")
    placement.assign(partitions(0, 1, 2, 3))
    placement.step(0.0)
    placement.set_worker("b")
    placement.worker_ready("b")
    placement.step(1.0)
    draining = held(placement, "a", PlacementState.DRAINING)
    assert len(draining) == 2
    assert held(placement, "b") == set()

    kept = [h for h in holdings(placement, "a") if h.partition.partition not in draining]
    placement.reported("a", placement.version("a"), kept)
    placement.step(1.1)
    assert held(placement, "b") == draining
    assert len(held(placement, "a")) == 2
    assert placement.moves == 2


def test_workers_that_come_up_one_after_the_other_are_given_what_they_keep():
    placement = made("a", "b")
    placement.assign(partitions(*range(12)))
    placement.step(0.0)
    placement.gathering.expected = 6
    for second, worker in enumerate(("c", "d", "e", "f"), 1):
        placement.set_worker(worker)
        placement.worker_ready(worker)
        placement.step(float(second) / 2)
        assert placement.moves == (0 if worker != "f" else 8)
    for worker in ("a", "b"):
        kept = [
            h
            for h in holdings(placement, worker)
            if placement.partitions[h.partition].state is PlacementState.GRANTED
        ]
        placement.reported(worker, placement.version(worker), kept)
    placement.step(2.1)
    assert [len(held(placement, w)) for w in "abcdef"] == [2] * 6
    assert placement.moves == 8


def test_a_worker_that_does_not_come_up_is_waited_for_a_moment_only():
    placement = made("a")
    placement.assign(partitions(0, 1, 2, 3))
    placement.step(0.0)
    placement.gathering.expected = 3
    placement.set_worker("b")
    placement.set_worker("c")
    placement.worker_ready("b")
    assert placement.step(1.0) == 1.0 + GATHER_S
    assert placement.moves == 0
    placement.step(1.0 + GATHER_S)
    assert placement.moves == 2


def test_what_a_dead_worker_held_waits_for_nobody():
    placement = made("a", "b")
    placement.assign(partitions(0, 1, 2, 3))
    placement.step(0.0)
    placement.gathering.expected = 4
    placement.set_worker("c")
    placement.worker_ready("c")
    placement.step(1.0)
    placement.remove_worker("b")
    placement.step(1.1)
    assert len(held(placement, "a")) + len(held(placement, "c")) == 4
    assert held(placement, "a") >= {0}


def test_a_report_from_before_the_drain_releases_nothing():
    placement = made("a")
    placement.assign(partitions(0, 1))
    before = placement.version("a")
    placement.step(0.0)
    placement.set_worker("b")
    placement.worker_ready("b")
    placement.step(1.0)
    placement.reported("a", before, [])
    placement.step(1.1)
    assert len(held(placement, "a", PlacementState.DRAINING)) == 1


def test_a_drain_ends_at_its_deadline_without_the_worker():
    placement = made("a")
    placement.assign(partitions(0, 1))
    placement.step(0.0)
    placement.set_worker("b")
    placement.worker_ready("b")
    assert placement.step(1.0) == 1.0 + DRAIN
    moving = held(placement, "a", PlacementState.DRAINING)
    (partition,) = moving
    placement.step(1.0 + DRAIN)
    assert held(placement, "b") == moving
    assert placement.holder("a", TopicPartition("t", partition)) is None


def test_a_dead_worker_is_replaced_by_the_others_at_once():
    placement = made("a", "b", "c")
    placement.assign(partitions(*range(6)))
    placement.step(0.0)
    before = {w: held(placement, w) for w in "bc"}
    lost = held(placement, "a")
    placement.remove_worker("a")
    placement.step(0.0)
    for worker in "bc":
        assert held(placement, worker) >= before[worker]
    assert held(placement, "b") | held(placement, "c") >= lost


def test_with_nobody_left_partitions_wait_and_go_to_the_next_worker():
    placement = made("a")
    placement.assign(partitions(0))
    placement.step(0.0)
    placement.remove_worker("a")
    placement.step(0.0)
    assert placement.partitions[TopicPartition("t", 0)].state is PlacementState.FREE
    placement.set_worker("a2")
    placement.worker_ready("a2")
    placement.step(0.0)
    assert held(placement, "a2") == {0}


def test_a_retiring_worker_is_drained_and_then_retired():
    placement = made("a", "b")
    placement.assign(partitions(0, 1))
    placement.step(0.0)
    placement.set_worker("b", retiring=True)
    placement.step(0.0)
    assert not placement.retired("b")
    placement.reported("b", placement.version("b"), [])
    placement.step(0.0)
    assert placement.retired("b")
    assert held(placement, "a") == {0, 1}


def test_partitions_are_not_looked_through_for_each_worker():
    """Whether one has retired is asked of all with each change, and each report polls: at 10,000 partitions that was all there was time for."""

    class Counted(dict):
        looks = 0

        def values(self):
            self.looks += 1
            return super().values()

    placement = made(*(f"worker-{n}.1" for n in range(50)))
    placement.assign(partitions(*range(100)))
    placement.step(0.0)
    placement.partitions = counted = Counted(placement.partitions)
    placement.set_worker("worker-0.1", retiring=True)
    assert not any(placement.retired(worker) for worker in placement.workers)
    placement.set_worker("worker-0.1")
    placement.step(1.0)
    assert counted.looks < 10


def test_what_the_group_takes_is_drained_and_forgotten():
    placement = made("a")
    placement.assign(partitions(0, 1))
    placement.step(0.0)
    placement.revoke(partitions(0), deadline=9.0)
    assert placement.still_leaving(partitions(0))
    placement.step(0.0)
    placement.reported(
        "a", placement.version("a"), [h for h in holdings(placement, "a") if h.partition.partition == 1]
    )
    assert not placement.still_leaving(partitions(0))
    assert set(placement.partitions) == set(partitions(1))


def test_what_is_lost_is_dropped_without_a_drain():
    placement = made("a")
    placement.assign(partitions(0, 1))
    placement.step(0.0)
    version = placement.version("a")
    placement.lose(partitions(0))
    assert placement.holder("a", TopicPartition("t", 0)) is None
    assert placement.version("a") > version


def test_capacity_weighs():
    placement = Stepped(1, assignors.get("sticky"), DRAIN)
    placement.set_worker("small", capacity=1.0)
    placement.set_worker("large", capacity=3.0)
    for worker in ("small", "large"):
        placement.worker_ready(worker)
    placement.assign(partitions(*range(8)))
    placement.step(0.0)
    assert len(held(placement, "large")) == 6


def test_a_new_incarnation_grants_what_is_still_held_without_a_drain():
    placement = Stepped(2, assignors.get("sticky"), DRAIN)
    for worker in ("a", "b"):
        placement.set_worker(worker)
    placement.recovery.begin({"a": 3.0, "b": 3.0})
    placement.worker_ready("a")
    placement.adopt("a", (2, 0), [HeldReport(p, (1, n)) for n, p in enumerate(partitions(0, 1))], [])
    placement.step(0.0)
    assert placement.recovery.active  # the group has not answered yet

    placement.assign(partitions(0, 1, 2, 3))
    placement.adopt(
        "a", (2, 0), [HeldReport(p, (1, n)) for n, p in enumerate(partitions(0, 1))], partitions(0, 1, 2, 3)
    )
    placement.step(0.5)
    assert placement.recovery.active  # b has not reported yet

    placement.worker_ready("b")
    placement.adopt("b", (2, 0), [HeldReport(p, (1, 9)) for p in partitions(2, 3)], partitions(0, 1, 2, 3))
    placement.step(1.0)
    assert not placement.recovery.active
    assert (held(placement, "a"), held(placement, "b")) == ({0, 1}, {2, 3})
    slot = placement.partitions[TopicPartition("t", 2)]
    assert slot.continues == (1, 9)
    assert slot.epoch[0] == 2
    assert placement.moves == 0


def recovering(*workers, deadline=3.0):
    placement = Stepped(2, assignors.get("sticky"), DRAIN)
    for worker in workers:
        placement.set_worker(worker)
    placement.recovery.begin(dict.fromkeys(workers, deadline))
    for worker in workers:
        placement.worker_ready(worker)
    return placement


def test_a_drain_that_begins_with_the_recovery_waits_for_a_worker_that_holds_the_old_epoch():
    placement = recovering("a", "new")
    placement.assign(partitions(0, 1))
    claims = [HeldReport(p, (1, n)) for n, p in enumerate(partitions(0, 1))]
    placement.adopt("a", (2, 0), claims, partitions(0, 1))
    placement.adopt("new", (2, 0), [], partitions(0, 1))
    placement.step(0.0)
    (moving,) = placement.held("a", frozenset({PlacementState.DRAINING}))
    assert moving.continues is not None
    placement.reported("a", (2, 0), claims)  # left before the worker heard of the drain
    assert moving.state is PlacementState.DRAINING
    still = [HeldReport(s.partition, s.epoch) for s in placement.partitions.values()]
    placement.reported("a", placement.version("a"), still)
    assert moving.state is PlacementState.DRAINING
    placement.reported("a", placement.version("a"), [h for h in still if h.partition != moving.partition])
    placement.step(1.0)
    assert (moving.state, moving.worker) == (PlacementState.GRANTED, "new")


def test_a_worker_that_ends_an_older_incarnations_drain_gives_its_partition_back():
    placement = recovering("a")
    placement.assign(partitions(0))
    placement.adopt("a", (2, 0), [HeldReport(p, (1, 1)) for p in partitions(0)], partitions(0))
    placement.step(0.0)
    (slot,) = placement.partitions.values()
    before = slot.epoch
    placement.reported("a", placement.version("a"), [])
    placement.step(0.1)
    assert slot.state is PlacementState.GRANTED
    assert slot.epoch != before
    assert slot.continues is None


def test_of_two_workers_that_claim_a_partition_the_later_grant_counts():
    placement = recovering("late", "new")
    placement.assign(partitions(0))
    placement.adopt("late", (2, 0), [HeldReport(p, (1, 1)) for p in partitions(0)], partitions(0))
    placement.adopt("new", (2, 0), [HeldReport(p, (1, 2)) for p in partitions(0)], partitions(0))
    placement.step(0.0)
    assert (held(placement, "late"), held(placement, "new")) == (set(), {0})


@pytest.mark.parametrize("later_first", [False, True])
def test_of_workers_that_claim_a_partition_dealt_otherwise_the_later_grants_count(later_first):
    """One was taken for dead, and the partition dealt anew, before the coordinator died; then it goes on."""
    placement = recovering("late", "one", "two")
    placement.assign(partitions(0))
    claims = [
        ("late", HeldReport(TopicPartition("t", 0), (1, 1))),
        ("one", HeldReport(TopicPartition("t", 0), (1, 2), part=0, parts=2)),
        ("two", HeldReport(TopicPartition("t", 0), (1, 3), part=1, parts=2)),
    ]
    for worker, claim in claims[:: -1 if later_first else 1]:
        placement.adopt(worker, (2, 0), [claim], partitions(0))
    assert {
        worker: [s.continues for s in placement.held(worker, frozenset({PlacementState.GRANTED}))]
        for worker, _ in claims
    } == {"late": [], "one": [(1, 2)], "two": [(1, 3)]}


def test_a_worker_that_has_not_heard_of_the_new_incarnation_is_not_taken_at_its_word():
    placement = recovering("a")
    placement.assign(partitions(0))
    placement.adopt("a", (1, 9), [HeldReport(p, (1, 1)) for p in partitions(0)], partitions(0))
    placement.step(0.0)
    assert placement.recovery.active
    assert placement.version("a") == (2, 0)


def test_a_new_incarnation_does_not_wait_for_a_dead_worker_forever():
    placement = Stepped(2, assignors.get("sticky"), DRAIN)
    for worker in ("a", "dead"):
        placement.set_worker(worker)
    placement.recovery.begin({"a": 3.0, "dead": 3.0})
    placement.worker_ready("a")
    placement.assign(partitions(0, 1))
    placement.adopt("a", (2, 0), [HeldReport(p, (1, 1)) for p in partitions(0)], partitions(0, 1))
    assert placement.step(1.0) == 3.0
    placement.step(3.0)
    assert held(placement, "a") == {0, 1}


def test_a_new_incarnation_waits_for_the_lease_of_a_worker_whose_node_is_cut_off():
    """Ray calls the node dead meanwhile: the lease that an older incarnation gave holds all the same."""
    placement = recovering("a", "cut_off")
    placement.assign(partitions(0, 1))
    placement.adopt("a", (2, 0), [HeldReport(p, (1, 1)) for p in partitions(0)], partitions(0, 1))
    placement.set_worker("cut_off", silent=True)
    placement.remove_worker("cut_off", silent=True)
    placement.step(1.0)
    assert placement.recovery.active
    placement.step(3.0)
    assert held(placement, "a") == {0, 1}


def test_each_worker_is_waited_for_as_long_as_an_older_incarnations_lease_may_last():
    """Another one, which had none, is waited for a moment only."""
    placement = Stepped(2, assignors.get("sticky"), DRAIN)
    for worker in ("a", "frozen", "starting"):
        placement.set_worker(worker)
    placement.recovery.begin({"a": 40.0, "frozen": 40.0, "starting": 3.0})
    placement.worker_ready("a")
    placement.assign(partitions(0, 1))
    placement.adopt("a", (2, 0), [HeldReport(p, (1, 1)) for p in partitions(0)], partitions(0, 1))
    assert placement.step(3.0) == 40.0
    placement.step(39.9)
    assert held(placement, "a") == {0}
    placement.step(40.0)
    assert held(placement, "a") == {0, 1}


def test_the_death_of_the_last_worker_that_is_waited_for_ends_the_wait():
    placement = recovering("a", "dead", deadline=40.0)
    placement.assign(partitions(0, 1))
    placement.adopt("a", (2, 0), [HeldReport(p, (1, 1)) for p in partitions(0)], partitions(0, 1))
    placement.step(1.0)
    placement.remove_worker("dead")
    placement.step(2.0)
    assert held(placement, "a") == {0, 1}


def test_a_lease_that_the_new_incarnation_gives_before_a_worker_has_registered_is_waited_for():
    placement = recovering("a", "frozen", deadline=40.0)
    placement.assign(partitions(0, 1))
    placement.adopt("a", (2, 0), [], partitions(0, 1))
    placement.leased("frozen", 42.0)
    placement.set_worker("frozen", silent=True)
    placement.step(41.9)
    assert held(placement, "a") == set()
    placement.step(42.0)
    assert held(placement, "a") == {0, 1}


def test_a_worker_that_has_registered_has_its_orders_while_another_one_is_waited_for():
    """Its commits count, and it hears of a drain, however long the other one is frozen."""
    placement = recovering("a", "frozen", deadline=40.0)
    claims = [HeldReport(p, (1, n)) for n, p in enumerate(partitions(0, 1))]
    placement.adopt("a", (2, 0), claims, [])
    assert placement.recovery.awaits("a")  # the group has not answered yet
    placement.assign(partitions(0, 1, 2))
    placement.adopt("a", (2, 0), claims, partitions(0, 1, 2))
    placement.step(0.0)
    assert (placement.recovery.awaits("a"), placement.recovery.awaits("frozen")) == (False, True)
    assert placement.version("a") > (2, 0) == placement.version("frozen")

    placement.reported("a", placement.version("a"), holdings(placement, "a"))
    placement.revoke(partitions(1), deadline=5.0)
    (leaving,) = placement.held("a", frozenset({PlacementState.LEAVING}))
    assert leaving.ordered_at == placement.version("a")
    placement.reported(
        "a", placement.version("a"), [h for h in holdings(placement, "a") if h.partition[1] == 0]
    )
    placement.step(1.0)
    assert not placement.still_leaving(partitions(1))
    assert held(placement, "a") == {0}
    assert placement.recovery.active


def test_a_later_grant_counts_also_when_the_earlier_one_was_taken_over_before():
    placement = recovering("late", "new")
    placement.assign(partitions(0))
    placement.adopt("late", (2, 0), [HeldReport(p, (1, 1)) for p in partitions(0)], partitions(0))
    for _ in range(2):
        renewed = holdings(placement, "late")
        placement.adopt("late", placement.version("late"), renewed, partitions(0))
        placement.reported("late", placement.version("late"), renewed)
    assert not told(placement)
    placement.adopt("new", (2, 0), [HeldReport(p, (1, 2)) for p in partitions(0)], partitions(0))
    placement.step(0.0)
    assert (held(placement, "late"), held(placement, "new")) == (set(), {0})


def test_a_drain_ends_at_its_deadline_while_a_new_incarnation_recovers():
    placement = recovering("a", "silent", deadline=40.0)
    placement.adopt("a", (2, 0), [HeldReport(p, (1, 1)) for p in partitions(0)], partitions(0))
    placement.revoke(partitions(0), deadline=5.0)
    assert placement.step(1.0) == 5.0
    placement.step(5.0)
    assert not placement.still_leaving(partitions(0))


def test_an_illegal_transition_raises_and_changes_nothing():
    slot = PlacedPartition(TopicPartition("t", 0))
    with pytest.raises(RuntimeError, match="free can't become draining"):
        slot.become(PlacementState.DRAINING)
    assert slot.state is PlacementState.FREE


def test_why_partitions_leave_their_workers_and_how_drains_end_is_told():
    placement = made("a", "b")
    placement.assign(partitions(0, 1, 2, 3))
    placement.step(0.0)
    assert not told(placement)
    placement.remove_worker("b")
    assert told(placement) == {("b", "worker_died"): 2}
    placement.step(0.0)
    placement.set_worker("c")
    placement.worker_ready("c")
    placement.step(1.0)
    assert told(placement) == {("a", "balance"): 2}
    placement.reported("a", (1, 99), [h for h in holdings(placement, "a") if h.partition in kept(placement)])
    assert told(placement) == {("a", "released"): 2}
    placement.step(2.0)
    placement.set_worker("c", retiring=True)
    placement.step(3.0)
    assert told(placement) == {("c", "worker_retired"): 2}
    placement.step(3.0 + DRAIN)
    assert told(placement) == {("c", "forced"): 2}
    one, two, three, _ = sorted(kept(placement))
    placement.regrant(one, 20.0)
    placement.revoke([one, two], 30.0)  # the first is being drained already, and has its cause
    placement.lose([three])
    assert told(placement) == {("a", "stalled"): 1, ("a", "group_revoked"): 1, ("a", "group_lost"): 1}


def test_who_shares_a_partition_begins_it_anew_under_another_epoch_where_a_slice_of_it_was_reset():
    placement = made("worker-0.1", "worker-1.1", slicing=Slicing(8))
    placement.assign(partitions(0))
    placement.step(0.0)
    whole = TopicPartition("t", 0)
    first, second = (slice_of(whole, part, 2) for part in (0, 1))
    before = {each: (s.worker, s.epoch) for each, s in placement.partitions.items()}
    assert set(before) == {first, second}
    worker, epoch = before[second]
    placement.leased(worker, 20.0)
    had = [HeldReport(whole, epoch)]
    placement.begin_anew([first])
    placement.step(1.0)
    assert placement.holder(worker, whole) is None, "what it offers under the former epoch is refused"
    assert told(placement) == {(worker, "reset"): 1}
    for seen in ((1, 0), placement.version(worker)):
        placement.reported(worker, seen, had)
        placement.step(1.0)
        (placed,) = placement.held(worker, EVERY)
        assert (placed.state, placed.epoch, placed.void) == (PlacementState.DRAINING, epoch, True), (
            "it has calls in hand, with records of keys that others would call next"
        )
    placement.reported(worker, placement.version(worker), [])
    assert told(placement) == {(worker, "released"): 1}
    now = {each: (s.worker, s.epoch) for each, s in placement.partitions.items()}
    assert now[first] == before[first]
    assert now[second][0] == worker
    assert now[second][1] > epoch
    assert placement.holder(worker, whole) == now[second][1]


@pytest.mark.parametrize("leaving", [False, True])
def test_who_does_not_hear_that_a_slice_was_reset_keeps_others_from_it_for_no_longer_than_its_lease(leaving):
    placement = made("worker-0.1", "worker-1.1", slicing=Slicing(8))
    placement.assign(partitions(0))
    placement.step(0.0)
    first, second = (slice_of(TopicPartition("t", 0), part, 2) for part in (0, 1))
    placement.leased(placement.partitions[second].worker, 20.0)
    if leaving:
        placement.revoke(partitions(0), 100.0)
    placement.begin_anew([first])
    placement.step(19.0)
    assert placement.partitions[second].void
    placement.step(20.0)
    assert (second in placement.partitions) is not leaving
    assert leaving or placement.partitions[second].state is PlacementState.GRANTED


def kept(placement):
    return {s.partition for s in placement.partitions.values() if s.state is PlacementState.GRANTED}


def told(placement):
    """(worker, cause or outcome) → how often; and it is told once."""
    placement.step(placement.now)
    events, placement.events = placement.events, []
    return Counter((e.worker, e.cause if isinstance(e, Withdrawal) else e.outcome) for e in events)


# ------------------------------------------------------------ workers of silent nodes


def silenced(lease=20.0):
    """Two workers with two partitions each; of `a`, whose lease ends then, nothing is heard any more."""
    placement = made("a", "b")
    placement.assign(partitions(0, 1, 2, 3))
    placement.step(0.0)
    placement.leased("a", lease)
    placement.leased("b", lease)
    placement.set_worker("a", silent=True)
    return placement, held(placement, "a")


def test_what_a_silent_worker_has_goes_to_others_when_its_lease_is_over():
    placement, its = silenced()
    told(placement)
    assert placement.step(5.0) == 20.0
    assert held(placement, "a") == its
    placement.step(19.9)
    assert held(placement, "a") == its
    placement.step(20.0)
    assert held(placement, "b") == {0, 1, 2, 3}
    assert told(placement).keys() == {("a", "worker_silent")}
    assert placement.moves == 0


def test_a_silent_worker_that_is_heard_again_in_time_keeps_what_it_has():
    placement, its = silenced()
    placement.step(5.0)
    placement.set_worker("a")
    placement.step(50.0)
    assert held(placement, "a") == its
    assert placement.moves == 0


def test_a_silent_worker_whose_lease_is_renewed_keeps_what_it_has_and_gets_no_more():
    """The coordinator hears it, the supervisor doesn't."""
    placement, its = silenced()
    placement.step(5.0)
    placement.leased("a", 60.0)
    placement.assign(partitions(4, 5))
    placement.step(20.0)
    assert held(placement, "a") == its
    assert {4, 5} <= held(placement, "b")


def test_the_lease_of_a_silent_worker_outlives_its_name_in_the_plan():
    """Ray calls its node dead, which may only be cut off."""
    placement, its = silenced()
    epochs = {slot.partition: slot.epoch for slot in placement.partitions.values() if slot.worker == "a"}
    placement.remove_worker("a", silent=True)
    assert placement.step(5.0) == 20.0
    assert {slot.partition.partition for slot in placement.partitions.values() if slot.worker == "a"} == its
    assert all(placement.holder("a", partition) == epoch for partition, epoch in epochs.items())
    placement.set_worker("c")
    placement.worker_ready("c")
    placement.step(6.0)
    assert {slot.partition.partition for slot in placement.partitions.values() if slot.worker == "a"} == its
    placement.step(20.0)
    assert not held(placement, "a")
    assert all(slot.worker in ("b", "c") for slot in placement.partitions.values() if slot.worker is not None)


def test_a_silent_worker_whose_process_is_known_to_be_gone_has_no_lease():
    placement, _ = silenced()
    placement.remove_worker("a")
    placement.step(5.0)
    assert held(placement, "b") == {0, 1, 2, 3}


def test_what_a_worker_has_that_was_heard_until_it_died_goes_to_others_at_once():
    placement = made("a", "b")
    placement.assign(partitions(0, 1, 2, 3))
    placement.step(0.0)
    placement.leased("a", 20.0)
    placement.remove_worker("a")
    placement.step(0.1)
    assert held(placement, "b") == {0, 1, 2, 3}


def test_the_group_takes_from_a_silent_worker_by_the_drains_deadline():
    placement, _ = silenced(lease=100.0)
    placement.remove_worker("a", silent=True)
    placement.revoke(partitions(0, 1, 2, 3), deadline=10.0)
    for worker in ("b",):
        placement.reported(worker, placement.version(worker), [])
    placement.step(10.0)
    assert placement.partitions == {}


@pytest.mark.parametrize("cause", ["balance", "stalled", "dealt"])
@pytest.mark.parametrize("dead", [False, True])
def test_a_drain_of_which_a_silent_worker_may_not_have_heard_ends_with_its_lease(cause, dead):
    """It began before anybody noticed the silence."""
    one, other, third = (f"worker-{n}.1" for n in range(3))
    placement = made(one, other, slicing=Slicing(8))
    placement.assign(partitions(0) if cause == "dealt" else partitions(0, 1))
    placement.step(0.0)
    placement.leased(other, 40.0)
    if cause == "stalled":
        placement.regrant(next(s.partition for s in placement.held(other, EVERY)), 1.0)
    elif cause == "balance":
        placement.set_worker(other, retiring=True)
    else:
        placement.set_worker(third)
        placement.worker_ready(third)
        placement.gathering.expected = 3
    placement.step(1.0)
    (its,) = placement.held(other, EVERY)
    assert (its.state is not PlacementState.GRANTED, its.deadline) == (True, 1.0 + DRAIN)
    if dead:
        placement.remove_worker(other, silent=True)
    else:
        placement.set_worker(other, silent=True)
    placement.step(1.0 + DRAIN)
    assert placement.step(39.9) == 40.0
    assert placement.held(other, EVERY) == [its]
    placement.step(40.0)
    assert placement.held(other, EVERY) == []


def test_a_partition_of_which_a_silent_worker_has_a_slice_is_dealt_otherwise_after_its_lease():
    """Until then the others go on with their slices of it; partitions of which it has none are dealt at once."""
    names = [f"worker-{n}.1" for n in range(6)]
    placement = made(*names, slicing=Slicing(64))
    placement.gathering.expected = 6
    placement.assign(partitions(0, 1))
    placement.step(0.0)
    before = {each: s.worker for each, s in placement.partitions.items()}
    assert len(before) == 6
    silent = {before[slice_of(TopicPartition("t", 1), part, 3)] for part in (1, 2)}
    living = [name for name in names if name not in silent]
    for name in silent:
        placement.leased(name, 40.0)
        placement.set_worker(name, silent=True)
    for now in (3.0, 14.0, 14.1, 20.0, 39.9):
        wake = placement.step(now)
        for name in living:
            staying = placement.held(name, frozenset({PlacementState.GRANTED}))
            its = [HeldReport(source(s.partition), s.epoch) for s in staying]
            placement.reported(name, placement.version(name), its)
        placement.step(now)
    dealt = {each: s.worker for each, s in placement.partitions.items()}
    assert [each for each in dealt if each.partition == 0] == [
        slice_of(TopicPartition("t", 0), part, 2) for part in (0, 1)
    ]
    assert {each: w for each, w in dealt.items() if each.partition == 1} == {
        each: w for each, w in before.items() if each.partition == 1
    }
    assert wake == 40.0
    placement.step(40.0)
    for name in living:
        placement.reported(name, placement.version(name), [])
    placement.step(40.1)
    assert {each for each in placement.partitions if each.partition == 1} == {
        slice_of(TopicPartition("t", 1), part, 2) for part in (0, 1)
    }
    assert {s.worker for s in placement.partitions.values()} <= set(living)


def test_a_worker_is_given_nothing_before_the_connections_of_its_node_are_up():
    placement = made("a")
    placement.assign(partitions(0, 1, 2, 3))
    placement.step(0.0)
    placement.set_worker("b", connected=False)
    placement.worker_ready("b")
    assert placement.step(1.0) is None
    placement.step(1.0 + GATHER_S)
    assert placement.moves == 0
    placement.set_worker("b", connected=True)
    placement.step(9.0)
    assert placement.moves == 2


def test_the_first_grants_wait_a_moment_for_the_nodes_whose_connections_come_up_last():
    placement = made()
    placement.gathering.expected = 2
    for worker in "ab":
        placement.set_worker(worker, connected=False)
        placement.worker_ready(worker)
    placement.assign(partitions(0, 1, 2, 3))
    placement.step(0.0)
    placement.set_worker("a", connected=True)
    assert placement.step(1.0) == 1.0 + GATHER_S
    assert held(placement, "a") == set()
    placement.set_worker("b", connected=True)
    placement.step(2.0)
    assert len(held(placement, "a")) == len(held(placement, "b")) == 2
    placement.remove_worker("a")
    placement.remove_worker("b")
    placement.set_worker("c")
    placement.worker_ready("c")
    placement.step(3.0)
    assert len(held(placement, "c")) == 4, "later ones are granted at once"


def test_nothing_is_granted_while_more_workers_are_about_to_come():
    placement = made("w0")
    placement.held_back = True
    placement.assign(partitions(0, 1))
    placement.step(0.0)
    placement.step(GATHER_S + 1)
    assert held(placement, "w0") == set()
    placement.held_back = False
    placement.step(GATHER_S + 2)
    assert held(placement, "w0") == {0, 1}


def test_a_worker_that_changes_its_team_never_has_two_slices_of_a_partition():
    """Two workers that share a partition change places: who has drained first waits for the other."""
    one, other = "worker-0.1", "worker-1.1"
    placement = Stepped(1, assignors.get("sticky"), DRAIN, None, Slicing(64))
    for name in (one, other):
        placement.set_worker(name)
        placement.worker_ready(name)
    placement.assign(partitions(0))
    placement.step(0.0)
    placement.step(20.0)
    assert {s.worker for s in placement.partitions.values()} == {one, other}
    teams = placement.slices.slicing._teams
    teams["worker-0"], teams["worker-1"] = teams["worker-1"], teams["worker-0"]
    placement.set_worker(one, capacity=2.0)
    placement.step(21.0)
    placement.reported(one, (1, 1_000), [])
    placement.step(22.0)
    holders = Counter(s.worker for s in placement.partitions.values() if s.worker)
    assert holders == {other: 1}, "its other slice is free, but it has not drained this one"
    placement.reported(other, (1, 1_000), [])
    placement.step(23.0)
    assert Counter(s.worker for s in placement.partitions.values()) == {one: 1, other: 1}
