"""The options of a client do what they say, each by name. Those of TLS and SASL: `test_security_*`."""

from __future__ import annotations

import asyncio
import selectors
import socket
import time
from collections.abc import Callable
from itertools import pairwise
from typing import Any

import pytest
from fakes.loop import in_loop
from fakes.scripted import PING, PINGS, answer, arrived, brokers
from waiting import slow_s, until_async, within

from kafka_actors import AsyncConsumer
from kafka_actors.config import ClientConfig, ConsumerConfig, JobConfig, build
from kafka_actors.errors import (
    ConfigError,
    ConnectionFailedError,
    KafkaTimeoutError,
    NoBrokersAvailable,
    NodeNotReadyError,
    SslAuthenticationError,
    UnrecognizedBrokerVersion,
    UnsupportedVersionError,
)
from kafka_actors.metrics import Metrics
from kafka_actors.net import Connection, FetchSocket, KafkaClient
from kafka_actors.net.machines.releases import highest_versions
from kafka_actors.protocol import (
    ApiKey,
    JoinGroupRequest,
    MetadataRequest,
    MetadataResponse,
    OffsetDeleteRequest,
    TopicPartition,
)
from kafka_actors.testing import FakeKafka
from kafka_actors.testing.fake_kafka import Hold


def client_of(kafka: FakeKafka, **options: Any) -> KafkaClient:
    return KafkaClient(bootstrap_servers=kafka.bootstrap_servers, **options)


PATIENCE_S = slow_s(10)


async def tried_until(client: KafkaClient, condition: Callable[[], bool]) -> None:
    """Bootstraps in vain until a condition holds. What failed last is remembered."""
    trying = asyncio.create_task(client.bootstrap(timeout_ms=1_000 * slow_s(60)))
    await until_async(lambda: trying.done() or condition(), what="tries")
    assert not trying.done(), "it gave up"
    trying.cancel()
    await asyncio.wait({trying})


def socket_of(connection: Connection) -> socket.socket:
    assert connection._frames.transport is not None
    return connection._frames.transport.get_extra_info("socket")


@in_loop
async def test_bootstrap_servers_and_client_id() -> None:
    async with brokers(1) as kafka:
        servers = f" {kafka.bootstrap_servers} ,127.0.0.1:1"
        async with KafkaClient(bootstrap_servers=servers, client_id="me") as client:
            assert set(client.snapshot.brokers) == {1}
        assert {call.client_id for call in kafka.requests()} == {"me"}


@in_loop
async def test_retry_backoff_ms_is_between_failing_requests_for_metadata() -> None:
    async with brokers(1) as kafka:
        backoff = {"retry_backoff_ms": 100, "retry_backoff_max_ms": 200}
        async with client_of(kafka, **backoff) as client:
            kafka.on("Metadata", answer(MetadataResponse(error_code=-1)), times=None)
            before = kafka.count("Metadata")
            client.cluster.request_update()
            await arrived(kafka, "Metadata", before + 4)
        times = [call.at for call in kafka.requests("Metadata")][before:]
        for gap, least in zip([b - a for a, b in pairwise(times)], [0.08, 0.16, 0.16], strict=False):
            assert gap >= least


@in_loop
async def test_max_in_flight_requests_per_connection() -> None:
    async with brokers(1) as kafka:
        held = kafka.on(PINGS, Hold())
        async with client_of(kafka, max_in_flight_requests_per_connection=2) as client:
            sends = [asyncio.create_task(client.send(1, PING)) for _ in range(5)]
            await arrived(kafka, PINGS)
            live = client._pool.live(1)
            assert live is not None
            assert len(live._requests.in_flight) == 2
            held.release()
            await asyncio.gather(*sends)


@in_loop
async def test_request_timeout_ms() -> None:
    async with brokers(1) as kafka:
        client = client_of(kafka, request_timeout_ms=200)
        await client.bootstrap(timeout_ms=1_000 * PATIENCE_S)
        await client.send(1, PING, timeout_ms=1_000 * PATIENCE_S)  # connecting counts, too
        kafka.on(PINGS, Hold())
        began = time.monotonic()
        with pytest.raises(KafkaTimeoutError, match=r"no answer to ListGroups for \d+\.\d s"):
            await client.send(1, PING)
        assert time.monotonic() - began >= 0.2
        await client.close()


