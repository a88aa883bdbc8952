"""The client against brokers of `FakeKafka` that fail as told."""

from __future__ import annotations

import asyncio
import pickle
import time
from contextlib import closing
from itertools import pairwise
from typing import Any

import pytest
from confluent_kafka.admin import AdminClient
from fakes.loop import in_loop
from fakes.proxy import Proxy
from fakes.refusing import refusing_port
from fakes.scripted import PING, PINGS, answer, arrived, brokers, hide
from waiting import at_pace_s, slow_s, until_async, within

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
    MetadataRequest,
    MetadataResponse,
    TopicPartition,
)
from kafka_actors.testing import FakeKafka
from kafka_actors.testing.fake_kafka import DropConnection, Hold


def client_of(kafka: FakeKafka, **options: Any) -> KafkaClient:
    return KafkaClient(bootstrap_servers=kafka.bootstrap_servers, **options)


# ---------------------------------------------------------------- bootstrap


@in_loop
async def test_bootstrap_learns_the_brokers_and_the_topics_asked_for() -> None:
    async with brokers(3, {"a": 3, "b": 1}) as kafka:
        client = client_of(kafka)
        client.set_topics(["a"])
        snapshot = await client.bootstrap()
        assert set(snapshot.brokers) == {1, 2, 3}
        assert set(snapshot.topics) == {"a"}
        assert snapshot.leader(TopicPartition("a", 2)) == kafka.leaders("a")[2]
        assert await client.bootstrap() is snapshot
        await client.close()


@in_loop
async def test_metadata_of_all_topics_of_some_or_of_none() -> None:
    async with brokers(1, {"a": 1, "b": 1}) as kafka:
        client = client_of(kafka)
        assert (await client.bootstrap()).topics == {}
        await client.set_topics(None)
        assert set(client.snapshot.topics) == {"a", "b"}
        await client.set_topics(["b"])
        assert set(client.snapshot.topics) == {"b"}
        await client.add_topic("a")
        assert set(client.snapshot.topics) == {"a", "b"}
        asked = kafka.count("Metadata")
        await client.set_topics(["a", "b"])
        assert kafka.count("Metadata") == asked
        assert not kafka.requests("Metadata")[-1].request.allow_auto_topic_creation
        await client.close()


@in_loop
async def test_one_of_the_bootstrap_servers_is_enough() -> None:
    with refusing_port() as port:
        async with brokers(1) as kafka:
            servers = [f"127.0.0.1:{port}", kafka.bootstrap_servers]
            for order in (servers, servers[::-1]):
                async with KafkaClient(bootstrap_servers=order) as client:
                    assert set(client.snapshot.brokers) == {1}


@in_loop
async def test_no_bootstrap_server_is_one_clear_line_that_names_each_and_why() -> None:
    limit_s = round(at_pace_s(4))
    with refusing_port() as port:
        async with brokers() as kafka:
            kafka.on("ApiVersions", Hold(), times=None)
            refused, silent = f"127.0.0.1:{port}", kafka.bootstrap_servers
            client = KafkaClient(
                bootstrap_servers=[refused, "no.such.host.invalid:9092", silent],
                socket_connection_setup_timeout_ms=600_000,
                socket_connection_setup_timeout_max_ms=600_000,
            )
            with pytest.raises(NoBrokersAvailable) as caught:
                await client.bootstrap(timeout_ms=1000 * limit_s)
            line = str(caught.value)
            assert line.startswith(f"none of the bootstrap_servers answered within {limit_s} s: ")
            assert f"{refused}: can't connect: {refused} connection refused" in line
            assert "no.such.host.invalid:9092: the name can't be resolved" in line
            assert f"{silent}: no answer in time" in line
            assert "\n" not in line
            await client.close()


@in_loop
async def test_bootstrap_waits_for_a_broker_that_comes_up_late() -> None:
    async with brokers(1) as kafka:
        client = client_of(kafka)
        kafka.kill(1)
        booting = asyncio.create_task(client.bootstrap(timeout_ms=100_000))
        await asyncio.sleep(0.5)
        assert not booting.done()
        kafka.restart(1)
        assert set((await booting).brokers) == {1}
        await client.close()


@in_loop
async def test_servers_that_are_no_brokers_or_too_old_fail_at_once() -> None:
    async with brokers() as web, brokers() as old:
        web.on("ApiVersions", answer(lambda call: b"HTTP/1.1 400 Bad Request\r\n\r\n"), times=None)
        for api in ApiKey:
            old.set_versions(api, {ApiKey.API_VERSIONS: (0, 4), ApiKey.FETCH: (0, 8)}.get(api))
        with pytest.raises(NoBrokersAvailable, match="no Kafka broker, or the port speaks TLS"):
            await KafkaClient(bootstrap_servers=web.bootstrap_servers).bootstrap(timeout_ms=30_000)
        with pytest.raises(UnrecognizedBrokerVersion, match=old.bootstrap_servers):
            await KafkaClient(bootstrap_servers=old.bootstrap_servers).bootstrap(timeout_ms=30_000)


