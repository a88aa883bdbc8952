"""`Worker`, without Ray: polls the coordinator for orders, fetches, calls the user's function, commits.

Four tasks share one event loop: orders (each poll carries a report to the coordinator, and a lease back), metadata, commits,
and work, which runs the processing thread. The user's code runs in that thread only.
"""

from __future__ import annotations

import asyncio
import logging
import threading
import time
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import TYPE_CHECKING

from kafka_actors.base.callables import described
from kafka_actors.base.tasks import OwnedTasks, woken
from kafka_actors.cluster import ClusterSnapshot
from kafka_actors.config import JobConfig
from kafka_actors.errors import DisconnectedError, KafkaActorsError
from kafka_actors.events import Event, EventSink, OffsetReset
from kafka_actors.fetch import Fetcher, FetchProgress, PartitionStart
from kafka_actors.job.actor_setup import CoordinatorLink, MetadataLink
from kafka_actors.job.machines.lease import Lease
from kafka_actors.job.messages import CommitRequest, Grant, HeldReport, Orders, Report, WorkerPong, failure_of
from kafka_actors.telemetry.attributes import of_cluster
from kafka_actors.telemetry.machines.latency import Counts
from kafka_actors.telemetry.recorder import Recorder
from kafka_actors.telemetry.spans import ProcessSpans, committing
from kafka_actors.types import TopicPartition

from .call_record import CallRecord
from .machines.worker_assignment import HeldPartition, HeldState, WorkerAssignment, report_of
from .processing import make_processing
from .user_function import FunctionSpec, UserFunction, Wait

if TYPE_CHECKING:
    from .transactions import WorkerTransactions

__all__ = ["Worker"]

logger = logging.getLogger(__name__)

RECONNECT_S = 0.02
LONG_POLL_S = 1.0
UNBEGUN_S = 0.1  # between commits until the group has an offset of each partition, which can be shared then
WATERMARKS_S = 0.25
"""Interval of reports where partitions are dealt in slices: the workers' windows move with each other's."""


