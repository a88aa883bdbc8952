"""The fetch path against brokers that answer as told: versions, sessions, errors, broken connections."""

import asyncio
import itertools
import uuid
from functools import partial

import pytest
from fakes.fetching import count_fetched
from msgspec import structs
from waiting import slow_s, until_async, within

import kafka_actors.records as records
from kafka_actors.config import ConsumerConfig, build
from kafka_actors.errors import DisconnectedError
from kafka_actors.fetch import BrokerFetcher, Fetcher, PartitionFetch, PartitionStart, Pull
from kafka_actors.fetch.shared_records import SharedRecords
from kafka_actors.fetch.steady_fetch import SMALL_BYTES, FetchLoop, SteadyFetch
from kafka_actors.net import FetchSocket, KafkaClient, OffsetLookups
from kafka_actors.protocol import FetchResponse
from kafka_actors.protocol.messages.fetch import FetchableTopicResponse, PartitionData
from kafka_actors.testing import FakeKafka
from kafka_actors.testing.fake_kafka import AnswerWith, AnswerWithError, DropConnection, Hold
from kafka_actors.types import TopicPartition

T0 = TopicPartition("t", 0)
COUNT = 100
ONE_BATCH = 100
"""Bytes of which one batch has more: an answer brings a batch then."""


def filled(kafka):
    """Makes topic `t` of one partition, with 10 batches of 10 records each."""
    kafka.create_topic("t", 1, len(kafka.broker_ids))
    for first in range(0, COUNT, 10):
        kafka.produce("t", [b"%d" % offset for offset in range(first, first + 10)])


class Setup:
    def __init__(self, brokers=1, version="4.1", **options):
        self.kafka = FakeKafka(brokers, version=version)
        self.options = {"max_partition_fetch_bytes": ONE_BATCH, **options}

    async def __aenter__(self):
        filled(self.kafka.start())
        self.config = build(
            ConsumerConfig,
            self.options,
            bootstrap_servers=self.kafka.bootstrap_servers,
            auto_offset_reset="earliest",
        )
        self.client = KafkaClient(self.config)
        self.client.set_topics(["t"])
        await self.client.bootstrap()
        self.sources = {}
        self.fetcher = Fetcher(
            self.config,
            sources=self.source,
            lookups=OffsetLookups(self.client),
            request_metadata=self.client.cluster.request_update,
        )
        self.client.cluster.add_listener(lambda _: self.fetcher.update_metadata(self.client.snapshot))
        self.fetcher.update_metadata(self.client.snapshot)
        await self.fetcher.start()
        self.fetcher.assign({T0: PartitionStart((0, 1), 0)})
        return self

    def source(self, broker):
        if broker not in self.sources:
            known = self.client.snapshot.brokers[broker]
            self.sources[broker] = BrokerFetcher(
                broker, known.host, known.port, self.config, connect=FetchSocket
            )
        return self.sources[broker]

    async def __aexit__(self, *_):
        await self.fetcher.close()
        for source in self.sources.values():
            await source.close()
        await self.client.close()
        self.kafka.stop()

    def connections(self):
        """Number of connections on which records were asked for."""
        return len({call.link.number for call in self.kafka.requests("Fetch")})

    async def read(self, count):
        offsets = []
        while len(offsets) < count:
            item = await self.fetcher.next(slow_s(10))
            assert item is not None, f"{len(offsets)} of {count}; {self.fetcher.reason(T0)}"
            for chunk in self.fetcher.decode(item):
                offsets += chunk.batch["offset"].to_pylist()
            self.fetcher.consumed(item)
        return offsets


def run(test, **options):
    async def body():
        async with Setup(**options) as setup:
            await test(setup)

    asyncio.run(body())


@pytest.mark.parametrize(
    ("release", "version"),
    [("2.1", 10), ("2.3", 11), ("2.7", 12), ("3.1", 13), ("3.5", 15), ("3.9", 17)],
)
def test_every_version_of_fetch_reads_the_same(release, version):
    async def test(setup):
        assert await setup.read(COUNT) == list(range(COUNT))
        calls = setup.kafka.requests("Fetch")
        assert {call.version for call in calls} == {version}
        assert [c.request.session_epoch for c in calls[:3]] == [0, 1, 2]

    run(test, version=release)


@pytest.mark.parametrize(
    "trouble",
    [DropConnection(), *map(AnswerWithError, (70, 71, 106, -1))],
    ids=["drop", "70", "71", "106", "-1"],
)
def test_no_trouble_with_one_answer_repeats_or_skips_a_record(trouble):
    async def test(setup):
        asked = itertools.count()
        rule = setup.kafka.on("Fetch", trouble, times=3, when=lambda _: next(asked) % 2 == 1)
        assert await setup.read(COUNT) == list(range(COUNT))
        assert len(rule.calls) == 3

    run(test)


