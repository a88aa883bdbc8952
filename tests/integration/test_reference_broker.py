"""The requests of a `Broker`, against real Kafka."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pyarrow as pa
import pytest
from fakes.loop import in_loop
from fakes.scripted import arrived, brokers
from waiting import slow_s, until_async, within

from kafka_actors import records
from kafka_actors.config import ClientConfig, build
from kafka_actors.errors import (
    DisconnectedError,
    KafkaTimeoutError,
    NodeNotReadyError,
    UnknownMemberIdError,
    UsageError,
)
from kafka_actors.net import (
    EARLIEST,
    OFFSETS_CHANNEL,
    Broker,
    Connection,
    ConnectionOpener,
    MemberAssignment,
    PartitionFetchRequest,
    PartitionOffsetCommitRequest,
    PartitionOffsetFetchRequest,
    PartitionOffsetRequest,
)
from kafka_actors.protocol import FindCoordinatorRequest, ProduceRequest
from kafka_actors.protocol.messages.produce import PartitionProduceData, TopicProduceData
from kafka_actors.testing import KafkaCluster
from kafka_actors.testing.fake_kafka import DropConnection, Hold

LIMIT_MS = round(1_000 * slow_s(10))
"""The time for connections, requests and members that nobody is to run out of."""
OPENER = ConnectionOpener(
    build(
        ClientConfig,
        socket_connection_setup_timeout_ms=LIMIT_MS,
        socket_connection_setup_timeout_max_ms=LIMIT_MS,
    )
)
UNKNOWN_MEMBER = UnknownMemberIdError.code


def broker_of(kafka: KafkaCluster) -> Broker:
    host, port = kafka.address(1)
    return Broker(1, host, port, OPENER, LIMIT_MS, LIMIT_MS)


async def until_ready(ask: Callable[[], Any]) -> Any:
    """The first answer that isn't that of a coordinator which still loads (14, 15, 16)."""
    async with asyncio.timeout(slow_s(30)):
        while (answer := await ask()).error_code in (14, 15, 16):  # noqa: ASYNC110
            await asyncio.sleep(0.1)
        return answer


def one_batch() -> bytes:
    return records.encode(pa.record_batch({"value": pa.array([b"hello"], pa.binary())}))


@in_loop
async def test_produce_fetch_and_look_up_offsets(
    kafka_cluster: KafkaCluster, kafka_topic: Callable[..., str]
) -> None:
    topic = kafka_topic(partitions=2)
    broker = broker_of(kafka_cluster)
    data = [TopicProduceData(name=topic, partition_data=[PartitionProduceData(1, one_batch())])]
    produced = await broker.produce_messages(ProduceRequest(acks=-1, timeout_ms=LIMIT_MS, topic_data=data))
    assert produced.responses[0].partition_responses[0].error_code == 0

    fetched = await broker.fetch_messages([PartitionFetchRequest(topic, 1, 0)], timeout=1_000)
    partition = fetched.responses[0].partitions[0]
    assert (partition.error_code, partition.high_watermark) == (0, 1)
    assert b"hello" in bytes(partition.records)

    limits = await broker.request_offset_limits(
        [PartitionOffsetRequest(topic, 1), PartitionOffsetRequest(topic, 0, EARLIEST)]
    )
    assert {p.partition_index: p.offset for p in limits.topics[0].partitions} == {1: 1, 0: 0}
    broker.close()


@in_loop
async def test_fetch_waits_for_min_bytes_up_to_the_timeout(
    kafka_cluster: KafkaCluster, kafka_topic: Callable[..., str]
) -> None:
    topic = kafka_topic()
    broker = broker_of(kafka_cluster)
    loop = asyncio.get_running_loop()
    started = loop.time()
    fetched = await broker.fetch_messages([PartitionFetchRequest(topic, 0, 0)], timeout=700, min_bytes=1)
    assert loop.time() - started >= 0.7
    assert not bytes(fetched.responses[0].partitions[0].records or b"")
    with within(10):
        await broker.fetch_messages([PartitionFetchRequest(topic, 0, 0)], timeout=200_000, min_bytes=0)
    broker.close()


