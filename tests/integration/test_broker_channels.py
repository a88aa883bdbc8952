"""The two channels of a broker, and connections per member."""

from __future__ import annotations

import asyncio
import pickle

import pytest
from fakes.broker import DROP, Call, FakeBroker, FakeCluster
from fakes.loop import in_loop
from waiting import until_async

from kafka_actors.cluster import BrokerMetadata
from kafka_actors.config import ClientConfig, build
from kafka_actors.errors import ConnectionFailedError, DisconnectedError, KafkaTimeoutError, NodeNotReadyError
from kafka_actors.net import Broker, ConnectionOpener, KafkaClient
from kafka_actors.protocol import (
    ApiKey,
    HeartbeatRequest,
    HeartbeatResponse,
    JoinGroupRequest,
    JoinGroupResponse,
)

OPENER = ConnectionOpener(build(ClientConfig))
HEARTBEAT = HeartbeatRequest(group_id="g")
JOIN = JoinGroupRequest(group_id="g")


def broker_of(fake: FakeBroker, **more: object) -> Broker:
    return Broker(fake.node_id, fake.host, fake.port, OPENER, 5_000, 5_000, **more)


class HeldJoins:
    """Joins of these members wait until released."""

    def __init__(self, fake: FakeBroker) -> None:
        self.release = asyncio.Event()
        fake.on(ApiKey.JOIN_GROUP, self)

    async def __call__(self, request: JoinGroupRequest, call: Call) -> JoinGroupResponse:
        if request.member_id != "quick":
            await self.release.wait()
        return JoinGroupResponse(member_id=request.member_id)


@in_loop
async def test_heartbeats_pass_a_pending_join() -> None:
    async with FakeBroker() as fake:
        held = HeldJoins(fake)
        broker = broker_of(fake)
        join = asyncio.create_task(broker.request(JOIN, connection_id="m", timeout_ms=60_000))
        await fake.wait_for(ApiKey.JOIN_GROUP)
        for _ in range(3):
            assert isinstance(await broker.request(HEARTBEAT, offsets_channel=True), HeartbeatResponse)
        assert not join.done()
        held.release.set()
        assert isinstance(await join, JoinGroupResponse)
        assert fake.accepted == 2
        broker.close()


@in_loop
async def test_two_members_of_one_process_never_wait_for_each_others_join() -> None:
    async with FakeBroker() as fake:
        held = HeldJoins(fake)
        broker = broker_of(fake)
        join = asyncio.create_task(broker.request(JOIN, connection_id="first"))
        await fake.wait_for(ApiKey.JOIN_GROUP)
        quick = JoinGroupRequest(group_id="g", member_id="quick")
        assert (await broker.request(quick, connection_id="second")).member_id == "quick"
        held.release.set()
        await join
        connections = [call.connection for call in fake.calls(ApiKey.JOIN_GROUP)]
        assert len(set(connections)) == 2
        broker.close()


@in_loop
async def test_one_connection_id_uses_the_main_channel() -> None:
    async with FakeBroker() as fake:
        broker = broker_of(fake)
        await broker.connect()
        await broker.request(JOIN, connection_id="m")
        await broker.request(JOIN)
        assert fake.accepted == 1
        broker.close()


@in_loop
async def test_a_channel_that_is_opened_never_has_the_main_one_and_can_be_closed_and_opened_again() -> None:
    async with FakeBroker() as fake:
        broker = broker_of(fake)
        await broker.connect()
        for opened in (2, 3):
            await broker.open_channel("apart")
            await broker.open_channel("apart")
            assert fake.accepted == opened
            await broker.request(HEARTBEAT, connection_id="apart")
            broker.close_channel("apart")
            broker.close_channel("apart")
        await broker.request(JOIN, connection_id="m")
        assert (broker.connected, fake.accepted) == (True, 3)
        await broker.open_channel("apart")
        broker.close()
        await until_async(lambda: fake.connections == 0)


@in_loop
async def test_connected_says_which_channels_are_open() -> None:
    async with FakeBroker() as fake:
        broker = broker_of(fake)
        assert not broker.connected
        assert not broker.offsets_channel_connected
        assert broker.handler is None
        await broker.connect()
        assert (broker.connected, broker.offsets_channel_connected) == (True, False)
        await broker.connect_offsets_channel()
        assert (broker.connected, broker.offsets_channel_connected) == (True, True)
        assert broker.handler is not broker.offsets_channel_handler
        await broker.connect()
        assert fake.accepted == 2
        broker.close()
        assert (broker.connected, broker.offsets_channel_connected) == (False, False)


@in_loop
async def test_a_lost_channel_is_told_and_opened_again_only_when_asked_to() -> None:
    async with FakeBroker() as fake:
        broker = broker_of(fake)
        fake.once(ApiKey.HEARTBEAT, DROP)
        with pytest.raises(DisconnectedError):
            await broker.request(HEARTBEAT, offsets_channel=True)
        with pytest.raises(NodeNotReadyError):
            await broker.request(HEARTBEAT, offsets_channel=True)
        await broker.connect_offsets_channel()
        assert (await broker.request(HEARTBEAT, offsets_channel=True)).error_code == 0
        broker.close()


@in_loop
async def test_each_channel_has_its_own_timeout_and_a_request_may_have_another() -> None:
    async with FakeBroker() as fake:
        HeldJoins(fake)
        fake.on(ApiKey.HEARTBEAT, HeldJoins(fake))
        slow = Broker(0, fake.host, fake.port, OPENER, 60_000, 100)
        with pytest.raises(KafkaTimeoutError):
            await slow.request(HEARTBEAT, offsets_channel=True)
        with pytest.raises(KafkaTimeoutError):
            await slow.request(JOIN, timeout_ms=100)
        slow.close()


@in_loop
async def test_the_source_address_is_used() -> None:
    async with FakeBroker() as fake:
        seen: list[str] = []

        def note(request: object, call: Call) -> HeartbeatResponse:
            seen.extend(w.get_extra_info("peername")[0] for w in fake._open)
            return HeartbeatResponse()

        fake.on(ApiKey.HEARTBEAT, note)
        broker = broker_of(fake, source_host="127.0.0.3")
        await broker.request(HEARTBEAT)
        assert seen == ["127.0.0.3"]
        broker.close()
        with pytest.raises(ConnectionFailedError):
            await broker_of(fake, source_host="192.0.2.1").connect()


@in_loop
async def test_from_metadata_and_the_properties_of_the_page() -> None:
    async with FakeBroker(7) as fake:
        metadata = BrokerMetadata(7, fake.host, fake.port)
        broker = Broker.from_metadata(metadata, OPENER, 5_000, 5_000)
        assert (broker.id, broker.host, broker.port) == (7, fake.host, fake.port)
        assert (await broker.request(HEARTBEAT)).error_code == 0
        with pytest.raises(TypeError, match="a Broker can't be pickled"):
            pickle.dumps(broker)
        broker.close()


@in_loop
async def test_a_client_opens_brokers_with_both_channels_new_each_time() -> None:
    async with FakeCluster(1) as cluster:
        fake = cluster.brokers[0]
        async with KafkaClient(bootstrap_servers=cluster.bootstrap) as client:
            before = fake.accepted
            first = await client.open_broker(0, fake.host, fake.port)
            second = await client.open_broker(0, fake.host, fake.port)
            assert first.connected
            assert first.offsets_channel_connected
            assert fake.accepted == before + 4
            first.close()
            assert (await second.request(HEARTBEAT)).error_code == 0
            second.close()
            await fake.stop()
            with pytest.raises(ConnectionFailedError):
                await client.open_broker(0, fake.host, fake.port)
