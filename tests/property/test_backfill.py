"""A hand-over whose driver may die between any two effects, again and again, while records and partitions come."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from hypothesis import given
from hypothesis import strategies as st

from kafka_actors.backfill.machines.handover import Handover, HandoverStep
from kafka_actors.backfill.machines.handover_plan import (
    HandoverPlan,
    LogBounds,
    ObservedTopics,
    PlannedRead,
    plan_of,
)
from kafka_actors.types import OffsetAndMetadata, TopicPartition

WANTED = PlannedRead("g", "read_uncommitted", None, ".*")


class World:
    """What outlives a driver: Kafka, and a checkpoint with its plan, its log of batches, and a sink that has each
    batch once."""

    def __init__(self, ends: list[int]) -> None:
        self.logs = {TopicPartition("a", p): end for p, end in enumerate(ends)}
        self.plan: str | None = None
        self.planned_batches: list[dict[TopicPartition, int]] = []
        self.written: dict[int, list[tuple[TopicPartition, int]]] = {}
        self.finished = 0
        self.group: dict[TopicPartition, OffsetAndMetadata] = {}
        self.marked = False
        self.lived: list[tuple[TopicPartition, int]] = []

    def cluster(self) -> ObservedTopics:
        ids = {tp.topic: tp.topic.encode() * 16 for tp in self.logs}
        return ObservedTopics("c", ids, {tp: LogBounds(0, end, 1) for tp, end in self.logs.items()})

    def grow(self, more: list[int], partition: bool, topic: bool) -> None:
        for tp, count in zip(sorted(self.logs), more, strict=False):
            self.logs[tp] += count
        if partition:
            number = sum(tp.topic == "a" for tp in self.logs)
            self.logs[TopicPartition("a", number)] = 2
        if topic:
            self.logs[TopicPartition("b", 0)] = self.logs.get(TopicPartition("b", 0), 0) + 3

    def seen(self) -> Counter[tuple[TopicPartition, int]]:
        of_history = (record for batch in self.written.values() for record in batch)
        return Counter([*of_history, *self.lived])


def drive(world: World, batch: int) -> Iterator[str]:
    """One driver: after each effect it stops for a moment, in which it may be killed."""
    handover = Handover(WANTED, "handover.json")
    if world.plan is None:
        made = plan_of(WANTED, world.cluster(), "id", "now")
        yield "asked"
        world.plan = world.plan or made.to_json()
        yield "planned"
    handover.planned(HandoverPlan.from_json(world.plan, "handover.json"))
    handover.read([world.planned_batches[world.finished - 1]] if world.finished else None)
    if handover.step is HandoverStep.READ_HISTORY:
        yield from history(world, handover.plan, batch)
        handover.read([world.planned_batches[-1]], ended=True)
    yield "read"
    assert handover.step is HandoverStep.HAND_OVER
    commit = handover.commit(world.group, world.cluster(), again=world.marked)
    yield "decided"
    world.group.update(commit.offsets)
    handover.handed_over()
    yield "handed over"
    world.marked = True
    yield "marked"
    assert handover.step is HandoverStep.GO_LIVE
    present = list(world.logs)
    for tp in present:
        start = world.group[tp].offset  # auto_offset_reset="none": no commit is an error
        world.lived += [(tp, offset) for offset in range(start, world.logs[tp])]
        world.group[tp] = OffsetAndMetadata(max(start, world.logs[tp]))
        yield "lived"


def history(world: World, plan: HandoverPlan, size: int) -> Iterator[str]:
    """Micro-batches up to exactly the plan's ends: a batch that was planned stays as it was planned."""
    ends = plan.ends
    while True:
        at = world.planned_batches[world.finished - 1] if world.finished else dict.fromkeys(ends, 0)
        if world.finished == len(world.planned_batches):
            if world.finished and at == ends:
                return
            world.planned_batches.append({tp: min(end, at[tp] + size) for tp, end in ends.items()})
            yield "batch planned"
        until = world.planned_batches[world.finished]
        world.written[world.finished] = [(tp, o) for tp in ends for o in range(at[tp], until[tp])]
        yield "batch written"
        world.finished += 1
        yield "batch finished"


growth = st.tuples(st.lists(st.integers(0, 4), max_size=3), st.booleans(), st.booleans())


@given(
    st.lists(st.integers(0, 6), min_size=1, max_size=3),
    st.integers(1, 4),
    st.lists(st.tuples(st.integers(0, 12), growth), max_size=8),
)
def test_each_record_is_seen_once_wherever_the_driver_died(
    ends: list[int], batch: int, kills: list[tuple[int, tuple[list[int], bool, bool]]]
) -> None:
    world = World(ends)
    for effects, (more, partition, topic) in kills:
        driver = drive(world, batch)
        for _ in range(effects):
            if next(driver, None) is None:
                break
        world.grow(more, partition, topic)
        driver.close()
    for _ in drive(world, batch):
        pass
    assert world.seen() == Counter((tp, offset) for tp, end in world.logs.items() for offset in range(end))
    assert world.plan is not None
    history_only = {record for written in world.written.values() for record in written}
    plan = HandoverPlan.from_json(world.plan, "")
    assert history_only == {(tp, offset) for tp, end in plan.ends.items() for offset in range(end)}
    assert {tp: offset.offset for tp, offset in world.group.items()} == world.logs
