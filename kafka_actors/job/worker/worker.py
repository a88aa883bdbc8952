"""A worker without Ray: asks the coordinator for orders, fetches, processes on its processing, commits.

Four loops share one event loop: orders (which also carry reports up and the lease down), metadata, commits,
and work, which hands fetched bytes to the processing's thread. The user's code runs on that thread only.
"""

from __future__ import annotations

import asyncio
import logging
import threading
import time
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from typing import Protocol

from kafka_actors.base.tasks import OwnedTasks, woken
from kafka_actors.cluster import ClusterSnapshot
from kafka_actors.config import JobConfig
from kafka_actors.errors import DisconnectedError, KafkaActorsError
from kafka_actors.events import Event, EventSink, OffsetReset
from kafka_actors.fetch import Fetcher, FetchProgress, PartitionStart
from kafka_actors.job.machines.lease import Lease
from kafka_actors.job.messages import CommitReply, CommitRequest, Orders, Report, WorkerPong, failure_of
from kafka_actors.telemetry.attributes import of_cluster
from kafka_actors.telemetry.machines.latency import Counts
from kafka_actors.telemetry.recorder import Recorder
from kafka_actors.telemetry.spans import ProcessSpans, committing
from kafka_actors.types import TopicPartition

from .async_processing import AsyncProcessing
from .call_record import CallRecord
from .machines.worker_assignment import HeldPartition, HeldState, WorkerAssignment, report_of
from .processing_thread import ProcessingThread
from .user_function import FunctionSpec, UserFunction

__all__ = ["CoordinatorLink", "MetadataLink", "Worker"]

logger = logging.getLogger(__name__)

RECONNECT_S = 0.02
LONG_POLL_S = 1.0


class CoordinatorLink(Protocol):
    """Calls to the coordinator. Both raise `DisconnectedError` while there is none."""

    async def poll(self, report: Report) -> Orders: ...

    async def commit(self, request: CommitRequest) -> CommitReply: ...


class MetadataLink(Protocol):
    """Calls to the metadata actor. Raises `DisconnectedError` while there is none."""

    async def watch(self, known: ClusterSnapshot | None) -> ClusterSnapshot:
        """Returns a snapshot newer than `known`, or `known` itself after a while."""
        ...