@in_loop
async def test_metadata_of_some_topics_or_of_all(
    kafka_cluster: KafkaCluster, kafka_topic: Callable[..., str]
) -> None:
    topic, other = kafka_topic(partitions=3), kafka_topic()
    broker = broker_of(kafka_cluster)
    found = await broker.request_metadata([topic.encode()])
    assert [(t.name, len(t.partitions)) for t in found.topics] == [(topic, 3)]
    assert {topic, other} <= {t.name for t in (await broker.request_metadata()).topics}
    assert (await broker.request_metadata([])).topics == []
    broker.close()


@in_loop
async def test_offsets_committed_by_nobody_go_over_the_offsets_channel(
    kafka_cluster: KafkaCluster, kafka_topic: Callable[..., str], group_id: str
) -> None:
    topic = kafka_topic(partitions=2)
    broker = broker_of(kafka_cluster)
    await find_coordinator(broker, group_id)
    commits = [
        PartitionOffsetCommitRequest(topic, 0, 7, "why"),
        PartitionOffsetCommitRequest(topic, 1, 8),
    ]

    async def commit() -> Any:
        return (await broker.commit_consumer_group_offsets(group_id, -1, "", commits)).topics[0].partitions[0]

    assert (await until_ready(commit)).error_code == 0
    wanted = [PartitionOffsetFetchRequest(topic, 0), PartitionOffsetFetchRequest(topic, 1)]
    fetched = await broker.fetch_consumer_group_offsets(group_id.encode(), wanted)
    found = {p.partition_index: (p.committed_offset, p.metadata) for p in fetched.topics[0].partitions}
    assert found == {0: (7, "why"), 1: (8, "")}
    assert broker.offsets_channel_connected
    broker.close()


@in_loop
async def test_two_members_of_one_process_join_sync_beat_and_leave(
    kafka_cluster: KafkaCluster, group_id: str
) -> None:
    broker = broker_of(kafka_cluster)
    await find_coordinator(broker, group_id)

    async def join(connection_id: str, member_id: str) -> Any:
        return await broker.join_group(
            connection_id, group_id, member_id, session_timeout_ms=LIMIT_MS, rebalance_timeout_ms=LIMIT_MS
        )

    ids = {}
    for name in ("a", "b"):
        required = await until_ready(lambda name=name: join(name, ""))
        assert required.error_code == 79  # MEMBER_ID_REQUIRED
        ids[name] = required.member_id
    first = await join("a", ids["a"])
    assert await sync(broker, "a", group_id, first, {ids["a"]: b"all"}) == b"all"
    joining = asyncio.create_task(join("b", ids["b"]))

    async def beat() -> int:
        return (await broker.heartbeat(OFFSETS_CHANNEL, group_id, first.generation_id, ids["a"])).error_code

    async with asyncio.timeout(slow_s(10)):
        while await beat() != 27:  # noqa: ASYNC110  REBALANCE_IN_PROGRESS
            await asyncio.sleep(0.05)
    assert not joining.done()  # b's join waits, a's goes past it
    rejoined, joined = await asyncio.gather(join("a", ids["a"]), joining)
    assert rejoined.generation_id == joined.generation_id == first.generation_id + 1
    leader, other = ("a", "b") if rejoined.leader == ids["a"] else ("b", "a")
    shares = {ids[leader]: b"mine", ids[other]: b"yours"}
    got = await asyncio.gather(
        sync(broker, other, group_id, joined, {}, member_id=ids[other]),
        sync(broker, leader, group_id, joined, shares, member_id=ids[leader]),
    )
    assert got == [b"yours", b"mine"]
    for name in ("a", "b"):
        assert (await broker.leave_group(name, group_id, ids[name])).error_code == 0
    broker.close()


