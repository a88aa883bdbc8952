"""Rebalances and auto-commit, between the coordinator in the IO thread and the user's thread, which polls.

The coordinator calls `RebalanceQueue` and waits for `on_partitions_revoked`; the user's thread takes the notices at its next
poll (`PollTasks`). So a partition is given up only after the batch in hand was finished and its position committed, as with
Java's consumer; and heartbeats go on meanwhile. Only the user's thread knows which records are in the user's hands, so
auto-commit and errors wait for its next poll too, and the positions that are committed are those in front of the batch in hand.
`ConsumerSession.attention` says that there is something to do.
"""

from __future__ import annotations

import asyncio
import threading
from collections import deque
from collections.abc import Awaitable, Callable, Iterator, Mapping
from contextlib import suppress
from enum import Enum
from typing import TYPE_CHECKING, Protocol

from kafka_actors.fetch import PartitionStart
from kafka_actors.fetch.messages import Epoch
from kafka_actors.types import OffsetAndMetadata, TopicPartition

if TYPE_CHECKING:
    from .consumer_session import ConsumerSession

Partitions = frozenset[TopicPartition]
Drained = Mapping[TopicPartition, Epoch]
"""Partitions to be given up, with the epochs under which they are read: the group may assign one anew before that is done."""
Offsets = dict[TopicPartition, OffsetAndMetadata]


class ConsumerRebalanceListener:
    """Callbacks for rebalances, to be subclassed by users; each method gets a sorted list of `TopicPartition`. Called in the
    thread that polls, between two polls. `AsyncConsumer` awaits the result of a method."""

    def on_partitions_revoked(self, partitions: list[TopicPartition]) -> object:
        """Called before partitions go to another member: the last chance to commit their offsets. If it outlasts the time that the group
        waits, they go all the same, and what it commits from then on is refused with `IllegalGenerationError`."""

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

    __slots__ = ("_finished", "_loop", "drained", "handled", "offsets", "partitions", "what")

    def __init__(self, what: RebalanceKind, partitions: Partitions, drained: Drained | None = None) -> None:
        self.what = what
        self.partitions = partitions
        self.drained: Drained = drained or {}
        self.offsets: Offsets = {}
        self.handled = False
        self._loop = asyncio.get_running_loop()
        self._finished = asyncio.Event()

    def done(self, offsets: Offsets) -> None:
        """Passes on the offsets to commit: the user's thread has handled the notice."""
        self.offsets = offsets
        self.handled = True
        with suppress(RuntimeError):  # its loop is closed: the listener has closed the consumer
            self._loop.call_soon_threadsafe(self._finished.set)

    async def taken(self) -> None:
        """Returns when `done` was called."""
        await self._finished.wait()


class PartitionOwner(Protocol):
    """Calls of a rebalance to the consumer's part in the IO thread: `ConsumerIO`."""

    async def starts(self, partitions: Partitions) -> dict[TopicPartition, PartitionStart]: ...
    def begin_fetching(self, starts: Mapping[TopicPartition, PartitionStart]) -> None: ...
    def stop_delivery(self, partitions: Partitions) -> Drained: ...
    async def commit_and_revoke(self, drained: Drained, offsets: Offsets) -> None: ...
    def lose(self, partitions: Partitions) -> None: ...


