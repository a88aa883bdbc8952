"""`CoordinatorContext`: the state that the parts of a job's coordinator share, and the events of its partitions."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping

import assignors
from kafka_actors.base.tasks import OwnedTasks
from kafka_actors.config import JobConfig
from kafka_actors.events import DrainForced, Event, EventSink, PartitionMoved
from kafka_actors.group import CommittedStart, ConsumerCoordinator
from kafka_actors.job.messages import HeldReport, Report, WorkerPlan
from kafka_actors.job.supervisor.machines.timeline_entries import entries_of_facts, entry_of
from kafka_actors.status_page.machines.timeline import Timeline
from kafka_actors.telemetry.attributes import of_group
from kafka_actors.telemetry.instruments import DRAINS, MOVES
from kafka_actors.telemetry.recorder import Recorder
from kafka_actors.types import TopicPartition

from .machines.commit_gate import CommitGate
from .machines.placement import Placement, Withdrawal

__all__ = ["CoordinatorContext"]


class CoordinatorContext:
    """A job as a member of its group. `failed` gets the error that ends one of the tasks.

    `member`: the group's member. `placement` spreads its partitions over the workers, `gate` filters their commits. `plan`: the
    supervisor's worker plan. `ends` bounds the run. `committed_starts`: each partition's committed offset when the group
    assigned it. `reports`: the last report of each worker; `held`: each partition as its worker last reported it. `fatal`:
    packed, why the job can't go on. `partitions_at_stop`: the partitions when a stop began, for the last status;
    `unconfirmed`: those of them with commits that no broker has confirmed.
    """

    member: ConsumerCoordinator

    def __init__(
        self,
        config: JobConfig,
        incarnation: int,
        failed: Callable[[BaseException], None],
        *,
        ends: Mapping[TopicPartition, int] | None,
        events: EventSink,
        recorder: Recorder,
        clock: Callable[[], float],
        wall: Callable[[], float],
    ) -> None:
        self.config = config
        self.ends = ends
        self.clock = clock
        self.placement = Placement(
            incarnation, assignors.get(config.worker_assignor), config.drain_timeout_ms / 1000
        )
        self.gate = CommitGate(self.placement.holder)
        self.committed_starts: dict[TopicPartition, CommittedStart] = {}
        self.reports: dict[str, Report] = {}
        self.held: dict[TopicPartition, HeldReport] = {}
        self.plan = WorkerPlan(0, {}, [], paused=False, complete=False)
        self.tasks = OwnedTasks(failed)
        self.timeline = Timeline()
        self.rebalances = 0
        self.assigned_once = False
        self.fatal: bytes | None = None
        self.partitions_at_stop: list[TopicPartition] = []
        self.unconfirmed: list[TopicPartition] = []
        self._sink = events
        self._recorder = recorder
        self._wall = wall
        self._changed = asyncio.Condition()
        self._notified = 0

    async def step(self) -> float | None:
        """Does what is due, and wakes who waits if anything changed. Returns when there is more to do."""
        wake = self.placement.step(self.clock())
        self._tell()
        if self.placement.changes != self._notified:
            self._notified = self.placement.changes
            await self.wake()
        return wake

    async def wake(self) -> None:
        """Wakes all who wait for a change."""
        async with self._changed:
            self._changed.notify_all()

    async def wait_for_change(self, timeout_s: float) -> None:
        """Returns when something changed, or after `timeout_s`. Loses no cancellation, as `asyncio.wait_for` could."""
        async with self._changed:
            try:
                async with asyncio.timeout(max(0.0, timeout_s)):
                    await self._changed.wait()
            except TimeoutError:
                pass

    def happened(self, event: Event) -> None:
        """Publishes an event of the job, to the log and the timeline."""
        self._sink(event)
        if (told := entry_of(event)) is not None:
            self.timeline.note(*told, self._wall())

    def _tell(self) -> None:
        """Publishes what happened to partitions inside the job: to metrics, the log and the timeline."""
        group = self.config.group_id
        facts, self.placement.facts = self.placement.facts, []
        for told in entries_of_facts(facts):
            self.timeline.note(*told, self._wall())
        for fact in facts:
            where = (*fact.partition, fact.worker)
            if isinstance(fact, Withdrawal):
                self._recorder.add(MOVES, 1, of_group(group, cause=fact.cause))
                self._sink(PartitionMoved(*where, fact.cause))
            else:
                self._recorder.add(DRAINS, 1, of_group(group, outcome=fact.outcome))
                if fact.outcome == "forced":
                    self._sink(DrainForced(*where))
