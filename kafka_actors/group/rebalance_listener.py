"""Rebalance listeners: the Protocol that users implement, and the calls of one member's listener."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable
from typing import Protocol

from kafka_actors.events import EventSink, PartitionsAssigned, PartitionsLost, PartitionsRevoked
from kafka_actors.types import TopicPartition

from .machines.member_events import LosePartitions, Partitions, RevokePartitions
from .machines.unread_partitions import UntakenPartitions
from .member_driver import LEAVE_TIMEOUT, ListenerCall, MemberDriver


class RebalanceListener(Protocol):
    """Learns of a member's partitions as they come and go. One call at a time, in the order of events.

    Heartbeats go on meanwhile. An exception ends the membership.
    """

    async def on_partitions_assigned(self, partitions: frozenset[TopicPartition]) -> None:
        """A new assignment has come; `partitions` are those that are new, none where only others changed."""

    async def on_partitions_revoked(self, partitions: frozenset[TopicPartition], deadline_s: float) -> None:
        """The partitions have to be drained, and committed through the coordinator, before this returns.

        It is cancelled after `deadline_s` seconds, when the partitions go without.
        """

    async def on_partitions_lost(self, partitions: frozenset[TopicPartition]) -> None:
        """The partitions are taken away already: nothing about them can be committed any more."""


class IgnoreRebalances:
    """A listener that does nothing."""

    async def on_partitions_assigned(self, partitions: frozenset[TopicPartition]) -> None:
        """Does nothing."""

    async def on_partitions_revoked(self, partitions: frozenset[TopicPartition], deadline_s: float) -> None:
        """Does nothing."""

    async def on_partitions_lost(self, partitions: frozenset[TopicPartition]) -> None:
        """Does nothing."""


class RebalanceCalls:
    """Makes the calls of a consumer's rebalance listener, in order, and publishes the events about its partitions.

    before_revoke: called before the listener is, with the partitions to revoke and the deadline.
    """

    def __init__(
        self,
        driver: MemberDriver,
        listener: RebalanceListener,
        before_revoke: Callable[[Partitions, float], Awaitable[None]],
        events: EventSink,
    ) -> None:
        self._driver = driver
        self._listener = listener
        self._before_revoke = before_revoke
        self._events = events
        self._revoking: Partitions = frozenset()
        self.untaken = UntakenPartitions()
        """Partitions that are assigned, and that the listener has not taken on yet."""
        self.untold = 0
        """Number of losses that the listener has not been told of yet: the member may be in the next generation already."""

    def assigned(self, generation: int, added: Partitions) -> None:
        """Has the listener take on what is new."""
        self._events(PartitionsAssigned(generation, _sorted(added)))
        self._driver.calls.put(self._assigned_call(self.untaken.assigned(added)))

    def revoke(self, action: RevokePartitions) -> None:
        """Has the listener give partitions up until the deadline."""
        self.untaken.gone(action.partitions)
        self._revoking |= action.partitions
        self._driver.calls.put(self._revoke_call(action))

    def lost(self, action: LosePartitions) -> None:
        """Tells the listener that partitions are gone."""
        listener, partitions = self._listener, action.partitions
        self.untaken.gone(partitions)
        self._revoking -= partitions
        self._events(PartitionsLost(_sorted(partitions), action.reason))
        deadline = self._driver.now() + LEAVE_TIMEOUT
        self.untold += 1

        def told() -> None:
            self.untold -= 1

        self._driver.calls.put(
            ListenerCall(
                lambda: listener.on_partitions_lost(partitions), "on_partitions_lost", deadline, told
            )
        )

    def _assigned_call(self, number: int, *, again: bool = False) -> ListenerCall:
        """Makes the call for that assignment. It is made again, for what is still owned, if it is cut off."""

        async def take_on() -> None:
            partitions = self.untaken.up_to(number)
            if partitions or not again:
                await self._listener.on_partitions_assigned(frozenset(partitions))
            self.untaken.taken(partitions)

        def over() -> None:
            ending = self._driver.fatal is not None or self._driver.machine.leaving
            if self.untaken.up_to(number) and not ending:
                self._driver.calls.put(self._assigned_call(number, again=True))

        return ListenerCall(take_on, "on_partitions_assigned", after=over, yields=True)

    def _revoke_call(self, action: RevokePartitions) -> ListenerCall:
        partitions, deadline = action.partitions, action.deadline

        async def revoke() -> None:
            await self._before_revoke(partitions, deadline)
            await self._listener.on_partitions_revoked(partitions, max(0.0, deadline - self._driver.now()))

        def released() -> None:
            gone = partitions & self._revoking  # without those that were lost meanwhile
            self._revoking -= gone
            if gone:
                self._events(PartitionsRevoked(self._driver.machine.generation.id, _sorted(gone)))
            self._driver.released(action.token)

        return ListenerCall(revoke, "on_partitions_revoked", deadline, released)


def _sorted(partitions: Iterable[TopicPartition]) -> tuple[tuple[str, int], ...]:
    return tuple((tp.topic, tp.partition) for tp in sorted(partitions))
