"""The two channels of a broker, and connections per member."""

from __future__ import annotations

import asyncio
import pickle

import pytest
from fakes.loop import in_loop
from fakes.scripted import PING, PINGS, arrived, brokers
from waiting import at_pace_s, until_async

from kafka_actors.cluster import BrokerMetadata
from kafka_actors.config import ClientConfig, build
from kafka_actors.errors import ConnectionFailedError, DisconnectedError, KafkaTimeoutError, NodeNotReadyError
from kafka_actors.net import Broker, ConnectionOpener, KafkaClient
from kafka_actors.protocol import HeartbeatRequest, HeartbeatResponse, JoinGroupRequest, JoinGroupResponse
from kafka_actors.testing import FakeKafka
from kafka_actors.testing.fake_kafka import DropConnection, Hold, TakenRequests

OPENER = ConnectionOpener(build(ClientConfig))
JOIN = JoinGroupRequest(group_id="g")
HEARTBEAT = HeartbeatRequest(group_id="g")


def broker_of(kafka: FakeKafka, **more: object) -> Broker:
    return Broker(1, *kafka.address(1), OPENER, 600_000, 600_000, **more)


def held_joins(kafka: FakeKafka) -> TakenRequests:
    """Joins wait until released, but those of a member "quick"."""
    return kafka.on("JoinGroup", Hold(), times=None, when=lambda call: call.request.member_id != "quick")


@in_loop
async def test_heartbeats_pass_a_pending_join() -> None:
    async with brokers() as kafka:
        held = held_joins(kafka)
        broker = broker_of(kafka)
        join = asyncio.create_task(broker.request(JOIN, connection_id="m", timeout_ms=60_000))
        await arrived(kafka, "JoinGroup")
        for _ in range(3):
            assert isinstance(await broker.request(HEARTBEAT, offsets_channel=True), HeartbeatResponse)
        assert not join.done()
        held.release()
        assert isinstance(await join, JoinGroupResponse)
        assert kafka.connections(closed=True) == 2
        broker.close()


@in_loop
async def test_two_members_of_one_process_never_wait_for_each_others_join() -> None:
    async with brokers() as kafka:
        held = held_joins(kafka)
        broker = broker_of(kafka)
        join = asyncio.create_task(broker.request(JOIN, connection_id="first"))
        await arrived(kafka, "JoinGroup")
        quick = JoinGroupRequest(group_id="g", member_id="quick")
        assert (await broker.request(quick, connection_id="second")).member_id == "quick"
        held.release()
        await join
        connections = [call.connection for call in kafka.requests("JoinGroup")]
        assert len(set(connections)) == 2
        broker.close()


@in_loop
async def test_one_connection_id_uses_the_main_channel() -> None:
    async with brokers() as kafka:
        broker = broker_of(kafka)
        await broker.connect()
        await broker.request(JOIN, connection_id="m")
        await broker.request(JOIN)
        assert kafka.connections(closed=True) == 1
        broker.close()


@in_loop
async def test_a_channel_that_is_opened_never_has_the_main_one_and_can_be_closed_and_opened_again() -> None:
    async with brokers() as kafka:
        broker = broker_of(kafka)
        await broker.connect()
        for opened in (2, 3):
            await broker.open_channel("apart")
            await broker.open_channel("apart")
            assert kafka.connections(closed=True) == opened
            await broker.request(PING, connection_id="apart")
            broker.close_channel("apart")
            broker.close_channel("apart")
        await broker.request(JOIN, connection_id="m")
        assert (broker.connected, kafka.connections(closed=True)) == (True, 3)
        await broker.open_channel("apart")
        broker.close()
        await until_async(lambda: kafka.connections() == 0)


@in_loop
async def test_connected_says_which_channels_are_open() -> None:
    async with brokers() as kafka:
        broker = broker_of(kafka)
        assert not broker.connected
        assert not broker.offsets_channel_connected
        assert broker.handler is None
        await broker.connect()
        assert (broker.connected, broker.offsets_channel_connected) == (True, False)
        await broker.connect_offsets_channel()
        assert (broker.connected, broker.offsets_channel_connected) == (True, True)
        assert broker.handler is not broker.offsets_channel_handler
        await broker.connect()
        assert kafka.connections(closed=True) == 2
        broker.close()
        assert (broker.connected, broker.offsets_channel_connected) == (False, False)


@in_loop
async def test_a_lost_channel_is_told_and_opened_again_only_when_asked_to() -> None:
    async with brokers() as kafka:
        broker = broker_of(kafka)
        kafka.on(PINGS, DropConnection())
        with pytest.raises(DisconnectedError):
            await broker.request(PING, offsets_channel=True)
        with pytest.raises(NodeNotReadyError):
            await broker.request(PING, offsets_channel=True)
        await broker.connect_offsets_channel()
        assert (await broker.request(PING, offsets_channel=True)).error_code == 0
        broker.close()


@in_loop
async def test_each_channel_has_its_own_timeout_and_a_request_may_have_another() -> None:
    async with brokers() as kafka:
        held_joins(kafka)
        kafka.on(PINGS, Hold(), times=None)

        async def open_patiently(host, port, **options):
            return await OPENER(host, port, **{**options, "timeout_ms": 60_000})

        slow = Broker(1, *kafka.address(1), open_patiently, 60_000, round(1000 * at_pace_s(0.3)))
        await slow.connect_offsets_channel()
        with pytest.raises(KafkaTimeoutError):
            await slow.request(PING, offsets_channel=True)
        with pytest.raises(KafkaTimeoutError):
            await slow.request(JOIN, timeout_ms=100)
        slow.close()


@in_loop
async def test_the_source_address_is_used() -> None:
    async with brokers() as kafka:
        broker = broker_of(kafka, source_host="127.0.0.3")
        await broker.request(PING)
        assert kafka.requests(PINGS)[0].client_host == "/127.0.0.3"
        broker.close()
        with pytest.raises(ConnectionFailedError):
            await broker_of(kafka, source_host="192.0.2.1").connect()


@in_loop
async def test_from_metadata_and_the_properties_of_the_page() -> None:
    async with brokers() as kafka:
        host, port = kafka.address(1)
        broker = Broker.from_metadata(BrokerMetadata(1, host, port), OPENER, 5_000, 5_000)
        assert (broker.id, broker.host, broker.port) == (1, host, port)
        assert (await broker.request(PING)).error_code == 0
        with pytest.raises(TypeError, match="a Broker can't be pickled"):
            pickle.dumps(broker)
        broker.close()


@in_loop
async def test_a_client_opens_brokers_with_both_channels_new_each_time() -> None:
    async with brokers() as kafka, KafkaClient(bootstrap_servers=kafka.bootstrap_servers) as client:
        before = kafka.connections(closed=True)
        first = await client.open_broker(1, *kafka.address(1))
        second = await client.open_broker(1, *kafka.address(1))
        assert first.connected
        assert first.offsets_channel_connected
        assert kafka.connections(closed=True) == before + 4
        first.close()
        assert (await second.request(PING)).error_code == 0
        second.close()
        kafka.kill(1)
        with pytest.raises(ConnectionFailedError):
            await client.open_broker(1, *kafka.address(1))