class RebalanceQueue:
    """Listens to the coordinator and queues notices for the user's thread. `on_notice` is called in the IO thread with each."""

    def __init__(self, owner: PartitionOwner, on_notice: Callable[[], None]) -> None:
        self._owner = owner
        self._on_notice = on_notice
        self._notices: deque[RebalanceNotice] = deque()
        self._lock = threading.RLock()
        self._known: Partitions = frozenset()  # assigned, as far as the user's thread has been notified
        self._awaited: RebalanceNotice | None = None
        self._of_gone: list[RebalanceNotice] = []  # with the user's thread: their partitions are gone already
        self._attended = True

    # ------------------------------------------------------------ called by the coordinator

    async def on_partitions_assigned(self, partitions: Partitions) -> None:
        """Starts fetching, and notifies the user before the first record is handed out.

        Whoever has taken a record of these partitions sees the notice, and whoever has taken the notice may seek: the one is there
        before the other, and neither is seen alone.
        """
        if partitions:
            self._known -= partitions
            starts = await self._owner.starts(partitions)
            self._known |= partitions
            with self._lock:
                self._put(RebalanceNotice(RebalanceKind.ASSIGNED, partitions))
                self._owner.begin_fetching(starts)

    async def on_partitions_revoked(self, partitions: Partitions, deadline_s: float) -> None:
        """Drains, commits, gives up: in this order. The coordinator bounds the wait by `deadline_s`."""
        drained = self._owner.stop_delivery(partitions)
        notice = RebalanceNotice(RebalanceKind.REVOKED, partitions & self._known, drained)
        try:
            if notice.partitions and self._attended:
                self._awaited = notice
                self._put(notice)
                await notice.taken()
        finally:
            known = self._forget(partitions)
            # The deadline came before the user's thread had begun with it.
            late = self._withdraw(notice)
            if self._awaited is notice and not late:
                # Before the member's next generation, in which offsets would be taken.
                self._begun_of_gone(notice)
            self._awaited = None
            try:
                await self._owner.commit_and_revoke(drained, notice.offsets)
            finally:
                if late:
                    self._notify_lost(known)

    async def on_partitions_lost(self, partitions: Partitions) -> None:
        """Drops partitions at once; the user is notified at the next poll."""
        self._owner.lose(partitions)
        self._notify_lost(self._forget(partitions))

    def _forget(self, partitions: Partitions) -> Partitions:
        """Takes partitions from those that the user's thread knows. Returns the ones that it knew."""
        known = partitions & self._known
        self._known -= known
        return known

    def _notify_lost(self, lost: Partitions) -> None:
        """Notifies the user's thread of the loss of these partitions, if there are any."""
        if lost and self._attended:
            self._put(RebalanceNotice(RebalanceKind.LOST, lost))

    # ------------------------------------------------------------ called by the consumer's part in the IO thread

    def wait_for_user(self, attended: bool) -> None:
        """Says whether the user's thread takes notices: if not, partitions go without it, also those that wait for it now. It has been told
        of the end of all of them by then."""
        self._attended = attended
        if not attended:
            with self._lock:
                self._notices.clear()
            if self._awaited is not None:
                self._awaited.done(self._awaited.offsets)

    # ------------------------------------------------------------ called by the user's thread

    @property
    def pending(self) -> bool:
        """Whether there is a notice."""
        return bool(self._notices)

    @property
    def lost(self) -> Partitions:
        """Partitions that are gone, and of which the user's thread has not handled a notice: lost ones, and those of a revocation
        whose listener is at work beyond its time."""
        with self._lock:
            told = [n for n in self._notices if n.what is RebalanceKind.LOST]
            told += [n for n in self._of_gone if not n.handled]
            return Partitions().union(*(n.partitions for n in told))

    @property
    def handling_loss(self) -> bool:
        """Whether the user's thread is at a notice of partitions that are gone: in `on_partitions_lost`, or beyond the time of
        `on_partitions_revoked`."""
        return any(not notice.handled for notice in self._of_gone)

    def next(self) -> RebalanceNotice | None:
        """Returns the oldest notice and removes it; None if there is none."""
        with self._lock:
            notice = self._notices.popleft() if self._notices else None
            if notice is not None and notice.what is RebalanceKind.LOST:
                self._begun_of_gone(notice)
            return notice

    def _begun_of_gone(self, notice: RebalanceNotice) -> None:
        """Notes a notice that the user's thread is at, or has just handled, and whose partitions are gone."""
        with self._lock:
            self._of_gone = [each for each in (*self._of_gone, notice) if not each.handled]

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


ListenerCall = Callable[[], object]

COMMITTED_AGAIN = 6
"""Auto-commits, of partitions assigned by hand, until offsets that have not changed are committed again: a group without members loses
them `offsets.retention.minutes` after their last commit, though they are consumed (KIP-211)."""


