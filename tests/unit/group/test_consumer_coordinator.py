"""Auto-commit, over a coordinator that notes when it is asked to commit. The coordinator itself is in tests/integration."""

import asyncio
import functools

from fakes.virtual_time import run_in_virtual_time

from kafka_actors.errors import KafkaTimeoutError
from kafka_actors.group.consumer_coordinator import AutoCommitTask

INTERVAL_S = 5.0
COMMIT_S = 2.0


class Coordinator:
    """A coordinator whose commits take a while, and then fail."""

    group_id = "g"

    def __init__(self):
        self.commits = []

    def now(self):
        return asyncio.get_running_loop().time()

    async def commit_consumed(self):
        self.commits.append(round(self.now()))
        await asyncio.sleep(COMMIT_S)
        raise KafkaTimeoutError("no answer") if len(self.commits) == 2 else ValueError("of the user's own")


def in_virtual_time(test):
    """Decorator: the coroutine function becomes a plain test, whose waits take no time."""

    @functools.wraps(test)
    def run():
        run_in_virtual_time(test())

    return run


@in_virtual_time
async def test_offsets_are_committed_an_interval_after_the_commit_before_whatever_came_of_it():
    coordinator = Coordinator()
    AutoCommitTask(coordinator, INTERVAL_S).reschedule()
    await asyncio.sleep(20.0)
    assert coordinator.commits == [5, 12, 19]


@in_virtual_time
async def test_a_commit_that_is_under_way_at_the_end_is_the_last_one_until_it_is_begun_again():
    """Else a coordinator that was closed would be asked to commit for good."""
    coordinator = Coordinator()
    task = AutoCommitTask(coordinator, INTERVAL_S)
    task.reschedule()
    await asyncio.sleep(INTERVAL_S + COMMIT_S / 2)
    task.stop()
    await asyncio.sleep(60.0)
    assert coordinator.commits == [5]
    task.reschedule(at=70.0)
    await asyncio.sleep(10.0)
    assert coordinator.commits == [5, 70]
