"""The fetch path against brokers that answer as told: versions, sessions, errors, broken connections."""

import asyncio

import pyarrow as pa
import pytest
from fakes.broker import DROP, SILENCE, FakeCluster
from waiting import within

import kafka_actors.records as records
from kafka_actors.config import ConsumerConfig, build
from kafka_actors.errors import DisconnectedError
from kafka_actors.fetch import BrokerFetcher, Fetcher, PartitionFetch, PartitionStart, Pull
from kafka_actors.net import FetchSocket, KafkaClient, OffsetLookups
from kafka_actors.protocol import ApiKey, FetchResponse
from kafka_actors.protocol.messages.fetch import FetchableTopicResponse, LeaderIdAndEpoch, PartitionData
from kafka_actors.types import TopicPartition

T0 = TopicPartition("t", 0)


def data(first, count):
    rows = [{"value": b"%d" % o, "offset": o} for o in range(first, first + count)]
    return records.encode(
        pa.RecordBatch.from_pylist(rows, pa.schema([("value", pa.binary()), ("offset", pa.int64())]))
    )


class Log:
    """A partition's log behind a FETCH handler: ten records a batch, up to `end`."""

    def __init__(self, cluster, end=100):
        self.cluster = cluster
        self.end = end
        self.offsets = {}

    async def __call__(self, request, call):
        if request.session_epoch == 0:
            self.offsets = {}
        for topic in request.topics:
            for partition in topic.partitions:
                self.offsets[partition.partition] = partition.fetch_offset
        parts = []
        for partition, offset in self.offsets.items():
            more = data(offset, min(10, self.end - offset)) if offset < self.end else None
            parts.append(PartitionData(partition_index=partition, records=more, high_watermark=self.end))
        if not any(p.records for p in parts):
            await asyncio.sleep(min(0.05, request.max_wait_ms / 1000))
        entry = FetchableTopicResponse(topic="t", topic_id=self.cluster.topic_ids["t"], partitions=parts)
        return FetchResponse(session_id=7, responses=[entry])