@in_loop
async def test_a_connection_that_is_set_up_too_slowly_is_given_more_time_up_to_a_bound(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """socket_connection_setup_timeout_ms, doubled after each failure up to socket_connection_setup_timeout_max_ms."""
    limits = {"socket_connection_setup_timeout_ms": 100, "socket_connection_setup_timeout_max_ms": 200}
    given, opened = [], Connection.open

    async def noted(host: str, port: int, *arguments: Any, **options: Any) -> Connection:
        if (host, port) == kafka.address(2):
            given.append(options["timeout_ms"])
        return await opened(host, port, *arguments, **options)

    async with brokers(2) as kafka, client_of(kafka, **limits, rand=lambda: 0.5) as client:
        kafka.on("ApiVersions", Hold(), times=None, broker_id=2)
        monkeypatch.setattr(Connection, "open", noted)
        for least in (0.1, 0.2, 0.2):
            started = time.monotonic() + client.connection_delay(2) / 1000
            with pytest.raises(ConnectionFailedError, match=r"no answer (to ApiVersions )?in time"):
                await client.send(2, PING)
            assert time.monotonic() - started >= least - 0.01
    assert given[:3] == [100, 200, 200]


# ---------------------------------------------------------------- sockets


@pytest.mark.parametrize("kind", ["asyncio", "blocking"])
def test_buffer_sizes_and_socket_options_are_those_of_the_socket(kind: str) -> None:
    options = {
        "receive_buffer_bytes": 32_768,
        "send_buffer_bytes": 65_536,
        "socket_options": [
            (socket.IPPROTO_TCP, socket.TCP_NODELAY, 0),
            (socket.SOL_SOCKET, socket.SO_LINGER, b"\x01\x00\x00\x00\x07\x00\x00\x00"),
        ],
    }
    config = build(ClientConfig, options)

    @in_loop
    async def run() -> None:
        async with brokers() as kafka:
            if kind == "asyncio":
                connection: Any = await Connection.open(*kafka.address(1), config)
                sock = socket_of(connection)
            else:
                connection = await asyncio.to_thread(FetchSocket(*kafka.address(1), config).open)
                sock = connection._socket
            assert sock.getsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF) == 2 * 32_768  # Linux counts its own
            assert sock.getsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF) == 2 * 65_536
            assert sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY) == 0
            assert sock.getsockopt(socket.SOL_SOCKET, socket.SO_LINGER, 8)[4] == 7
            connection.close()

    run()


@in_loop
async def test_by_default_small_requests_do_not_wait_for_more() -> None:
    assert build(ClientConfig).socket_options == ((socket.IPPROTO_TCP, socket.TCP_NODELAY, 1),)
    async with brokers() as kafka:
        connection = await Connection.open(*kafka.address(1), build(ClientConfig, socket_options=[]))
        assert socket_of(connection).getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE) == 1
        connection.close()


@pytest.mark.parametrize("options", [[(6, 31_999, 1)], [(6, 1, 1 << 40)], [(6, 1)], ["x"], "6,1,1"])
def test_socket_options_that_the_system_or_the_form_refuses_fail_before_anything_connects(
    options: Any,
) -> None:
    with pytest.raises(ConfigError, match="socket_options"):
        KafkaClient(socket_options=options)


@in_loop
async def test_client_rack_is_told_with_each_fetch_so_that_a_near_replica_may_answer() -> None:
    async with brokers(1, {"t": 1}) as kafka:
        kafka.on("Fetch", Hold(), times=None)
        config = {"client_rack": "here", "enable_auto_commit": False, "auto_offset_reset": "earliest"}
        consumer = AsyncConsumer(bootstrap_servers=kafka.bootstrap_servers, config=config)
        await consumer.assign([TopicPartition("t", 0)])
        await consumer.seek(TopicPartition("t", 0), 0)
        polled = asyncio.create_task(consumer.poll_batch(timeout_ms=100_000))
        fetched = await arrived(kafka, "Fetch")
        assert fetched.request.rack_id == "here"
        polled.cancel()
        await consumer.close()


# ---------------------------------------------------------------- versions


