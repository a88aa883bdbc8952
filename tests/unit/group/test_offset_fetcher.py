"""Committed offsets are asked of a broker that takes its time."""

import asyncio
import math
from contextlib import nullcontext
from types import SimpleNamespace

import pytest
from fakes.virtual_time import run_in_virtual_time

from kafka_actors.errors import KafkaTimeoutError
from kafka_actors.group.commit_metadata import pack
from kafka_actors.group.machines.embedded_protocol import GroupConfig
from kafka_actors.group.machines.member_events import GroupChannel
from kafka_actors.group.offset_fetcher import GroupOffsets, OffsetFetcher
from kafka_actors.protocol.messages.offset_fetch import (
    OffsetFetchResponse,
    OffsetFetchResponseGroup,
    OffsetFetchResponsePartitions,
    OffsetFetchResponseTopics,
)
from kafka_actors.types import OffsetAndMetadata, TopicPartition

P0 = TopicPartition("t", 0)


class Slow:
    """The channels to a broker that takes `takes_s` seconds for each OffsetFetch; the time is `now`."""

    broker = None

    def __init__(self, takes_s, code=0):
        self.takes_s, self.now, self.asked, self.code = takes_s, 0.0, [], code

    def fetching_offsets(self):
        return nullcontext()

    async def ask(self, request, timeout_ms, channel):
        assert channel is GroupChannel.OFFSET_FETCH
        self.asked.append(timeout_ms / 1000)
        self.now += min(self.takes_s, timeout_ms / 1000)
        if self.takes_s > timeout_ms / 1000:
            raise KafkaTimeoutError("no answer to OffsetFetch")
        unstable = self.code == 88  # only who asks for stable offsets is told of an open transaction
        code = 0 if unstable and not request.require_stable else self.code
        partition = OffsetFetchResponsePartitions(0, 7, error_code=code)
        topics = [OffsetFetchResponseTopics(name="t", partitions=[partition])]
        return OffsetFetchResponse(groups=[OffsetFetchResponseGroup(group_id="g", topics=topics)])


class Driver:
    """A membership whose coordinator acknowledges heartbeats, or doesn't (`alive`); `lost`: why it was given up."""

    def __init__(self, slow, config, *, alive=True):
        self.channels = slow
        self.machine = SimpleNamespace(config=config, trouble="")
        self.now = lambda: slow.now
        self.lost = []
        self.coordinator_lost = self.lost.append
        self.last_acknowledged = math.inf if alive else None

    async def coordinator_known(self):
        """It is."""


@pytest.mark.parametrize(
    ("takes_s", "timeouts"), [(1.0, [9.0]), (12.0, [9.0, 18.0]), (25.0, [9.0, 18.0, 30.0])]
)
def test_a_broker_that_is_slow_has_more_time_at_each_try_and_one_that_answers_again_the_usual(
    takes_s, timeouts
):
    slow, config = Slow(takes_s), GroupConfig("g", retry_backoff=0.0, retry_backoff_max=0.0)
    fetcher = OffsetFetcher(Driver(slow, config), lambda: 0.5)

    async def scenario():
        for expected in (timeouts, timeouts[-1:]):  # it is as slow the next time
            found = await fetcher.fetch([P0], None)
            assert found[P0].offset == 7
            assert slow.asked == expected
            slow.asked.clear()
        slow.takes_s = 0.1
        for _ in range(2):
            await fetcher.fetch([P0], None)
        assert slow.asked == [timeouts[-1], 9.0]

    asyncio.run(scenario())


@pytest.mark.parametrize(("alive", "losses"), [(True, 0), (False, 1)])
def test_a_slow_broker_that_acknowledges_heartbeats_is_not_given_up(alive, losses):
    slow, config = Slow(12.0), GroupConfig("g", retry_backoff=0.0, retry_backoff_max=0.0)
    driver = Driver(slow, config, alive=alive)
    fetcher = OffsetFetcher(driver, lambda: 0.5)
    assert asyncio.run(fetcher.fetch([P0], None))[P0].offset == 7
    assert len(driver.lost) == losses
    assert fetcher.trouble == "no answer to OffsetFetch"


