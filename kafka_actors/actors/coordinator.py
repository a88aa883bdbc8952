"""The coordinator of a job without Ray: the Kafka group on one side, the job's workers on the other.

`ConsumerCoordinator` is the member of the group; `Placement` spreads its partitions over the workers;
`CommitGate` decides whose commits count. Workers call `poll` and `commit`; the supervisor calls the rest.
Nothing here waits for a worker: a drain ends when the worker reports, or at its deadline.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Mapping

import assignors
from kafka_actors.config import JobConfig
from kafka_actors.coordinator import ConsumerCoordinator
from kafka_actors.errors import KafkaActorsError
from kafka_actors.events import DrainForced, Event, EventSink, PartitionMoved, PartitionStalled
from kafka_actors.protocol.types import TopicPartition
from kafka_actors.status_page.machines.timeline import Timeline
from kafka_actors.telemetry.attributes import of_group
from kafka_actors.telemetry.instruments import DRAINS, MOVES
from kafka_actors.telemetry.machines.lag_time import LagTimes
from kafka_actors.telemetry.machines.latency import added
from kafka_actors.telemetry.recorder import Recorder
from kafka_actors.telemetry.spans import committing

from .asked import Asked
from .log_ends import AskForEnds, LogEnds
from .loops import Loops
from .machines import lease
from .machines.commit_gate import CommitGate
from .machines.placement import Left, Placement, Slot, SlotState
from .machines.stalls import StallWatch
from .machines.telling import told_of, told_of_facts
from .messages import (
    CommitEntry,
    CommitReply,
    CommitRequest,
    CoordinatorStatus,
    Drain,
    Grant,
    GroupState,
    Holding,
    Orders,
    PartitionStatus,
    Report,
    WorkerPlan,
    WorkerProgress,
)
from .worker import failure_of

__all__ = ["JobCoordinator"]

logger = logging.getLogger(__name__)

RECOVERY_S = 3.0
SLOWLY_S = 30.0
"""How often brokers are asked for what changes seldom: where logs begin (a broker deletes every five minutes, by default), and how
many members the group has, beside the question that each assignment brings."""
COMMIT_GRACE_S = 1.0
KEEPS = frozenset({SlotState.GRANTED})
LETS_GO = frozenset({SlotState.DRAINING, SlotState.LEAVING})


class JobCoordinator:
    """`make_member(listener)` builds the group's member; `ends` bounds the run, partition by partition; `ask_for_ends` and
    `ask_for_starts` ask the brokers where the logs end and begin now; `leader` knows of which broker a partition is read. `wall`: seconds since 1970.

    A partition that was not there when the job started is read from its beginning whatever the reset policy.
    """

    def __init__(
        self,
        config: JobConfig,
        incarnation: int,
        make_member: Callable[[JobCoordinator], ConsumerCoordinator],
        *,
        ends: Mapping[TopicPartition, int] | None,
        present_at_start: frozenset[TopicPartition],
        ask_for_ends: AskForEnds,
        ask_for_starts: AskForEnds,
        events: EventSink,
        leader: Callable[[TopicPartition], int | None] = lambda partition: None,
        recorder: Recorder | None = None,
        clock: Callable[[], float] = time.monotonic,
        wall: Callable[[], float] = time.time,  # wall clock: what happened is told by the time of day
    ) -> None:
        self._config = config
        self._recorder = recorder or Recorder()
        self._ends = ends
        self._present_at_start = present_at_start
        self._sink = events
        self._leader = leader
        self._clock = clock
        self._wall = wall
        self._timeline = Timeline()
        self.placement = Placement(
            incarnation, assignors.get(config.worker_assignor), config.drain_timeout_ms / 1000
        )
        self.gate = CommitGate(self.placement.holder)
        self.member = make_member(self)
        self._reports: dict[str, Report] = {}
        self._held: dict[TopicPartition, Holding] = {}
        self._plan = WorkerPlan(0, {}, [], paused=False, complete=False)
        self._changed = asyncio.Condition()
        self._commit_wanted = asyncio.Event()
        self._commit_waiters: list[asyncio.Future[None]] = []
        self._traces: list[str] = []
        self._loops = Loops(self.failed)
        self._assigned_once = False
        self._stalls = StallWatch(config.max_poll_interval_ms / 1000)
        self._lag_times = LagTimes()
        self._rebalances = 0
        self._gone_records = self._gone_bytes = 0
        self._gone_latency: dict[int, int] = {}
        self._fatal: bytes | None = None
        self._had: list[TopicPartition] = []  # what a stop has given up, for the last status
        self._notified = 0
        self._log_ends = LogEnds(ask_for_ends, lambda: self.placement.slots, self._ends_seen)
        self._log_starts = LogEnds(ask_for_starts, lambda: self.placement.slots)
        self._group_size: Asked[int | None] = Asked("the size of the group", self.member.count_members, None)

    # ------------------------------------------------------------ life

    async def start(self, plan: WorkerPlan, recovering: bool) -> None:
        """Begins to join the group. `recovering`: workers of an older incarnation may still hold partitions."""
        await self.set_plan(plan)
        if recovering:
            self.placement.recover(plan.capacities, self._clock() + RECOVERY_S)
        self._loops.go(self._step_loop())
        self._loops.go(self._commit_loop())
        self._loops.go(self.member.start())

    def failed(self, error: BaseException) -> None:
        """The member can't go on: fenced, not authorized, inconsistent protocols…"""
        logger.error("group %s: %s: %s", self._config.group_id, type(error).__name__, error)
        self._fatal = self._fatal or failure_of(error)
        self.placement.lose(list(self.placement.slots))

    async def stop(self, leave: bool) -> None:
        """Drains every worker within the drain timeout, commits, and leaves the group (or just goes)."""
        self._had = sorted(self.placement.slots)
        if self._fatal is None:
            await self._drain(frozenset(self._had), self._config.drain_timeout_ms / 1000)
        self._loops.cancel()
        await self.member.close(autocommit=False, leave=leave)

    # ------------------------------------------------------------ the group's side (RebalanceListener)

    async def on_partitions_assigned(self, partitions: frozenset[TopicPartition]) -> None:
        self._rebalances += 1
        committed = await self.member.fetch_committed_offsets(list(partitions)) if partitions else {}
        self.gate.baseline(committed)
        self.placement.give(partitions)
        self._assigned_once = True
        self._log_ends.soon()
        self._log_starts.soon()
        self._group_size.soon()
        if self.placement.recovering:
            for worker, report in self._reports.items():
                self.placement.adopt(worker, report.seen, report.holdings, partitions)
        await self._step()

    async def on_partitions_revoked(self, partitions: frozenset[TopicPartition], deadline_s: float) -> None:
        timeout = min(deadline_s, self._config.drain_timeout_ms / 1000)
        await self._drain(partitions, timeout)
        self._forget(partitions)

    async def on_partitions_lost(self, partitions: frozenset[TopicPartition]) -> None:
        self.gate.forget(partitions)
        self.placement.lose(partitions)
        self._forget(partitions)
        await self._step()

    def _forget(self, partitions: frozenset[TopicPartition]) -> None:
        for partition in partitions:
            self._held.pop(partition, None)
            self._stalls.forget(partition)
            self._lag_times.forget(partition)

    async def _drain(self, partitions: frozenset[TopicPartition], timeout_s: float) -> None:
        """Takes partitions from the workers: done when all are let go of and what they committed is committed."""
        deadline = self._clock() + timeout_s
        self.placement.take_away(partitions, deadline)
        await self._step()
        while self.placement.still_leaving(partitions):
            await self._wait_for_change(0.1)
        if self.gate.waiting or self.gate.busy:
            try:
                await asyncio.wait_for(self._committed(), max(COMMIT_GRACE_S, deadline - self._clock()))
            except TimeoutError:
                logger.warning(
                    "group %s: the last commit of a drain had no answer in time", self._config.group_id
                )

    # ------------------------------------------------------------ the supervisor's side

    async def set_plan(self, plan: WorkerPlan) -> None:
        """The workers there should be. Those no longer in the plan are dead: their partitions move at once."""
        if plan.version < self._plan.version:
            return
        was_paused, self._plan = self._plan.paused, plan
        self.placement.held_back = not plan.complete
        self.placement.expected = plan.expected
        self._log_ends.keep(plan.ends_every_s, self._loops)
        slowly = SLOWLY_S if plan.measured else None
        self._log_starts.keep(slowly, self._loops)
        self._group_size.keep(slowly, self._loops)
        if was_paused and not plan.paused:
            self._stalls.restart(self._clock())
        for worker, capacity in plan.capacities.items():
            self.placement.set_worker(worker, capacity=capacity, retiring=worker in plan.retiring)
        for worker in [w for w in self.placement.workers if w not in plan.capacities]:
            self.placement.remove_worker(worker)
            if (last := self._reports.pop(worker, None)) is not None:
                self._gone_records += last.records
                self._gone_bytes += last.value_bytes
                self._gone_latency = added((self._gone_latency, last.latency))
        await self._step()

    def status(self, partitions: bool = True, known: int = 0) -> CoordinatorStatus:
        """The group, its workers, and (unless told otherwise) each partition and the latency; what happened since the entry
        `known`."""
        workers = {
            w: WorkerProgress(r.ready, r.records, r.value_bytes, r.failed, r.work_s)
            for w, r in self._reports.items()
        }
        shown = (self._had or sorted(self.placement.slots)) if partitions else []
        return CoordinatorStatus(
            self._group_state(),
            [self._partition_status(p) for p in shown],
            workers,
            self._finished(),
            self._gone_records + sum(r.records for r in self._reports.values()),
            self._gone_bytes + sum(r.value_bytes for r in self._reports.values()),
            self._fatal,
            [w for w in self.placement.workers if self.placement.retired(w)],
            added((self._gone_latency, *(r.latency for r in self._reports.values()))) if partitions else {},
            self._timeline.after(known),
        )

    def _group_state(self) -> GroupState:
        member = self.member
        acknowledged = member.last_heartbeat_sent_and_acked
        return GroupState(
            member.state.name.lower(),
            member.generation,
            member.member_id,
            member.group_instance_id,
            len(self.placement.slots),
            self._rebalances,
            None if acknowledged is None else self._clock() - acknowledged,
            self._group_size.answer,
        )

    def _partition_status(self, partition: TopicPartition) -> PartitionStatus:
        slot = self.placement.slots.get(partition)
        holding = self._held.get(partition)
        committed = self.gate.start_of(partition)
        position = holding.position if holding else None
        end = self._reached(partition)
        done = holding.processed if holding and holding.processed is not None else position
        if done is not None and committed is not None:
            done = max(done, committed.offset)  # a commit may be answered before its worker reports again
        return PartitionStatus(
            partition.topic,
            partition.partition,
            slot.worker if slot is not None else None,
            position,
            committed.offset if committed else None,
            end,
            max(0, end - done) if end is not None and done is not None else None,
            slot.state.value if slot is not None else "released",
            holding.blocked if holding else "",
            self._lag_times.behind(partition, done, self._clock()) if done is not None else None,
            self._leader(partition),
            self._log_starts.answer.get(partition),
        )

    def _reached(self, partition: TopicPartition) -> int | None:
        """How far a log is known to reach: to the end that was asked for or fetched, and at least to where it was read and
        committed since. None while nobody has said an end: there may be more."""
        holding, committed = self._held.get(partition), self.gate.start_of(partition)
        fetched = holding.end if holding else None
        if fetched is None:  # who has just taken it over has fetched nothing yet: the one before had
            fetched = self._lag_times.end(partition)
        end = self._log_ends.latest(partition, fetched)
        if end is None:
            return None
        known = (holding.position, holding.processed) if holding else ()
        return max(end, committed.offset if committed else 0, *(at for at in known if at is not None))

    def _finished(self) -> bool:
        """A bounded run: every partition of ours is processed and committed to its end.

        While an assignment is still being taken in (its committed offsets are asked for first), there is no
        telling, though the member has joined and nothing is held yet.
        """
        taken_in = self._assigned_once and self.placement.slots.keys() == self.member.assignment
        if self._ends is None or not self.member.joined or not taken_in:
            return False
        committed = self.gate.committed
        return not self.gate.busy and all(
            partition in committed and committed[partition].offset >= self._ends.get(partition, 0)
            for partition in self.placement.slots
        )

    # ------------------------------------------------------------ the workers' side

    async def poll(self, report: Report) -> Orders:
        """Takes a worker's report; answers with its orders when they are news to it, or after `wait_s`."""
        worker = report.worker
        if worker in self.placement.workers:
            await self._take_report(report)
        deadline = self._clock() + report.wait_s
        while not self._news_for(report) and self._clock() < deadline:
            await self._wait_for_change(deadline - self._clock())
        return self._orders(report)

    def _news_for(self, report: Report) -> bool:
        return self.placement.version(report.worker) > report.seen

    async def _take_report(self, report: Report) -> None:
        worker = report.worker
        newer = self._reports.get(worker)
        if newer is not None and newer.seen > report.seen:
            return
        self._reports[worker] = report
        for holding in report.holdings:
            if self._holds(worker, holding):
                self._held[holding.partition] = holding
                self._end_seen(holding.partition)
                self._watch_for_stalls(worker, holding)
        if report.ready:
            self.placement.worker_ready(worker)
        if self.placement.recovering:
            self.placement.adopt(worker, report.seen, report.holdings, self.member.assignment)
        self.placement.reported(worker, report.seen, report.holdings)
        await self._step()

    def _ends_seen(self) -> None:
        """The brokers have said where the logs end."""
        for partition in self.placement.slots:
            self._end_seen(partition)

    def _end_seen(self, partition: TopicPartition) -> None:
        """Lag in time is reckoned from the end that is shown, each time that something new was heard of it."""
        holding = self._held.get(partition)
        heard = self._log_ends.latest(partition, holding.end if holding else None)
        if heard is not None and (end := self._reached(partition)) is not None:
            self._lag_times.observe(partition, end, self._clock())

    def _watch_for_stalls(self, worker: str, holding: Holding) -> None:
        """A partition with records to read that does not move for the maximal poll interval begins anew."""
        if self._plan.paused:
            return
        now, partition = self._clock(), holding.partition
        stalled = self._stalls.observe(partition, worker, holding.processed, holding.end, now)
        if stalled is not None:
            reason = holding.blocked or "no progress"
            self.happened(PartitionStalled(partition.topic, partition.partition, stalled, reason))
            self.placement.move_on(partition, now)

    def _holds(self, worker: str, holding: Holding) -> bool:
        return self.placement.holder(worker, holding.partition) == holding.epoch

    def _orders(self, report: Report) -> Orders:
        worker, lease_s = report.worker, self._lease_s()
        version = self.placement.version(worker)
        if self.placement.recovering:
            # Until all have registered again nothing changes hands: a worker goes on with what it has.
            return Orders(version, [], [], lease_s, self._plan.paused, hold=True)
        if worker not in self.placement.workers:
            # Given up on, and what it held has gone to others: it is to drop all, whatever it has seen.
            return Orders(max(version, report.seen), [], [], 0.0, self._plan.paused)
        if report.seen == version:
            return Orders(version, [], [], lease_s, self._plan.paused, hold=True)
        return Orders(
            version,
            [self._grant(s) for s in self.placement.held(worker, KEEPS)],
            [self._drain_order(s) for s in self.placement.held(worker, LETS_GO)],
            lease_s,
            self._plan.paused,
        )

    def _grant(self, slot: Slot) -> Grant:
        assert slot.epoch is not None
        committed = self.gate.start_of(slot.partition)
        return Grant(
            slot.partition,
            slot.epoch,
            committed.offset if committed else None,
            committed.leader_epoch if committed else -1,
            None if self._ends is None else self._ends.get(slot.partition, 0),
            slot.continues,
            slot.partition not in self._present_at_start,
        )

    def _drain_order(self, slot: Slot) -> Drain:
        assert slot.epoch is not None
        return Drain(slot.partition, slot.epoch, slot.continues)

    def _lease_s(self) -> float:
        session = self._config.session_timeout_ms / 1000
        return lease.granted(self._clock(), self.member.last_heartbeat_sent_and_acked, session)

    # ------------------------------------------------------------ commits

    async def commit(self, request: CommitRequest) -> CommitReply:
        """Waits for the broker's acknowledgement of a worker's entries, or says which are refused or failed."""
        refused = set(self.gate.offer(request.worker, request.entries))
        if request.trace:
            self._traces.append(request.trace)
        entries = [e for e in request.entries if e.partition not in refused]
        problem = ""
        if entries:
            try:
                await asyncio.wait_for(self._committed(), self._config.request_timeout_ms / 1000)
            except (TimeoutError, KafkaActorsError) as error:
                problem = str(error) or "no answer in time"
        done = [e for e in entries if self._is_committed(e)]
        failed = [(e.partition, problem or "not committed yet") for e in entries if e not in done]
        return CommitReply(request.sequence, done, sorted(refused), failed)

    def _is_committed(self, entry: CommitEntry) -> bool:
        committed = self.gate.committed.get(entry.partition)
        return committed is not None and (committed.offset >= entry.offset or entry.rewind)

    async def _committed(self) -> None:
        """Returns once everything offered so far has been answered by the broker."""
        waiter: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._commit_waiters.append(waiter)
        self._commit_wanted.set()
        await waiter

    async def _commit_loop(self) -> None:
        while True:
            await self._commit_wanted.wait()
            self._commit_wanted.clear()
            waiters, self._commit_waiters = self._commit_waiters, []
            offsets = self.gate.take()
            outcome: Mapping[TopicPartition, Exception | None] = {}
            try:
                if offsets:
                    traces, self._traces = self._traces, []
                    with committing(self._config.group_id, asked_by=traces):
                        outcome = await self.member.commit_offsets_sync(offsets)
            except KafkaActorsError as error:
                logger.warning("group %s: commit failed: %s", self._config.group_id, error)
                outcome = dict.fromkeys(offsets, error)
            self.gate.finished(outcome)
            for waiter in waiters:
                if not waiter.done():
                    waiter.set_result(None)

    # ------------------------------------------------------------ stepping

    async def _step_loop(self) -> None:
        while True:
            wake = await self._step()
            now = self._clock()
            await self._wait_for_change(0.5 if wake is None else max(0.01, min(0.5, wake - now)))

    async def _step(self) -> float | None:
        wake = self.placement.step(self._clock())
        self._tell()
        if self.placement.changes != self._notified:
            self._notified = self.placement.changes
            async with self._changed:
                self._changed.notify_all()
        return wake

    def happened(self, event: Event) -> None:
        """To the job as a member of its group: for the log, and for the timeline."""
        self._sink(event)
        if (told := told_of(event)) is not None:
            self._timeline.note(*told, self._wall())

    def _tell(self) -> None:
        """What happened to partitions inside the job: counted, for the log, and for the timeline."""
        group = self._config.group_id
        facts, self.placement.facts = self.placement.facts, []
        for told in told_of_facts(facts):
            self._timeline.note(*told, self._wall())
        for fact in facts:
            where = (*fact.partition, fact.worker)
            if isinstance(fact, Left):
                self._recorder.add(MOVES, 1, of_group(group, cause=fact.cause))
                self._sink(PartitionMoved(*where, fact.cause))
            else:
                self._recorder.add(DRAINS, 1, of_group(group, outcome=fact.outcome))
                if fact.outcome == "forced":
                    self._sink(DrainForced(*where))

    async def _wait_for_change(self, timeout_s: float) -> None:
        async with self._changed:
            try:
                await asyncio.wait_for(self._changed.wait(), max(0.0, timeout_s))
            except TimeoutError:
                pass

    def __repr__(self) -> str:
        return f"<JobCoordinator {self._config.group_id} {self.placement!r}>"