async def trouble_with(setup, ends, answer):
    """Has the next answer be another one. It stays away until there are records, so that it is the answer to a request of the loop."""
    setup.kafka.on("Fetch", answer)


async def pause(setup, ends):
    before = len(ends)
    setup.fetcher.pause([T0])
    await until_async(lambda: len(ends) > before)
    setup.fetcher.resume([T0])


async def move(setup, ends):
    setup.kafka.set_leader("t", 0, 3 - setup.kafka.leaders("t")[0])


async def grow(setup, ends):
    """Has the next answer be too large for the loop."""
    setup.kafka.produce("t", [b"x" * 2 * SMALL_BYTES])


@pytest.mark.skipif(FetchLoop is None, reason="without the compiled module nothing goes on by itself")
@pytest.mark.parametrize(
    "happens",
    [
        partial(trouble_with, answer=DropConnection()),
        *(partial(trouble_with, answer=AnswerWithError(code)) for code in (70, 71, -1)),
        pause,
        move,
        grow,
    ],
    ids=["drop", "70", "71", "-1", "pause", "move", "grow"],
)
def test_records_that_come_one_by_one_are_read_by_a_loop_and_once_whatever_happens_between(
    happens, monkeypatch
):
    ends, run_loop = [], SteadyFetch.run

    def noted(self, loop, *arguments):
        try:
            return run_loop(self, loop, *arguments)
        finally:
            ends.append(loop.exchanges)

    async def test(setup):
        offsets = await setup.read(COUNT)
        for number in range(30):
            if number in (10, 20):
                await happens(setup, ends)
            setup.kafka.produce("t", [b"x"])
            offsets += await setup.read(1)
        while len(offsets) < COUNT + 30 + 2 * (happens is grow):
            offsets += await setup.read(1)
        assert offsets == list(range(len(offsets)))
        assert sum(ends) >= 10
        assert len(ends) >= 2, "what happened has ended a loop"

    monkeypatch.setattr(SteadyFetch, "run", noted)
    run(test, brokers=2, fetch_max_wait_ms=100, max_partition_fetch_bytes=1_000_000)


def test_a_leader_hint_is_followed_without_new_metadata():
    async def test(setup):
        setup.kafka.on("Metadata", Hold(), times=None)
        new = 3 - setup.kafka.leaders("t")[0]
        setup.kafka.set_leader("t", 0, new)
        assert await setup.read(COUNT) == list(range(COUNT))
        assert len([call for call in setup.kafka.requests("Fetch") if call.node_id == new]) >= 10

    run(test, brokers=2)


def test_a_partition_without_a_leader_causes_no_hot_loop():
    async def test(setup):
        def nobody(call):
            part = PartitionData(partition_index=0, error_code=6, high_watermark=-1)
            entry = FetchableTopicResponse(
                topic_id=uuid.UUID(bytes=setup.client.snapshot.topic_id("t")), partitions=[part]
            )
            return FetchResponse(session_id=7, responses=[entry] if call.request.topics else [])

        setup.kafka.on("Fetch", AnswerWith(nobody), times=None)
        fetches, metadata = setup.kafka.count("Fetch"), setup.kafka.count("Metadata")
        assert await setup.fetcher.next(2.0) is None
        assert setup.kafka.count("Fetch") - fetches <= 20
        assert setup.kafka.count("Metadata") - metadata <= 20
        await until_async(lambda: setup.fetcher.reason(T0).startswith("backing off: NOT_LEADER_OR_FOLLOWER"))

    run(test)


def test_a_broker_that_never_answers_is_given_up_after_the_request_timeout():
    async def test(setup):
        setup.kafka.on("Fetch", Hold())
        assert await setup.read(COUNT) == list(range(COUNT))
        assert setup.connections() >= 2

    run(test, request_timeout_ms=300, fetch_max_wait_ms=100)


def test_no_pull_means_no_fetch():
    async def test(setup):
        setup.fetcher.pause([T0])
        await asyncio.sleep(0.3)
        before = setup.kafka.count("Fetch")
        await asyncio.sleep(0.3)
        assert setup.kafka.count("Fetch") == before
        setup.fetcher.resume([T0])
        assert await setup.read(COUNT) == list(range(COUNT))

    run(test, fetch_max_wait_ms=100)


