"""Committed offsets are asked of a broker that takes its time."""

import asyncio
from types import SimpleNamespace

import pytest

from kafka_actors.coordinator.fetching import OffsetFetcher
from kafka_actors.coordinator.machines.policy import GroupConfig
from kafka_actors.errors import KafkaTimeoutError
from kafka_actors.protocol.messages.offset_fetch import (
    OffsetFetchResponse,
    OffsetFetchResponseGroup,
    OffsetFetchResponsePartitions,
    OffsetFetchResponseTopics,
)
from kafka_actors.protocol.types import TopicPartition

P0 = TopicPartition("t", 0)


class Slow:
    """The channels to a broker that takes `takes_s` seconds for each answer; the time is `now`."""

    broker = None

    def __init__(self, takes_s):
        self.takes_s, self.now, self.asked = takes_s, 0.0, []

    async def ask(self, request, timeout_ms):
        self.asked.append(timeout_ms / 1000)
        self.now += min(self.takes_s, timeout_ms / 1000)
        if self.takes_s > timeout_ms / 1000:
            raise KafkaTimeoutError("no answer to OffsetFetch")
        partition = OffsetFetchResponsePartitions(partition_index=0, committed_offset=7)
        topics = [OffsetFetchResponseTopics(name="t", partitions=[partition])]
        return OffsetFetchResponse(groups=[OffsetFetchResponseGroup(group_id="g", topics=topics)])


async def known():
    """The coordinator is."""


@pytest.mark.parametrize(("takes_s", "asked"), [(1.0, [9.0]), (12.0, [9.0, 18.0]), (25.0, [9.0, 18.0, 30.0])])
def test_a_broker_that_is_slow_has_more_time_at_each_try_and_one_that_answers_again_the_usual(takes_s, asked):
    slow, config = Slow(takes_s), GroupConfig("g", retry_backoff=0.0, retry_backoff_max=0.0)
    coordinator = SimpleNamespace(ensure_coordinator_known=known, coordinator_dead=lambda error: None)
    fetcher = OffsetFetcher(coordinator, slow, config, lambda: 0.5, clock=lambda: slow.now)

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
