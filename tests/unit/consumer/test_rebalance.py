"""What the user's thread hears of a rebalance, also if it comes too late."""

import asyncio
from concurrent.futures import ThreadPoolExecutor

import pytest
from fakes.loop import in_loop

from kafka_actors.consumer.rebalance import RebalanceKind, RebalanceQueue
from kafka_actors.fetch import PartitionStart
from kafka_actors.types import TopicPartition

P0 = frozenset({TopicPartition("t", 0)})
DEADLINE_S = 0.01


class Owner:
    """Notes what is made of partitions."""

    def __init__(self):
        self.happened = []

    def stop_delivery(self, partitions):
        self.happened.append("stopped")
        return dict.fromkeys(partitions, (0, 1))

    async def starts(self, partitions):
        return dict.fromkeys(partitions, PartitionStart((0, 1)))

    def begin_fetching(self, starts):
        self.happened.append("taken on")

    def lose(self, partitions):
        self.happened.append("lost")

    async def commit_and_revoke(self, drained, offsets):
        self.happened.append(("given up", offsets))


@in_loop
async def test_who_misses_the_deadline_of_a_revoke_hears_that_the_partitions_are_lost():
    """Else what the user's side keeps of them, such as a pause, would be there when they come back."""
    owner = Owner()
    rebalances = RebalanceQueue(owner, lambda: None)
    await rebalances.on_partitions_assigned(P0)
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(DEADLINE_S):
            await rebalances.on_partitions_revoked(P0, DEADLINE_S)
    assert owner.happened == ["taken on", "stopped", ("given up", {})]
    assert told(rebalances) == [(RebalanceKind.ASSIGNED, P0), (RebalanceKind.LOST, P0)]


@in_loop
async def test_who_is_in_time_hears_of_the_revoke_only():
    owner = Owner()
    rebalances = RebalanceQueue(owner, lambda: None)
    await rebalances.on_partitions_assigned(P0)
    assert rebalances.next().what is RebalanceKind.ASSIGNED
    revoking = asyncio.ensure_future(rebalances.on_partitions_revoked(P0, DEADLINE_S))
    await asyncio.sleep(0)
    notice = rebalances.next()
    assert notice.what is RebalanceKind.REVOKED
    notice.done({})
    await revoking
    assert owner.happened == ["taken on", "stopped", ("given up", {})]
    assert not rebalances.pending


@in_loop
async def test_a_revoke_that_a_loss_cuts_off_is_told_once():
    owner = Owner()
    rebalances = RebalanceQueue(owner, lambda: None)
    await rebalances.on_partitions_assigned(P0)
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(DEADLINE_S):
            await rebalances.on_partitions_revoked(P0, DEADLINE_S)
    await rebalances.on_partitions_lost(P0)
    assert told(rebalances) == [(RebalanceKind.ASSIGNED, P0), (RebalanceKind.LOST, P0)]
    await rebalances.on_partitions_assigned(P0)
    await rebalances.on_partitions_lost(P0)
    assert told(rebalances) == [(RebalanceKind.ASSIGNED, P0), (RebalanceKind.LOST, P0)]


@in_loop
async def test_who_has_begun_with_a_revoke_does_not_hear_of_a_loss():
    rebalances = RebalanceQueue(Owner(), lambda: None)
    await rebalances.on_partitions_assigned(P0)
    revoking = asyncio.ensure_future(rebalances.on_partitions_revoked(P0, DEADLINE_S))
    await asyncio.sleep(0)
    assert told(rebalances) == [(RebalanceKind.ASSIGNED, P0), (RebalanceKind.REVOKED, P0)]
    revoking.cancel()
    await asyncio.wait({revoking})
    await rebalances.on_partitions_lost(P0)
    assert told(rebalances) == []


@pytest.mark.parametrize("cut_off_by", ["the deadline", "a loss"])
@in_loop
async def test_what_goes_during_the_callback_of_its_revocation_counts_as_lost_until_that_is_over(cut_off_by):
    """The member may be in its next generation by then, under which the offsets of another one's partitions would be taken."""
    rebalances = RebalanceQueue(Owner(), lambda: None)
    await rebalances.on_partitions_assigned(P0)
    rebalances.next().done({})
    revoking = asyncio.ensure_future(rebalances.on_partitions_revoked(P0, DEADLINE_S))
    await asyncio.sleep(0)
    notice = rebalances.next()
    assert rebalances.lost == frozenset(), "offsets may be committed until then: it is the last chance"
    revoking.cancel()
    await asyncio.wait({revoking})
    if cut_off_by == "a loss":
        await rebalances.on_partitions_lost(P0)
    await rebalances.on_partitions_assigned(P0)
    assert rebalances.lost == P0
    notice.done({})
    assert rebalances.lost == frozenset()
    assert told(rebalances) == [(RebalanceKind.ASSIGNED, P0)]