async def sync(
    broker: Broker, connection_id: str, group: str, joined: Any, shares: Any, member_id: str = ""
) -> bytes:
    assignments = [MemberAssignment(member, share) for member, share in shares.items()]
    answer = await broker.sync_group(
        connection_id, group, joined.generation_id, member_id or joined.member_id, assignments
    )
    assert answer.error_code == 0
    return bytes(answer.assignment)


async def find_coordinator(broker: Broker, group: str) -> None:
    """The group's partition of __consumer_offsets exists only once someone has asked for its coordinator."""
    await until_ready(lambda: broker.request(FindCoordinatorRequest(key=group), max_version=3))


# ---------------------------------------------------------------- against a broker whose faults are told


@in_loop
async def test_acks_0_is_refused_because_no_response_would_come() -> None:
    async with brokers() as fake:
        broker = Broker(1, *fake.address(1), OPENER, LIMIT_MS, LIMIT_MS)
        with pytest.raises(UsageError, match="acks=0"):
            await broker.produce_messages(ProduceRequest(acks=0))
        assert fake.connections(closed=True) == 0


@in_loop
async def test_a_fetch_has_its_own_wait_beyond_the_channels_timeout() -> None:
    async def patient(host: str, port: int, **options: Any) -> Connection:
        """Connecting may take longer than a request."""
        return await OPENER(host, port, **{**options, "timeout_ms": LIMIT_MS})

    async with brokers() as fake:
        fake.on("Fetch", Hold())
        broker = Broker(1, *fake.address(1), patient, 500, 500)
        await broker.connect()
        started = asyncio.get_running_loop().time()
        with pytest.raises(KafkaTimeoutError, match="no answer to Fetch for "):
            await broker.fetch_messages([], timeout=400)
        assert asyncio.get_running_loop().time() - started >= 0.9


@in_loop
async def test_callers_share_one_attempt_to_open_a_channel() -> None:
    async with brokers() as fake:
        broker = Broker(1, *fake.address(1), OPENER, LIMIT_MS, LIMIT_MS)
        await asyncio.gather(*(broker.heartbeat(name, "g", 1, "m") for name in "aabbb"))
        assert fake.connections(closed=True) == 2
        assert await broker._get_unique_req_handler("a") is broker.handler
        assert await broker._get_unique_req_handler("b") is not broker.handler
        assert await broker._get_unique_req_handler(OFFSETS_CHANNEL) is broker.offsets_channel_handler
        broker.close()


@in_loop
async def test_a_members_own_connection_that_was_lost_is_told_once_and_had_anew() -> None:
    async with brokers() as fake:
        broker = Broker(1, *fake.address(1), OPENER, LIMIT_MS, LIMIT_MS)
        await broker.heartbeat("main", "g", 1, "m")
        fake.on("Heartbeat", DropConnection())
        with pytest.raises(DisconnectedError):
            await broker.heartbeat("other", "g", 1, "m")
        assert (await broker.heartbeat("other", "g", 1, "m")).error_code == UNKNOWN_MEMBER
        fake.on("Heartbeat", DropConnection())
        with pytest.raises(DisconnectedError):
            await broker.heartbeat("main", "g", 1, "m")
        with pytest.raises(NodeNotReadyError):  # the main channel's loss is the caller's to see
            await broker.heartbeat("main", "g", 1, "m")
        await broker.connect()
        assert (await broker.heartbeat("main", "g", 1, "m")).error_code == UNKNOWN_MEMBER
        broker.close()


@in_loop
async def test_a_broker_closed_while_it_connects_keeps_no_connection() -> None:
    async with brokers() as fake:
        broker = Broker(1, *fake.address(1), OPENER, LIMIT_MS, LIMIT_MS)
        held = fake.on("ApiVersions", Hold())
        connecting = asyncio.create_task(broker.connect())
        await arrived(fake, "ApiVersions")
        broker.close()
        held.release()
        with pytest.raises(NodeNotReadyError, match="closed while connecting"):
            await connecting
        assert not broker.connected
        await until_async(lambda: fake.connections() == 0)
