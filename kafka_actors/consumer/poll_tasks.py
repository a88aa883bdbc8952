"""`PollTasks`: work that the IO thread leaves to the user's thread, which does it between two polls.

Only the user's thread knows which records are in the user's hands. So rebalances, auto-commit and errors wait for its next poll,
as with Java's consumer: the listener is called there, and the positions that are committed are those in front of the batch in
hand. `ConsumerSession.attention` says that there is something to do.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

from .rebalance import Offsets, Partitions, RebalanceKind, RebalanceNotice, callback_of

if TYPE_CHECKING:
    from .consumer_session import ConsumerSession

Callback = Callable[[], object]


class PollTasks:
    """Rebalances, auto-commit and errors of one consumer. For the user's thread."""

    def __init__(self, session: ConsumerSession) -> None:
        self._session = session
        self._auto_committed: Offsets = {}

    def attend(self) -> Iterator[Callback]:
        """Does all that is due, and yields the listener's methods that have to be called meanwhile.

        Raises the error that ended the consumer's work; `UsageError` where another thread closed it meanwhile.
        """
        session = self._session
        session.check_open()
        session.attention = False
        core = session.core
        if core.error is not None:
            session.attention = True
            raise core.error.with_traceback(None)  # again and again: it must not grow
        session.io.post(core.progress)
        while (notice := core.rebalances.next()) is not None:
            yield from self._apply(notice)
        if core.commit_due:
            core.commit_due = False
            self._auto_commit()

    def _apply(self, notice: RebalanceNotice) -> Iterator[Callback]:
        session = self._session
        if notice.what is RebalanceKind.LOST:
            # Records of them that were taken before are void; those taken since then, when they came back, are not.
            session.reader.resume(notice.partitions)
            session.reader.handed -= notice.partitions
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
                self._remove(notice.partitions)
            notice.done(offsets)

    def farewell(self) -> Iterator[Callback]:
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
        self._remove(partitions)
        self._session.attention = True
        return offsets

    def last_offsets(self, partitions: Partitions) -> Offsets:
        """Returns the positions that are committed when partitions go, in front of the batch in hand; none without
        auto-commit."""
        session = self._session
        return session.reader.safe_positions(partitions) if session.core.auto_commits else {}

    def _remove(self, partitions: Partitions) -> None:
        # At once, though the group's side does it too, once their offsets are committed: without its cursor a partition
        # seems to be read to the end of its chunk, and a commit meanwhile would say so.
        self._session.fetcher.revoke(partitions)
        self._session.reader.revoked(partitions)
        self._forget_committed(partitions)

    # ------------------------------------------------------------ auto-commit

    def _auto_commit(self) -> None:
        session = self._session
        offsets = self.last_offsets(session.assignment())
        new = {tp: offset for tp, offset in offsets.items() if self._auto_committed.get(tp) != offset}
        if new:
            self._auto_committed.update(new)
            session.io.submit(session.core.commit_quietly(new)).add_done_callback(
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
