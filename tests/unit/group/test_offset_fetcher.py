"""Committed offsets are asked of a broker that takes its time."""

import asyncio
import math
from contextlib import nullcontext
from types import SimpleNamespace

import pytest

from kafka_actors.errors import KafkaTimeoutError
from kafka_actors.group.machines.embedded_protocol import GroupConfig
from kafka_actors.group.machines.member_events import GroupChannel
from kafka_actors.group.offset_fetcher import OffsetFetcher
from kafka_actors.protocol.messages.offset_fetch import (
    OffsetFetchResponse,
    OffsetFetchResponseGroup,
    OffsetFetchResponsePartitions,
    OffsetFetchResponseTopics,
)
from kafka_actors.types import TopicPartition

P0 = TopicPartition("t", 0)


class Slow:
    """The channels to a broker that takes `takes_s` seconds for each OffsetFetch; the time is `now`."""

    broker = None

    def __init__(self, takes_s):
        self.takes_s, self.now, self.asked = takes_s, 0.0, []

    def fetching_offsets(self):
        return nullcontext()

    async def ask(self, request, timeout_ms, channel):
        assert channel is GroupChannel.OFFSET_FETCH
        self.asked.append(timeout_ms / 1000)
        self.now += min(self.takes_s, timeout_ms / 1000)
        if self.takes_s > timeout_ms / 1000:
            raise KafkaTimeoutError("no answer to OffsetFetch")
        partition = OffsetFetchResponsePartitions(partition_index=0, committed_offset=7)
        topics = [OffsetFetchResponseTopics(name="t", partitions=[partition])]
        return OffsetFetchResponse(groups=[OffsetFetchResponseGroup(group_id="g", topics=topics)])


class Driver:
    """A membership whose coordinator acknowledges heartbeats, or doesn't (`alive`); `lost`: why it was given up."""

    def __init__(self, slow, config, *, alive=True):
        self.channels = slow
        self.machine = SimpleNamespace(config=config)
        self.now = lambda: slow.now
        self.lost = []
        self.coordinator_lost = self.lost.append
        self.last_acknowledged = math.inf if alive else None

    async def coordinator_known(self):
        """It is."""


@pytest.mark.parametrize(("takes_s", "asked"), [(1.0, [9.0]), (12.0, [9.0, 18.0]), (25.0, [9.0, 18.0, 30.0])])
def test_a_broker_that_is_slow_has_more_time_at_each_try_and_one_that_answers_again_the_usual(takes_s, asked):
    slow, config = Slow(takes_s), GroupConfig("g", retry_backoff=0.0, retry_backoff_max=0.0)
    fetcher = OffsetFetcher(Driver(slow, config), lambda: 0.5)

    async def scenario():
        for expected in (asked, asked[-1:]):  # it is as slow the next time
            found = await fetcher.fetch([P0], None)
            assert found[P0].offset == 7
            assert slow.asked == expected
            slow.asked.clear()
        slow.takes_s = 0.1
        for _ in range(2):
            await fetcher.fetch([P0], None)
        assert slow.asked == [asked[-1], 9.0]

    asyncio.run(scenario())


@pytest.mark.parametrize(("alive", "given_up"), [(True, 0), (False, 1)])
def test_a_slow_broker_that_acknowledges_heartbeats_is_not_given_up(alive, given_up):
    slow, config = Slow(12.0), GroupConfig("g", retry_backoff=0.0, retry_backoff_max=0.0)
    driver = Driver(slow, config, alive=alive)
    fetcher = OffsetFetcher(driver, lambda: 0.5)
    assert asyncio.run(fetcher.fetch([P0], None))[P0].offset == 7
    assert len(driver.lost) == given_up
    assert fetcher.trouble == "no answer to OffsetFetch"