def on_one_broker(test):
    """Runs a test of one connection to a broker of the last release that names topics in a Fetch."""

    async def body():
        with FakeKafka(version="2.7") as kafka:
            filled(kafka)
            await test(kafka, build(ConsumerConfig, bootstrap_servers=kafka.bootstrap_servers))

    asyncio.run(body())


def connected(kafka, config, **more):
    return BrokerFetcher(
        1, "127.0.0.1", int(kafka.bootstrap_servers.partition(":")[2]), config, connect=FetchSocket, **more
    )


WANT = PartitionFetch("t", 0, (0, 1), 0, ONE_BATCH)


def test_a_cut_stream_refuses_pulls_until_it_begins_anew():
    async def test(kafka, config):
        fetcher = connected(kafka, config)
        reply, answer = await fetcher.pull(Pull(0, [WANT], max_bytes=1000, max_wait_ms=10))
        (part,) = reply.partitions
        assert (part.fetch_offset, part.next_offset, part.size) == (0, 10, len(answer[0]))
        assert records.next_offset(answer[0]) == 10
        kafka.on("Fetch", DropConnection())
        lost = [fetcher.pull(Pull(n, max_bytes=1000, max_wait_ms=10)) for n in (1, 2)]
        for pull in lost:
            with pytest.raises(DisconnectedError):
                await pull
        with pytest.raises(DisconnectedError):
            await fetcher.pull(Pull(3, max_bytes=1000, max_wait_ms=10))
        reply, _ = await fetcher.pull(Pull(0, [WANT], max_bytes=1000, max_wait_ms=10))
        assert reply.partitions[0].next_offset == 10
        await fetcher.close()
        with pytest.raises(DisconnectedError):
            await fetcher.pull(Pull(1))

    on_one_broker(test)


def test_a_connection_that_was_idle_for_long_is_replaced_before_use():
    async def test(kafka, config):
        nonlocal now
        fetcher = connected(kafka, structs.replace(config, connections_max_idle_ms=300), clock=lambda: now)
        read = []
        for sequence, idle_s in enumerate((0, 0.2, 0.4, 0)):
            now += idle_s
            wants = [WANT] if sequence == 0 else []
            reply, _ = await fetcher.pull(Pull(sequence, wants, max_bytes=1000, max_wait_ms=10))
            read += [(part.fetch_offset, part.next_offset) for part in reply.partitions]
        assert read == [(0, 10), (10, 20), (20, 30), (30, 40)]
        links = [call.link.number for call in kafka.requests("Fetch")]
        assert links[0] == links[1] != links[2] == links[3]
        await fetcher.close()

    now = 1000.0
    on_one_broker(test)


def test_after_an_answer_that_brought_little_the_next_one_keeps_the_pace(monkeypatch):
    """And one that comes late anyway is not held back."""

    async def test(kafka, config):
        nonlocal now
        fetcher = connected(kafka, config, clock=lambda: now)
        await fetcher.pull(Pull(0, [WANT], max_bytes=1000, max_wait_ms=10, pace_ms=500))
        assert slept == []
        now += 0.2
        await fetcher.pull(Pull(1, max_bytes=1000, max_wait_ms=10, pace_ms=500))
        assert slept == [pytest.approx(0.3)]
        now += 0.6
        await fetcher.pull(Pull(2, max_bytes=1000, max_wait_ms=10, pace_ms=500))
        assert len(slept) == 1
        await fetcher.close()

    now, slept = 1000.0, []
    monkeypatch.setattr("kafka_actors.fetch.broker_fetcher.time.sleep", slept.append)
    on_one_broker(test)


def test_close_does_not_wait_for_a_broker_that_is_silent():
    async def test(kafka, config):
        held = kafka.on("Fetch", Hold(), times=None)
        fetcher = connected(kafka, config)
        pull = fetcher.pull(Pull(0, [WANT], max_bytes=1000, max_wait_ms=10))
        await until_async(lambda: held.calls)
        with within(5):
            await fetcher.close()
        with pytest.raises(DisconnectedError):
            await pull

    on_one_broker(test)


SHARED = structs.replace(WANT, shared=True)


async def read(fetcher, shared=SHARED, until=COUNT, first=0):
    """Pulls the records of a partition up to an offset; returns each answer's offsets, and the records' bytes."""
    seen, brought, at = [], [], shared.fetch_offset
    for number in itertools.count(first):
        pull = Pull(number, [shared] if number == 0 else [], max_bytes=10_000, max_wait_ms=500)
        reply, parts = await fetcher.pull(pull)
        for fetched, records_of_it in zip(reply.partitions, parts, strict=True):
            if fetched.size:
                assert (fetched.fetch_offset, fetched.epoch) == (at, shared.epoch)
                at = fetched.next_offset
                seen.append(at)
                brought.append(bytes(records_of_it))
        if at >= until:
            return seen, brought


