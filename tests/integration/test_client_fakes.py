"""The client against brokers that fail as told."""

from __future__ import annotations

import asyncio
import pickle
import socket
import time
from collections import Counter
from itertools import pairwise
from typing import Any

import pytest
from fakes.broker import DROP, SILENCE, Call, FakeBroker, FakeCluster, Raw
from fakes.loop import in_loop
from pace import this_run
from waiting import until_async, within

from kafka_actors.config import ClientConfig, build
from kafka_actors.errors import (
    ConfigError,
    ConnectionFailedError,
    DisconnectedError,
    KafkaTimeoutError,
    NoBrokersAvailable,
    NoBrokersError,
    NodeNotReadyError,
    UnrecognizedBrokerVersion,
    UsageError,
)
from kafka_actors.net import KafkaClient
from kafka_actors.protocol import (
    ApiKey,
    FindCoordinatorRequest,
    HeartbeatRequest,
    HeartbeatResponse,
    MetadataRequest,
    MetadataResponse,
    TopicPartition,
)

HEARTBEAT = HeartbeatRequest(group_id="g")


def client_of(cluster: FakeCluster, **options: Any) -> KafkaClient:
    return KafkaClient(bootstrap_servers=cluster.bootstrap, **options)


def free_port() -> int:
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        return int(sock.getsockname()[1])


# ---------------------------------------------------------------- bootstrap


@in_loop
async def test_bootstrap_learns_the_brokers_and_the_topics_asked_for() -> None:
    async with FakeCluster(3, {"a": 3, "b": 1}) as cluster:
        client = client_of(cluster)
        client.set_topics(["a"])
        snapshot = await client.bootstrap()
        assert set(snapshot.brokers) == {0, 1, 2}
        assert set(snapshot.topics) == {"a"}
        assert snapshot.leader(TopicPartition("a", 2)) == 2
        assert await client.bootstrap() is snapshot
        await client.close()


@in_loop
async def test_metadata_of_all_topics_of_some_or_of_none() -> None:
    async with FakeCluster(1, {"a": 1, "b": 1}) as cluster:
        client = client_of(cluster)
        assert (await client.bootstrap()).topics == {}
        await client.set_topics(None)
        assert set(client.snapshot.topics) == {"a", "b"}
        await client.set_topics(["b"])
        assert set(client.snapshot.topics) == {"b"}
        await client.add_topic("a")
        assert set(client.snapshot.topics) == {"a", "b"}
        asked = cluster.brokers[0].counts[ApiKey.METADATA]
        await client.set_topics(["a", "b"])
        assert cluster.brokers[0].counts[ApiKey.METADATA] == asked
        assert not cluster.brokers[0].requests(ApiKey.METADATA)[-1].allow_auto_topic_creation
        await client.close()


@in_loop
async def test_one_of_the_bootstrap_servers_is_enough() -> None:
    async with FakeCluster(1) as cluster:
        servers = [f"127.0.0.1:{free_port()}", cluster.bootstrap[0]]
        for order in (servers, servers[::-1]):
            async with KafkaClient(bootstrap_servers=order) as client:
                assert set(client.snapshot.brokers) == {0}


@in_loop
async def test_no_bootstrap_server_is_one_clear_line_that_names_each_and_why() -> None:
    silent = FakeBroker()
    silent.on(ApiKey.API_VERSIONS, SILENCE)
    async with silent:
        refused = free_port()
        client = KafkaClient(
            bootstrap_servers=[f"127.0.0.1:{refused}", "no.such.host.invalid:9092", silent.address]
        )
        with pytest.raises(NoBrokersAvailable) as caught:
            await client.bootstrap(timeout_ms=2_000)
        line = str(caught.value)
        assert line.startswith("none of the bootstrap_servers answered within 2 s: ")
        assert f"127.0.0.1:{refused}: can't connect: 127.0.0.1:{refused} connection refused" in line
        assert "no.such.host.invalid:9092: the name can't be resolved" in line
        assert f"{silent.address}: no answer in time" in line
        assert "\n" not in line
        await client.close()


