"""One connection to a broker that answers as told."""

from __future__ import annotations

import asyncio
import os
import pickle
import socket
import threading

import pytest
from fakes.broker import DROP, SILENCE, FakeBroker, FakeCluster, Raw
from fakes.loop import in_loop

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
    HeartbeatRequest,
    HeartbeatResponse,
    MetadataRequest,
    MetadataResponse,
)

HEARTBEAT = HeartbeatRequest(group_id="g")


async def opened(broker: FakeBroker, **options: object) -> Connection:
    return await Connection.open(broker.host, broker.port, build(ClientConfig, options))


async def open_files() -> int:
    await asyncio.sleep(0.05)
    return len(os.listdir("/proc/self/fd"))


@in_loop
async def test_a_request_gets_its_response_in_the_newest_common_version() -> None:
    async with FakeBroker(versions={ApiKey.METADATA: (0, 7)}) as broker:
        connection = await opened(broker, client_id="me")
        response = await connection.send(MetadataRequest(topics=None))
        assert isinstance(response, MetadataResponse)
        assert response.brokers[0].port == broker.port
        call = broker.calls(ApiKey.METADATA)[0]
        assert (call.version, call.client_id) == (7, "me")
        connection.close()


@pytest.mark.parametrize("highest", [0, 2, 3])
def test_api_versions_falls_back_for_a_broker_that_knows_only_older_ones(highest: int) -> None:
    @in_loop
    async def run() -> None:
        async with FakeBroker(versions={ApiKey.API_VERSIONS: (0, highest)}) as broker:
            connection = await opened(broker)
            assert broker.counts[ApiKey.API_VERSIONS] == 2
            assert (await connection.send(HEARTBEAT)).error_code == 0
            connection.close()

    run()


@in_loop
async def test_a_broker_before_2_1_is_refused() -> None:
    async with FakeBroker(
        versions={ApiKey.FETCH: (4, 8), ApiKey.METADATA: (0, 6), ApiKey.JOIN_GROUP: (0, 3)}
    ) as old:
        for key in list(old.versions):
            if key not in (ApiKey.FETCH, ApiKey.METADATA, ApiKey.JOIN_GROUP, ApiKey.API_VERSIONS):
                del old.versions[key]
        with pytest.raises(UnrecognizedBrokerVersion):
            await opened(old)


@in_loop
async def test_requests_are_pipelined_up_to_the_window_and_answered_in_order() -> None:
    async with FakeBroker() as broker:
        release = asyncio.Event()

        async def hold(request: HeartbeatRequest, call: object) -> HeartbeatResponse:
            await release.wait()
            return HeartbeatResponse(error_code=request.generation_id)

        broker.on(ApiKey.HEARTBEAT, hold)
        connection = await opened(broker, max_in_flight_requests_per_connection=3)
        sends = [asyncio.create_task(connection.send(HeartbeatRequest("g", i))) for i in range(8)]
        await broker.wait_for(ApiKey.HEARTBEAT, 1)
        assert connection.in_flight == 8
        assert len(connection._requests.in_flight) == 3
        release.set()
        assert [r.error_code for r in await asyncio.gather(*sends)] == list(range(8))
        assert [r.generation_id for r in broker.requests(ApiKey.HEARTBEAT)] == list(range(8))
        connection.close()


@in_loop
async def test_a_pending_request_holds_up_what_is_behind_it_on_its_socket_only() -> None:
    async with FakeBroker() as broker:
        release = asyncio.Event()

        async def hold(request: object, call: object) -> HeartbeatResponse:
            await release.wait()
            return HeartbeatResponse()

        broker.once(ApiKey.HEARTBEAT, hold)
        first, second = await opened(broker), await opened(broker)
        held = asyncio.create_task(first.send(HEARTBEAT))
        await broker.wait_for(ApiKey.HEARTBEAT)
        behind = asyncio.create_task(first.send(MetadataRequest()))
        assert isinstance(await second.send(MetadataRequest()), MetadataResponse)
        assert not behind.done()
        release.set()
        await asyncio.gather(held, behind)
        first.close()
        second.close()


