"""How loops wait, and that they end."""

import asyncio
from concurrent.futures import ThreadPoolExecutor
from types import SimpleNamespace

import pytest

from kafka_actors.base.tasks import carried_out_async, in_thread, woken
from kafka_actors.config import JobConfig, build
from kafka_actors.consumer.waiting import LoopWakeup
from kafka_actors.job.coordinator.context import CoordinatorContext
from kafka_actors.job.supervisor.runtime import bounded

LONG_S = 60.0


def of_event():
    event = asyncio.Event()
    return SimpleNamespace(wait=lambda: woken(event, LONG_S), wake=lambda: asyncio.sleep(0, event.set()))


def of_coordinator():
    config = build(JobConfig, group_id="g", bootstrap_servers="localhost:9092")
    job = CoordinatorContext(
        config,
        1,
        lambda error: None,
        ends=None,
        events=lambda event: None,
        recorder=None,
        clock=lambda: 1.0,
        wall=lambda: 1_000.0,
    )

    async def wake():
        job.placement.changes += 1
        job.poll()

    return SimpleNamespace(wait=lambda: job.wait_for_change(LONG_S), wake=wake)


def of_bounded():
    event = asyncio.Event()
    return SimpleNamespace(
        wait=lambda: bounded(event.wait(), LONG_S, "the event", "nothing"),
        wake=lambda: asyncio.sleep(0, event.set()),
    )


def of_consumer():
    """What `AsyncConsumer.poll_batch` sleeps in: a user's task that is cancelled must not go on polling."""
    waking = LoopWakeup()
    waking.loop = asyncio.get_running_loop()
    return SimpleNamespace(wait=lambda: waking.wait(LONG_S), wake=lambda: asyncio.sleep(0, waking()))


@pytest.mark.parametrize("made", [of_event, of_coordinator, of_bounded, of_consumer])
@pytest.mark.parametrize("turns", range(6))
def test_who_is_cancelled_just_when_it_is_woken_ends(made, turns):
    async def scenario():
        of = made()
        waiting = asyncio.ensure_future(of.wait())
        for _ in range(4):
            await asyncio.sleep(0)
        waking = asyncio.ensure_future(of.wake())
        for _ in range(turns):
            await asyncio.sleep(0)
        if waiting.cancel():
            await asyncio.wait([waiting])
            assert waiting.cancelled()
        await waking

    asyncio.run(scenario())


def test_a_wait_ends_with_its_time_and_with_its_event_and_lets_others_go_on():
    async def scenario():
        event = asyncio.Event()
        await woken(event, 0.0)
        event.set()
        went_on = asyncio.ensure_future(asyncio.sleep(0))
        await woken(event, LONG_S)
        await woken(event, LONG_S)
        assert went_on.done()

    asyncio.run(scenario())


def test_what_a_generator_asks_for_is_called_or_awaited_and_errors_come_back_to_it():
    async def later():
        await asyncio.sleep(0)
        return "later"

    async def fails():
        raise OSError("no")

    def steps():
        answers = [(yield lambda: "now"), (yield later), (yield 0.0), (yield fails), (yield lambda: 1 / 0)]
        return [each if not isinstance(each, Exception) else type(each) for each in answers]

    found = asyncio.run(carried_out_async(steps()))
    assert found == ["now", "later", None, OSError, ZeroDivisionError]


def test_a_cancelled_task_carries_out_no_more():
    seen = []

    def steps():
        try:
            yield asyncio.Event().wait
            seen.append("went on")
        finally:
            seen.append("closed")

    async def cancelled():
        task = asyncio.ensure_future(carried_out_async(steps()))
        await asyncio.sleep(0)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    asyncio.run(cancelled())
    assert seen == ["closed"]


def test_work_that_got_no_thread_is_not_done_by_the_next_one():
    """The executor keeps it in its queue, and an assignor or a login would run twice, beside itself."""

    class Refuses(ThreadPoolExecutor):
        refused = False

        def _adjust_thread_count(self):
            if not self.refused:
                self.refused = True
                raise RuntimeError("can't start new thread")
            super()._adjust_thread_count()

    async def scenario():
        done = []
        asyncio.get_running_loop().set_default_executor(Refuses(1))
        with pytest.raises(RuntimeError, match="can't start new thread"):
            in_thread(lambda: done.append("refused"))
        await in_thread(lambda: done.append("next"))
        assert done == ["next"]

    asyncio.run(scenario())


def test_work_that_a_thread_took_though_no_other_could_be_started_is_done():
    class Busy(ThreadPoolExecutor):
        def submit(self, work, *args):
            super().submit(work, *args).result()
            raise RuntimeError("can't start new thread")

    async def scenario():
        asyncio.get_running_loop().set_default_executor(Busy(1))
        assert await in_thread(lambda: 7) == 7
        with pytest.raises(ZeroDivisionError):
            await in_thread(lambda: 1 / 0)

    asyncio.run(scenario())
