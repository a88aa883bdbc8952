"""What the parts of a job's coordinator share: who is woken, and which events reach the log, the timeline and the metrics."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest
from fakes.loop import in_loop, turns, turns_until

from kafka_actors.base.machine import Ready
from kafka_actors.config import JobConfig, build
from kafka_actors.events import DrainForced, Event, NoCommittedOffset, PartitionMoved, WorkersChanged
from kafka_actors.job.coordinator.context import CoordinatorContext
from kafka_actors.job.coordinator.machines.placed import DrainEnd, Withdrawal
from kafka_actors.telemetry.tally import Tally
from kafka_actors.types import TopicPartition

P0, P1 = TopicPartition("t", 0), TopicPartition("t", 1)
LONG_S = 3_600.0


class Told:
    """A context with what it told: events, and the error of a task."""

    def __init__(self) -> None:
        self.events: list[Event] = []
        self.errors: list[BaseException] = []
        self.now = 100.0
        self.tally = Tally()
        self.context = CoordinatorContext(
            build(JobConfig, group_id="g", bootstrap_servers="a:1"),
            3,
            self.errors.append,
            ends=None,
            events=self.events.append,
            recorder=self.tally,
            clock=lambda: self.now,
            wall=lambda: 1_700_000_000.0 + self.now,
        )

    def place(self, *facts: Any) -> None:
        """Has the placement report these facts at its next poll."""
        left = [facts]
        self.context.placement.poll = lambda now: Ready(events=left.pop() if left else ())  # type: ignore[method-assign]

    def counted(self) -> dict[tuple[str, str], float]:
        """Metric and its cause or outcome → value."""
        found = {}
        for point in self.tally.state().counts:
            labels = dict(point.attributes)
            assert labels.pop("group") == "g"
            [label] = labels.values()
            found[point.name.removeprefix("kafka_actors.partition."), str(label)] = point.value
        return found


@pytest.fixture
def told() -> Told:
    return Told()


def waiting(context: CoordinatorContext, timeout_s: float = LONG_S) -> asyncio.Task[None]:
    return asyncio.create_task(context.wait_for_change(timeout_s))


# ------------------------------------------------------------ waits


@in_loop
async def test_who_waits_is_woken_when_orders_have_changed_and_only_then() -> None:
    context = Told().context
    wait = waiting(context)
    await turns(3)
    context.poll()
    await turns(3)
    assert not wait.done(), "nothing has changed"
    context.placement.set_worker("w")
    context.placement.worker_ready("w")
    context.placement.assign([P0])
    before = context.placement.changes
    context.poll()
    assert context.placement.changes > before
    await turns_until(wait.done)


@in_loop
async def test_a_change_that_was_told_of_wakes_nobody_again() -> None:
    context = Told().context
    context.placement.changes += 1
    context.poll()
    wait = waiting(context)
    await turns(3)
    context.poll()
    await turns(5)
    assert not wait.done()
    wait.cancel()


@in_loop
async def test_everybody_who_waits_is_woken_and_the_placement_is_polled_soon() -> None:
    context = Told().context
    polls: list[float] = []
    poll = context.placement.poll
    context.placement.poll = lambda now: polls.append(now) or poll(now)  # type: ignore[method-assign, func-returns-value]
    running = asyncio.create_task(context.run())
    await turns_until(lambda: len(polls) == 1)
    waits = [waiting(context) for _ in range(3)]
    await turns(3)
    context.wake()
    await turns_until(lambda: all(wait.done() for wait in waits) and len(polls) == 2)
    running.cancel()


@pytest.mark.parametrize("timeout_s", [0.0, -1.0], ids=["no time", "less than none"])
@in_loop
async def test_a_wait_without_time_ends_at_once_and_is_no_error(timeout_s: float) -> None:
    """A worker's report may have been under way for longer than it would wait."""
    wait = waiting(Told().context, timeout_s)
    await turns_until(wait.done)
    assert wait.exception() is None


# ------------------------------------------------------------ facts of the placement


@in_loop
async def test_a_withdrawal_is_an_event_and_is_counted_by_its_cause() -> None:
    told = Told()
    told.place(
        Withdrawal(P0, "w", "worker_died"), Withdrawal(P1, "w", "worker_died"), Withdrawal(P1, "v", "balance")
    )
    told.context.poll()
    assert told.events == [
        PartitionMoved("t", 0, "w", "worker_died"),
        PartitionMoved("t", 1, "w", "worker_died"),
        PartitionMoved("t", 1, "v", "balance"),
    ]
    assert told.counted() == {("moves", "worker_died"): 2, ("moves", "balance"): 1}
    entries = told.context.timeline.after()
    assert [entry.kind for entry in entries] == ["move", "move"], "one for each worker and cause"
    assert {entry.at_s for entry in entries} == {1_700_000_100.0}


@in_loop
async def test_the_end_of_a_drain_is_counted_and_only_a_forced_one_is_an_event() -> None:
    told = Told()
    told.place(DrainEnd(P0, "w", "released"), DrainEnd(P1, "w", "forced"))
    told.context.poll()
    assert told.events == [DrainForced("t", 1, "w")]
    assert told.counted() == {("drains", "released"): 1, ("drains", "forced"): 1}


@in_loop
async def test_a_fact_is_told_once() -> None:
    told = Told()
    told.place(Withdrawal(P0, "w", "balance"))
    for _ in range(3):
        told.context.poll()
    assert told.events == [PartitionMoved("t", 0, "w", "balance")]


@in_loop
async def test_a_settlement_is_polled_behind_the_placement_and_its_actions_are_carried_out() -> None:
    context = Told().context
    order: list[str] = []

    class Settlement:
        def poll(self, now: float) -> Ready[str, Any]:
            order.append("settlement")
            return Ready(actions=("fence",))

    placing = context.placement.poll
    context.placement.poll = lambda now: order.append("placement") or placing(now)  # type: ignore[method-assign, func-returns-value]
    machine: Any = Settlement()
    carry_out: Callable[[Any], object] = order.append
    context.follow(machine, carry_out)
    context.poll()
    assert order == ["placement", "settlement", "fence"]


# ------------------------------------------------------------ events and tasks


def test_an_event_goes_to_the_log_and_one_of_the_whole_job_to_the_timeline_too(told: Told) -> None:
    single, of_the_job = NoCommittedOffset("t", 0, 5, "earliest"), WorkersChanged(2, 3, "lag")
    told.context.happened(single)
    told.context.happened(of_the_job)
    assert told.events == [single, of_the_job]
    [entry] = told.context.timeline.after()
    assert (entry.kind, entry.text, entry.at_s) == ("workers", "2 → 3: lag", 1_700_000_100.0)


@in_loop
async def test_an_error_of_a_task_is_told_to_the_coordinator_and_a_cancellation_is_not() -> None:
    told = Told()

    async def fail() -> None:
        raise OSError("no route")

    told.context.tasks.create_task(fail())
    told.context.tasks.create_task(asyncio.Event().wait()).cancel()
    await turns_until(lambda: bool(told.errors))
    await turns(3)
    assert [str(error) for error in told.errors] == ["no route"]