@in_loop
async def test_a_timeout_closes_the_connection_and_answers_each_waiter_once() -> None:
    async with FakeBroker() as broker:
        broker.on(ApiKey.HEARTBEAT, SILENCE)
        connection = await opened(broker, max_in_flight_requests_per_connection=2)
        results = await asyncio.gather(
            connection.send(HEARTBEAT, timeout_ms=5_000),
            connection.send(HEARTBEAT, timeout_ms=100),
            connection.send(HEARTBEAT, timeout_ms=5_000),
            return_exceptions=True,
        )
        # The outcome of the first two is unknown; the third was certainly never sent.
        assert [type(r) for r in results] == [DisconnectedError, KafkaTimeoutError, NodeNotReadyError]
        assert "no answer to Heartbeat" in str(results[0])
        assert connection.closed
        with pytest.raises(NodeNotReadyError, match="no answer to Heartbeat"):
            await connection.send(HEARTBEAT)


@in_loop
async def test_a_request_that_never_got_its_turn_says_so_and_hurts_no_other() -> None:
    async with FakeBroker() as broker:
        release = asyncio.Event()

        async def hold(request: object, call: object) -> HeartbeatResponse:
            await release.wait()
            return HeartbeatResponse()

        broker.on(ApiKey.HEARTBEAT, hold)
        connection = await opened(broker, max_in_flight_requests_per_connection=1)
        first = asyncio.create_task(connection.send(HEARTBEAT))
        await broker.wait_for(ApiKey.HEARTBEAT)
        with pytest.raises(NodeNotReadyError, match="too busy to send Heartbeat"):
            await connection.send(HEARTBEAT, timeout_ms=50)
        release.set()
        assert (await first).error_code == 0
        assert broker.counts[ApiKey.HEARTBEAT] == 1
        connection.close()


@in_loop
async def test_a_caller_that_gives_up_does_not_disturb_the_order() -> None:
    async with FakeBroker() as broker:
        release = asyncio.Event()

        async def hold(request: HeartbeatRequest, call: object) -> HeartbeatResponse:
            await release.wait()
            return HeartbeatResponse(error_code=request.generation_id)

        broker.on(ApiKey.HEARTBEAT, hold)
        connection = await opened(broker, max_in_flight_requests_per_connection=2)
        sends = [asyncio.create_task(connection.send(HeartbeatRequest("g", i))) for i in range(4)]
        await broker.wait_for(ApiKey.HEARTBEAT)
        sends[0].cancel()  # in flight
        sends[2].cancel()  # in the queue: never sent
        release.set()
        assert [(await sends[i]).error_code for i in (1, 3)] == [1, 3]
        assert [r.generation_id for r in broker.requests(ApiKey.HEARTBEAT)] == [0, 1, 3]
        connection.close()


@in_loop
async def test_a_broker_that_drops_the_connection_fails_what_is_in_flight() -> None:
    async with FakeBroker() as broker:
        broker.on(ApiKey.HEARTBEAT, DROP)
        connection = await opened(broker)
        with pytest.raises(DisconnectedError, match=f"127.0.0.1:{broker.port}"):
            await connection.send(HEARTBEAT)
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
        async with FakeBroker() as broker:
            broker.on(ApiKey.HEARTBEAT, Raw(data))
            connection = await opened(broker)
            with pytest.raises((error, DisconnectedError)):
                await connection.send(HEARTBEAT)
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
    async with FakeBroker() as broker:
        broker.on(ApiKey.API_VERSIONS, SILENCE)
        before = await open_files()
        with pytest.raises(ConnectionFailedError, match="no answer to ApiVersions in time"):
            await Connection.open(broker.host, broker.port, build(ClientConfig), timeout_ms=200)
        await broker.drop_connections()
        assert await open_files() <= before


@in_loop
async def test_a_server_that_hangs_up_during_the_handshake() -> None:
    async with FakeBroker() as broker:
        broker.on(ApiKey.API_VERSIONS, DROP)
        with pytest.raises(ConnectionFailedError, match="closed"):
            await opened(broker)


@in_loop
async def test_a_request_that_cannot_be_encoded_leaves_the_connection_alive() -> None:
    async with FakeBroker(versions={ApiKey.FIND_COORDINATOR: (0, 3), ApiKey.LIST_GROUPS: None}) as broker:
        connection = await opened(broker)
        with pytest.raises(EncodeError):
            await connection.send(FindCoordinatorRequest(coordinator_keys=["g"]))
        with pytest.raises(UnsupportedVersionError):
            await connection.send(FindCoordinatorRequest(key="g"), min_version=4)
        assert (await connection.send(FindCoordinatorRequest(key="g"))).node_id == 0
        assert not connection.closed
        connection.close()


