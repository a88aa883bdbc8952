"""`CoordinatorContext`: the state that the parts of a job's coordinator share, and the events of its partitions."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence

from msgspec.structs import replace

import assignors
from kafka_actors.base.machine_driver import MachineDriver, no_action
from kafka_actors.base.tasks import Broadcast, OwnedTasks
from kafka_actors.config import JobConfig
from kafka_actors.events import (
    DoneOffsetsDropped,
    DrainForced,
    Event,
    EventSink,
    NewSchemaSeen,
    PartitionMoved,
)
from kafka_actors.group import CommittedStart, ConsumerCoordinator
from kafka_actors.job.lanes import in_topic, source
from kafka_actors.job.machines.timeline import Timeline, entry_of
from kafka_actors.job.messages import GrantEpoch, HeldReport, Report, WorkerPlan
from kafka_actors.job.retry_topics import RetryTiers
from kafka_actors.job.status import merged
from kafka_actors.telemetry.attributes import of_group
from kafka_actors.telemetry.instruments import DRAINS, MOVES
from kafka_actors.telemetry.recorder import Recorder
from kafka_actors.types import TopicPartition

from .machines.commit_gate import CommitGate
from .machines.placed import entries_of_facts
from .machines.placement import Placement, PlacementEvent, Withdrawal
from .machines.settlement import Settlement, SettlementAction
from .machines.slicing import Slicing

__all__ = ["CoordinatorContext"]


class CoordinatorContext:
    """A job as a member of its group. `failed` gets the error that ends one of the tasks.

    `member`: the group's member. `placement` spreads its partitions over the workers, `gate` filters their commits. `plan`: the
    supervisor's worker plan. `ends` bounds the run. `committed_starts`: each partition's committed offset when the group
    assigned it. `reports`: the last report of each worker; `held`: each partition as its worker last reported it. `fatal`:
    packed, why the job can't go on. `partitions_at_stop`: the partitions when a stop began, for the last status;
    `unconfirmed`: those of them with commits that no broker has confirmed. `new_schemas`: of values that workers have told of.
    `tiers`: the retry topics; `partition_counts`: the number of partitions that each topic has now. Placed are source partitions only, and
    retry partitions go with them.
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
        settlement: Settlement | None = None,
        tiers: RetryTiers | None = None,
        partition_counts: Callable[[], Mapping[str, int]] = dict,
    ) -> None:
        self.config = config
        self._partition_counts = partition_counts
        self.tiers = tiers or RetryTiers()
        self.ends = ends
        self.clock = clock
        self.placement = Placement(
            incarnation,
            assignors.get(config.worker_assignor),
            config.drain_timeout_ms / 1000,
            settlement,
            Slicing(config.lanes, begun=self._begun),
        )
        self.gate = CommitGate(self._holder)
        self.committed_starts: dict[TopicPartition, CommittedStart] = {}
        self.reports: dict[str, Report] = {}
        self.held: dict[TopicPartition, HeldReport] = {}
        self.plan = WorkerPlan(0, {}, [], paused=False, complete=False)
        self.tasks = OwnedTasks(failed)
        self.timeline = Timeline()
        self.new_schemas: set[NewSchemaSeen] = set()
        self.rebalances = 0
        self.assigned_once = False
        self.fatal: bytes | None = None
        self.partitions_at_stop: list[TopicPartition] = []
        self.unconfirmed: list[TopicPartition] = []
        self._sink = events
        self._recorder = recorder
        self._wall = wall
        self._changed = Broadcast()
        self._notified = 0
        self._moves: list[PlacementEvent] = []
        self._driver = MachineDriver(lambda: self.clock(), after_poll=self._polled)
        self._driver.add(self.placement, no_action, self._moves.append)

    def _begun(self, partition: TopicPartition) -> bool:
        return all(each in self.gate.committed for each in self.tiers.group(partition))

    def _holder(self, worker: str, partition: TopicPartition) -> GrantEpoch | None:
        return self.placement.holder(worker, self.tiers.home(partition))

    def take_starts(self, starts: Mapping[TopicPartition, CommittedStart]) -> None:
        """Takes where partitions begin, and tells of text that can't be read, of what is done beyond an offset: records come again."""
        self.committed_starts |= starts
        for partition, start in starts.items():
            if start.done and not _is_readable(start):
                reason = "what the commit's metadata says of them can't be read"
                self.happened(DoneOffsetsDropped(*partition, start.offset or 0, reason))

    def lacking(self, partition: TopicPartition) -> str:
        """Returns, in words, which retry partitions are missing behind a partition; empty where none is."""
        return self.tiers.lacking(partition, self._partition_counts()) if self.tiers else ""

    def is_missing(self, partition: TopicPartition) -> bool:
        """Whether it is a retry partition that isn't there: its topic has not grown with the source, or is gone."""
        topic, number = partition.topic, partition.partition
        return self.tiers.tier(topic) > 0 and number >= self._partition_counts().get(topic, 0)

    def partitions(self) -> set[TopicPartition]:
        """Returns all partitions of the job, with its retry partitions."""
        sources = self.placement.slices.sources()
        return {*self.tiers.groups(sources)} if self.tiers else sources

    def slices_of(self, partition: TopicPartition) -> list[TopicPartition]:
        """Returns what there is of a partition: itself, or slices. A retry partition is dealt as its source is."""
        return [
            in_topic(each, partition.topic) for each in self.placement.slices.of(self.tiers.home(partition))
        ]

    def held_by(
        self, worker: str, partition: TopicPartition
    ) -> tuple[TopicPartition, GrantEpoch | None] | None:
        """Returns what a worker has of a partition, and under which epoch it may commit that."""
        placed = self.placement.slices.held(worker, self.tiers.home(partition))
        if placed is None:
            return None
        return in_topic(placed.partition, partition.topic), placed.commits_under

    def reported(self, partition: TopicPartition) -> HeldReport | None:
        """Returns a partition as it was last reported; of one that is dealt in slices, as far as all of them are. None before that."""
        slices = self.slices_of(partition)
        found = [self.held[each] for each in slices if each in self.held]
        if len(slices) <= 1 or len(found) < len(slices):
            return self.held.get(partition)
        first = min(found, key=lambda held: -1 if held.processed is None else held.processed)
        positions = [held.position for held in found if held.position is not None]
        ends = [held.end for held in found if held.end is not None]
        return replace(
            first,
            position=min(positions) if len(positions) == len(found) else None,
            end=max(ends, default=None),
            finished=all(held.finished for held in found),
            blocked=first.blocked or next((held.blocked for held in found if held.blocked), ""),
            window=merged(held.window for held in found),
        )

    def told(self) -> dict[TopicPartition, HeldReport]:
        """Returns each partition as a worker last reported it, also what an older incarnation gave it, which this one has not yet."""
        if not self.placement.recovery.active:
            return self.held
        return {each.partition: each for last in self.reports.values() for each in last.holdings} | self.held

    async def recovered(self, until: float) -> None:
        """Returns once it is known what workers hold of an older incarnation, where there was one, or at `until`."""
        while self.placement.recovery.active and self.fatal is None and self.clock() < until:
            await self.wait_for_change(min(0.1, until - self.clock()))

    def follow(self, settlement: Settlement, carry_out: Callable[[SettlementAction], object]) -> None:
        """Polls the settlement too, behind the placement, whose decisions it follows."""
        self._driver.add(settlement, carry_out)

    async def run(self) -> None:
        """Polls the placement until it is cancelled."""
        await self._driver.run()

    def poll(self) -> None:
        """Polls the placement at once: what it was given has changed it."""
        self._driver.poll()

    def _polled(self) -> None:
        """Reports what happened to partitions, and wakes those who wait if orders have changed."""
        if self._moves:
            self._report(self._moves.copy())
            self._moves.clear()
        if self.placement.changes != self._notified:
            self._notified = self.placement.changes
            self._changed.notify_all()

    def wake(self) -> None:
        """Wakes those who wait: something has changed that may matter to them. The placement is polled soon."""
        self._changed.notify_all()
        self._driver.wake()

    async def wait_for_change(self, timeout_s: float) -> None:
        """Returns when something changed, or after `timeout_s`."""
        try:
            async with asyncio.timeout(max(0.0, timeout_s)):
                await self._changed.wait()
        except TimeoutError:
            pass

    def happened(self, event: Event) -> None:
        """Publishes an event of the job, to the log and the timeline."""
        self._sink(event)
        if (entry := entry_of(event)) is not None:
            self.timeline.note(*entry, self._wall())

    def _report(self, facts: Sequence[PlacementEvent]) -> None:
        """Publishes one turn's changes of partitions inside the job: to metrics, the log and the timeline."""
        group = self.config.group_id
        for entry in entries_of_facts(facts):
            self.timeline.note(*entry, self._wall())
        for fact in facts:
            where = (*source(fact.partition), fact.worker)
            if isinstance(fact, Withdrawal):
                self._recorder.add(MOVES, 1, of_group(group, cause=fact.cause))
                self._sink(PartitionMoved(*where, fact.cause))
            else:
                self._recorder.add(DRAINS, 1, of_group(group, outcome=fact.outcome))
                if fact.outcome == "forced":
                    self._sink(DrainForced(*where))


def _is_readable(start: CommittedStart) -> bool:
    from kafka_actors.group.done_offsets import DoneOffsets  # imports numpy, which few coordinators need

    return bool(DoneOffsets.of_text(start.done, start.offset or 0))