class Setup:
    def __init__(self, brokers=1, versions=None, **options):
        self.cluster = FakeCluster(brokers, {"t": 1}, versions=versions)
        self.options = options

    async def __aenter__(self):
        await self.cluster.__aenter__()
        for broker in self.cluster.brokers:
            broker.on(ApiKey.FETCH, Log(self.cluster))
        self.config = build(
            ConsumerConfig,
            self.options,
            bootstrap_servers=self.cluster.bootstrap,
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
        await self.cluster.__aexit__(None, None, None)

    async def read(self, count):
        offsets = []
        while len(offsets) < count:
            item = await self.fetcher.next(10)
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


@pytest.mark.parametrize("version", [10, 11, 12, 13, 15, 17])
def test_every_version_of_fetch_reads_the_same(version):
    async def test(setup):
        assert await setup.read(100) == list(range(100))
        calls = setup.cluster.brokers[0].calls(ApiKey.FETCH)
        assert {call.version for call in calls} == {version}
        assert [c.request.session_epoch for c in calls[:3]] == [0, 1, 2]

    run(test, versions={ApiKey.FETCH: (4, version)})


def refuse(code):
    return lambda request, call: FetchResponse(error_code=code)


@pytest.mark.parametrize(
    "trouble",
    [DROP, refuse(70), refuse(71), refuse(106), refuse(-1)],
    ids=["drop", "70", "71", "106", "-1"],
)
def test_no_trouble_with_one_answer_repeats_or_skips_a_record(trouble):
    async def test(setup):
        broker = setup.cluster.brokers[0]
        for _ in range(3):
            broker.once(ApiKey.FETCH, Log(setup.cluster), trouble)
        assert await setup.read(100) == list(range(100))

    run(test)


def test_a_leader_hint_is_followed_without_new_metadata():
    async def test(setup):
        one, two = setup.cluster.brokers

        def moved(request, call):
            part = PartitionData(
                partition_index=0,
                error_code=6,
                high_watermark=-1,
                current_leader=LeaderIdAndEpoch(leader_id=1, leader_epoch=9),
            )
            entry = FetchableTopicResponse(topic_id=setup.cluster.topic_ids["t"], partitions=[part])
            return FetchResponse(session_id=7, responses=[entry])

        one.on(ApiKey.FETCH, moved)
        one.on(ApiKey.METADATA, SILENCE)
        two.on(ApiKey.METADATA, SILENCE)
        assert await setup.read(100) == list(range(100))
        assert two.counts[ApiKey.FETCH] >= 10

    run(test, brokers=2)


def test_a_partition_without_a_leader_causes_no_hot_loop():
    async def test(setup):
        broker = setup.cluster.brokers[0]

        def nobody(request, call):
            part = PartitionData(partition_index=0, error_code=6, high_watermark=-1)
            entry = FetchableTopicResponse(topic_id=setup.cluster.topic_ids["t"], partitions=[part])
            return FetchResponse(session_id=7, responses=[entry] if request.topics else [])

        broker.on(ApiKey.FETCH, nobody)
        before = broker.counts.copy()
        assert await setup.fetcher.next(2.0) is None
        assert broker.counts[ApiKey.FETCH] - before[ApiKey.FETCH] <= 20
        assert broker.counts[ApiKey.METADATA] - before[ApiKey.METADATA] <= 20
        assert setup.fetcher.reason(T0).startswith("backing off: NOT_LEADER_OR_FOLLOWER")

    run(test)


def test_a_broker_that_never_answers_is_given_up_after_the_request_timeout():
    async def test(setup):
        broker = setup.cluster.brokers[0]
        broker.once(ApiKey.FETCH, SILENCE)
        assert await setup.read(100) == list(range(100))
        assert broker.accepted >= 3

    run(test, request_timeout_ms=300, fetch_max_wait_ms=100)


def test_no_pull_means_no_fetch():
    async def test(setup):
        broker = setup.cluster.brokers[0]
        setup.fetcher.pause([T0])
        await asyncio.sleep(0.3)
        before = broker.counts[ApiKey.FETCH]
        await asyncio.sleep(0.3)
        assert broker.counts[ApiKey.FETCH] == before
        setup.fetcher.resume([T0])
        assert await setup.read(100) == list(range(100))

    run(test)


def test_a_connection_that_was_idle_for_long_is_replaced_before_use():
    async def test(setup):
        broker = setup.cluster.brokers[0]
        assert await setup.read(10)
        setup.fetcher.pause([T0])
        await asyncio.sleep(0.6)
        accepted = broker.accepted
        setup.fetcher.resume([T0])
        assert (await setup.read(10))[0] >= 10
        assert broker.accepted > accepted

    run(test, connections_max_idle_ms=300)


def test_a_cut_stream_refuses_pulls_until_it_begins_anew():
    async def body():
        cluster = FakeCluster(1, {"t": 1})
        async with cluster:
            broker = cluster.brokers[0]
            broker.on(ApiKey.FETCH, Log(cluster))
            config = build(ConsumerConfig, bootstrap_servers=cluster.bootstrap)
            fetcher = BrokerFetcher(0, "127.0.0.1", broker.port, config, connect=FetchSocket)
            want = PartitionFetch("t", 0, (0, 1), 0, 1000, cluster.topic_ids["t"].bytes)
            reply, answer = await fetcher.pull(Pull(0, [want], max_bytes=1000, max_wait_ms=10))
            (part,) = reply.partitions
            assert (part.fetch_offset, part.next_offset, part.size) == (0, 10, len(answer[0]))
            assert records.next_offset(answer[0]) == 10
            broker.once(ApiKey.FETCH, DROP)
            lost = [fetcher.pull(Pull(n, max_bytes=1000, max_wait_ms=10)) for n in (1, 2)]
            for pull in lost:
                with pytest.raises(DisconnectedError):
                    await pull
            with pytest.raises(DisconnectedError):
                await fetcher.pull(Pull(3, max_bytes=1000, max_wait_ms=10))
            reply, _ = await fetcher.pull(Pull(0, [want], max_bytes=1000, max_wait_ms=10))
            assert reply.partitions[0].next_offset == 10
            await fetcher.close()
            with pytest.raises(DisconnectedError):
                await fetcher.pull(Pull(1))

    asyncio.run(body())


def test_after_an_answer_that_brought_little_the_next_one_keeps_the_pace(monkeypatch):
    """And one that comes late anyway is not held back."""

    async def body():
        nonlocal now
        cluster = FakeCluster(1, {"t": 1})
        async with cluster:
            broker = cluster.brokers[0]
            broker.on(ApiKey.FETCH, Log(cluster))
            config = build(ConsumerConfig, bootstrap_servers=cluster.bootstrap)
            fetcher = BrokerFetcher(
                0, "127.0.0.1", broker.port, config, connect=FetchSocket, clock=lambda: now
            )
            want = PartitionFetch("t", 0, (0, 1), 0, 1000, cluster.topic_ids["t"].bytes)
            await fetcher.pull(Pull(0, [want], max_bytes=1000, max_wait_ms=10, pace_ms=500))
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
    asyncio.run(body())


def test_close_does_not_wait_for_a_broker_that_is_silent():
    async def body():
        cluster = FakeCluster(1, {"t": 1})
        async with cluster:
            broker = cluster.brokers[0]
            broker.on(ApiKey.FETCH, SILENCE)
            config = build(ConsumerConfig, bootstrap_servers=cluster.bootstrap)
            fetcher = BrokerFetcher(0, "127.0.0.1", broker.port, config, connect=FetchSocket)
            pull = fetcher.pull(
                Pull(0, [PartitionFetch("t", 0, (0, 1), 0, 1000)], max_bytes=1000, max_wait_ms=10)
            )
            await broker.wait_for(ApiKey.FETCH)
            with within(5):
                await fetcher.close()
            with pytest.raises(DisconnectedError):
                await pull

    asyncio.run(body())
