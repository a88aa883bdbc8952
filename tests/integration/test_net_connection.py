"""One connection to a broker whose faults are told."""

from __future__ import annotations

import asyncio
import os
import pickle
import socket
import threading
import time
from collections.abc import Callable

import pytest
from fakes.loop import in_loop, turns
from fakes.scripted import PING, PINGS, PONG, answer, arrived, brokers
from msgspec.structs import replace
from waiting import until_async

from kafka_actors.config import ClientConfig, build
from kafka_actors.errors import (
    ConnectionFailedError,
    CorrelationIdError,
    DecodeError,
    DisconnectedError,
    EncodeError,
    KafkaTimeoutError,
    NodeNotReadyError,
    ProtocolError,
    UnrecognizedBrokerVersion,
    UnsupportedVersionError,
    UsageError,
)
from kafka_actors.net import Connection
from kafka_actors.protocol import (
    ApiKey,
    FindCoordinatorRequest,
    FindCoordinatorResponse,
    MetadataRequest,
    MetadataResponse,
)
from kafka_actors.testing import FakeKafka
from kafka_actors.testing.fake_kafka import DropConnection, Hold


async def opened(
    kafka: FakeKafka, *, clock: Callable[[], float] = time.monotonic, **options: object
) -> Connection:
    return await Connection.open(*kafka.address(1), build(ClientConfig, options), clock=clock)


def find(key: int) -> FindCoordinatorRequest:
    """A request whose response names it."""
    return FindCoordinatorRequest(coordinator_keys=[str(key)])


def found(response: FindCoordinatorResponse) -> int:
    return int(response.coordinators[0].key)


def requested_keys(kafka: FakeKafka) -> list[int]:
    return [int(call.request.coordinator_keys[0]) for call in kafka.requests("FindCoordinator")]


def open_files() -> int:
    return len(os.listdir("/proc/self/fd"))


@in_loop
async def test_a_request_gets_its_response_in_the_newest_common_version() -> None:
    async with brokers() as kafka:
        kafka.set_versions("Metadata", (0, 7))
        connection = await opened(kafka, client_id="me")
        response = await connection.send(MetadataRequest(topics=None))
        assert isinstance(response, MetadataResponse)
        assert response.brokers[0].port == kafka.address(1)[1]
        call = kafka.requests("Metadata")[0]
        assert (call.version, call.client_id) == (7, "me")
        connection.close()


@pytest.mark.parametrize("highest", [0, 2, 3])
def test_api_versions_falls_back_for_a_broker_that_knows_only_older_ones(highest: int) -> None:
    @in_loop
    async def run() -> None:
        async with brokers() as kafka:
            kafka.set_versions("ApiVersions", (0, highest))
            connection = await opened(kafka)
            assert kafka.count("ApiVersions") == 2
            assert (await connection.send(PING)).error_code == 0
            connection.close()

    run()


@in_loop
async def test_a_broker_before_2_1_is_refused() -> None:
    async with brokers() as old:
        spoken = {
            ApiKey.API_VERSIONS: (0, 4),
            ApiKey.FETCH: (4, 8),
            ApiKey.METADATA: (0, 6),
            ApiKey.JOIN_GROUP: (0, 3),
        }
        for api in ApiKey:
            old.set_versions(api, spoken.get(api))
        with pytest.raises(UnrecognizedBrokerVersion):
            await opened(old)


@in_loop
async def test_requests_are_pipelined_up_to_the_window_and_answered_in_order() -> None:
    async with brokers() as kafka:
        held = kafka.on("FindCoordinator", Hold(), times=None)
        connection = await opened(kafka, max_in_flight_requests_per_connection=3)
        sends = [asyncio.create_task(connection.send(find(i))) for i in range(8)]
        await arrived(kafka, "FindCoordinator")
        assert connection.in_flight == 8
        assert len(connection._requests.in_flight) == 3
        held.release()
        assert [found(r) for r in await asyncio.gather(*sends)] == list(range(8))
        assert requested_keys(kafka) == list(range(8))
        connection.close()


@in_loop
async def test_a_pending_request_holds_up_what_is_behind_it_on_its_socket_only() -> None:
    async with brokers() as kafka:
        held = kafka.on(PINGS, Hold())
        first, second = await opened(kafka), await opened(kafka)
        ahead = asyncio.create_task(first.send(PING))
        await arrived(kafka, PINGS)
        behind = asyncio.create_task(first.send(MetadataRequest()))
        assert isinstance(await second.send(MetadataRequest()), MetadataResponse)
        assert not behind.done()
        held.release()
        await asyncio.gather(ahead, behind)
        first.close()
        second.close()