def test_an_api_version_before_2_1_is_refused_before_anything_connects() -> None:
    with pytest.raises(ConfigError, match=r"api_version: is 0\.11: brokers from 2\.1 on"):
        KafkaClient(api_version=(0, 11))
    KafkaClient(api_version=(2, 1))


# ---------------------------------------------------------------- metadata


@in_loop
async def test_metadata_is_refreshed_by_age() -> None:
    async with brokers(1, {"a": 1}) as kafka, client_of(kafka, metadata_max_age_ms=150) as client:
        await client.set_topics(["a"])
        kafka.add_partitions("a", 5)
        await until_async(lambda: client.snapshot.partitions_for_topic("a") == {0, 1, 2, 3, 4})


@in_loop
async def test_metadata_is_refreshed_whatever_a_listener_raises(caplog: pytest.LogCaptureFixture) -> None:
    def fail(_: object) -> None:
        raise ValueError("a listener's mistake")

    async with brokers(1, {"a": 1}) as kafka, client_of(kafka, metadata_max_age_ms=50) as client:
        await client.set_topics(["a"])
        client.cluster.add_listener(fail)
        for partitions in (2, 3):
            kafka.add_partitions("a", partitions)
            await until_async(lambda n=partitions: client.snapshot.partitions_for_topic("a") == set(range(n)))  # type: ignore[misc]
    assert "a listener's mistake" in caplog.text