@in_loop
async def test_a_version_bound_is_kept() -> None:
    async with FakeBroker() as broker:
        connection = await opened(broker)
        await connection.send(FindCoordinatorRequest(key="g"), max_version=3)
        assert broker.calls(ApiKey.FIND_COORDINATOR)[0].version == 3
        connection.close()


@in_loop
async def test_an_idle_connection_closes_itself() -> None:
    async with FakeBroker() as broker:
        connection = await opened(broker, connections_max_idle_ms=150)
        for _ in range(4):
            await asyncio.sleep(0.08)
            await connection.send(HEARTBEAT)  # not idle as long as it is used
        await asyncio.sleep(0.4)
        assert connection.closed
        with pytest.raises(NodeNotReadyError, match="closed"):
            await connection.send(HEARTBEAT)


@in_loop
async def test_throttling_holds_the_next_request_back() -> None:
    async with FakeBroker() as broker:
        broker.once(ApiKey.HEARTBEAT, HeartbeatResponse(throttle_time_ms=300))
        connection = await opened(broker)
        await connection.send(HEARTBEAT)
        assert 0 < connection.throttle_delay() <= 0.3
        await connection.send(HEARTBEAT)
        first, second = (call.at for call in broker.calls(ApiKey.HEARTBEAT))
        assert second - first >= 0.29
        connection.close()


@in_loop
async def test_close_answers_waiters_and_frees_the_socket() -> None:
    async with FakeBroker() as broker:
        before = await open_files()
        broker.on(ApiKey.HEARTBEAT, SILENCE)
        connection = await opened(broker)
        told: list[Connection] = []
        connection.add_close_callback(told.append)
        waiting = asyncio.create_task(connection.send(HEARTBEAT))
        await broker.wait_for(ApiKey.HEARTBEAT)
        connection.close()
        connection.close()
        with pytest.raises(DisconnectedError, match="closed"):
            await waiting
        assert told == [connection]
        connection.add_close_callback(told.append)
        assert told == [connection] * 2
        await broker.drop_connections()
        assert await open_files() <= before


@in_loop
async def test_options_of_the_socket() -> None:
    async with FakeBroker() as broker:
        config = build(ClientConfig, receive_buffer_bytes=65_536, send_buffer_bytes=32_768)
        connection = await Connection.open(broker.host, broker.port, config, source=("127.0.0.1", 0))
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
    async with FakeCluster(1, {"t" * 200 + str(i): 50 for i in range(100)}) as cluster:
        broker = cluster.brokers[0]
        connection = await Connection.open(broker.host, broker.port, build(ClientConfig), buffer_size=1000)
        response = await connection.send(MetadataRequest(topics=None))
        assert sum(len(t.partitions) for t in response.topics) == 5_000
        connection.close()


@in_loop
async def test_use_after_a_fork_raises_and_leaves_the_parent_unharmed() -> None:
    async with FakeBroker() as broker:
        connection = await opened(broker)
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
        assert (await connection.send(HEARTBEAT)).error_code == 0
        connection.close()


@in_loop
async def test_connections_refuse_pickling_and_configs_do_not() -> None:
    async with FakeBroker() as broker:
        connection = await opened(broker)
        with pytest.raises(TypeError, match="can't be pickled"):
            pickle.dumps(connection)
        config = build(ClientConfig, client_id="me")
        assert pickle.loads(pickle.dumps(config)) == config
        connection.close()


@in_loop
async def test_use_in_another_loop_raises() -> None:
    async with FakeBroker() as broker:
        connection = await opened(broker)
        raised: list[BaseException] = []

        def elsewhere() -> None:
            try:
                asyncio.run(connection.send(HEARTBEAT))
            except UsageError as error:
                raised.append(error)

        thread = threading.Thread(target=elsewhere)
        thread.start()
        await asyncio.to_thread(thread.join)
        assert "another event loop" in str(raised[0])
        assert (await connection.send(HEARTBEAT)).error_code == 0
        connection.close()