@pytest.mark.parametrize("attended", [True, False], ids=["told", "away"])
@in_loop
async def test_what_nobody_was_told_to_give_up_is_not_lost_for_long(attended):
    rebalances = RebalanceQueue(Owner(), lambda: None)
    await rebalances.on_partitions_assigned(P0)
    told(rebalances)
    if attended:
        revoking = asyncio.ensure_future(rebalances.on_partitions_revoked(P0, DEADLINE_S))
        await asyncio.sleep(0)
        rebalances.next()
        rebalances.wait_for_user(False)
        await revoking
    else:
        rebalances.wait_for_user(False)
        await rebalances.on_partitions_revoked(P0, DEADLINE_S)
    assert rebalances.lost == frozenset()


@in_loop
async def test_a_loss_is_told_until_its_callback_is_over():
    rebalances = RebalanceQueue(Owner(), lambda: None)
    await rebalances.on_partitions_assigned(P0)
    told(rebalances)
    await rebalances.on_partitions_lost(P0)
    assert (rebalances.lost, rebalances.handling_loss) == (P0, False)
    notice = rebalances.next()
    assert rebalances.handling_loss
    notice.done({})
    assert (rebalances.lost, rebalances.handling_loss) == (frozenset(), False)


@in_loop
async def test_a_commit_that_outlasts_its_revocation_is_no_loss_of_what_came_since():
    owner, over = Owner(), asyncio.Event()
    rebalances = RebalanceQueue(owner, lambda: None)
    await rebalances.on_partitions_assigned(P0)

    async def long(drained, offsets):
        await over.wait()

    owner.commit_and_revoke = long
    revoking = asyncio.ensure_future(rebalances.on_partitions_revoked(P0, DEADLINE_S))
    await asyncio.sleep(0)
    told(rebalances)
    revoking.cancel()
    await asyncio.sleep(0)
    await rebalances.on_partitions_assigned(P0)
    over.set()
    await asyncio.wait({revoking})
    assert told(rebalances) == [(RebalanceKind.ASSIGNED, P0)]


@pytest.mark.parametrize("first", ["lost", "away"])
@in_loop
async def test_who_has_left_hears_of_no_loss_at_the_first_poll_of_the_next_subscription(first):
    """The listener was told of the end of all partitions before the last commit, during which the group may lose them."""
    rebalances = RebalanceQueue(Owner(), lambda: None)
    await rebalances.on_partitions_assigned(P0)
    assert told(rebalances) == [(RebalanceKind.ASSIGNED, P0)]
    if first == "away":
        rebalances.wait_for_user(False)
    await rebalances.on_partitions_lost(P0)
    rebalances.wait_for_user(False)
    rebalances.wait_for_user(True)
    assert not rebalances.pending


@in_loop
async def test_who_has_a_record_of_an_assignment_sees_its_notice_and_who_has_the_notice_may_seek():
    owner, seen, handled = Owner(), [], []
    rebalances = RebalanceQueue(owner, lambda: seen.append("notice"))

    def handle():
        handled.append(rebalances.next())
        seen.append("handled")

    with ThreadPoolExecutor(1) as pool:

        def begin(starts):
            assert rebalances.pending, "a record that comes now must not be handed out before the callback"
            handling = pool.submit(handle)
            with pytest.raises(TimeoutError):
                handling.result(DEADLINE_S)
            seen.append("fetching")

        owner.begin_fetching = begin
        await rebalances.on_partitions_assigned(P0)
    assert [notice.partitions for notice in handled] == [P0]
    assert seen == ["notice", "fetching", "handled"]


@in_loop
async def test_what_was_never_told_of_is_not_told_to_be_gone():
    """Taking partitions on may be cut off: then the user's thread has never heard of them."""
    owner = Owner()

    async def never(partitions):
        await asyncio.Event().wait()

    owner.starts = never
    rebalances = RebalanceQueue(owner, lambda: None)
    for gone in (rebalances.on_partitions_lost(P0), rebalances.on_partitions_revoked(P0, DEADLINE_S)):
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(DEADLINE_S):
                await rebalances.on_partitions_assigned(P0)
        await gone
        assert told(rebalances) == []


@in_loop
async def test_what_goes_before_its_assignment_was_told_is_not_told_to_be_gone():
    """It may come and go while another assignment is taken on: then there is no call for it."""
    rebalances = RebalanceQueue(Owner(), lambda: None)
    async with asyncio.timeout(1):
        await rebalances.on_partitions_revoked(P0, DEADLINE_S)
        await rebalances.on_partitions_lost(P0)
    assert told(rebalances) == []


def told(rebalances):
    notices = []
    while (notice := rebalances.next()) is not None:
        notices.append((notice.what, notice.partitions))
    return notices
