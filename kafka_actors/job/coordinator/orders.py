"""`WorkerOrders`, the workers' side of a coordinator: takes reports, returns orders."""

from __future__ import annotations

from collections.abc import Iterable

from kafka_actors.events import PartitionStalled
from kafka_actors.group import CommittedStart
from kafka_actors.group.commit_metadata import unpack
from kafka_actors.job.lanes import Slice, source
from kafka_actors.job.machines import lease
from kafka_actors.job.messages import CommitEntry, Drain, Grant, HeldReport, Orders, Report
from kafka_actors.job.retry_topics import WAITS
from kafka_actors.types import TopicPartition

from .context import CoordinatorContext
from .machines.placement import PlacedPartition, PlacementState
from .machines.stalls import StallDetector
from .status import CoordinatorStatusReport
from .transactions import JobTransactions

__all__ = ["WorkerOrders"]

GRANTED = frozenset({PlacementState.GRANTED})
DRAINING = frozenset({PlacementState.DRAINING, PlacementState.LEAVING})
HELD = GRANTED | DRAINING
NO_STALL = (*WAITS, "waits for the registry")
"""Kinds of the reasons for which a partition doesn't move and isn't stalled."""


class WorkerOrders:
    """Answers the polls of all workers. Partitions not in `present_at_start` are read from their beginning, whatever the reset
    policy."""

    def __init__(
        self,
        job: CoordinatorContext,
        status_report: CoordinatorStatusReport,
        present_at_start: frozenset[TopicPartition],
        transactions: JobTransactions | None = None,
    ) -> None:
        self._job = job
        self._placement = job.placement
        self._status_report = status_report
        self._present_at_start = present_at_start
        self._transactions = transactions
        self._stalls = StallDetector(job.config.max_poll_interval_ms / 1000)

    async def poll(self, report: Report) -> Orders:
        """Takes a worker's report. Returns its orders as soon as they are newer than those it has seen, or after `wait_s`."""
        job = self._job
        if report.worker in self._placement.workers:
            await self._take_report(report)
        deadline = job.clock() + report.wait_s
        while not self._news_for(report) and job.clock() < deadline:
            await job.wait_for_change(deadline - job.clock())
        return self._orders(report)

    def unpaused(self) -> None:
        """Restarts the stall detection at the end of a pause."""
        self._stalls.restart(self._job.clock())

    def forget(self, partitions: Iterable[TopicPartition]) -> None:
        """Drops partitions that the group took away."""
        gone = set(partitions)
        self._forget_held([each for each in self._job.held if source(each) in gone])

    def _forget_held(self, partitions: Iterable[TopicPartition]) -> None:
        for partition in partitions:
            self._job.held.pop(partition, None)
            self._stalls.forget(partition)

    # ------------------------------------------------------------ reports

    def _news_for(self, report: Report) -> bool:
        return self._placement.version(report.worker) > report.seen

    async def _take_report(self, report: Report) -> None:
        job, worker = self._job, report.worker
        newer = job.reports.get(worker)
        if newer is not None and newer.seen > report.seen:
            return
        job.reports[worker] = report
        if self._transactions is not None:
            self._transactions.reported(report)
        for seen in report.new_schemas:  # by each worker; once for the job
            if seen not in job.new_schemas:
                job.new_schemas.add(seen)
                job.happened(seen)
        if self._placement.slices.slicing.lanes > 1:
            placed = self._placement.partitions
            self._forget_held([each for each in job.held if job.tiers.home(each) not in placed])
        for holding in report.holdings:
            held = job.held_by(worker, holding.partition)
            if held is not None and held[1] == holding.epoch:
                job.held[held[0]] = holding
                if holding.committed is not None:
                    job.gate.committed_elsewhere([_committed(holding, holding.committed)])
                self._status_report.end_seen(holding.partition)
                self._watch_for_stalls(worker, held[0], holding)
        if report.ready:
            self._placement.worker_ready(worker)
        if self._placement.recovery.active:
            self.adopt(report, job.tiers.homes(job.member.assignment))
        self._placement.reported(worker, report.seen, report.holdings)
        job.poll()
        if report.failed is not None:
            job.wake()

    def adopt(self, report: Report, partitions: frozenset[TopicPartition]) -> None:
        """Takes that a worker goes on with what an older incarnation gave it, its session included."""
        if report.transactions is not None and report.seen[0] == self._placement.incarnation:
            self._placement.settlement.adopt(report.worker, report.transactions.session)
        self._placement.adopt(report.worker, report.seen, report.holdings, partitions)

    def _watch_for_stalls(self, worker: str, partition: TopicPartition, holding: HeldReport) -> None:
        """Drains and grants a partition again that has records to read but has not moved for the maximal poll interval."""
        if self._job.plan.paused:
            return
        if holding.blocked.startswith(NO_STALL) or self._is_worked_on(holding.partition):
            self._stalls.forget(partition)
            return
        now = self._job.clock()
        end = self._status_report.to_read(holding.partition, holding.end)
        stalled = self._stalls.observe(partition, worker, holding.processed, end, now)
        if stalled is not None:
            reason = holding.blocked or "no progress"
            self._job.happened(PartitionStalled(partition.topic, partition.partition, stalled, reason))
            self._placement.regrant(self._job.tiers.home(partition), now)

    def _is_worked_on(self, partition: TopicPartition) -> bool:
        """Whether calls with records of a partition, or of any of its slices, are in hand or wait to be made again. Each may last for the
        maximal poll interval by itself, as its worker's supervisor sees, and the pauses between them are bounded by the options."""
        windows = (
            held.window for each in self._job.slices_of(partition) if (held := self._job.held.get(each))
        )
        return any(window is not None and (window.calls or window.parked) for window in windows)

    # ------------------------------------------------------------ orders

    def _orders(self, report: Report) -> Orders:
        worker, lease_s, paused = report.worker, self._lease_s(), self._job.plan.paused
        version, groups = self._placement.version(worker), self._job.tiers.group
        self._placement.leased(worker, self._job.clock() + lease_s)
        if worker not in self._placement.workers:
            # Considered dead, and its partitions have gone to others: it has to drop all, whatever it has seen.
            return Orders(max(version, report.seen), [], [], 0.0, paused)
        if self._placement.recovery.awaits(worker):
            return Orders(version, [], [], lease_s, paused, hold=True)
        watermarks = self._watermarks(worker)
        if report.seen == version:
            return Orders(version, [], [], lease_s, paused, hold=True, watermarks=watermarks)
        return Orders(
            version,
            [
                self._grant(s, each)
                for s in self._placement.held(worker, GRANTED)
                for each in groups(s.partition)
            ],
            [
                self._drain(s, each)
                for s in self._placement.held(worker, DRAINING)
                for each in groups(s.partition)
            ],
            lease_s,
            paused,
            producer=None if self._transactions is None else self._placement.settlement.session_of(worker),
            watermarks=watermarks,
        )

    def _watermarks(self, worker: str) -> list[tuple[TopicPartition, int]]:
        """Returns up to where each partition is done of which a worker has a slice."""
        if self._placement.slices.slicing.parts == 1:
            return []
        held = [
            each for s in self._placement.held(worker, HELD) for each in self._job.tiers.group(s.partition)
        ]
        dealt = [each for each in held if isinstance(each, Slice)]
        found = [(source(each), self._watermark(source(each))) for each in dealt]
        return [(partition, offset) for partition, offset in found if offset is not None]

    def _watermark(self, partition: TopicPartition) -> int | None:
        """Returns the lowest offset up to which a slice is processed; of one that nobody has reported, the offset where it begins."""
        offsets = []
        for each in self._job.slices_of(partition):
            held, start = self._job.held.get(each), self._job.gate.start_of(each)
            begun = None if held is None else held.processed
            if begun is None and start is None:
                return None
            offsets.append(max(begun or 0, start.offset if start is not None else 0))
        return min(offsets, default=None)

    def _grant(self, placed: PlacedPartition, dealt: TopicPartition) -> Grant:
        """Makes the grant of what was placed, or of what goes with it in a retry topic. That is read from its beginning where the group
        has no offset: what waits there was put there by this group."""
        assert placed.epoch is not None  # a held partition has an epoch
        # Of a partition with transactions only the stable offset counts, with which it was settled.
        committed = self._job.gate.start_of(dealt) if self._transactions is None else None
        partition = source(dealt)
        start = self._job.committed_starts.get(partition, CommittedStart())
        if committed is not None:
            own = unpack(committed.metadata)
            topic_id = own.topic_id or start.topic_id
            start = CommittedStart(committed.offset, committed.leader_epoch, topic_id, done=own.done)
        ends = self._job.ends
        return Grant(
            partition,
            placed.epoch,
            start.offset,
            start.leader_epoch,
            None if ends is None else ends.get(partition, 0),
            placed.continues,
            partition not in self._present_at_start or self._job.tiers.tier(partition.topic) > 0,
            start.topic_id,
            [died for died in self._job.plan.died if died.partition == partition],
            start.done,
            *((dealt.part, dealt.parts) if isinstance(dealt, Slice) else (0, 1)),
            self._job.gate.slices_done(partition),
        )

    def _drain(self, placed: PlacedPartition, dealt: TopicPartition) -> Drain:
        assert placed.epoch is not None  # as above
        return Drain(source(dealt), placed.epoch, placed.continues, placed.void)

    def _lease_s(self) -> float:
        session = self._job.config.session_timeout_ms / 1000
        return lease.granted(self._job.clock(), self._job.member.last_heartbeat_sent_and_acked, session)


def _committed(holding: HeldReport, offset: int) -> CommitEntry:
    """Makes the entry of what a worker has committed by itself."""
    return CommitEntry(
        holding.partition, holding.epoch, offset, holding.leader_epoch, topic_id=holding.topic_id
    )
