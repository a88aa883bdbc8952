"""Status of a coordinator: the group, the workers and each partition, and the questions to brokers that this takes."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from msgspec.structs import replace

from kafka_actors.job import transactions
from kafka_actors.job.messages import (
    CoordinatorStatus,
    DeathsInCall,
    HeldReport,
    Report,
    WorkerPlan,
    WorkerProgress,
)
from kafka_actors.job.status import GroupState, PartitionStatus
from kafka_actors.job.transactions import TransactionReport
from kafka_actors.telemetry.machines.lag_time import LagTimes
from kafka_actors.telemetry.machines.latency import added
from kafka_actors.types import TopicPartition

from .broker_queries import LogEndLookup, LogEnds, RepeatedQuery
from .context import CoordinatorContext
from .machines.placed import PlacementState

__all__ = ["CoordinatorStatusReport"]

SLOW_INTERVAL_S = 30.0
"""Seconds between questions for what changes seldom: where logs begin (a broker deletes every five minutes, by
default), and how many members the group has. Each assignment brings one more question."""
ASKED_BEFORE_A_STALL = 4
"""Number of questions for the end of a log within the time after which a partition counts as stalled."""
NO_WORKER = "no worker"
"""Reason of a free partition: it waits to be given to a worker."""


class CoordinatorStatusReport:
    """Makes the `CoordinatorStatus` of a job.

    `lookup_ends` and `lookup_starts` ask the brokers where the logs end and begin now; `leader` returns the broker
    that a partition is read from.
    """

    def __init__(
        self,
        job: CoordinatorContext,
        *,
        lookup_ends: LogEndLookup,
        lookup_starts: LogEndLookup,
        leader: Callable[[TopicPartition], int | None],
    ) -> None:
        self._job = job
        self._placement = job.placement
        self._leader = leader
        self._lag_times = LagTimes()
        self._gone_records = self._gone_bytes = 0
        self._gone_latency: dict[int, int] = {}
        self._gone_transactions = TransactionReport()
        self._log_ends = LogEnds(lookup_ends, job.partitions, self._ends_seen)
        self._log_starts = LogEnds(lookup_starts, job.partitions)
        self._group_size: RepeatedQuery[int | None] = RepeatedQuery(
            "the size of the group", job.member.count_members, None
        )

    # ------------------------------------------------------------ what changes

    def follow(self, plan: WorkerPlan) -> None:
        """Asks the brokers as often as this plan says.

        The ends of the logs are asked for at least a few times before a partition counts as stalled: while no records of
        a partition arrive, no fetch says where its log ends.
        """
        tasks = self._job.tasks
        for_stalls = self._job.config.max_poll_interval_ms / 1000 / ASKED_BEFORE_A_STALL
        wanted = for_stalls if plan.ends_every_s is None else min(plan.ends_every_s, for_stalls)
        self._log_ends.set_interval(wanted, tasks)
        slowly = SLOW_INTERVAL_S if plan.measured else None
        self._log_starts.set_interval(slowly, tasks)
        self._group_size.set_interval(slowly, tasks)

    def assigned(self) -> None:
        """Asks about the partitions at once, because there are others than before."""
        self._log_ends.refresh()
        self._log_starts.refresh()
        self._group_size.refresh()

    def forget(self, partitions: Iterable[TopicPartition]) -> None:
        """Forgets the times of ends of partitions that belong to another member now."""
        for partition in partitions:
            self._lag_times.forget(partition)

    def gone(self, last: Report) -> None:
        """Keeps the counters of a worker that has ended, from its last report: no transaction of it is open any more."""
        self._gone_records += last.records
        self._gone_bytes += last.value_bytes
        self._gone_latency = added((self._gone_latency, last.latency))
        if last.transactions is not None:
            ended = replace(last.transactions, open_s=None)
            self._gone_transactions = transactions.added((self._gone_transactions, ended))

    def _ends_seen(self) -> None:
        """Takes note that the brokers answered where the logs end."""
        for partition in self._job.partitions():
            self.end_seen(partition)

    def end_seen(self, partition: TopicPartition) -> None:
        """Notes when the log of a partition reached its present end: lag in time is computed from these moments."""
        holding = self._job.reported(partition)
        heard = self._log_ends.latest(partition, holding.end if holding else None)
        if heard is not None and (end := self._reached(partition)) is not None:
            self._lag_times.observe(partition, end, self._job.clock())

    def to_read(self, partition: TopicPartition, fetched: int | None) -> int | None:
        """Offset up to which there is something to read: the end that was fetched or asked for, or the end of a bounded
        run; None where none is known."""
        end, ends = self._log_ends.latest(partition, fetched), self._job.ends
        return end if end is None or ends is None else min(end, ends.get(partition, 0))

    # ------------------------------------------------------------ the status

    def status(self, partitions: bool = True, known: int = 0) -> CoordinatorStatus:
        """Status of the group and the workers; with `partitions` also of each partition, and the latency. The timeline
        begins behind the entry `known`."""
        job, reports = self._job, self._job.reports
        workers = {
            w: WorkerProgress(r.ready, r.records, r.value_bytes, r.failed, r.work_s)
            for w, r in reports.items()
        }
        shown = (job.partitions_at_stop or sorted(job.partitions())) if partitions else []
        return CoordinatorStatus(
            self._group_state(),
            [self._partition_status(p) for p in shown],
            workers,
            self._finished(),
            self._gone_records + sum(r.records for r in reports.values()),
            self._gone_bytes + sum(r.value_bytes for r in reports.values()),
            job.fatal,
            self._retired(),
            added((self._gone_latency, *(r.latency for r in reports.values()))) if partitions else {},
            job.timeline.after(known),
            job.unconfirmed,
            passed=self._passed(),
            transactions=self._transactions(),
        )

    def _transactions(self) -> TransactionReport | None:
        """Transactions of all workers, also of those that are gone; None in a job without."""
        if self._job.config.delivery != "exactly_once":
            return None
        reports = (r.transactions for r in self._job.reports.values())
        return transactions.added([self._gone_transactions, *(r for r in reports if r is not None)])

    def _passed(self) -> list[DeathsInCall]:
        """Calls in which workers died, and whose partition has a commit behind them."""
        committed = self._job.gate.committed
        return [
            died
            for died in self._job.plan.died
            if died.partition in committed and committed[died.partition].offset > died.last
        ]

    def decides(self) -> bool:
        """Whether the supervisor has to act: on the end of a bounded run, a failure, or a worker that may go."""
        failed = self._job.fatal or any(report.failed for report in self._job.reports.values())
        return bool(failed or self._retired() or self._finished())

    def _retired(self) -> list[str]:
        return [w for w in self._placement.workers if self._placement.retired(w)]

    def _group_state(self) -> GroupState:
        member = self._job.member
        acknowledged = member.last_heartbeat_sent_and_acked
        return GroupState(
            member.state.name.lower(),
            member.generation,
            member.member_id,
            member.group_instance_id,
            len(self._job.partitions()),
            self._job.rebalances,
            None if acknowledged is None else self._job.clock() - acknowledged,
            self._group_size.answer,
        )

    def _partition_status(self, partition: TopicPartition) -> PartitionStatus:
        placed = self._placement.slices.of_all([self._job.tiers.home(partition)])
        workers = [each.worker for each in placed if each.worker is not None]
        free = next((each for each in placed if each.state is PlacementState.FREE), None)
        holding = self._job.reported(partition)
        committed = self._job.gate.start_of(partition)
        position = holding.position if holding else None
        end = self._reached(partition)
        done = holding.processed if holding and holding.processed is not None else position
        if committed is not None:  # a commit may be answered before its worker reports again
            done = None if done is None else max(done, committed.offset)
            position = None if position is None else max(position, committed.offset)
        return PartitionStatus(
            partition.topic,
            partition.partition,
            ", ".join(workers) or None,
            position,
            committed.offset if committed else None,
            end,
            max(0, end - done) if end is not None and done is not None else None,
            (free or placed[0]).state.value if placed else "released",
            self._reason(partition, holding, free=free is not None),
            self._lag_times.behind(partition, done, self._job.clock()) if done is not None else None,
            self._leader(partition),
            self._log_starts.answer.get(partition),
            holding.window if holding else None,
        )

    def _reason(self, partition: TopicPartition, holding: HeldReport | None, *, free: bool) -> str:
        """Why nothing of a partition is read or processed; empty where all is well."""
        if free:
            return self._placement.settlement.reason(partition) or NO_WORKER
        return self._job.lacking(partition) or (holding.blocked if holding else "")

    def _reached(self, partition: TopicPartition) -> int | None:
        """End of a log as far as it is known: the one that was asked for or fetched, and at least the offset up to which
        it was read and committed since. None while no end is known, because there may be more records."""
        holding, committed = self._job.reported(partition), self._job.gate.start_of(partition)
        fetched = holding.end if holding else None
        # A worker that has just taken it over has fetched nothing yet; the one before had.
        if fetched is None:
            fetched = self._lag_times.end(partition)
        end = self._log_ends.latest(partition, fetched)
        if end is None:
            return None
        known = (holding.position, holding.processed) if holding else ()
        return max(end, committed.offset if committed else 0, *(at for at in known if at is not None))

    def _finished(self) -> bool:
        """Whether a bounded run has processed and committed every partition of the job to its end. Of a retry partition that isn't there no
        offset is ever committed.

        Not while an assignment is still being taken in (its committed offsets are asked for first): the member has
        joined then, and holds nothing yet.
        """
        job, ends = self._job, self._job.ends
        if ends is None or not job.member.joined or not job.assigned_once:
            return False
        if self._placement.slices.sources() != job.tiers.homes(job.member.assignment):
            return False

        def is_done(partition: TopicPartition) -> bool:
            end, at = ends.get(partition, 0), job.gate.committed.get(partition)
            return at.offset >= end if at is not None else end == 0 and job.is_missing(partition)

        return not job.gate.busy and all(map(is_done, job.partitions()))
