"""Rebalances, on their way from the coordinator in the IO thread to the user's listener in the thread that polls.

The coordinator calls `RebalanceQueue` and waits for `on_partitions_revoked`; the user's thread takes the notices at its next
poll. So a partition is given up only after the batch in hand was finished and its position committed, as with Java's
consumer; and heartbeats go on meanwhile.
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
    """Callbacks for rebalances, to be subclassed by users; each method gets a sorted list of `TopicPartition`. Called in the
    thread that polls, between two polls. `AsyncConsumer` awaits the result of a method."""

    def on_partitions_revoked(self, partitions: list[TopicPartition]) -> object:
        """Called before partitions go to another member: the last chance to commit their offsets."""

    def on_partitions_assigned(self, partitions: list[TopicPartition]) -> object:
        """Called when partitions were assigned, before their first record; their positions may be moved by `seek`."""

    def on_partitions_lost(self, partitions: list[TopicPartition]) -> object:
        """Called when partitions are gone already: nothing can be committed for them. By default calls
        `on_partitions_revoked`."""
        return self.on_partitions_revoked(partitions)


class RebalanceKind(Enum):
    REVOKED = "revoked"
    ASSIGNED = "assigned"
    LOST = "lost"


class RebalanceNotice:
    """A rebalance for the user's thread to handle, which then calls `done` with the offsets to commit."""

    __slots__ = ("_finished", "_loop", "offsets", "partitions", "what")

    def __init__(self, what: RebalanceKind, partitions: Partitions) -> None:
        self.what = what
        self.partitions = partitions
        self.offsets: Offsets = {}
        self._loop = asyncio.get_running_loop()
        self._finished = asyncio.Event()

    def done(self, offsets: Offsets) -> None:
        """Passes on the offsets to commit: the user's thread has handled the notice."""
        self.offsets = offsets
        with suppress(RuntimeError):  # its loop is closed: the listener has closed the consumer
            self._loop.call_soon_threadsafe(self._finished.set)

    async def taken(self) -> None:
        """Returns when `done` was called."""
        await self._finished.wait()


class PartitionOwner(Protocol):
    """Calls of a rebalance to the consumer's part in the IO thread: `ConsumerIO`."""

    async def take_on(self, partitions: Partitions) -> None: ...
    def stop_delivery(self, partitions: Partitions) -> None: ...
    async def give_up(self, partitions: Partitions, offsets: Offsets) -> None: ...
    def lose(self, partitions: Partitions) -> None: ...


class RebalanceQueue:
    """Listens to the coordinator and queues notices for the user's thread. `on_notice` is called in the IO thread with each."""

    def __init__(self, owner: PartitionOwner, on_notice: Callable[[], None]) -> None:
        self._owner = owner
        self._on_notice = on_notice
        self._notices: deque[RebalanceNotice] = deque()
        self._lock = threading.Lock()
        self._known: Partitions = frozenset()  # assigned, as far as the user's thread has been notified
        self.unattended = False  # the user's thread takes no more notices, so none is waited for

    # ------------------------------------------------------------ called by the coordinator

    async def on_partitions_assigned(self, partitions: Partitions) -> None:
        """Starts fetching, and notifies the user before the first record is handed out."""
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
            if not self._withdraw(notice):  # the user's thread has begun with it
                self._known -= partitions
            try:
                await self._owner.give_up(partitions, notice.offsets)
            finally:
                self._notify_lost(partitions)  # if the deadline came first

    async def on_partitions_lost(self, partitions: Partitions) -> None:
        """Drops partitions at once; the user is notified at the next poll."""
        self._owner.lose(partitions)
        self._notify_lost(partitions)

    def _notify_lost(self, partitions: Partitions) -> None:
        """Notifies the user's thread of the loss of partitions that it knows."""
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
        """Lost partitions of which the user's thread has not been notified."""
        with self._lock:
            return Partitions().union(*(n.partitions for n in self._notices if n.what is RebalanceKind.LOST))

    def next(self) -> RebalanceNotice | None:
        """Returns the oldest notice and removes it; None if there is none."""
        with self._lock:
            return self._notices.popleft() if self._notices else None

    def _put(self, notice: RebalanceNotice) -> None:
        with self._lock:
            self._notices.append(notice)
        self._on_notice()

    def _withdraw(self, notice: RebalanceNotice) -> bool:
        """Removes a notice. Returns False if the user's thread has taken it already."""
        with self._lock:
            waiting = notice in self._notices
            if waiting:
                self._notices.remove(notice)
            return waiting


Callback = Callable[[list[TopicPartition]], object]


def callback_of(listener: ConsumerRebalanceListener | None, notice: RebalanceNotice) -> Callback | None:
    """Returns the listener's method for a notice."""
    if listener is None:
        return None
    methods: dict[RebalanceKind, Callback] = {
        RebalanceKind.REVOKED: listener.on_partitions_revoked,
        RebalanceKind.ASSIGNED: listener.on_partitions_assigned,
        RebalanceKind.LOST: listener.on_partitions_lost,
    }
    return methods[notice.what]


async def awaited(result: object) -> None:
    """Awaits the result of an async listener's method."""
    if isinstance(result, Awaitable):
        await result