@in_loop
async def test_a_timeout_closes_the_connection_and_answers_each_waiter_once() -> None:
    async with brokers() as kafka:
        kafka.on(PINGS, Hold(), times=None)
        connection = await opened(kafka, max_in_flight_requests_per_connection=2)
        results = await asyncio.gather(
            connection.send(PING, timeout_ms=600_000),
            connection.send(PING, timeout_ms=100),
            connection.send(PING, timeout_ms=600_000),
            return_exceptions=True,
        )
        # The outcome of the first two is unknown; the third was certainly never sent.
        assert [type(r) for r in results] == [DisconnectedError, KafkaTimeoutError, NodeNotReadyError]
        assert "no answer to ListGroups" in str(results[0])
        assert connection.closed
        with pytest.raises(NodeNotReadyError, match="no answer to ListGroups"):
            await connection.send(PING)


@in_loop
async def test_a_request_that_never_got_its_turn_says_so_and_hurts_no_other() -> None:
    async with brokers() as kafka:
        held = kafka.on(PINGS, Hold(), times=None)
        connection = await opened(kafka, max_in_flight_requests_per_connection=1)
        first = asyncio.create_task(connection.send(PING))
        await arrived(kafka, PINGS)
        with pytest.raises(NodeNotReadyError, match="too busy to send ListGroups"):
            await connection.send(PING, timeout_ms=50)
        held.release()
        assert (await first).error_code == 0
        assert kafka.count(PINGS) == 1
        connection.close()


@in_loop
async def test_a_caller_that_gives_up_does_not_disturb_the_order() -> None:
    async with brokers() as kafka:
        held = kafka.on("FindCoordinator", Hold(), times=None)
        connection = await opened(kafka, max_in_flight_requests_per_connection=2)
        sends = [asyncio.create_task(connection.send(find(i))) for i in range(4)]
        await arrived(kafka, "FindCoordinator")
        sends[0].cancel()  # in flight
        sends[2].cancel()  # in the queue: never sent
        held.release()
        assert [found(await sends[i]) for i in (1, 3)] == [1, 3]
        assert requested_keys(kafka) == [0, 1, 3]
        connection.close()


@in_loop
async def test_a_broker_that_drops_the_connection_fails_what_is_in_flight() -> None:
    async with brokers() as kafka:
        kafka.on(PINGS, DropConnection())
        connection = await opened(kafka)
        with pytest.raises(DisconnectedError, match=f"127.0.0.1:{kafka.address(1)[1]}"):
            await connection.send(PING)
        assert connection.closed


@pytest.mark.parametrize(
    ("data", "error"),
    [
        (b"\x00\x00\x00\x06\x00\x00\x03\xe7\x00\x00", CorrelationIdError),
        (b"\x00\x00\x00\x05\x00\x00\x00\x01\x00", DecodeError),
        (b"\xff\xff\xff\xff", DisconnectedError),
        (b"HTTP/1.1 400 Bad Request\r\n\r\n", DisconnectedError),
    ],
    ids=["another correlation id", "a body that does not parse", "a negative length", "HTTP"],
)
def test_garbage_closes_the_connection_with_a_named_error(data: bytes, error: type[Exception]) -> None:
    @in_loop
    async def run() -> None:
        async with brokers() as kafka:
            kafka.on(PINGS, answer(lambda call: data))
            connection = await opened(kafka)
            with pytest.raises((error, DisconnectedError)):
                await connection.send(PING)
            assert connection.closed
            assert isinstance(connection.error, ProtocolError)
            if error is not DisconnectedError:
                assert isinstance(connection.error, error)

    run()


@in_loop
async def test_a_server_that_is_no_broker_is_refused_at_once() -> None:
    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read(4)
        writer.write(b"HTTP/1.1 400 Bad Request\r\n\r\n")

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    with pytest.raises(ProtocolError, match="no Kafka broker, or the port speaks TLS"):
        await Connection.open("127.0.0.1", port, build(ClientConfig))
    server.close()


@in_loop
async def test_a_server_that_says_nothing_is_given_up_in_time() -> None:
    async with brokers() as kafka:
        kafka.on("ApiVersions", Hold())
        before, times = open_files(), iter([0.0])
        with pytest.raises(ConnectionFailedError, match="no answer to ApiVersions in time"):
            # Connecting may take a minute, and the answer the rest of it.
            await Connection.open(
                *kafka.address(1), build(ClientConfig), timeout_ms=60_000, clock=lambda: next(times, 59.8)
            )
        kafka.disconnect()
        await until_async(lambda: open_files() <= before)


@in_loop
async def test_a_server_that_hangs_up_during_the_handshake() -> None:
    async with brokers() as kafka:
        kafka.on("ApiVersions", DropConnection())
        with pytest.raises(ConnectionFailedError, match="closed"):
            await opened(kafka)


@in_loop
async def test_a_request_that_cannot_be_encoded_leaves_the_connection_alive() -> None:
    async with brokers() as kafka:
        kafka.set_versions("FindCoordinator", (0, 3))
        kafka.set_versions("ListGroups", None)
        connection = await opened(kafka)
        with pytest.raises(EncodeError):
            await connection.send(FindCoordinatorRequest(coordinator_keys=["g"]))
        with pytest.raises(UnsupportedVersionError):
            await connection.send(FindCoordinatorRequest(key="g"), min_version=4)
        assert (await connection.send(FindCoordinatorRequest(key="g"))).node_id == 1
        assert not connection.closed
        connection.close()