class Worker:
    """One worker of a job. `make_fetcher(events, on_ready)` builds its fetcher over whatever sources there are."""

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
        self._processing = ProcessingThread(
            self._function,
            self._assignment,
            self._lease,
            self._fetcher,
            lock=self._lock,
            batch_rows=config.batch_rows,
            linger_s=config.batch_linger_ms / 1000,
            events=events,
            on_progress=self._on_progress,
            recorder=recorder,
            group=config.group_id,
            spans=self._spans,
            call_record=call_record,
            clock=clock,
        )
        self._overlapping = (
            AsyncProcessing(self._processing, self._function, self._fetcher, clock) if spec.is_async else None
        )
        self._serving: asyncio.Future[None] | None = None
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="processing")
        self._loop: asyncio.AbstractEventLoop | None = None
        self._tasks = OwnedTasks(self._fail)
        self._commit_now = asyncio.Event()
        self._sequence = 0
        self._ready = False
        self._draining = False
        self._failed: bytes | None = None

    # ------------------------------------------------------------ life

    async def start(self) -> None:
        """Makes the user's class on the processing's thread, then begins to work. Raises what its constructor raises."""
        self._loop = asyncio.get_running_loop()
        # Orders are asked for at once: the coordinator learns of the worker while the class is being made.
        self._tasks.create_task(self._orders_loop())
        self._tasks.create_task(self._metadata_loop())
        try:
            await self._loop.run_in_executor(self._thread, self._function.make)
        except Exception as error:
            self._fail(error)
            raise
        self._ready = True
        if self._overlapping is not None:
            self._serving = self._loop.run_in_executor(self._thread, self._overlapping.serve)
        await self._fetcher.start()
        self._tasks.create_task(self._commit_loop())
        self._tasks.create_task(self._work_loop())

    async def close(self) -> None:
        """Ends the loops and closes the user's object; nothing is committed here."""
        self._processing.leave()
        await self._tasks.ended()
        await self._fetcher.close()
        if self._overlapping is not None and self._serving is not None:
            self._overlapping.stop()
            await self._serving
        elif self._loop is not None and self._ready:
            await self._loop.run_in_executor(self._thread, self._function.close)
        self._thread.shutdown(wait=False, cancel_futures=True)

    def _fail(self, error: BaseException) -> None:
        """The job is to end with this error; what was processed before it is still committed."""
        if self._failed is None:
            logger.error("worker %s failed: %s: %s", self.name, type(error).__name__, error)
            self._failed = failure_of(error)
            self._commit_now.set()
            self._tasks.create_task(self._tell())

    def pong(self, wiring: int, tally: bytes = b"") -> WorkerPong:
        return WorkerPong(wiring, self._processing.counters.busy_s(self._clock()), self._ready, tally)

    @property
    def buffered(self) -> int:
        """Bytes that are fetched and not processed yet."""
        return self._fetcher.buffered

    @property
    def latency(self) -> Counts:
        """Records by the bucket of their latency, since the start."""
        return dict(self._processing.counters.latency.counts)  # at one go: the processing counts on

    # ------------------------------------------------------------ orders

    async def _orders_loop(self) -> None:
        while True:
            if not await self._report_now(LONG_POLL_S):
                await asyncio.sleep(RECONNECT_S)

    async def _tell(self) -> None:
        await self._report_now()

    async def _report_now(self, wait_s: float = 0.0) -> bool:
        """One exchange with the coordinator. Returns whether it answered."""
        asked_at = self._clock()
        try:
            orders = await self._coordinator.poll(self._report(wait_s))
        except DisconnectedError:
            return False
        self._lease.renew(asked_at, orders.lease_s)
        await self._apply(orders)
        return True

    def _report(self, wait_s: float) -> Report:
        self._processing.look()
        with self._lock:
            standings = self._standings(self._assignment.held)
            holdings = [
                report_of(held, standings[partition], self._blocked(held))
                for partition, held in self._assignment.held.items()
            ]
            seen = self._assignment.seen
        progress = self._processing.counters
        return Report(
            self.name,
            seen,
            self._ready,
            holdings,
            progress.records,
            progress.value_bytes,
            self._failed,
            wait_s,
            progress.work_s(self._clock()),
            self.latency,
        )

    def _blocked(self, held: HeldPartition) -> str:
        if held.state is HeldState.HALTED:
            return "failed: its function raised, and was not to be called again"
        return self._processing.blocked(held.partition)

    def _standings(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, FetchProgress]:
        """Where partitions stand, which the holdings learn: one that has delivered nothing yet still has a position, and
        the group should know it."""
        standings = self._fetcher.standings(partitions)
        for partition, standing in standings.items():
            if standing.position is not None:
                self._assignment.positioned(partition, standing.position)
        return standings

    async def _apply(self, orders: Orders) -> None:
        self._processing.paused = orders.paused
        with self._lock:
            changes = self._assignment.apply(orders)
        self._fetcher.drain(changes.drain)
        self._fetcher.revoke(changes.drop)
        self._processing.forget(changes.drop)
        if changes.begin:
            self._processing.suspect(g.died for g in changes.begin if g.died is not None)
            self._fetcher.assign(
                {
                    g.partition: PartitionStart(
                        g.epoch, g.offset, g.leader_epoch, g.end_offset, g.from_start, g.topic_id
                    )
                    for g in changes.begin
                }
            )
        if changes.drain:
            self._draining = True
            self._commit_now.set()

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
                known = snapshot
                self._spans.where = of_cluster(snapshot.cluster_id)
                self._on_metadata(snapshot)
                self._fetcher.update_metadata(snapshot)

    # ------------------------------------------------------------ commits

    def _on_progress(self, ended: bool) -> None:
        """Called on the processing's thread after each call of the user's function. The end of a bounded partition, too,
        is not to wait for the next commit in turn."""
        if (ended or self._draining) and self._loop is not None:
            self._loop.call_soon_threadsafe(self._commit_now.set)

    async def _commit_loop(self) -> None:
        interval = self._config.auto_commit_interval_ms / 1000
        while True:
            await woken(self._commit_now, interval)
            self._commit_now.clear()
            await self._commit()
            await self._release()

    async def _commit(self) -> None:
        with self._lock:
            self._standings([p for p, held in self._assignment.held.items() if held.processed is None])
            entries = self._assignment.commits()
            at_once = self._draining or self._failed is not None
        if not entries or not self._lease.valid(self._clock()):
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

    async def _flushed(self) -> bool:
        """Makes results safe before their offsets are committed, beside the processing: it may be in a long call."""
        if not self._function.flushes:
            return True
        try:
            wait = asyncio.run if self._overlapping is None else self._overlapping.wait
            await asyncio.to_thread(self._function.flush, wait)
        except Exception as error:
            with self._lock:
                self._assignment.stop_commits()
            self._fail(error)
            return False
        return True

    async def _release(self) -> None:
        """Tells the coordinator which drained partitions are let go of."""
        if not self._draining:
            return
        with self._lock:
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
        try:
            await (self._work_in_turn() if self._overlapping is None else self._overlapping.work())
        except KafkaActorsError as error:
            self._fail(error)

    async def _work_in_turn(self) -> None:
        """One partition at a time: the processing's thread takes what comes by itself."""
        assert self._loop is not None  # start() has set it
        await self._loop.run_in_executor(self._thread, self._processing.run)

    # ------------------------------------------------------------ events

    def _on_event(self, event: Event) -> None:
        if isinstance(event, OffsetReset):
            partition = TopicPartition(event.topic, event.partition)
            topic_id = self._fetcher.topic_id(partition)
            with self._lock:
                self._assignment.positioned(partition, event.new, rewind=True, topic_id=topic_id)
        self._events(event)

    def __repr__(self) -> str:
        return f"<Worker {self.name} {self._assignment!r}>"