class PollTasks:
    """Rebalances, auto-commit and errors of one consumer. For the user's thread."""

    def __init__(self, session: ConsumerSession) -> None:
        self._session = session
        self._auto_committed: Offsets = {}
        self._auto_commits = 0

    def attend(self) -> Iterator[ListenerCall]:
        """Does all that is due, and yields the listener's methods that have to be called meanwhile.

        Raises the error that ended the consumer's work; `UsageError` where another thread closed it meanwhile, or nothing is to be read
        any more.
        """
        session = self._session
        session.check_open()
        session.attention = False
        session.check_open()  # another thread may have closed it in between: then this was its call for attention
        core = session.core
        session.io.post(core.progress)
        while (notice := core.rebalances.next()) is not None:
            yield from self._apply(notice)
        # Not before: a topic that may not be read ends no membership, and the group waits for this one.
        if core.error is not None:
            session.attention = True
            raise core.error.with_traceback(None)  # again and again: it must not grow
        if core.commit_due:
            core.commit_due = False
            self._auto_commit()
        session.check_wanted()

    def _apply(self, notice: RebalanceNotice) -> Iterator[ListenerCall]:
        session = self._session
        if notice.what is RebalanceKind.LOST:
            # Records of them that were taken before are void; those taken since then, when they came back, are not.
            session.reader.lost(notice.partitions)
            self._forget_committed(notice.partitions)
        offsets: Offsets = {}
        try:
            callback = callback_of(session.listener, notice)
            if callback is not None and notice.partitions:
                partitions = sorted(notice.partitions)
                yield lambda: callback(partitions)
        finally:
            # An exception of the listener reaches the user, but the group doesn't wait for it.
            if notice.what is RebalanceKind.REVOKED:
                offsets = self.last_offsets(notice.partitions)
                session.fetcher.release(notice.drained)
                self._forget(notice.partitions)
            notice.done(offsets)

    def farewell(self) -> Iterator[ListenerCall]:
        """Yields the listener's methods to call before the consumer leaves: for notices that wait, and for all partitions that
        the listener knows."""
        session = self._session
        unknown = Partitions()
        while (notice := session.core.rebalances.next()) is not None:
            if notice.what is RebalanceKind.ASSIGNED:
                unknown |= notice.partitions
            else:
                notice.partitions -= unknown
                yield from self._apply(notice)
        partitions = sorted(session.assignment() - unknown)
        listener = session.listener
        if partitions and listener is not None and session.subscription.uses_group:
            yield lambda: listener.on_partitions_revoked(partitions)

    def drop(self, partitions: Partitions) -> Offsets:
        """Stops reading partitions. Returns the offsets to commit of them."""
        offsets = self.last_offsets(partitions)
        self._session.fetcher.revoke(partitions)
        self._forget(partitions)
        self._session.attention = True
        return offsets

    def last_offsets(self, partitions: Partitions) -> Offsets:
        """Returns the positions that are committed when partitions go, in front of the batch in hand; none without
        auto-commit."""
        session = self._session
        return session.reader.safe_positions(partitions) if session.core.auto_commits else {}

    def _forget(self, partitions: Partitions) -> None:
        # After the fetcher was rid of them, for which the group's side waits until their offsets are committed: without its
        # cursor a partition seems to be read to the end of its chunk, and a commit meanwhile would say so.
        self._session.reader.revoked(partitions)
        self._forget_committed(partitions)

    # ------------------------------------------------------------ auto-commit

    def _auto_commit(self) -> None:
        session = self._session
        self._auto_commits += 1
        if self._auto_commits % COMMITTED_AGAIN == 0 and not session.subscription.uses_group:
            self._auto_committed.clear()
        offsets = self.last_offsets(session.assignment())
        new = {tp: offset for tp, offset in offsets.items() if self._auto_committed.get(tp) != offset}
        if new:
            self._auto_committed.update(new)
            try:
                sending = session.io.submit(session.core.commit_quietly(new))
            except RuntimeError:
                session.check_open()  # another thread has closed it
                raise
            sending.add_done_callback(
                lambda sent: self._auto_commit_answered(
                    new, not sent.cancelled() and sent.exception() is None and sent.result()
                )
            )

    def _auto_commit_answered(self, offsets: Offsets, taken: bool) -> None:
        """Has failed offsets committed again by the next auto-commit, also if nothing new was read. Called in the IO thread."""
        if not taken:
            for tp in offsets:
                self._auto_committed.pop(tp, None)

    def _forget_committed(self, partitions: Partitions) -> None:
        for tp in partitions:
            self._auto_committed.pop(tp, None)