@in_loop
async def test_bootstrap_waits_for_a_broker_that_comes_up_late() -> None:
    async with FakeCluster(1) as cluster:
        broker = cluster.brokers[0]
        client = client_of(cluster)
        await broker.stop()
        booting = asyncio.create_task(client.bootstrap(timeout_ms=10_000))
        await asyncio.sleep(0.5)
        assert not booting.done()
        await broker.start(broker.port)
        assert set((await booting).brokers) == {0}
        await client.close()


@in_loop
async def test_servers_that_are_no_brokers_or_too_old_fail_at_once() -> None:
    async with FakeBroker(versions={ApiKey.FETCH: None}) as web, FakeBroker() as old:
        web.on(ApiKey.API_VERSIONS, Raw(b"HTTP/1.1 400 Bad Request\r\n\r\n"))
        old.versions = {ApiKey.API_VERSIONS: (0, 4), ApiKey.FETCH: (0, 8)}
        with pytest.raises(NoBrokersAvailable, match="no Kafka broker, or the port speaks TLS"):
            await KafkaClient(bootstrap_servers=[web.address]).bootstrap(timeout_ms=30_000)
        with pytest.raises(UnrecognizedBrokerVersion, match=old.address):
            await KafkaClient(bootstrap_servers=[old.address]).bootstrap(timeout_ms=30_000)


def test_an_api_version_before_2_1_is_refused_before_anything_connects() -> None:
    with pytest.raises(ConfigError, match=r"api_version: is 0\.11: brokers from 2\.1 on"):
        KafkaClient(api_version=(0, 11))
    KafkaClient(api_version=(2, 1))


# ---------------------------------------------------------------- metadata


@in_loop
async def test_metadata_is_refreshed_by_age() -> None:
    async with FakeCluster(1, {"a": 1}) as cluster, client_of(cluster, metadata_max_age_ms=150) as client:
        await client.set_topics(["a"])
        cluster.create_topic("a", 5)
        await until_async(lambda: client.snapshot.partitions_for_topic("a") == {0, 1, 2, 3, 4})


@in_loop
async def test_metadata_is_refreshed_whatever_a_listener_raises(caplog: pytest.LogCaptureFixture) -> None:
    def fail(_: object) -> None:
        raise ValueError("a listener's mistake")

    async with FakeCluster(1, {"a": 1}) as cluster, client_of(cluster, metadata_max_age_ms=50) as client:
        await client.set_topics(["a"])
        client.cluster.add_listener(fail)
        for partitions in (2, 3):
            cluster.create_topic("a", partitions)
            await until_async(lambda n=partitions: client.snapshot.partitions_for_topic("a") == set(range(n)))  # type: ignore[misc]
    assert "a listener's mistake" in caplog.text


