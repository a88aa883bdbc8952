"""`JobCoordinator`: a job's coordinator without Ray, between the Kafka group and the job's workers.

`ConsumerCoordinator` is the member of the group; `Placement` spreads its partitions over the workers; `CommitGate` decides
whose commits count. Workers call `poll` and `commit`, the supervisor calls the rest. The coordinator never waits for a
worker: a drain ends when the worker reports, or at its deadline.

`JobCoordinator` has the group's side and the worker plan, `WorkerOrders` the workers' side, and `CoordinatorStatusReport` the
status. `JobCommits` puts what workers offer into one OffsetCommit at a time, and answers each worker for its own entries.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Mapping

from msgspec.structs import replace

from kafka_actors.config import JobConfig
from kafka_actors.errors import KafkaActorsError
from kafka_actors.events import Event, EventSink, PartitionNotRead
from kafka_actors.group import ConsumerCoordinator
from kafka_actors.job.lanes import source
from kafka_actors.job.machines import lease
from kafka_actors.job.messages import (
    CommitEntry,
    CommitReply,
    CommitRequest,
    CoordinatorStatus,
    Orders,
    Report,
    WorkerPlan,
    failure_of,
)
from kafka_actors.job.retry_topics import RetryTiers
from kafka_actors.job.transactions import TransactionalIds
from kafka_actors.telemetry.recorder import Recorder
from kafka_actors.telemetry.spans import committing
from kafka_actors.types import TopicPartition

from .broker_queries import LogEndLookup
from .context import CoordinatorContext
from .machines.settlement import Settlement
from .orders import WorkerOrders
from .status import CoordinatorStatusReport
from .transactions import JobTransactions, TransactionBrokers

__all__ = ["JobCommits", "JobCoordinator"]

logger = logging.getLogger(__name__)


class JobCommits:
    """Sends what `CommitGate` lets through. How that differs from the `CommitQueue` below it: see there."""

    def __init__(self, job: CoordinatorContext) -> None:
        self._job = job
        self._gate = job.gate
        self._wanted = asyncio.Event()
        self._waiters: list[asyncio.Future[None]] = []
        self._traces: list[str] = []
        self._sequences: dict[str, int] = {}
        """The number of each worker's newest request."""

    async def commit(self, request: CommitRequest) -> CommitReply:
        """Waits for the broker's acknowledgement of a worker's entries, or says which are refused or failed."""
        entries = [self._of_slice(request.worker, entry) for entry in request.entries]
        if request.sequence < self._sequences.get(request.worker, 0):
            return self._overtaken(request, entries)
        self._sequences[request.worker] = request.sequence
        refused = set(self._gate.offer(request.worker, entries))
        if request.trace:
            self._traces.append(request.trace)
        entries = [e for e in entries if e.partition not in refused]
        self._begun_anew(entries)
        problem = ""
        if entries:
            try:
                async with asyncio.timeout(self._job.config.request_timeout_ms / 1000):
                    await self.answered()
            except (TimeoutError, KafkaActorsError) as error:
                problem = str(error) or "no answer in time"
        done = [e for e in entries if self._gate.is_committed(e)]
        failed = [(source(e.partition), problem or "not committed yet") for e in entries if e not in done]
        gone = [e for e in entries if self._gate.is_gone(e) and e not in done]
        done, gone = ([replace(e, partition=source(e.partition)) for e in those] for those in (done, gone))
        return CommitReply(request.sequence, done, sorted(map(source, refused)), failed, gone=gone)

    def _overtaken(self, request: CommitRequest, entries: list[CommitEntry]) -> CommitReply:
        """Answers a request that came behind a later one of its worker: it would take back what is done beyond an offset."""
        held = {source(e.partition): self._gate.holds(request.worker, e) for e in entries}
        late = [(partition, "a later request has come before it") for partition, own in held.items() if own]
        return CommitReply(request.sequence, [], sorted(p for p, own in held.items() if not own), late)

    def _begun_anew(self, entries: list[CommitEntry]) -> None:
        """Takes positions that were reset: of a partition that is drained, no report may say so any more."""
        for entry in entries:
            held = self._job.held.get(entry.partition)
            if held is not None and (entry.rewind or held.topic_id != entry.topic_id):
                self._job.held[entry.partition] = replace(
                    held, processed=entry.offset, topic_id=entry.topic_id
                )

    def _of_slice(self, worker: str, entry: CommitEntry) -> CommitEntry:
        """Returns the entry of the slice that a worker has of a partition. It names the partition."""
        held = self._job.held_by(worker, entry.partition)
        return entry if held is None else replace(entry, partition=held[0])

    async def answered(self) -> None:
        """Returns once everything offered so far has been answered by the broker."""
        waiter: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiters.append(waiter)
        self._wanted.set()
        await waiter

    async def run(self) -> None:
        """Sends what is offered, one request after the other."""
        group = self._job.config.group_id
        while True:
            await self._wanted.wait()
            self._wanted.clear()
            # Before what is offered is taken: what is lost meanwhile is not committed.
            await self._job.member.learn_topic_ids(self._gate.offered)
            waiters, self._waiters = self._waiters, []
            offsets = self._gate.take()
            outcome: Mapping[TopicPartition, Exception | None] = {}
            try:
                if offsets:
                    traces, self._traces = self._traces, []
                    with committing(group, requested_by=traces):
                        outcome = await self._job.member.commit_offsets_sync(offsets)
            except KafkaActorsError as error:
                logger.warning("group %s: commit failed: %s", group, error)
                outcome = dict.fromkeys(offsets, error)
            self._job.placement.begin_anew(map(self._job.tiers.home, self._gate.finished(outcome)))
            self._job.wake()
            for waiter in waiters:
                if not waiter.done():
                    waiter.set_result(None)


