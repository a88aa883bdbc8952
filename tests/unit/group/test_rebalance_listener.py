"""Calls of a rebalance listener: their order, what they get, and what is made again."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any, cast

from kafka_actors.events import Event, PartitionsAssigned, PartitionsLost, PartitionsRevoked
from kafka_actors.group.machines.member_events import LosePartitions, Partitions, RevokePartitions
from kafka_actors.group.member_driver import LEAVE_TIMEOUT, ListenerCall, MemberDriver
from kafka_actors.group.rebalance_listener import IgnoreRebalances, RebalanceCalls

from .conftest import tps


class Driver:
    """A member at time 100 in generation 7, whose calls are made by hand."""

    def __init__(self) -> None:
        self.queue: list[ListenerCall] = []
        self.calls = SimpleNamespace(put=self.queue.append)
        self.fatal: Exception | None = None
        self.machine = SimpleNamespace(leaving=False, generation=SimpleNamespace(id=7))
        self.tokens: list[int] = []

    def now(self) -> float:
        return 100.0

    def released(self, token: int) -> None:
        self.tokens.append(token)

    def make(self, *, cut_off: bool = False) -> str:
        """Makes the next call, or ends it before it has done anything. Returns its name."""
        call = self.queue.pop(0)
        if not cut_off:
            asyncio.run(cast(Any, call.make()))
        call.after()
        return call.name


class Listener:
    def __init__(self) -> None:
        self.heard: list[tuple[object, ...]] = []

    async def on_partitions_assigned(self, partitions: Partitions) -> None:
        self.heard.append(("assigned", partitions))

    async def on_partitions_revoked(self, partitions: Partitions, deadline_s: float) -> None:
        self.heard.append(("revoked", partitions, deadline_s))

    async def on_partitions_lost(self, partitions: Partitions) -> None:
        self.heard.append(("lost", partitions))


class Member:
    def __init__(self) -> None:
        self.driver, self.listener = Driver(), Listener()
        self.events: list[Event] = []
        self.calls = RebalanceCalls(
            cast(MemberDriver, self.driver), self.listener, self.before_revoke, self.events.append
        )

    async def before_revoke(self, partitions: Partitions, deadline: float) -> None:
        self.listener.heard.append(("before", partitions, deadline))


def test_an_assignment_is_an_event_at_once_and_a_call_in_its_turn() -> None:
    member = Member()
    member.calls.assigned(7, tps("a-1", "a-0"))
    assert member.events == [PartitionsAssigned(7, (("a", 0), ("a", 1)))]
    (call,) = member.driver.queue
    assert (call.yields, call.deadline) == (True, None), (
        "it can be made again, so it makes room for one with a deadline"
    )
    assert member.driver.make() == "on_partitions_assigned"
    assert member.listener.heard == [("assigned", tps("a-0", "a-1"))]
    assert not member.driver.queue


def test_an_assignment_without_anything_new_is_told_as_well() -> None:
    member = Member()
    member.calls.assigned(7, frozenset())
    member.driver.make()
    assert member.listener.heard == [("assigned", frozenset())]


def test_an_assignment_that_was_cut_off_is_told_again_with_what_is_still_there() -> None:
    member = Member()
    member.calls.assigned(7, tps("a-0", "a-1"))
    member.driver.make(cut_off=True)
    member.calls.lost(LosePartitions(tps("a-1"), "session over"))
    member.driver.make()
    assert member.listener.heard == [("assigned", tps("a-0"))]


def test_an_assignment_of_which_nothing_is_left_is_not_told_again() -> None:
    member = Member()
    member.calls.assigned(7, tps("a-0"))
    member.calls.lost(LosePartitions(tps("a-0"), "session over"))
    member.driver.make(cut_off=True)
    assert member.driver.make() == "on_partitions_lost"
    assert not member.driver.queue
    assert member.listener.heard == [("lost", tps("a-0"))]


def test_a_member_that_ends_takes_nothing_on_again() -> None:
    for end in ("fatal", "leaving"):
        member = Member()
        member.calls.assigned(7, tps("a-0"))
        if end == "fatal":
            member.driver.fatal = ValueError("over")
        else:
            member.driver.machine.leaving = True
        member.driver.make(cut_off=True)
        assert not member.driver.queue


def test_a_revocation_is_prepared_then_told_with_the_seconds_left_then_done() -> None:
    member = Member()
    member.calls.revoke(RevokePartitions(3, tps("a-0"), deadline=130.0))
    assert not member.events, "partitions are the member's until they are released"
    (call,) = member.driver.queue
    assert call.deadline == 130.0
    member.driver.make()
    assert member.listener.heard == [("before", tps("a-0"), 130.0), ("revoked", tps("a-0"), 30.0)]
    assert member.events == [PartitionsRevoked(7, (("a", 0),))]
    assert member.driver.tokens == [3]


def test_a_deadline_that_has_passed_leaves_no_time_but_not_less() -> None:
    member = Member()
    member.calls.revoke(RevokePartitions(3, tps("a-0"), deadline=90.0))
    member.driver.make()
    assert member.listener.heard[-1] == ("revoked", tps("a-0"), 0.0)


def test_what_is_lost_during_a_revocation_is_not_revoked() -> None:
    member = Member()
    member.calls.revoke(RevokePartitions(3, tps("a-0", "a-1"), deadline=130.0))
    member.calls.lost(LosePartitions(tps("a-0"), "session over"))
    member.driver.make()
    assert member.events == [PartitionsLost((("a", 0),), "session over"), PartitionsRevoked(7, (("a", 1),))]


def test_a_revocation_of_which_all_is_lost_ends_without_an_event() -> None:
    member = Member()
    member.calls.revoke(RevokePartitions(3, tps("a-0"), deadline=130.0))
    member.calls.lost(LosePartitions(tps("a-0"), "session over"))
    member.driver.make()
    assert member.events == [PartitionsLost((("a", 0),), "session over")]
    assert member.driver.tokens == [3], "the machine knows whether it still waits for that drain"


def test_a_loss_has_as_long_as_leaving_has() -> None:
    member = Member()
    member.calls.lost(LosePartitions(tps("a-0"), "session over"))
    assert member.driver.queue[0].deadline == 100.0 + LEAVE_TIMEOUT
    assert member.calls.untold == 1
    member.driver.make()
    assert member.listener.heard == [("lost", tps("a-0"))]
    assert member.calls.untold == 0


def test_a_listener_that_ignores_rebalances_returns_at_once() -> None:
    async def every_call() -> list[None]:
        listener = IgnoreRebalances()
        return [
            await listener.on_partitions_assigned(tps("a-0")),
            await listener.on_partitions_revoked(tps("a-0"), 1.0),
            await listener.on_partitions_lost(tps("a-0")),
        ]

    assert asyncio.run(every_call()) == [None, None, None]