class Worker:
    """One worker of a job. `make_fetcher(events, on_ready)` makes its fetcher; `on_metadata` gets each new snapshot."""

    def __init__(
        self,
        name: str,
        spec: FunctionSpec,
        config: JobConfig,
        coordinator: CoordinatorLink,
        metadata: MetadataLink,
        make_fetcher: Callable[[EventSink, Callable[[], None]], Fetcher],
        *,
        on_metadata: Callable[[ClusterSnapshot], None],
        events: EventSink,
        recorder: Recorder | None = None,
        call_record: CallRecord | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.name = name
        self._config = config
        self._coordinator = coordinator
        self._metadata = metadata
        self._on_metadata = on_metadata
        self._events = events
        self._clock = clock
        self._lock = threading.Lock()
        self._assignment = WorkerAssignment()
        self._lease = Lease()
        self._fetcher = make_fetcher(self._on_event, lambda: self._processing.wake())
        self._function = UserFunction(spec, config)
        self._spans = ProcessSpans(config.group_id, config.client_id)
        self._snapshot: ClusterSnapshot | None = None
        self._transactions = self._make_transactions(recorder or Recorder())
        self._processing, self._async_calls = make_processing(
            self._function,
            self._assignment,
            self._lease,
            self._fetcher,
            config,
            lock=self._lock,
            events=events,
            on_progress=self._on_progress,
            on_failure=lambda error: self._soon(self._fail, error),
            recorder=recorder,
            spans=self._spans,
            call_record=call_record,
            cut=None if self._transactions is None else self._transactions.sessions,
            clock=clock,
        )
        self._wait: Wait = asyncio.run if self._async_calls is None else self._async_calls.calls.wait
        self._async_thread: asyncio.Future[None] | None = None
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="processing")
        self._loop: asyncio.AbstractEventLoop | None = None
        self._tasks = OwnedTasks(self._fail)
        self._commit_now = asyncio.Event()
        self._sequence = 0
        self._ready = self._draining = self._dealt = False
        self._failed: bytes | None = None

    def _make_transactions(self, recorder: Recorder) -> WorkerTransactions | None:
        if self._function.outputs.slot is None:
            return None
        from .transactions import WorkerTransactions  # imports a producer

        return WorkerTransactions(
            self.name,
            self._config,
            self._function,
            self._assignment,
            self._lock,
            self._coordinator,
            snapshot=lambda: self._snapshot,
            on_end=lambda dropped: self._soon(self._dropped, dropped),
            on_final=lambda error: self._soon(self._fail, error),
            recorder=recorder,
            clock=self._clock,
        )

    def _soon(self, call: Callable[..., object], *args: object) -> None:
        if self._loop is not None:
            self._loop.call_soon_threadsafe(call, *args)

    # ------------------------------------------------------------ life

    async def start(self) -> None:
        """Makes the user's class in the processing thread, then begins to work. Raises what its constructor raises."""
        self._loop = asyncio.get_running_loop()
        self._tasks.create_task(self._orders_loop())  # polls begin at once: its class may take long to make
        self._tasks.create_task(self._metadata_loop())
        try:
            await self._loop.run_in_executor(self._thread, self._function.make)
        except Exception as error:
            self._fail(error)
            raise
        self._ready = True
        if self._async_calls is not None:
            self._async_thread = self._loop.run_in_executor(self._thread, self._async_calls.calls.serve)
        await self._fetcher.start()
        self._tasks.create_task(self._commit_loop())
        self._tasks.create_task(self._work_loop())

    async def close(self) -> None:
        """Ends all tasks and closes the user's object. Commits nothing: draining comes before."""
        self._processing.stop()
        await self._tasks.ended()
        if self._transactions is not None:  # first: the processing thread may wait for the end of one
            await asyncio.to_thread(self._transactions.sessions.close)
        await self._fetcher.close()
        if self._async_calls is not None and self._async_thread is not None:
            self._async_calls.calls.stop()
            await self._async_thread
        elif self._loop is not None and self._ready:
            await self._loop.run_in_executor(self._thread, self._function.close)
        self._thread.shutdown(wait=False, cancel_futures=True)

    def _fail(self, error: BaseException) -> None:
        """Reports the error, with which the job ends. Offsets of records that were processed before are still committed."""
        if self._failed is None:
            logger.error("worker %s failed: %s", self.name, described(error))
            self._failed = failure_of(error)
            self._commit_now.set()
            self._tasks.create_task(self._report_now())

    def pong(self, wiring: int, tally: bytes = b"") -> WorkerPong:
        """Makes the answer to a ping. `wiring`: the version of the worker's wiring."""
        busy_s = self._processing.counters.busy_s(self._clock(), self._function.waits_for)
        return WorkerPong(wiring, busy_s, self._ready, tally)

    @property
    def buffered(self) -> int:
        """Fetched bytes that are not processed yet."""
        return self._fetcher.buffered

    @property
    def latency(self) -> Counts:
        """Records by the bucket of their latency, since the worker's start."""
        return dict(self._processing.counters.latency.counts)  # one copy: the processing thread counts on

    # ------------------------------------------------------------ orders

    async def _orders_loop(self) -> None:
        while True:
            if not await self._report_now(WATERMARKS_S if self._dealt else LONG_POLL_S):
                await asyncio.sleep(RECONNECT_S)

    async def _report_now(self, wait_s: float = 0.0) -> bool:
        """Polls the coordinator once and applies its orders. Returns whether it answered."""
        polled_at = self._clock()
        try:
            orders = await self._coordinator.poll(self._report(wait_s))
        except DisconnectedError:
            return False
        self._lease.renew(polled_at, orders.lease_s)
        await self._apply(orders)
        return True

    def _report(self, wait_s: float) -> Report:
        self._processing.note_waiting()
        with self._lock:
            progress = self._fetch_progress(self._assignment.held)
            holdings = [self._report_of(held, progress[each]) for each, held in self._assignment.held.items()]
            seen = self._assignment.seen
            transactions = None if self._transactions is None else self._transactions.sessions.report()
        counters = self._processing.counters
        return Report(
            self.name,
            seen,
            self._ready,
            holdings,
            counters.records,
            counters.value_bytes,
            self._failed,
            wait_s,
            counters.work_s(self._clock()),
            self.latency,
            transactions,
            self._function.new_schemas(),
        )

    def _report_of(self, held: HeldPartition, progress: FetchProgress) -> HeldReport:
        partition, processing = held.partition, self._processing
        blocked = processing.blocked(partition) or self._function.waits_for(partition)
        if held.state is HeldState.HALTED:
            blocked = "failed: its function raised, and was not to be called again"
        commits = self._transactions is not None
        return report_of(held, progress, blocked, processing.window(partition), commits=commits)

    def _fetch_progress(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, FetchProgress]:
        """Returns the fetcher's progress. Its positions go into the assignment, so that those without records are committed too."""
        progress = self._fetcher.progress(partitions)
        for partition, at in progress.items():
            if at.position is not None:
                self._assignment.positioned(partition, at.position, at.leader_epoch)
        return progress

    async def _apply(self, orders: Orders) -> None:
        self._processing.paused = orders.paused
        if orders.watermarks or not orders.hold:  # a new coordinator that holds its orders knows none yet
            self._processing.follow(orders.watermarks)
            self._dealt = bool(orders.watermarks)
        with self._lock:
            changes = self._assignment.apply(orders)
            if self._transactions is not None:
                changes = self._transactions.sessions.follow(orders, changes)
        self._fetcher.drain(changes.drain)
        self._fetcher.revoke(changes.drop)
        self._processing.forget(changes.drop)
        if changes.begin:
            self._processing.suspect(died for g in changes.begin for died in g.died)
            self._fetcher.assign({grant.partition: self._start_of(grant) for grant in changes.begin})
            if self._config.lanes > 1:  # the commit loop may sleep for longer than `UNBEGUN_S`
                self._commit_now.set()
        if changes.drain:
            self._draining = True
            self._commit_now.set()

    def _start_of(self, grant: Grant) -> PartitionStart:
        end = self._function.outputs.tiers.read_to(grant.partition, grant.end_offset)
        where = grant.epoch, grant.offset, grant.leader_epoch, end
        return PartitionStart(*where, grant.from_start, grant.topic_id, grant.parts > 1)

    # ------------------------------------------------------------ metadata

    async def _metadata_loop(self) -> None:
        known = None
        while True:
            try:
                snapshot = await self._metadata.watch(known)
            except DisconnectedError:
                await asyncio.sleep(RECONNECT_S)
                continue
            if snapshot is not known:
                known = self._snapshot = snapshot
                self._spans.where = of_cluster(snapshot.cluster_id)
                self._on_metadata(snapshot)
                self._fetcher.update_metadata(snapshot)

    # ------------------------------------------------------------ commits

    def _on_progress(self, ended: bool) -> None:
        """Has the next commit come at once, in the processing thread, while a partition drains, and at a bounded one's end."""
        if (ended or self._draining) and self._loop is not None:
            self._loop.call_soon_threadsafe(self._commit_now.set)

    async def _commit_loop(self) -> None:
        interval, shares = self._config.auto_commit_interval_ms / 1000, self._config.lanes > 1
        while True:
            await woken(self._commit_now, UNBEGUN_S if shares and self._assignment.unbegun else interval)
            self._commit_now.clear()
            await self._commit()
            await self._release()

    async def _commit(self) -> None:
        with self._lock:
            self._fetch_progress([p for p, held in self._assignment.held.items() if held.processed is None])
            self._processing.note_done()
            entries, at_once = self._assignment.commits(), self._draining or self._failed is not None
        if not entries or not self._lease.valid(self._clock()):
            return
        if self._transactions is not None:
            await self._commit_transaction(self._transactions, at_once=at_once)
            return
        if not await self._flushed() or not self._lease.valid(self._clock()):
            return
        self._sequence += 1
        try:
            with committing(self._config.group_id, self._spans.take(), where=self._spans.where) as trace:
                request = CommitRequest(self.name, self._sequence, entries, at_once, trace)
                reply = await self._coordinator.commit(request)
        except DisconnectedError:
            await asyncio.sleep(RECONNECT_S)
            return
        with self._lock:
            self._assignment.committed(reply)

    async def _commit_transaction(self, transactions: WorkerTransactions, *, at_once: bool) -> None:
        try:
            if not await transactions.commit(partial(self._function.flush, self._wait), at_once=at_once):
                await asyncio.sleep(RECONNECT_S)
                self._commit_now.set()
        except Exception as error:  # of the user's flush
            self._flush_failed(error)

    def _dropped(self, partitions: list[TopicPartition]) -> None:
        """Takes that partitions were dropped with their transaction; the coordinator has to know at once."""
        gone = [partition for partition in partitions if partition not in self._assignment.held]
        self._fetcher.revoke(gone)
        self._processing.forget(gone)
        self._tasks.create_task(self._report_now())

    async def _flushed(self) -> bool:
        """Flushes results before their offsets are committed, beside the processing thread, which may be in a long call."""
        try:
            if self._function.flushes:
                await asyncio.to_thread(self._function.flush, self._wait)
        except Exception as error:
            self._flush_failed(error)
            return False
        return True

    def _flush_failed(self, error: BaseException) -> None:
        with self._lock:
            self._assignment.stop_commits()
        self._fail(error)

    async def _release(self) -> None:
        """Releases drained partitions, and reports to the coordinator without them."""
        if not self._draining:
            return
        with self._lock:
            self._processing.note_done()  # what calls have done since the last commit is committed first
            released = self._assignment.release_drained()
            self._draining = self._assignment.draining
            waiting = self._assignment.drain_waits_for_commit
        if released:
            self._fetcher.revoke(released)
            self._processing.forget(released)
            await self._report_now()
        if waiting:
            self._commit_now.set()
            await asyncio.sleep(RECONNECT_S)

    # ------------------------------------------------------------ work

    async def _work_loop(self) -> None:
        """Runs the processing thread, which takes fetched items by itself, one partition at a time; or the calls of an async function."""
        try:
            if self._async_calls is not None:
                await self._async_calls.work()
            else:
                await asyncio.get_running_loop().run_in_executor(self._thread, self._processing.run)
        except KafkaActorsError as error:
            self._fail(error)

    def _on_event(self, event: Event) -> None:
        if isinstance(event, OffsetReset):
            partition = TopicPartition(event.topic, event.partition)
            topic_id, cut = self._fetcher.topic_id(partition), event.reason == "truncated"
            leader_epoch = self._fetcher.position_epoch(partition)
            with self._lock:
                self._processing.note_done()
                back = self._assignment.reset(partition, event.new, topic_id, leader_epoch, cut=cut)
            if back is not None:
                self._fetcher.seek(partition, *back)
        self._events(event)

    def __repr__(self) -> str:
        return f"<Worker {self.name} {self._assignment!r}>"
