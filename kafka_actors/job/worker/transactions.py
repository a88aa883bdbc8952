"""`WorkerTransactions`: ends a worker's transactions, with the offsets of all that was processed in them.

The worker asks the coordinator whether it may, and under which membership of the group; makes the cut, adds the offsets (TxnOffsetCommit),
ends the transaction (EndTxn), and gives the cut back. An answer that doesn't come is waited for, since nobody else knows better.
"""

from __future__ import annotations

import asyncio
import concurrent.futures
import logging
import threading
import time
from collections.abc import Callable
from typing import NamedTuple

from kafka_actors.cluster import ClusterSnapshot
from kafka_actors.config import JobConfig
from kafka_actors.errors import DisconnectedError, KafkaActorsError
from kafka_actors.group.commit_metadata import pack
from kafka_actors.job.actor_setup import CoordinatorLink
from kafka_actors.job.messages import CommitEntry, CommitReply, CommitRequest, GrantEpoch
from kafka_actors.producer.machines.transaction_errors import REFUSED_MEMBERSHIP
from kafka_actors.telemetry.recorder import Recorder
from kafka_actors.types import ConsumerGroupMetadata, OffsetAndMetadata, TopicPartition

from .machines.worker_assignment import WorkerAssignment
from .producer_sessions import ProducerSession, ProducerSessions
from .user_function import UserFunction

__all__ = ["WorkerTransactions"]

logger = logging.getLogger(__name__)

AGAIN_S = 0.05
ASK_S = 5.0
"""Time for a new membership while a transaction waits to be ended; then the commit is tried again later."""


class FlushFailed(Exception):
    """Raised for an error of the user's `flush`, `cause`, which is none of the transaction: the next one would end alike."""

    def __init__(self, cause: Exception) -> None:
        super().__init__(cause)
        self.cause = cause


class Permission(NamedTuple):
    """Leave to commit these partitions, each under its epoch, as this member of the group."""

    group: ConsumerGroupMetadata
    held: frozenset[tuple[TopicPartition, GrantEpoch]]

    def covers(self, entries: list[CommitEntry]) -> bool:
        """Whether all of these may be committed."""
        return all((entry.partition, entry.epoch) in self.held for entry in entries)