@in_loop
async def test_metadata_is_refreshed_after_an_answer_that_could_not_be_taken_in(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    async with FakeCluster(1, {"a": 1}) as cluster, client_of(cluster, metadata_max_age_ms=50) as client:
        await client.set_topics(["a"])
        taken, failures = client.cluster.update_metadata, iter([ValueError("a mistake of ours")])

        def take(*arguments: Any, **named: Any) -> None:
            if (error := next(failures, None)) is not None:
                raise error
            taken(*arguments, **named)

        monkeypatch.setattr(client.cluster, "update_metadata", take)
        with pytest.raises(ValueError, match="a mistake of ours"):
            await client.update_metadata()
        cluster.create_topic("a", 2)
        await until_async(lambda: client.snapshot.partitions_for_topic("a") == {0, 1})
    assert "a mistake of ours" in caplog.text


@in_loop
async def test_requests_per_second_in_a_leaderless_window() -> None:
    async with FakeCluster(3, {"a": 3}) as cluster, client_of(cluster) as client:
        await client.set_topics(["a"])
        for broker in cluster.brokers:
            broker.counts.clear()
        for partition in range(3):
            cluster.move("a", partition, -1)
        started = time.monotonic()
        while time.monotonic() - started < 3.0:  # as a fetch loop that sees NOT_LEADER would
            client.cluster.request_update()
            await asyncio.sleep(0.005)
        assert sum(b.counts[ApiKey.METADATA] for b in cluster.brokers) <= 30
        for partition in range(3):
            cluster.move("a", partition, 1)
        await until_async(lambda: client.snapshot.leader(TopicPartition("a", 0)) == 1, 2.0)


@in_loop
async def test_a_broker_that_does_not_answer_holds_up_no_refresh() -> None:
    async with FakeCluster(3) as cluster, client_of(cluster) as client:
        for broker in cluster.brokers[:2]:
            broker.on(ApiKey.METADATA, SILENCE)
        for _ in range(3):
            with within(5):
                await client.update_metadata()


@in_loop
async def test_update_metadata_raises_when_no_broker_answers() -> None:
    async with FakeCluster(1) as cluster, client_of(cluster) as client:
        await cluster.brokers[0].stop()
        with pytest.raises(NoBrokersError, match="connection refused"):
            await client.update_metadata()


@in_loop
async def test_when_all_known_brokers_are_gone_it_bootstraps_again() -> None:
    """The bootstrap address is still there; each broker has moved to another port."""
    async with FakeCluster(3, {"a": 3}) as cluster:
        entry = FakeBroker(99, cluster=cluster)
        cluster.brokers.append(entry)
        cluster.hide(99)
        await entry.start()
        client = KafkaClient(bootstrap_servers=entry.address)
        client.set_topics(["a"])
        await client.bootstrap()
        for broker in cluster.brokers[:3]:
            await broker.stop()
            await broker.start()
        client.cluster.request_update()
        now_at = {broker.port for broker in cluster.brokers[:3]}
        await until_async(lambda: {b.port for b in client.snapshot.brokers.values()} == now_at)
        assert (await client.send(1, HEARTBEAT)).error_code == 0
        await client.close()


@in_loop
async def test_a_broker_may_demand_to_bootstrap_again() -> None:
    async with FakeCluster(2) as cluster:
        client = KafkaClient(bootstrap_servers=cluster.brokers[1].address)
        await client.bootstrap()
        await client.send(0, HEARTBEAT)
        cluster.brokers[0].on(ApiKey.METADATA, MetadataResponse(error_code=129))
        cluster.hide(0)
        client.cluster.request_update()
        await until_async(lambda: set(client.snapshot.brokers) == {1})
        await client.close()


@in_loop
async def test_a_broker_that_moved_is_found_at_its_new_address() -> None:
    async with FakeCluster(2) as cluster, client_of(cluster) as client:
        broker = cluster.brokers[1]
        await client.send(1, HEARTBEAT)
        await broker.stop()
        await broker.start()
        await client.update_metadata()
        assert (await client.send(1, HEARTBEAT)).error_code == 0


@in_loop
async def test_untracked_topics_are_asked_for_once() -> None:
    async with FakeCluster(1, {"a": 1, "b": 2}) as cluster, client_of(cluster) as client:
        await client.set_topics(["a"])
        snapshot = await client.fetch_metadata(["b"])
        assert set(snapshot.topics) == {"a", "b"}
        assert set((await client.update_metadata()).topics) == {"a", "b"}
        assert client.tracks("a")
        assert not client.tracks("b")


# ---------------------------------------------------------------- requests


@in_loop
async def test_a_lost_connection_is_opened_again_and_metadata_asked_for() -> None:
    async with FakeCluster(2) as cluster, client_of(cluster) as client:
        broker = cluster.brokers[1]
        broker.once(ApiKey.HEARTBEAT, DROP)
        before = sum(b.counts[ApiKey.METADATA] for b in cluster.brokers)
        with pytest.raises(DisconnectedError):
            await client.send(1, HEARTBEAT)
        assert (await client.send(1, HEARTBEAT)).error_code == 0
        await until_async(lambda: sum(b.counts[ApiKey.METADATA] for b in cluster.brokers) > before)


@in_loop
async def test_reconnects_back_off_exponentially_within_a_fifth() -> None:
    backoff = {"reconnect_backoff_ms": 50, "reconnect_backoff_max_ms": 400}
    async with FakeCluster(2) as cluster, client_of(cluster, **backoff) as client:
        broker = cluster.brokers[1]
        await broker.stop()
        times: list[float] = []

        async def slam(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            times.append(time.monotonic())
            writer.close()

        hole = await asyncio.start_server(slam, broker.host, broker.port)
        started = time.monotonic()
        while time.monotonic() - started < 2.5:
            with pytest.raises(ConnectionFailedError):
                await client.send(1, HEARTBEAT)
        hole.close()
        gaps = [b - a for a, b in pairwise(times)]
        added = 0.15 * this_run().since(started)  # by what else runs
        for gap, base in zip(gaps, [0.05, 0.1, 0.2, 0.4, 0.4, 0.4], strict=False):
            assert base * 0.8 <= gap <= base * 1.2 + added
        assert len(times) <= 12


@in_loop
async def test_a_broker_that_drops_each_connection_is_not_hammered() -> None:
    async with FakeCluster(2) as cluster:
        broker = cluster.brokers[1]
        broker.on(ApiKey.HEARTBEAT, DROP)
        async with client_of(cluster) as client:
            started = time.monotonic()
            while time.monotonic() - started < 3.0:
                with pytest.raises((DisconnectedError, NodeNotReadyError)):
                    await client.send(1, HEARTBEAT)
            assert broker.accepted <= 12


@in_loop
async def test_callers_share_one_connection_attempt() -> None:
    async with FakeCluster(2) as cluster, client_of(cluster) as client:
        before = cluster.brokers[1].accepted
        await asyncio.gather(*(client.send(1, HEARTBEAT) for _ in range(20)))
        assert cluster.brokers[1].accepted == before + 1


@in_loop
async def test_a_request_that_gets_no_connection_in_its_time_was_not_sent() -> None:
    async with FakeCluster(2) as cluster, client_of(cluster) as client:
        cluster.brokers[1].on(ApiKey.API_VERSIONS, SILENCE)
        with pytest.raises(NodeNotReadyError, match="no connection to broker 1 in time"):
            await client.send(1, HEARTBEAT, timeout_ms=200)


@in_loop
async def test_an_unknown_node_is_refused_and_metadata_asked_for() -> None:
    async with FakeCluster(1) as cluster, client_of(cluster) as client:
        with pytest.raises(NodeNotReadyError, match="broker 7 is not in the cluster's metadata"):
            await client.send(7, HEARTBEAT)
        await until_async(lambda: cluster.brokers[0].counts[ApiKey.METADATA] == 2)


@in_loop
async def test_a_request_timeout_covers_connecting_and_waiting() -> None:
    async with FakeCluster(1) as cluster:
        cluster.brokers[0].on(ApiKey.HEARTBEAT, SILENCE)
        async with client_of(cluster, request_timeout_ms=300) as client:
            with pytest.raises(KafkaTimeoutError):
                await client.send(0, HEARTBEAT)


@in_loop
async def test_an_idle_connection_is_closed_and_opened_again_without_an_error() -> None:
    async with FakeCluster(1) as cluster, client_of(cluster, connections_max_idle_ms=200) as client:
        await client.send(0, HEARTBEAT)
        await until_async(lambda: not client.connected(0))
        assert not client.is_disconnected(0)
        accepted = cluster.brokers[0].accepted
        assert (await client.send(0, HEARTBEAT)).error_code == 0
        assert cluster.brokers[0].accepted == accepted + 1


@in_loop
async def test_what_it_tells_about_its_nodes() -> None:
    async with FakeCluster(2) as cluster:
        broker = cluster.brokers[1]
        async with client_of(cluster, max_in_flight_requests_per_connection=1) as client:
            assert client.bootstrap_connected()
            assert not client.connected(1)
            assert client.connection_delay(1) == 0
            assert not client.is_ready(1)
            release = asyncio.Event()

            async def hold(request: HeartbeatRequest, call: Call) -> HeartbeatResponse:
                await release.wait()
                return HeartbeatResponse()

            broker.once(ApiKey.HEARTBEAT, hold)
            sent = asyncio.create_task(client.send(1, HEARTBEAT))
            await broker.wait_for(ApiKey.HEARTBEAT)
            assert client.connected(1)
            assert client.in_flight_request_count(1) == client.in_flight_request_count() == 1
            assert not client.is_ready(1)
            assert client.least_loaded_node() == 0
            release.set()
            await sent
            assert client.is_ready(1)
            assert client.least_loaded_node() == 1
            client.cluster.request_update()
            assert client.is_ready(1, metadata_priority=False)
            await broker.stop()
            await until_async(lambda: client.is_disconnected(1))
            assert 0 < client.connection_delay(1) <= 60


# ---------------------------------------------------------------- life


@in_loop
async def test_close_ends_everything_and_tells_who_waits() -> None:
    async with FakeCluster(1) as cluster:
        cluster.brokers[0].on(ApiKey.HEARTBEAT, SILENCE)
        client = client_of(cluster)
        await client.bootstrap()
        waiting = asyncio.create_task(client.send(0, HEARTBEAT))
        await cluster.brokers[0].wait_for(ApiKey.HEARTBEAT)
        update = client.cluster.request_update()
        await client.close()
        await client.close()
        with pytest.raises(DisconnectedError):
            await waiting
        assert isinstance(update.exception(), NodeNotReadyError)
        with pytest.raises(UsageError, match="closed"):
            await client.send(0, HEARTBEAT)
        await until_async(lambda: len(asyncio.all_tasks()) <= 1 + cluster.brokers[0].connections)


@in_loop
async def test_close_of_one_node_leaves_the_others() -> None:
    async with FakeCluster(2) as cluster, client_of(cluster) as client:
        await client.send(0, HEARTBEAT)
        await client.send(1, HEARTBEAT)
        await client.close(1)
        assert client.connected(0)
        assert not client.connected(1)
        assert (await client.send(1, HEARTBEAT)).error_code == 0


def test_a_client_is_made_without_a_loop_and_used_in_one() -> None:
    client = KafkaClient(bootstrap_servers="127.0.0.1:1")

    async def use() -> None:
        with pytest.raises(NoBrokersAvailable):
            await client.bootstrap(timeout_ms=100)

    asyncio.run(use())

    async def elsewhere() -> None:
        with pytest.raises(UsageError, match="another event loop"):
            await client.bootstrap(timeout_ms=100)

    asyncio.run(elsewhere())


def test_a_client_refuses_pickling_and_its_config_does_not() -> None:
    client = KafkaClient(build(ClientConfig, client_id="me"))
    with pytest.raises(TypeError, match="a KafkaClient can't be pickled"):
        pickle.dumps(client)
    assert pickle.loads(pickle.dumps(client.config)) == client.config


@in_loop
async def test_wall_clock_jumps_change_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    async with FakeCluster(1) as cluster, client_of(cluster) as client:
        counts = Counter(cluster.brokers[0].counts)
        for jump in (3600, -3600):
            real = time.time()
            monkeypatch.setattr(time, "time", lambda now=real + jump: now)
            assert (await client.send(0, HEARTBEAT)).error_code == 0
            await asyncio.sleep(0.1)
        assert cluster.brokers[0].counts[ApiKey.METADATA] == counts[ApiKey.METADATA]


def test_a_config_and_options_together_are_refused() -> None:
    with pytest.raises(UsageError):
        KafkaClient(build(ClientConfig), client_id="me")


@in_loop
async def test_the_request_of_a_metadata_answer_is_never_lost_to_a_caller_that_gave_up() -> None:
    async with FakeCluster(1) as cluster, client_of(cluster) as client:
        gone = asyncio.create_task(client.update_metadata())
        await asyncio.sleep(0)
        gone.cancel()
        assert await client.update_metadata() is client.snapshot
        request: MetadataRequest = cluster.brokers[0].requests(ApiKey.METADATA)[-1]
        assert request.topics == []


@in_loop
async def test_librdkafkas_mock_brokers_are_spoken_to_in_versions_that_they_speak(mock_cluster: Any) -> None:
    async with KafkaClient(bootstrap_servers=mock_cluster.bootstrap_servers) as client:
        await client.set_topics(None)
        assert len(client.snapshot.brokers) >= 1
        node = client.least_loaded_node()
        assert node is not None
        assert (await client.send(node, FindCoordinatorRequest(key="g"))).port > 0