def test_offsets_that_a_transaction_moves_are_waited_for_with_a_reason_and_a_bound():
    slow, config = Slow(8.0, code=88), GroupConfig("g", retry_backoff=0.0, retry_backoff_max=0.0)
    fetcher = OffsetFetcher(Driver(slow, config), lambda: 0.5)
    open_ = "a transaction is open that commits offsets of group g for t-0"
    with pytest.raises(KafkaTimeoutError, match=f"not known after 960 s: {open_}"):
        asyncio.run(fetcher.fetch([P0], None))
    assert 960 <= slow.now <= 980
    slow.code = 0
    assert asyncio.run(fetcher.fetch([P0], None))[P0].offset == 7


def test_the_wait_for_one_transaction_does_not_count_for_the_next():
    slow, config = Slow(8.0, code=88), GroupConfig("g", retry_backoff=0.0, retry_backoff_max=0.0)
    fetcher = OffsetFetcher(Driver(slow, config), lambda: 0.5)
    codes = [*[88] * 100, 14, *[88] * 100, 0]

    async def ask(request, timeout_ms, channel):
        slow.code = codes.pop(0)
        return await Slow.ask(slow, request, timeout_ms, channel)

    slow.ask = ask
    assert asyncio.run(fetcher.fetch([P0], None))[P0].offset == 7
    assert fetcher.trouble.startswith("a transaction is open")


def test_the_bound_of_a_wait_is_not_put_off_by_what_others_ask_meanwhile():
    """A program that looks at its lag every minute would never be told of a transaction that hangs."""
    slow, config = Slow(8.0, code=88), GroupConfig("g", retry_backoff=0.0, retry_backoff_max=0.0)
    fetcher = OffsetFetcher(Driver(slow, config), lambda: 0.5)
    asking = [P0]

    async def ask(request, timeout_ms, channel):
        assert slow.now < 2_000
        if len(slow.asked) % 7 == 6 and asking:
            slow.asked.append(0.0)
            slow.code = 0
            found = await fetcher.fetch([asking.pop()], None)
            assert found[P0].offset == 7
            asking.append(P0)
            slow.code = 88
        return await Slow.ask(slow, request, timeout_ms, channel)

    slow.ask = ask
    with pytest.raises(KafkaTimeoutError, match="not known after 960 s"):
        asyncio.run(fetcher.fetch([P0], None))
    assert 960 <= slow.now <= 1100


def test_a_partition_that_an_answer_leaves_out_is_asked_again_after_a_pause():
    slow, config = Slow(0.1), GroupConfig("g", retry_backoff=0.5, retry_backoff_max=0.5)
    fetcher = OffsetFetcher(Driver(slow, config), lambda: 0.5)

    async def ask(request, timeout_ms, channel):
        answer = await Slow.ask(slow, request, timeout_ms, channel)
        if len(slow.asked) < 3:
            answer.groups[0].topics.clear()
        return answer

    slow.ask = ask

    async def scenario():
        began = asyncio.get_running_loop().time()
        found = await fetcher.fetch([P0], None)
        return found[P0].offset, asyncio.get_running_loop().time() - began

    offset, seconds = run_in_virtual_time(scenario())
    assert (offset, len(slow.asked)) == (7, 3)
    assert seconds >= 0.8


@pytest.mark.parametrize(
    ("topic_id", "requests"), [(None, 0), (b"1" * 16, 0), (b"2" * 16, 1)], ids=["none", "its", "another"]
)
@pytest.mark.parametrize("error", [None, KafkaTimeoutError("no broker answers")], ids=["answered", "failed"])
def test_newer_metadata_is_requested_where_an_offset_names_another_id_than_its_topic_has(
    topic_id, requests, error
):
    updates = []

    async def update():
        updates.append(1)
        if error is not None:
            raise error

    snapshot = SimpleNamespace(topic_id=lambda topic: b"1" * 16)
    client = SimpleNamespace(snapshot=snapshot, cluster=SimpleNamespace(request_update=update))
    offsets = GroupOffsets(Driver(Slow(1.0), GroupConfig("g")), client, None, lambda: 0.5)
    asyncio.run(offsets.learn_ids({P0: OffsetAndMetadata(7, pack("", topic_id))}))
    assert len(updates) == requests