@in_loop
async def test_api_version_limits_what_is_used_and_asks_once_what_a_broker_speaks() -> None:
    async with brokers(1) as kafka, client_of(kafka, api_version=(2, 1)) as client:
        await client.send(1, JoinGroupRequest(group_id="g"))
        with pytest.raises(UnsupportedVersionError, match=r"api_version=2\.1 allows no OffsetDelete"):
            await client.send(1, OffsetDeleteRequest())
        assert {call.version for call in kafka.requests("Metadata")} == {7}
        assert [call.version for call in kafka.requests("JoinGroup")] == [3]
        # Two connections (the bootstrap server's and the broker's), one question each, in a version of 2.1.
        assert [call.version for call in kafka.requests("ApiVersions")] == [2] * kafka.connections(
            closed=True
        )
        fetching = FetchSocket(*kafka.address(1), client.config)
        await asyncio.to_thread(fetching.open)
        assert fetching.versions.pick(MetadataRequest) == 7
        fetching.close()


@pytest.mark.parametrize("text", ["2.4", (2, 4), [2, 4, 1]])
def test_api_version_as_text_too(text: Any) -> None:
    assert build(ClientConfig, {"api.version": text}).api_version[:2] == (2, 4)


@pytest.mark.parametrize("text", ["auto", "", "2.x", 2, ("2", "4"), "2.0", (), (0, 10)])
def test_an_api_version_that_is_none_fails_before_anything_connects(text: Any) -> None:
    with pytest.raises(ConfigError, match="api_version"):
        KafkaClient(api_version=text)


@in_loop
async def test_api_version_auto_timeout_ms_ends_bootstrapping_where_no_api_version_is_given() -> None:
    async with brokers(1) as kafka:
        kafka.on("ApiVersions", Hold(), times=None)
        limits = {"api_version_auto_timeout_ms": 300}
        started = time.monotonic()
        with within(30), pytest.raises(NoBrokersAvailable):
            await client_of(kafka, **limits, request_timeout_ms=300_000).bootstrap()
        assert time.monotonic() - started >= 0.3
        started = time.monotonic()
        with pytest.raises(NoBrokersAvailable):
            await client_of(kafka, **limits, request_timeout_ms=3_000, api_version=(3, 9)).bootstrap()
        assert time.monotonic() - started >= 3.0


def versions_of(release: tuple[int, int]) -> dict[int, tuple[int, int]]:
    """The versions that brokers of a release speak, also of APIs that fake brokers don't have."""
    return {int(api): (0, highest) for api, highest in highest_versions(release).items()}


def speak(kafka: FakeKafka, broker_id: int, release: tuple[int, int]) -> None:
    for api in ApiKey:
        kafka.set_versions(api, versions_of(release).get(api), broker_id)


@in_loop
async def test_check_version_and_get_api_versions() -> None:
    async with brokers(2) as kafka:
        speak(kafka, 1, (4, 1))
        speak(kafka, 2, (2, 8))  # it is not upgraded yet
        client = client_of(kafka)
        assert client.get_api_versions() is None
        assert await client.check_version(timeout=PATIENCE_S) in {(2, 8), (4, 1)}
        assert await client.check_version(2, PATIENCE_S) == (2, 8)
        assert client.get_api_versions() == versions_of((2, 8))
        assert await client.check_version(1, PATIENCE_S, strict=True) == (4, 1)
        assert client.get_api_versions() == versions_of((4, 1))
        await client.close()


@in_loop
async def test_what_check_version_raises() -> None:
    async with brokers(2) as kafka, client_of(kafka, reconnect_backoff_ms=10) as client:
        with pytest.raises(NodeNotReadyError, match="broker 7 is not in the cluster's metadata"):
            await client.check_version(7)
        speak(kafka, 2, (4, 1))
        kafka.set_versions("Fetch", (4, 12), broker_id=2)
        with pytest.raises(AssertionError, match=r"seems to be Kafka 4\.0 and lacks FETCH 17"):
            await client.check_version(2, PATIENCE_S, strict=True)
        await client.close(2)
        for api in ApiKey:
            kafka.set_versions(api, (0, 0), broker_id=2)
        with pytest.raises(UnrecognizedBrokerVersion, match=r"no Kafka broker of version 2\.1 or newer"):
            await client.check_version(2, PATIENCE_S)
        kafka.on("ApiVersions", Hold(), times=None, broker_id=2)
        with pytest.raises(NodeNotReadyError, match="no connection to broker 2 in time"):
            await client.check_version(2, timeout=0.2)
        for broker_id in kafka.broker_ids:
            kafka.kill(broker_id)
        await until_async(lambda: not client.connected(1))
        with pytest.raises(NodeNotReadyError, match="connection refused"):
            await client.check_version(1, PATIENCE_S)
        with pytest.raises(NoBrokersAvailable, match=r"connection refused|in time"):
            await client.check_version(timeout=1)
    client = KafkaClient(bootstrap_servers="127.0.0.1:1")
    await tried_until(client, lambda: "connection refused" in client.trouble())
    with pytest.raises(NoBrokersAvailable, match="connection refused"):
        await client.check_version(timeout=0.3)
    await client.close()


