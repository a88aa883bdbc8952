"""Rebalances, as the user's thread sees them: it is told between two polls, and what it has in hand is done then.

The coordinator calls `RebalanceQueue` in the IO thread and waits for `on_partitions_revoked`; the user's thread works
the notices off at its next poll. So a partition is given up only after the batch in hand was finished and its
position committed, as with Java's consumer; and heartbeats go on meanwhile.
"""

from __future__ import annotations

import asyncio
import threading
from collections import deque
from collections.abc import Awaitable, Callable
from contextlib import suppress
from enum import Enum
from typing import Protocol

from kafka_actors.types import OffsetAndMetadata, TopicPartition

Partitions = frozenset[TopicPartition]
Offsets = dict[TopicPartition, OffsetAndMetadata]


class ConsumerRebalanceListener:
    """To be subclassed by users; each method gets a sorted list of `TopicPartition`. Called in the thread that
    polls, between two polls. `AsyncConsumer` awaits what a method returns."""

    def on_partitions_revoked(self, partitions: list[TopicPartition]) -> object:
        """They go to another member: the last chance to commit what was done on them."""

    def on_partitions_assigned(self, partitions: list[TopicPartition]) -> object:
        """They are this consumer's from now on; their positions may be moved by `seek`."""

    def on_partitions_lost(self, partitions: list[TopicPartition]) -> object:
        """They are gone already, and nothing about them can be committed. By default as if they were revoked."""
        return self.on_partitions_revoked(partitions)


class RebalanceKind(Enum):
    REVOKED = "revoked"
    ASSIGNED = "assigned"
    LOST = "lost"


class RebalanceNotice:
    """One thing for the user's thread to take in. `done` is to be called with the offsets to commit."""

    __slots__ = ("_finished", "_loop", "offsets", "partitions", "what")

    def __init__(self, what: RebalanceKind, partitions: Partitions) -> None:
        self.what = what
        self.partitions = partitions
        self.offsets: Offsets = {}
        self._loop = asyncio.get_running_loop()
        self._finished = asyncio.Event()

    def done(self, offsets: Offsets) -> None:
        """The user's thread took it in."""
        self.offsets = offsets
        with suppress(RuntimeError):  # its loop is closed: the listener has closed the consumer
            self._loop.call_soon_threadsafe(self._finished.set)

    async def taken(self) -> None:
        """Returns when `done` was called."""
        await self._finished.wait()


class PartitionOwner(Protocol):
    """What a rebalance needs of the consumer's core, in the IO thread."""

    async def take_on(self, partitions: Partitions) -> None: ...
    def stop_delivery(self, partitions: Partitions) -> None: ...
    async def give_up(self, partitions: Partitions, offsets: Offsets) -> None: ...
    def lose(self, partitions: Partitions) -> None: ...


class RebalanceQueue:
    """The coordinator's listener. `on_notice` is called in the IO thread when the user's thread should look."""

    def __init__(self, owner: PartitionOwner, on_notice: Callable[[], None]) -> None:
        self._owner = owner
        self._on_notice = on_notice
        self._notices: deque[RebalanceNotice] = deque()
        self._lock = threading.Lock()
        self._known: Partitions = frozenset()  # what the user's thread has heard of, and not that it is gone
        self.unattended = False  # the user's thread won't come any more: nobody is waited for

    # ------------------------------------------------------------ called by the coordinator

    async def on_partitions_assigned(self, partitions: Partitions) -> None:
        """Starts fetching, and tells the user before the first record of them is handed out."""
        if partitions:
            self._known -= partitions
            await self._owner.take_on(partitions)
            self._known |= partitions
            self._put(RebalanceNotice(RebalanceKind.ASSIGNED, partitions))

    async def on_partitions_revoked(self, partitions: Partitions, deadline_s: float) -> None:
        """Drains, commits, gives up: in this order. The coordinator bounds the wait by `deadline_s`."""
        self._owner.stop_delivery(partitions)
        notice = RebalanceNotice(RebalanceKind.REVOKED, partitions & self._known)
        try:
            if notice.partitions and not self.unattended:
                self._put(notice)
                await notice.taken()
        finally:
            if not self._forget(notice):  # the user's thread has begun with it
                self._known -= partitions
            try:
                await self._owner.give_up(partitions, notice.offsets)
            finally:
                self._tell_lost(partitions)  # if the deadline came first

    async def on_partitions_lost(self, partitions: Partitions) -> None:
        """Drops everything about them at once; the user learns of it at the next poll."""
        self._owner.lose(partitions)
        self._tell_lost(partitions)

    def _tell_lost(self, partitions: Partitions) -> None:
        """Tells the user's thread of those that it has heard of, and not that they are gone."""
        lost = partitions & self._known
        self._known -= lost
        if lost:
            self._put(RebalanceNotice(RebalanceKind.LOST, lost))

    # ------------------------------------------------------------ called by the user's thread

    @property
    def pending(self) -> bool:
        """Whether there is a notice."""
        return bool(self._notices)

    @property
    def lost(self) -> Partitions:
        """What was lost and the user's thread has not heard of."""
        with self._lock:
            return Partitions().union(*(n.partitions for n in self._notices if n.what is RebalanceKind.LOST))

    def next(self) -> RebalanceNotice | None:
        """The oldest notice, out of the queue."""
        with self._lock:
            return self._notices.popleft() if self._notices else None

    def _put(self, notice: RebalanceNotice) -> None:
        with self._lock:
            self._notices.append(notice)
        self._on_notice()

    def _forget(self, notice: RebalanceNotice) -> bool:
        """Whether the user's thread had not begun with it."""
        with self._lock:
            waiting = notice in self._notices
            if waiting:
                self._notices.remove(notice)
            return waiting


Callback = Callable[[list[TopicPartition]], object]


def callback_of(listener: ConsumerRebalanceListener | None, notice: RebalanceNotice) -> Callback | None:
    """The listener's method for a notice."""
    if listener is None:
        return None
    methods: dict[RebalanceKind, Callback] = {
        RebalanceKind.REVOKED: listener.on_partitions_revoked,
        RebalanceKind.ASSIGNED: listener.on_partitions_assigned,
        RebalanceKind.LOST: listener.on_partitions_lost,
    }
    return methods[notice.what]


async def awaited(result: object) -> None:
    """Awaits what an async listener's method returned."""
    if isinstance(result, Awaitable):
        await result