def test_records_that_several_workers_read_are_fetched_once():
    """Whoever comes first fetches, and who comes later gets the same bytes, from wherever it begins."""

    async def test(kafka, config):
        shared, sizes = SharedRecords(clock=lambda: 1000.0), count_fetched(kafka)
        fetchers = [connected(kafka, config, shared=shared, clock=lambda: 1000.0) for _ in range(4)]
        own = [structs.replace(SHARED, epoch=(0, number)) for number in (1, 2, 3)]
        answers = await asyncio.gather(*map(read, fetchers, own))
        # Not beside the others: a batch that somebody asks for by an offset within it may be on its way when they come to it.
        answers.append(await read(fetchers[3], structs.replace(SHARED, fetch_offset=33, epoch=(0, 4))))
        whole = b"".join(answers[0][1])
        assert [b"".join(brought) for _, brought in answers[1:3]] == [whole] * 2
        assert whole.endswith(b"".join(answers[3][1]))
        assert sum(sizes) == len(whole)
        alone = connected(kafka, config)
        await read(alone)
        assert sum(sizes) == 2 * len(whole), "who shares with nobody fetches for itself"
        for fetcher in (*fetchers, alone):
            await fetcher.close()

    on_one_broker(test)


def test_where_the_one_that_fetches_fails_another_one_does():
    async def test(kafka, config):
        shared = SharedRecords()
        one, two = (connected(kafka, config, shared=shared) for _ in range(2))
        held = kafka.on("Fetch", Hold())
        failing = one.pull(Pull(0, [SHARED], max_bytes=1000, max_wait_ms=60_000))
        await until_async(lambda: held.calls)
        waiting = two.pull(Pull(0, [SHARED], max_bytes=1000, max_wait_ms=60_000))
        await asyncio.sleep(0.05)
        assert not waiting.done()
        assert len(kafka.requests("Fetch")) == 1
        await one.close()
        with pytest.raises(DisconnectedError):
            await failing
        reply, _ = await waiting
        assert reply.partitions[0].next_offset == 10
        await two.close()

    on_one_broker(test)


def test_who_waits_for_anothers_records_is_answered_in_time_and_can_be_closed():
    async def test(kafka, config):
        shared = SharedRecords()
        one, two, three = (connected(kafka, config, shared=shared) for _ in range(3))
        held = kafka.on("Fetch", Hold())
        failing = one.pull(Pull(0, [SHARED], max_bytes=1000, max_wait_ms=60_000))
        await until_async(lambda: held.calls)
        with within(5):
            reply, _ = await two.pull(Pull(0, [SHARED], max_bytes=1000, max_wait_ms=50))
        assert reply.partitions == []
        reply, _ = await three.pull(Pull(0, [SHARED], max_bytes=1000, max_wait_ms=0))
        assert reply.partitions == []
        waiting = three.pull(Pull(1, max_bytes=1000, max_wait_ms=60_000))
        with within(5):
            await three.close()
            assert (await waiting)[0].partitions == []
        for fetcher in (one, two):
            await fetcher.close()
        with pytest.raises(DisconnectedError):
            await failing

    on_one_broker(test)


def test_partitions_of_others_do_not_wait_for_one_that_is_fetched_elsewhere():
    async def test(kafka, config):
        kafka.create_topic("u", 1)
        kafka.produce("u", [b"1"])
        shared = SharedRecords()
        one, two = (connected(kafka, config, shared=shared) for _ in range(2))
        held = kafka.on("Fetch", Hold())
        failing = one.pull(Pull(0, [SHARED], max_bytes=1000, max_wait_ms=60_000))
        await until_async(lambda: held.calls)
        alone = PartitionFetch("u", 0, (0, 2), 0, ONE_BATCH)
        reply, _ = await two.pull(Pull(0, [SHARED, alone], max_bytes=1000, max_wait_ms=5_000))
        assert [(each.topic, each.next_offset) for each in reply.partitions] == [("u", 1)]
        await one.close()
        with pytest.raises(DisconnectedError):
            await failing
        replies = [await two.pull(Pull(n, max_bytes=1000, max_wait_ms=10)) for n in (1, 2)]
        found = [each.next_offset for reply, _ in replies for each in reply.partitions if each.topic == "t"]
        assert found[:1] == [10]
        await two.close()

    on_one_broker(test)