# ---------------------------------------------------------------- metrics and the event loop


@in_loop
async def test_metrics_count_what_the_connections_do_in_the_group_of_the_prefix() -> None:
    metrics = Metrics()
    async with brokers(1) as kafka:
        for _ in range(2):  # clients may share a registry
            async with client_of(kafka, metrics=metrics, metric_group_prefix="orders") as client:
                await client.send(1, PING)
        await until_async(lambda: kafka.connections() == 0)
        asked, accepted = kafka.count(PINGS) + kafka.count("Metadata"), kafka.connections(closed=True)
    assert {name.group for name in metrics.metrics()} == {"orders-metrics"}
    found = {name.name: value for name, value in metrics.metrics().items()}
    assert found["connection-creation-total"] == found["connection-close-total"] == accepted
    assert found["request-total"] == found["response-total"] == asked
    assert found["request-size-max"] >= found["request-size-avg"] > 0
    assert found["outgoing-byte-total"] > 0
    assert found["incoming-byte-total"] > 0
    assert 0 < found["request-latency-avg"] <= found["request-latency-max"] < 60_000


def test_metrics_that_can_not_be_are_refused_by_name() -> None:
    with pytest.raises(ConfigError, match="metrics: is a dict: accepts a kafka_actors"):
        KafkaClient(metrics={})
    with pytest.raises(ConfigError, match="metric_group_prefix: is given without metrics"):
        KafkaClient(metric_group_prefix="x")
    with pytest.raises(ConfigError, match="metrics: can't be sent to the processes of a job"):
        build(JobConfig, metrics=Metrics())
    metrics = Metrics()
    assert build(ConsumerConfig, metrics=metrics).metrics is metrics


def test_a_selector_is_refused_with_where_it_belongs() -> None:
    with pytest.raises(ConfigError, match=r"selector: is the event loop's: .*SelectorEventLoop"):
        KafkaClient(selector=selectors.DefaultSelector)


def test_a_client_runs_on_the_selector_that_its_loop_was_given() -> None:
    class Counting(selectors.DefaultSelector):
        selects = 0

        def select(self, timeout: float | None = None) -> Any:
            Counting.selects += 1
            return super().select(timeout)

    async def run() -> None:
        async with brokers(1) as kafka, client_of(kafka) as client:
            assert (await client.send(1, PING)).error_code == 0

    with asyncio.Runner(loop_factory=lambda: asyncio.SelectorEventLoop(Counting())) as runner:
        runner.run(run())
    assert Counting.selects > 0


# ---------------------------------------------------------------- TLS against plaintext


@in_loop
async def test_tls_to_a_plaintext_listener_is_named_at_once() -> None:
    """The listener hangs up, as Kafka's does; a question in plaintext shows what it is."""
    async with brokers(1) as kafka:
        client = client_of(kafka, security_protocol="SSL", ssl_check_hostname=False)
        with (
            within(30),
            pytest.raises(
                SslAuthenticationError, match="the port does not speak TLS, and security_protocol asks for it"
            ),
        ):
            await client.bootstrap(timeout_ms=300_000)
        assert kafka.count("ApiVersions") == 1
        await client.close()


@in_loop
async def test_a_listener_that_hangs_up_on_everything_is_tried_again() -> None:
    """The listener may be a broker that starts or stops: no reason to give up."""

    async def hang_up(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal accepted
        accepted += 1
        writer.close()

    accepted = 0
    async with await asyncio.start_server(hang_up, "127.0.0.1", 0) as server:
        address = f"127.0.0.1:{server.sockets[0].getsockname()[1]}"
        client = KafkaClient(bootstrap_servers=address, security_protocol="SSL")
        await tried_until(client, lambda: accepted >= 6)
        with pytest.raises(NoBrokersAvailable, match="the connection ended during the TLS handshake"):
            await client.bootstrap(timeout_ms=300)
        await client.close()