class WorkerTransactions:
    """Transactions of one worker: its `sessions`, and their commits. `lock` guards `assignment`; `snapshot` returns the cluster's
    metadata, for that of offsets. Other arguments as for `ProducerSessions`."""

    def __init__(
        self,
        worker: str,
        config: JobConfig,
        function: UserFunction,
        assignment: WorkerAssignment,
        lock: threading.Lock,
        coordinator: CoordinatorLink,
        *,
        snapshot: Callable[[], ClusterSnapshot | None],
        on_end: Callable[[list[TopicPartition]], None],
        on_final: Callable[[BaseException], None],
        recorder: Recorder,
        clock: Callable[[], float],
    ) -> None:
        self.sessions = ProducerSessions(
            worker,
            config,
            function,
            assignment,
            lock,
            on_end=on_end,
            on_final=on_final,
            recorder=recorder,
            clock=clock,
        )
        self._worker = worker
        self._assignment = assignment
        self._lock = lock
        self._coordinator = coordinator
        self._snapshot = snapshot
        self._clock = clock
        self._sequence = 0

    # ------------------------------------------------------------ in the worker's loop

    async def commit(self, flush: Callable[[], None], *, at_once: bool) -> bool:
        """Ends the transaction, with all that was processed since the last one. `flush()` flushes the user's object; its errors are
        raised. Returns False where it has to be tried again soon."""
        session = self.sessions.present
        if session is None:
            return True
        loop = asyncio.get_running_loop()
        try:
            if session.opened_at is not None:
                await asyncio.to_thread(session.producer.flush)  # before the cut, which then waits for little
            permission = await self._permission(session, at_once)
            if permission is None:
                return False
            entries = await asyncio.to_thread(self._transact, session, permission, flush, loop)
        except FlushFailed as failed:
            raise failed.cause from None
        except KafkaActorsError as error:
            await asyncio.to_thread(self.sessions.fail, session, error)
            return True
        if entries:
            await self._tell(session, entries)
        return entries is not None

    async def _permission(self, session: ProducerSession, at_once: bool = False) -> Permission | None:
        """Asks whether this worker may commit what it holds now. Returns None where it may not now. Of a refused partition the
        coordinator's orders will say that it is not the worker's any more, or under which epoch it is."""
        with self._lock:
            entries = [
                CommitEntry(h.partition, h.epoch, h.processed)
                for h in self._assignment.held.values()
                if h.processed is not None
            ]
        try:
            reply = await self._ask(session, entries, at_once=at_once)
        except DisconnectedError:
            return None
        if reply.group is None:
            return None
        may = frozenset((e.partition, e.epoch) for e in entries if e.partition not in reply.refused)
        return Permission(reply.group, may)

    async def _ask(
        self,
        session: ProducerSession,
        entries: list[CommitEntry],
        *,
        at_once: bool = False,
        done: bool = False,
    ) -> CommitReply:
        self._sequence += 1
        return await self._coordinator.commit(
            CommitRequest(self._worker, self._sequence, entries, at_once, session=session.number, done=done)
        )

    async def _tell(self, session: ProducerSession, entries: list[CommitEntry]) -> None:
        """Tells what was committed; reports repeat it."""
        try:
            await self._ask(session, entries, done=True)
        except DisconnectedError:
            pass

    # ------------------------------------------------------------ in a thread

    def _transact(
        self,
        session: ProducerSession,
        permission: Permission,
        flush: Callable[[], None],
        loop: asyncio.AbstractEventLoop,
    ) -> list[CommitEntry] | None:
        """Makes the cut and ends the transaction. Returns what was committed; None where it has to be tried again."""
        with self.sessions.cut:
            with self._lock:
                if self.sessions.present is not session:
                    return []
                entries = self._assignment.commits()
            if not entries:
                return []
            if not permission.covers(entries):
                return None
            try:
                flush()
            except Exception as error:
                raise FlushFailed(error) from error
            self.sessions.begin(session)
            if not self._send_offsets(session, permission, entries, loop):
                return None
            session.producer.commit_until_known()
            self.sessions.committed(session, entries)
            return entries

    def _send_offsets(
        self,
        session: ProducerSession,
        permission: Permission | None,
        entries: list[CommitEntry],
        loop: asyncio.AbstractEventLoop,
    ) -> bool:
        """Adds the offsets to the transaction, under the newest membership: a rebalance alone aborts nothing. Returns whether the
        group's coordinator has taken them; if not, it has taken none."""
        offsets = {entry.partition: self._offset(entry) for entry in entries}
        deadline = self._clock() + ASK_S
        while True:
            if permission is not None and permission.covers(entries):
                try:
                    session.producer.send_offsets(offsets, permission.group)
                    return True
                except REFUSED_MEMBERSHIP as error:
                    logger.debug("worker %s: %s", self._worker, error)
            if self._clock() > deadline or self.sessions.present is not session:
                return False
            time.sleep(AGAIN_S)
            asked = asyncio.run_coroutine_threadsafe(self._permission(session), loop)
            try:
                permission = asked.result(max(0.0, deadline - self._clock()))
            except concurrent.futures.TimeoutError:
                asked.cancel()
                return False

    def _offset(self, entry: CommitEntry) -> OffsetAndMetadata:
        snapshot = self._snapshot()
        metadata = ""
        if snapshot is not None:
            topic_id = entry.topic_id or snapshot.topic_id(entry.partition.topic)
            metadata = pack("", topic_id, snapshot.cluster_id, done=entry.done)
        return OffsetAndMetadata(entry.offset, metadata, entry.leader_epoch)