RECOVERY_S = 3.0
"""Time for which a new incarnation waits for a worker that was still starting, and so had no lease."""
COMMIT_GRACE_S = 1.0
LEAVE_S = 2.0


class JobCoordinator:
    """Coordinates one job: joins the group, grants partitions to workers, sends their commits.

    `make_member(listener)` makes the group's member. `ends`: the end offset of each partition of a bounded run, None
    without bounds. `present_at_start`: partitions that existed when the job started; any other is read from its beginning,
    whatever the reset policy. `lookup_ends` and `lookup_starts` ask the brokers where the logs end and begin now.
    `leader` returns the broker that a partition is read from. `transactions`: of a job that delivers exactly once, its ids and the brokers.
    `tiers`: its retry topics; `partition_counts`: how many partitions each topic has now. `clock`: monotonic seconds; `wall`: seconds since 1970.
    """

    def __init__(
        self,
        config: JobConfig,
        incarnation: int,
        make_member: Callable[[JobCoordinator], ConsumerCoordinator],
        *,
        ends: Mapping[TopicPartition, int] | None,
        present_at_start: frozenset[TopicPartition],
        lookup_ends: LogEndLookup,
        lookup_starts: LogEndLookup,
        events: EventSink,
        leader: Callable[[TopicPartition], int | None] = lambda partition: None,
        transactions: tuple[TransactionalIds, TransactionBrokers] | None = None,
        tiers: RetryTiers | None = None,
        partition_counts: Callable[[], Mapping[str, int]] = dict,
        recorder: Recorder | None = None,
        clock: Callable[[], float] = time.monotonic,
        wall: Callable[[], float] = time.time,  # wall clock: the timeline shows the time of day
    ) -> None:
        self._config = config
        settlement = None if transactions is None else Settlement(incarnation)
        self._job = CoordinatorContext(
            config,
            incarnation,
            self.failed,
            ends=ends,
            events=events,
            recorder=recorder or Recorder(),
            clock=clock,
            wall=wall,
            settlement=settlement,
            tiers=tiers,
            partition_counts=partition_counts,
        )
        self._transactions: JobTransactions | None = None
        if settlement is not None and transactions is not None:
            self._transactions = JobTransactions(self._job, settlement, *transactions)
            self._job.follow(settlement, self._transactions.carry_out)
        self._placement = self._job.placement
        self._gate = self._job.gate
        self._member = self._job.member = make_member(self)
        self._status_report = CoordinatorStatusReport(
            self._job, lookup_ends=lookup_ends, lookup_starts=lookup_starts, leader=leader
        )
        self._orders = WorkerOrders(self._job, self._status_report, present_at_start, self._transactions)
        self._commits = JobCommits(self._job)

    # ------------------------------------------------------------ life

    async def start(self, plan: WorkerPlan, recovering: bool) -> None:
        """Begins to join the group. `recovering`: workers may still hold partitions that an older incarnation granted; one
        that was up may do so until its lease ends, even if it is silent and nobody has noticed yet."""
        tasks, now = self._job.tasks, self._job.clock()
        if recovering:  # before anything is decided: the first poll would fence workers that go on
            leased = dict.fromkeys(
                [*plan.ready, *plan.silent], now + lease.longest(self._config.session_timeout_ms / 1000)
            )
            self._placement.recovery.begin(dict.fromkeys(plan.capacities, now + RECOVERY_S) | leased)
        await self.set_plan(plan)
        if self._transactions is not None:
            self._transactions.start(plan.roles, recovering)
        tasks.create_task(self._job.run())
        tasks.create_task(self._commits.run())
        tasks.create_task(self._member.start())

    def failed(self, error: BaseException) -> None:
        """Ends the job's work because the member can't go on: fenced, not authorized, inconsistent protocols…"""
        logger.error("group %s: %s: %s", self._config.group_id, type(error).__name__, error)
        self._job.fatal = self._job.fatal or failure_of(error)
        self._placement.lose(self._placement.slices.sources())
        self._job.wake()

    async def stop(self, leave: bool) -> None:
        """Drains all workers within the drain timeout, commits, and leaves the group if `leave`. Takes at most
        `COMMIT_GRACE_S` and `LEAVE_S` longer, whether brokers answer or not."""
        job, drain_s = self._job, self._config.drain_timeout_ms / 1000
        drained_by = job.clock() + drain_s
        await job.recovered(drained_by - drain_s / 2)
        job.partitions_at_stop = sorted(job.partitions())
        if job.fatal is None:
            await self._drain(frozenset(self._placement.slices.sources()), drained_by - job.clock())
        job.unconfirmed = self._gate.unconfirmed(job.told())
        job.tasks.cancel()
        left_s = max(LEAVE_S, drained_by + COMMIT_GRACE_S + LEAVE_S - job.clock())
        await self._member.close(autocommit=False, leave=leave, timeout_ms=left_s * 1000)

    # ------------------------------------------------------------ the group's side (RebalanceListener)

    async def on_partitions_assigned(self, partitions: frozenset[TopicPartition]) -> None:
        self._job.rebalances += 1
        partitions = self._job.tiers.homes(partitions)
        if self._transactions is None:
            await self._find_starts(self._job.tiers.groups(partitions))
        self._placement.assign(partitions)
        self._job.assigned_once = True
        self._status_report.assigned()
        if self._placement.recovery.active:
            for report in self._job.reports.values():
                self._orders.adopt(report, partitions)
        self._job.poll()
        self._job.wake()

    async def _find_starts(self, partitions: frozenset[TopicPartition]) -> None:
        known = {p: self._gate.committed.get(p) for p in partitions}
        starts = await self._member.fetch_committed_starts(list(partitions)) if partitions else {}
        # Workers may hold these partitions already: a commit made meanwhile is newer than the answer.
        self._gate.baseline(
            {p: s.committed for p, s in starts.items() if self._gate.committed.get(p) is known[p]}
        )
        self._job.take_starts(starts)

    async def on_partitions_revoked(self, partitions: frozenset[TopicPartition], deadline_s: float) -> None:
        timeout = min(deadline_s, self._config.drain_timeout_ms / 1000)
        partitions = self._job.tiers.homes(partitions)
        try:
            await self._drain(partitions, timeout)
        finally:
            self._gate.give_up(self._job.tiers.groups(partitions))
            self._placement.lose(partitions)  # those that a forced drain has left
            self._forget(partitions)
            self._job.poll()

    async def on_partitions_lost(self, partitions: frozenset[TopicPartition]) -> None:
        partitions = self._job.tiers.homes(partitions)
        self._gate.forget(self._job.tiers.groups(partitions))
        self._placement.lose(partitions)
        self._forget(partitions)
        self._job.poll()

    def recreated(self, partitions: frozenset[TopicPartition]) -> None:
        """Takes that topics were made anew. A worker finds that by its own position, and goes on in the new one; what was committed counts no
        more. What several workers share begins with one of them, with all that goes with it, as where nothing was committed: once the others
        have let go of it, because they may call on with records of the new one until they hear of this."""
        slices, tiers = self._placement.slices, self._job.tiers
        shared = frozenset(p for p in partitions if len(slices.of(tiers.home(p))) > 1)
        self._gate.recreated(partitions - shared)
        self._gate.give_up(tiers.groups(frozenset(map(tiers.home, shared))))
        self._gate.forget(shared)
        self._job.poll()

    def reads(self) -> frozenset[TopicPartition]:
        """Returns the partitions that count as read: those that a worker has, and those that rightly wait for one; without those whose retry
        partitions are missing. A retry partition is read by whoever has its source, whatever the group assigns."""
        served, tiers = self._placement.served(), self._job.tiers
        if not tiers:
            return served
        read = frozenset(each for each in served if not self._job.lacking(each))
        return read.union(each for each in self._job.member.assignment if tiers.tier(each.topic))

    def commits(self, partitions: frozenset[TopicPartition]) -> frozenset[TopicPartition]:
        """Returns what is committed by the member that has these: a retry partition by whoever has its source, whatever the group assigns."""
        return self._job.tiers.groups(self._job.tiers.homes(partitions))

    def _forget(self, partitions: frozenset[TopicPartition]) -> None:
        partitions = self._job.tiers.groups(partitions)
        for partition in partitions:
            self._job.committed_starts.pop(partition, None)
        self._orders.forget(partitions)
        self._status_report.forget(partitions)

    async def _drain(self, partitions: frozenset[TopicPartition], timeout_s: float) -> None:
        """Takes partitions from the workers. Returns when all are released and their last commits acknowledged, or in time."""
        deadline = self._job.clock() + timeout_s
        self._placement.revoke(partitions, deadline)
        self._job.poll()
        while self._placement.still_leaving(partitions):
            await self._job.wait_for_change(0.1)
        if self._gate.waiting or self._gate.busy:
            try:
                async with asyncio.timeout(max(COMMIT_GRACE_S, deadline - self._job.clock())):
                    await self._commits.answered()
            except TimeoutError:
                logger.warning(
                    "group %s: the last commit of a drain had no answer in time", self._config.group_id
                )

    def happened(self, event: Event) -> None:
        """Publishes an event of the group's member, to the log and the timeline."""
        if isinstance(event, PartitionNotRead):
            lacking = self._job.lacking(TopicPartition(event.topic, event.partition))
            event = replace(event, reason=lacking or event.reason)
        self._job.happened(event)

    # ------------------------------------------------------------ the supervisor's side

    async def set_plan(self, plan: WorkerPlan) -> None:
        """Takes the supervisor's worker plan. Workers no longer in it are dead: their partitions move at once."""
        job, placement = self._job, self._placement
        if plan.version < job.plan.version:
            return
        before, job.plan = job.plan, plan
        placement.held_back = not plan.complete
        placement.gathering.expected = plan.expected
        self._status_report.follow(plan)
        if before.paused and not plan.paused:
            self._orders.unpaused()
        for worker, capacity in plan.capacities.items():
            placement.set_worker(
                worker,
                capacity=capacity,
                retiring=worker in plan.retiring,
                silent=worker in plan.silent,
                connected=worker not in plan.unconnected,
            )
        for worker in [w for w in placement.workers if w not in plan.capacities]:
            placement.remove_worker(worker, silent=worker in plan.silent)
            if (last := job.reports.pop(worker, None)) is not None:
                retired = worker in before.retiring  # it has committed since
                self._status_report.gone(last if retired else self._died(last))
        job.poll()

    def _died(self, last: Report) -> Report:
        if self._transactions is None or last.transactions is None:
            return last
        return replace(last, transactions=self._transactions.died(last.worker, last.transactions))

    def status(self, partitions: bool = True, known: int = 0) -> CoordinatorStatus:
        """Returns the group, its workers, the timeline after entry `known`, and, if `partitions`, each partition and the
        latency."""
        return self._status_report.status(partitions, known)

    async def verdict(self, known: int, wait_s: float) -> CoordinatorStatus:
        """Returns the status without partitions, as soon as the supervisor has to act on it, or after `wait_s`."""
        deadline = self._job.clock() + wait_s
        while not self._status_report.decides() and self._job.clock() < deadline:
            await self._job.wait_for_change(deadline - self._job.clock())
        return self.status(partitions=False, known=known)

    # ------------------------------------------------------------ the workers' side

    async def poll(self, report: Report) -> Orders:
        """Takes a worker's report. Returns its orders as soon as they are newer than those it has seen, or after `wait_s`."""
        return await self._orders.poll(report)

    async def commit(self, request: CommitRequest) -> CommitReply:
        """Commits a worker's offsets. Returns when the broker has answered: which are committed, refused, or failed."""
        if self._transactions is not None:
            return self._transactions.commit(request)
        return await self._commits.commit(request)

    def __repr__(self) -> str:
        return f"<JobCoordinator {self._config.group_id} {self._placement!r}>"