@in_loop
async def test_metadata_is_refreshed_after_an_answer_that_could_not_be_taken_in(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    async with brokers(1, {"a": 1}) as kafka, client_of(kafka, metadata_max_age_ms=50) as client:
        await client.set_topics(["a"])
        taken, failures = client.cluster.update_metadata, iter([ValueError("a mistake of ours")])

        def take(*arguments: Any, **named: Any) -> None:
            if (error := next(failures, None)) is not None:
                raise error
            taken(*arguments, **named)

        monkeypatch.setattr(client.cluster, "update_metadata", take)
        with pytest.raises(ValueError, match="a mistake of ours"):
            await client.update_metadata()
        kafka.add_partitions("a", 2)
        await until_async(lambda: client.snapshot.partitions_for_topic("a") == {0, 1})
    assert "a mistake of ours" in caplog.text


@in_loop
async def test_requests_per_second_in_a_leaderless_window() -> None:
    async with brokers(3, {"a": 3}) as kafka, client_of(kafka) as client:
        await client.set_topics(["a"])
        before = kafka.count("Metadata")
        for partition in range(3):
            kafka.set_leader("a", partition, None)
        started = time.monotonic()
        while time.monotonic() - started < 3.0:  # as a fetch loop that sees NOT_LEADER would
            client.cluster.request_update()
            await asyncio.sleep(0.005)
        assert kafka.count("Metadata") - before <= 30
        for partition in range(3):
            kafka.set_leader("a", partition, 2)
        await until_async(lambda: client.snapshot.leader(TopicPartition("a", 0)) == 2, 2.0)


@in_loop
async def test_a_broker_that_does_not_answer_holds_up_no_refresh() -> None:
    async with brokers(3) as kafka, client_of(kafka) as client:
        for broker_id in (1, 2):
            kafka.on("Metadata", Hold(), times=None, broker_id=broker_id)
        for _ in range(3):
            with within(5):
                await client.update_metadata()


@in_loop
async def test_update_metadata_raises_when_no_broker_answers() -> None:
    async with brokers(1) as kafka, client_of(kafka) as client:
        kafka.kill(1)
        with pytest.raises(NoBrokersError, match="connection refused"):
            await client.update_metadata()


@in_loop
async def test_when_all_known_brokers_are_gone_it_bootstraps_again() -> None:
    """The bootstrap address is still there; each broker has moved to another port."""
    async with brokers(3, {"a": 3}) as kafka:
        with closing(Proxy()) as entry:
            entry.forward_to(*kafka.address(1))
            client = KafkaClient(bootstrap_servers=entry.address)
            client.set_topics(["a"])
            await client.bootstrap()
            for broker_id in kafka.broker_ids:
                kafka.restart(broker_id, new_port=True)
            entry.forward_to(*kafka.address(1))
            client.cluster.request_update()
            now_at = {kafka.address(broker_id)[1] for broker_id in kafka.broker_ids}
            await until_async(lambda: {b.port for b in client.snapshot.brokers.values()} == now_at)
            assert (await client.send(2, PING)).error_code == 0
            await client.close()


@in_loop
async def test_a_broker_may_demand_to_bootstrap_again() -> None:
    async with brokers(2) as kafka:
        client = KafkaClient(bootstrap_servers="{}:{}".format(*kafka.address(2)))
        await client.bootstrap()
        await client.send(1, PING)
        kafka.on("Metadata", answer(MetadataResponse(error_code=129)), times=None, broker_id=1)
        hide(kafka, 1)
        client.cluster.request_update()
        await until_async(lambda: set(client.snapshot.brokers) == {2})
        await client.close()


@in_loop
async def test_a_broker_that_moved_is_found_at_its_new_address() -> None:
    async with brokers(2) as kafka, client_of(kafka) as client:
        await client.send(2, PING)
        kafka.restart(2, new_port=True)
        await client.update_metadata()
        assert (await client.send(2, PING)).error_code == 0


@in_loop
async def test_untracked_topics_are_asked_for_once() -> None:
    async with brokers(1, {"a": 1, "b": 2}) as kafka, client_of(kafka) as client:
        await client.set_topics(["a"])
        snapshot = await client.fetch_metadata(["b"])
        assert set(snapshot.topics) == {"a", "b"}
        assert set((await client.update_metadata()).topics) == {"a", "b"}
        assert client.tracks("a")
        assert not client.tracks("b")


# ---------------------------------------------------------------- requests


@in_loop
async def test_a_lost_connection_is_opened_again_and_metadata_asked_for() -> None:
    async with brokers(2) as kafka, client_of(kafka) as client:
        kafka.on(PINGS, DropConnection())
        before = kafka.count("Metadata")
        with pytest.raises(DisconnectedError):
            await client.send(2, PING)
        assert (await client.send(2, PING)).error_code == 0
        await until_async(lambda: kafka.count("Metadata") > before)


@in_loop
async def test_reconnects_back_off_exponentially_within_a_fifth() -> None:
    backoff = {"reconnect_backoff_ms": 50, "reconnect_backoff_max_ms": 400}
    async with brokers(2) as kafka, client_of(kafka, **backoff) as client:
        slammed = kafka.on("ApiVersions", DropConnection(), times=None, broker_id=2)
        bases = [0.05, 0.1, 0.2, 0.4, 0.4, 0.4]
        with within(10):
            for base in bases:
                with pytest.raises(ConnectionFailedError):
                    await client.send(2, PING)
                # What it waits for, not how long that takes: whatever runs beside it may hold up its next attempt.
                assert client.connection_delay(2) <= 1000 * base * 1.2
            with pytest.raises(ConnectionFailedError):
                await client.send(2, PING)
        gaps = [b - a for a, b in pairwise(call.at for call in slammed.calls)]
        assert len(gaps) == len(bases)
        for gap, base in zip(gaps, bases, strict=True):
            assert gap >= base * 0.8


@in_loop
async def test_a_broker_that_drops_each_connection_is_not_hammered() -> None:
    async with brokers(2) as kafka:
        kafka.on(PINGS, DropConnection(), times=None)
        async with client_of(kafka) as client:
            started = time.monotonic()
            while time.monotonic() - started < 3.0:
                with pytest.raises((DisconnectedError, NodeNotReadyError)):
                    await client.send(2, PING)
            assert kafka.connections(2, closed=True) <= 12


@in_loop
async def test_callers_share_one_connection_attempt() -> None:
    async with brokers(2) as kafka, client_of(kafka) as client:
        before = kafka.connections(2, closed=True)
        await asyncio.gather(*(client.send(2, PING) for _ in range(20)))
        assert kafka.connections(2, closed=True) == before + 1


@in_loop
async def test_a_request_that_gets_no_connection_in_its_time_was_not_sent() -> None:
    async with brokers(2) as kafka, client_of(kafka) as client:
        kafka.on("ApiVersions", Hold(), times=None, broker_id=2)
        with pytest.raises(NodeNotReadyError, match="no connection to broker 2 in time"):
            await client.send(2, PING, timeout_ms=200)


@in_loop
async def test_an_unknown_node_is_refused_and_metadata_asked_for() -> None:
    async with brokers(1) as kafka, client_of(kafka) as client:
        with pytest.raises(NodeNotReadyError, match="broker 7 is not in the cluster's metadata"):
            await client.send(7, PING)
        await until_async(lambda: kafka.count("Metadata") == 2)


@in_loop
async def test_a_request_timeout_covers_connecting_and_waiting() -> None:
    async with brokers(1) as kafka:
        kafka.on(PINGS, Hold())
        limit_ms = round(1000 * at_pace_s(2))  # connecting leaves some of it
        async with client_of(kafka, request_timeout_ms=limit_ms) as client:
            with pytest.raises(KafkaTimeoutError):
                await client.send(1, PING)


@in_loop
async def test_an_idle_connection_is_closed_and_opened_again_without_an_error() -> None:
    async with brokers(1) as kafka, client_of(kafka, connections_max_idle_ms=200) as client:
        await client.send(1, PING)
        await until_async(lambda: not client.connected(1))
        assert not client.is_disconnected(1)
        accepted = kafka.connections(closed=True)
        assert (await client.send(1, PING)).error_code == 0
        assert kafka.connections(closed=True) == accepted + 1


@in_loop
async def test_what_it_tells_about_its_nodes() -> None:
    options = {"max_in_flight_requests_per_connection": 1, "reconnect_backoff_ms": 10_000}
    async with brokers(2) as kafka, client_of(kafka, **options, reconnect_backoff_max_ms=10_000) as client:
        assert client.bootstrap_connected()
        assert not client.connected(2)
        assert client.connection_delay(2) == 0
        assert not client.is_ready(2)
        held = kafka.on(PINGS, Hold())
        sent = asyncio.create_task(client.send(2, PING))
        await arrived(kafka, PINGS)
        assert client.connected(2)
        assert client.in_flight_request_count(2) == client.in_flight_request_count() == 1
        assert not client.is_ready(2)
        assert client.least_loaded_node() == 1
        held.release()
        await sent
        assert client.is_ready(2)
        assert client.least_loaded_node() == 2
        client.cluster.request_update()
        assert client.is_ready(2, metadata_priority=False)
        kafka.kill(2)
        await until_async(lambda: client.is_disconnected(2))
        assert 0 < client.connection_delay(2) <= 12_000


# ---------------------------------------------------------------- life


@in_loop
async def test_close_ends_everything_and_tells_who_waits() -> None:
    async with brokers(1) as kafka:
        kafka.on(PINGS, Hold())
        client = client_of(kafka)
        await client.bootstrap()
        waiting = asyncio.create_task(client.send(1, PING))
        await arrived(kafka, PINGS)
        update = client.cluster.request_update()
        await client.close()
        await client.close()
        with pytest.raises(DisconnectedError):
            await waiting
        assert isinstance(update.exception(), NodeNotReadyError)
        with pytest.raises(UsageError, match="closed"):
            await client.send(1, PING)
        await until_async(lambda: len(asyncio.all_tasks()) <= 1)


@in_loop
async def test_close_of_one_node_leaves_the_others() -> None:
    async with brokers(2) as kafka, client_of(kafka) as client:
        await client.send(1, PING)
        await client.send(2, PING)
        await client.close(2)
        assert client.connected(1)
        assert not client.connected(2)
        assert (await client.send(2, PING)).error_code == 0


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
    async with brokers(1) as kafka, client_of(kafka) as client:
        asked = kafka.count("Metadata")
        for jump in (3600, -3600):
            real = time.time()
            monkeypatch.setattr(time, "time", lambda now=real + jump: now)
            assert (await client.send(1, PING)).error_code == 0
            await asyncio.sleep(0.1)
        assert kafka.count("Metadata") == asked


def test_a_config_and_options_together_are_refused() -> None:
    with pytest.raises(UsageError):
        KafkaClient(build(ClientConfig), client_id="me")


@in_loop
async def test_the_request_of_a_metadata_answer_is_never_lost_to_a_caller_that_gave_up() -> None:
    async with brokers(1) as kafka, client_of(kafka) as client:
        gone = asyncio.create_task(client.update_metadata())
        await asyncio.sleep(0)
        gone.cancel()
        assert await client.update_metadata() is client.snapshot
        request: MetadataRequest = kafka.requests("Metadata")[-1].request
        assert request.topics == []


@in_loop
async def test_librdkafkas_mock_brokers_are_spoken_to_in_versions_that_they_speak() -> None:
    mock = AdminClient({"test.mock.num.brokers": "1", "log_level": 0})
    found = await asyncio.to_thread(mock.list_topics, timeout=slow_s(10))
    servers = [f"{broker.host}:{broker.port}" for broker in found.brokers.values()]
    async with KafkaClient(bootstrap_servers=servers) as client:
        await client.set_topics(None)
        assert len(client.snapshot.brokers) >= 1
        node = client.least_loaded_node()
        assert node is not None
        assert (await client.send(node, FindCoordinatorRequest(key="g"))).port > 0