@in_loop
async def test_a_version_bound_is_kept() -> None:
    async with brokers() as kafka:
        connection = await opened(kafka)
        await connection.send(FindCoordinatorRequest(key="g"), max_version=3)
        assert kafka.requests("FindCoordinator")[0].version == 3
        connection.close()


@in_loop
async def test_an_idle_connection_closes_itself() -> None:
    now = 1000.0
    async with brokers() as kafka:
        connection = await opened(kafka, clock=lambda: now, connections_max_idle_ms=150)
        for _ in range(4):
            now += 0.1
            await connection.send(PING)  # not idle as long as it is used
            await turns(5)
            assert not connection.closed
        now += 0.2
        await until_async(lambda: connection.closed)
        with pytest.raises(NodeNotReadyError, match="closed"):
            await connection.send(PING)


@in_loop
async def test_throttling_holds_the_next_request_back() -> None:
    now = 1000.0
    async with brokers() as kafka:
        kafka.on(PINGS, answer(replace(PONG, throttle_time_ms=300)))
        connection = await opened(kafka, clock=lambda: now)
        await connection.send(PING)
        assert connection.throttle_delay() == pytest.approx(0.3)
        held_back = asyncio.create_task(connection.send(PING))
        await asyncio.sleep(0)
        now += 0.3
        await held_back
        first, second = (call.at for call in kafka.requests(PINGS))
        assert second - first >= 0.29
        connection.close()


@in_loop
async def test_close_answers_waiters_and_frees_the_socket() -> None:
    async with brokers() as kafka:
        before = open_files()
        kafka.on(PINGS, Hold(), times=None)
        connection = await opened(kafka)
        told: list[Connection] = []
        connection.add_close_callback(told.append)
        waiting = asyncio.create_task(connection.send(PING))
        await arrived(kafka, PINGS)
        connection.close()
        connection.close()
        with pytest.raises(DisconnectedError, match="closed"):
            await waiting
        assert told == [connection]
        connection.add_close_callback(told.append)
        assert told == [connection] * 2
        kafka.disconnect()
        await until_async(lambda: open_files() <= before)


@in_loop
async def test_options_of_the_socket() -> None:
    async with brokers() as kafka:
        config = build(ClientConfig, receive_buffer_bytes=65_536, send_buffer_bytes=32_768)
        connection = await Connection.open(*kafka.address(1), config, source=("127.0.0.1", 0))
        sock = connection._frames.transport.get_extra_info("socket")  # type: ignore[union-attr]
        assert sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)
        assert sock.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE)
        assert (
            sock.getsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF) == 2 * 65_536
        )  # Linux counts its overhead too
        assert sock.getsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF) == 2 * 32_768
        connection.close()


@in_loop
async def test_a_large_response_in_many_pieces() -> None:
    async with brokers(1, {"t" * 200 + str(i): 50 for i in range(100)}) as kafka:
        connection = await Connection.open(*kafka.address(1), build(ClientConfig), buffer_size=1000)
        response = await connection.send(MetadataRequest(topics=None))
        assert sum(len(t.partitions) for t in response.topics) == 5_000
        connection.close()


@in_loop
async def test_use_after_a_fork_raises_and_leaves_the_parent_unharmed() -> None:
    async with brokers() as kafka:
        connection = await opened(kafka)
        read, write = os.pipe()
        child = os.fork()
        if child == 0:
            try:
                connection._check_process()
                os.write(write, b"no error")
            except UsageError as error:
                os.write(write, str(error).encode())
            finally:
                os._exit(0)
        await asyncio.to_thread(os.waitpid, child, 0)
        assert b"can't be shared" in os.read(read, 1000)
        os.close(read)
        os.close(write)
        assert (await connection.send(PING)).error_code == 0
        connection.close()


@in_loop
async def test_connections_refuse_pickling_and_configs_do_not() -> None:
    async with brokers() as kafka:
        connection = await opened(kafka)
        with pytest.raises(TypeError, match="can't be pickled"):
            pickle.dumps(connection)
        config = build(ClientConfig, client_id="me")
        assert pickle.loads(pickle.dumps(config)) == config
        connection.close()


@in_loop
async def test_use_in_another_loop_raises() -> None:
    async with brokers() as kafka:
        connection = await opened(kafka)
        raised: list[BaseException] = []

        def elsewhere() -> None:
            try:
                asyncio.run(connection.send(PING))
            except UsageError as error:
                raised.append(error)

        thread = threading.Thread(target=elsewhere)
        thread.start()
        await asyncio.to_thread(thread.join)
        assert "another event loop" in str(raised[0])
        assert (await connection.send(PING)).error_code == 0
        connection.close()
