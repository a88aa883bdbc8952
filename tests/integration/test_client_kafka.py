"""The client, its look-ups and sockets against brokers, some of which are killed or stopped."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from typing import Any

import pytest
from fakes.asking import answer_to
from fakes.loop import in_loop
from pace import this_run
from waiting import slow_s, until_async, within

from kafka_actors.config import ClientConfig, build
from kafka_actors.errors import (
    KafkaActorsError,
    MemberIdRequiredError,
    RebalanceInProgressError,
    SslAuthenticationError,
    raise_for_code,
)
from kafka_actors.net import EARLIEST, LATEST, EpochEnd, FetchSocket, KafkaClient, ListedOffset, OffsetLookups
from kafka_actors.net.offsets import MAX_TIMESTAMP
from kafka_actors.protocol import (
    ConsumerProtocolSubscription,
    FetchRequest,
    FindCoordinatorRequest,
    FindCoordinatorResponse,
    HeartbeatRequest,
    JoinGroupRequest,
    ListGroupsRequest,
    MetadataRequest,
    SyncGroupRequest,
    TopicPartition,
    decode,
    decode_header,
    encode_consumer_protocol,
    frame,
)
from kafka_actors.protocol.messages.fetch import FetchPartition, FetchTopic
from kafka_actors.protocol.messages.join_group import JoinGroupRequestProtocol
from kafka_actors.protocol.messages.sync_group import SyncGroupRequestAssignment
from kafka_actors.testing import FakeKafka, KafkaCluster

Topic = Callable[..., str]


async def retried(call: Callable[[], Any], seconds: float = 30.0) -> Any:
    """Repeats a call after retriable errors, with a pause, as callers do."""
    async with asyncio.timeout(slow_s(seconds)):
        while True:
            try:
                return await call()
            except KafkaActorsError as error:
                if not error.retriable:
                    raise
                await asyncio.sleep(0.1)


@pytest.mark.kafka
@in_loop
async def test_bootstrap_and_metadata(cluster: KafkaCluster | FakeKafka, kafka_topic: Topic) -> None:
    topic = kafka_topic(partitions=5)
    async with KafkaClient(bootstrap_servers=cluster.bootstrap_servers) as client:
        assert client.snapshot.topics == {}
        await client.set_topics([topic])
        assert client.snapshot.partitions_for_topic(topic) == {0, 1, 2, 3, 4}
        assert len(client.snapshot.topic_id(topic) or b"") == 16
        assert client.snapshot.leader_epoch(TopicPartition(topic, 0)) == 0
        await client.set_topics(None)
        assert topic in client.snapshot.topics
        assert await client.check_version(strict=True) == (4, 1)


@in_loop
async def test_a_recreated_topic_has_another_id(
    cluster: KafkaCluster | FakeKafka, kafka_topic: Topic
) -> None:
    topic = kafka_topic(partitions=3)
    async with KafkaClient(bootstrap_servers=cluster.bootstrap_servers) as client:
        await client.set_topics([topic])
        old = client.snapshot.topic_id(topic)
        await asyncio.to_thread(cluster.delete_topic, topic)
        await client.update_metadata()
        await until_async(lambda: client.snapshot.topic_error(topic) == 3)
        await asyncio.to_thread(cluster.create_topic, topic, 2)
        await until_async(lambda: client.snapshot.partitions_for_topic(topic) == {0, 1})
        assert client.snapshot.topic_id(topic) not in (None, old)


@in_loop
async def test_offsets_by_time_and_ends_of_epochs(
    cluster: KafkaCluster | FakeKafka, kafka_topic: Topic, produce: Any
) -> None:
    topic = kafka_topic(partitions=2)
    await asyncio.to_thread(produce, topic, [b"a", b"b", b"c"], partition=0, timestamps=[1000, 3000, 2000])
    first, second = TopicPartition(topic, 0), TopicPartition(topic, 1)
    async with KafkaClient(bootstrap_servers=cluster.bootstrap_servers) as client:
        lookups = OffsetLookups(client)
        assert await lookups.list_offsets({first: EARLIEST, second: LATEST}) == {
            first: ListedOffset(0, -1, 0),
            second: ListedOffset(0, -1, 0),
        }
        assert await lookups.list_offsets({first: LATEST}, isolation_level="read_committed") == {
            first: ListedOffset(3, -1, 0)
        }
        assert await lookups.list_offsets({first: 1500}) == {first: ListedOffset(1, 3000, 0)}
        assert await lookups.list_offsets({first: MAX_TIMESTAMP}) == {first: ListedOffset(1, 3000, 0)}
        assert await lookups.list_offsets({first: 9000}) == {first: ListedOffset(-1, -1, -1)}
        assert await lookups.offsets_for_leader_epoch({first: (0, 0), second: (0, 7)}) == {
            first: EpochEnd(0, 3),
            second: EpochEnd(-1, -1),
        }


def test_the_fetch_socket_reads_records(
    cluster: KafkaCluster | FakeKafka, kafka_topic: Topic, produce: Any
) -> None:
    topic = kafka_topic()
    produce(topic, [b"x" * 1000] * 500, partition=0)
    host, _, port = cluster.bootstrap_servers.rpartition(":")
    fetch = FetchSocket(host, int(port), build(ClientConfig)).open()
    version = fetch.versions.pick(FetchRequest, highest=12)
    request = FetchRequest(
        max_wait_ms=500,
        min_bytes=1,
        max_bytes=10_000_000,
        topics=[
            FetchTopic(
                topic=topic, partitions=[FetchPartition(0, fetch_offset=0, partition_max_bytes=10_000_000)]
            )
        ],
    )
    data = answer_to(frame(FetchRequest.api_key, version, 7, "me", request), fetch)
    header, body = decode_header(FetchRequest.api_key, version, "response", data)
    assert header.correlation_id == 7
    answer = decode(FetchRequest, version, "response", body)
    partition = answer.responses[0].partitions[0]
    assert partition.high_watermark == 500
    assert bytes(partition.records).count(b"x" * 1000) == 500
    fetch.close()


@in_loop
async def test_a_join_that_waits_holds_up_no_heartbeat(
    cluster: KafkaCluster | FakeKafka, group_id: str
) -> None:
    metadata = encode_consumer_protocol(ConsumerProtocolSubscription(topics=[]))

    async with KafkaClient(bootstrap_servers=cluster.bootstrap_servers) as client:

        async def coordinator() -> FindCoordinatorResponse:
            found = await client.send(1, FindCoordinatorRequest(key=group_id), max_version=3)
            raise_for_code(found.error_code)
            return found

        found = await retried(coordinator)
        first, second = [await client.open_broker(1, found.host, found.port) for _ in range(2)]

        def join(member_id: str) -> JoinGroupRequest:
            return JoinGroupRequest(
                group_id=group_id,
                session_timeout_ms=60_000,
                rebalance_timeout_ms=60_000,
                member_id=member_id,
                protocol_type="consumer",
                protocols=[JoinGroupRequestProtocol("range", metadata)],
            )

        async def member(broker: Any) -> Any:
            async def ask() -> Any:
                required = await broker.request(join(""))
                if required.error_code != MemberIdRequiredError.code:
                    raise_for_code(required.error_code)  # the coordinator is still loading
                return required

            required = await retried(ask)
            return await broker.request(join(required.member_id), timeout_ms=100_000)

        leader = await member(first)
        assignments = [SyncGroupRequestAssignment(leader.member_id, b"")]
        await first.request(
            SyncGroupRequest(
                group_id, leader.generation_id, leader.member_id, None, "consumer", "range", assignments
            )
        )
        # The second member's join waits for the first, which does not rejoin: heartbeats of both pass meanwhile.
        joining = asyncio.create_task(member(second))
        beat = HeartbeatRequest(group_id, leader.generation_id, leader.member_id)

        async def beats(broker: Any) -> int:
            # Behind the join it would have no answer for a minute.
            limit_ms = slow_s(4) * 1000
            return (await broker.request(beat, offsets_channel=True, timeout_ms=limit_ms)).error_code

        async with asyncio.timeout(slow_s(5)):
            while await beats(first) != RebalanceInProgressError.code:  # noqa: ASYNC110
                await asyncio.sleep(0.05)
        for _ in range(5):
            assert await beats(second) == RebalanceInProgressError.code
        assert not joining.done()
        rejoined = await first.request(join(leader.member_id))
        assert (await joining).generation_id == rejoined.generation_id
        first.close()
        second.close()


@in_loop
async def test_offsets_are_found_and_leaders_known_after_a_broker_is_killed(
    kafka_cluster_3: KafkaCluster, kafka_topic: Topic
) -> None:
    topic = kafka_topic(partitions=6, replication_factor=3, cluster=kafka_cluster_3)
    tps = [TopicPartition(topic, i) for i in range(6)]
    async with KafkaClient(bootstrap_servers=kafka_cluster_3.bootstrap_servers) as client:
        await client.set_topics([topic])
        lookups = OffsetLookups(client)
        await lookups.list_offsets(dict.fromkeys(tps, LATEST))
        epochs = {tp: client.snapshot.leader_epoch(tp) for tp in tps}
        victim = client.snapshot.leader(tps[0])
        assert victim is not None
        await asyncio.to_thread(kafka_cluster_3.kill, victim)
        found = await lookups.list_offsets(dict.fromkeys(tps, LATEST), timeout_ms=slow_s(30) * 1000)
        assert all(isinstance(answer, ListedOffset) for answer in found.values())
        for tp in tps:
            assert client.snapshot.leader(tp) != victim
            assert client.snapshot.leader_epoch(tp) >= epochs[tp]
        await asyncio.to_thread(kafka_cluster_3.restart, victim)
        await retried(lambda: client.send(victim, ListGroupsRequest()))


@in_loop
async def test_a_stopped_broker_holds_up_nobody_else(
    kafka_cluster_3: KafkaCluster, kafka_topic: Topic
) -> None:
    topic = kafka_topic(partitions=6, replication_factor=3, cluster=kafka_cluster_3)
    tps = [TopicPartition(topic, i) for i in range(6)]
    async with KafkaClient(bootstrap_servers=kafka_cluster_3.bootstrap_servers) as client:
        await client.set_topics([topic])
        lookups = OffsetLookups(client)
        await lookups.list_offsets(dict.fromkeys(tps, LATEST))
        victim = client.snapshot.leader(tps[0])
        assert victim is not None
        others = [tp for tp in tps if client.snapshot.leader(tp) != victim]
        kafka_cluster_3.pause(victim)
        try:
            asked = asyncio.create_task(lookups.list_offsets(dict.fromkeys(tps, LATEST)))
            longest = 0.0
            while not asked.done():
                started = time.monotonic()
                found = await lookups.list_offsets(dict.fromkeys(others, LATEST))
                longest = max(longest, this_run().quiet_s(started, time.monotonic()))
                assert all(isinstance(answer, ListedOffset) for answer in found.values())
                await client.update_metadata()
                await asyncio.sleep(0.2)
            # The partitions of the stopped broker were asked of their new leaders, long before a request timeout.
            assert all(isinstance(answer, ListedOffset) for answer in (await asked).values())
            assert client.snapshot.leader(tps[0]) != victim
            assert longest < 4.0  # a broker that is waited for takes five seconds at least
        finally:
            kafka_cluster_3.resume(victim)


@in_loop
async def test_a_client_whose_bootstrap_server_is_stopped_finds_another(
    kafka_cluster_3: KafkaCluster,
) -> None:
    addresses = kafka_cluster_3.bootstrap_servers.split(",")
    kafka_cluster_3.pause(1)
    try:
        for _ in range(3):  # servers are asked in random order
            with within(5):
                async with KafkaClient(bootstrap_servers=addresses) as client:
                    assert len(client.snapshot.brokers) >= 2
                    response = await retried(lambda: client.send(2, MetadataRequest(topics=[])))
                    assert len(response.brokers) >= 2
    finally:
        kafka_cluster_3.resume(1)


@in_loop
async def test_tls_to_a_listener_without_it_is_named_at_once(cluster: KafkaCluster | FakeKafka) -> None:
    client = KafkaClient(bootstrap_servers=cluster.bootstrap_servers, security_protocol="SSL")
    with (
        within(10),
        pytest.raises(
            SslAuthenticationError, match="the port does not speak TLS, and security_protocol asks"
        ),
    ):
        await client.bootstrap(timeout_ms=60_000)
    await client.close()


@pytest.mark.kafka
@in_loop
async def test_an_older_api_version_than_the_brokers_is_spoken(
    cluster: KafkaCluster | FakeKafka, kafka_topic: Topic
) -> None:
    topic = kafka_topic(partitions=2)
    servers = cluster.bootstrap_servers
    async with KafkaClient(bootstrap_servers=servers, api_version=(2, 4)) as client:
        await client.set_topics([topic])
        assert client.snapshot.partitions_for_topic(topic) == {0, 1}
        assert client.snapshot.topic_id(topic) is None  # Metadata 9 has none
        assert await client.check_version() == (4, 1)
        found = await OffsetLookups(client).list_offsets({TopicPartition(topic, 0): LATEST})
        assert found == {TopicPartition(topic, 0): ListedOffset(0, -1, 0)}


@in_loop
async def test_an_idle_connection_is_closed_before_the_broker_does_and_had_anew(
    cluster: KafkaCluster | FakeKafka,
) -> None:
    async with KafkaClient(
        bootstrap_servers=cluster.bootstrap_servers, connections_max_idle_ms=1_000
    ) as client:
        await client.send(1, ListGroupsRequest())
        await until_async(lambda: not client.connected(1))
        assert not client.is_disconnected(1)
        assert (await client.send(1, ListGroupsRequest())).error_code == 0
        assert await client.poll(timeout_ms=50) == []
