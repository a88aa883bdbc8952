"""The renewal of a session (KIP-368) in every order of events, and brokers that are none or do not know the password."""

import asyncio
import threading

import pytest
from fakes.loop import in_loop
from fakes.scripted import PING, PINGS, PONG, answer, arrived, brokers
from msgspec.structs import replace
from waiting import at_pace_s, slow_s, within

from kafka_actors.config import ClientConfig, build
from kafka_actors.errors import (
    ConnectionFailedError,
    KafkaTimeoutError,
    NodeNotReadyError,
    SaslAuthenticationFailedError,
    SaslError,
    SslAuthenticationError,
)
from kafka_actors.net import Connection, FetchSocket
from kafka_actors.protocol import ApiKey, SaslAuthenticateResponse
from kafka_actors.testing.fake_kafka import Hold

LIFETIME_MS = 60_000
CONFIG = build(
    ClientConfig,
    security_protocol="SASL_PLAINTEXT",
    sasl_mechanism="PLAIN",
    sasl_plain_username="ann",
    sasl_plain_password="hush",
    request_timeout_ms=10 * LIFETIME_MS,  # by the connection's clock, which is put forward
)


USERS = {"ann": "hush"}
SESSIONS = {"users": USERS, "config": {"connections.max.reauth.ms": LIFETIME_MS}}


class Clock:
    """The connection's own: its session ends by it, and not while requests are on their way on a slow machine."""

    now = 1000.0

    def __call__(self):
        return self.now

    def session_ends(self):
        self.now += LIFETIME_MS / 1000


async def opened(kafka, clock, config=CONFIG):
    return await Connection.open(*kafka.address(1), config, clock=clock)


def kinds(kafka):
    return [call.api_key for call in kafka.requests() if call.api_key != ApiKey.API_VERSIONS]


LOGIN = [ApiKey.SASL_HANDSHAKE, ApiKey.SASL_AUTHENTICATE]


@in_loop
async def test_a_port_that_says_nothing_to_tls_is_given_up_in_time():
    async def say_nothing(reader, writer):
        await reader.read()
        writer.close()

    server = await asyncio.start_server(say_nothing, "127.0.0.1", 0)
    async with server:
        port = server.sockets[0].getsockname()[1]
        config = build(ClientConfig, security_protocol="SSL")
        limit_ms = 1000 * max(1.0, at_pace_s(0.3))  # it connects before
        with pytest.raises(ConnectionFailedError, match="no answer to the TLS handshake in time"):
            await Connection.open("127.0.0.1", port, config, timeout_ms=limit_ms)
        with pytest.raises(ConnectionFailedError, match="no answer to the TLS handshake in time"):
            await asyncio.to_thread(FetchSocket("127.0.0.1", port, config).open, timeout_ms=limit_ms)


@in_loop
async def test_a_port_that_speaks_something_else_to_tls():
    async def answer(reader, writer):
        await reader.read(10)
        writer.write(b"HTTP/1.1 400 Bad Request\r\n\r\n")
        await writer.drain()

    config = build(ClientConfig, security_protocol="SSL")
    async with await asyncio.start_server(answer, "127.0.0.1", 0) as server:
        port = server.sockets[0].getsockname()[1]
        with pytest.raises(SslAuthenticationError, match="not speak TLS"):
            await Connection.open("127.0.0.1", port, config)


def challenge(iterations):
    """The first answer of a broker that goes on from the nonce it is given, as SCRAM has it."""

    def first(call):
        nonce = call.request.auth_bytes.partition(b",r=")[2]
        return SaslAuthenticateResponse(auth_bytes=b"r=%bmore,s=c2FsdA==,i=%d" % (nonce, iterations))

    return first


@in_loop
@pytest.mark.parametrize(
    ("answers", "said"),
    [
        ([SaslAuthenticateResponse()], "first message can't be read"),  # simply let in
        ([challenge(1)], "asks for 1 iterations: 4096 to 1000000 are accepted"),
        ([challenge(10**9)], "asks for 1000000000 iterations"),
        ([challenge(4096), SaslAuthenticateResponse()], "did not prove that it knows the password"),
        ([challenge(4096), SaslAuthenticateResponse(auth_bytes=b"v=" + b"A" * 43 + b"=")], "did not prove"),
    ],
)
async def test_a_broker_that_only_says_it_knows_the_password_gets_no_request(answers, said):
    options = {name: getattr(CONFIG, name) for name in CONFIG.__struct_fields__}
    config = build(ClientConfig, {**options, "sasl_mechanism": "SCRAM-SHA-256"})
    async with brokers(users=USERS) as kafka:
        host, port = kafka.address(1)
        for open_ in (
            lambda: Connection.open(host, port, config),
            lambda: asyncio.to_thread(FetchSocket(host, port, config).open),
        ):
            for given in answers:
                kafka.on("SaslAuthenticate", answer(given))
            with pytest.raises(SaslError, match=rf"127\.0\.0\.1:{port}: SCRAM: .*{said}") as caught:
                await open_()
            assert not caught.value.retriable
            assert kafka.count("Metadata") == 0


@in_loop
async def test_renewal_waits_for_what_is_in_flight_and_requests_for_renewal():
    async with brokers(**SESSIONS) as kafka:
        clock = Clock()
        connection = await opened(kafka, clock)
        held = kafka.on(PINGS, Hold())
        first = asyncio.create_task(connection.send(PING))
        await arrived(kafka, PINGS)
        clock.session_ends()
        parked = [asyncio.create_task(connection.send(PING)) for _ in range(3)]
        await asyncio.sleep(0.05)
        assert kinds(kafka) == [*LOGIN, PINGS]
        held.release()
        for sent in (first, *parked):
            assert (await sent).error_code == 0
        assert kinds(kafka) == [*LOGIN, PINGS, *LOGIN, *[PINGS] * 3]
        connection.close()


@in_loop
async def test_a_throttled_connection_renews_when_that_is_over():
    async with brokers(**SESSIONS) as kafka:
        clock = Clock()
        connection = await opened(kafka, clock)
        kafka.on(PINGS, answer(replace(PONG, throttle_time_ms=LIFETIME_MS + 200)))
        await connection.send(PING)
        clock.session_ends()
        held_back = asyncio.create_task(connection.send(PING))
        await asyncio.sleep(0)
        clock.now += 0.2
        with within(3):
            await held_back
        assert kinds(kafka) == [*LOGIN, PINGS, *LOGIN, PINGS]
        connection.close()


@in_loop
async def test_a_refused_renewal_answers_each_waiter_once():
    async with brokers(**SESSIONS) as kafka:
        clock = Clock()
        connection = await opened(kafka, clock)
        refusal = SaslAuthenticateResponse(error_code=58, error_message="credentials were revoked")
        kafka.on("SaslAuthenticate", answer(refusal))
        clock.session_ends()
        answers = await asyncio.gather(*(connection.send(PING) for _ in range(3)), return_exceptions=True)
        assert [type(answer) for answer in answers] == [NodeNotReadyError] * 3
        assert all("credentials were revoked" in str(answer) for answer in answers)
        assert isinstance(connection.error, SaslAuthenticationFailedError)
        assert PINGS not in kinds(kafka)


@in_loop
async def test_a_renewal_that_comes_too_soon_ends_the_connection_and_may_be_tried_on_another():
    """Kafka takes one renewal a second on a connection, and answers another as it answers where there is no SASL."""
    async with brokers(**SESSIONS) as kafka:
        clock = Clock()
        connection = await opened(kafka, clock)
        clock.session_ends()
        await connection.send(PING)
        assert kinds(kafka) == [*LOGIN, *LOGIN, PINGS]

        async def renew_again_and_again():
            for _ in range(100):  # the broker's clock is the machine's: a second may have passed
                clock.session_ends()
                await connection.send(PING)

        with pytest.raises(NodeNotReadyError, match="renewed less than a second ago"):
            await renew_again_and_again()
        assert isinstance(connection.error, ConnectionFailedError)
        assert connection.error.retriable


@in_loop
async def test_a_renewal_without_an_answer_ends_in_time():
    config = build(
        ClientConfig,
        {name: getattr(CONFIG, name) for name in CONFIG.__struct_fields__ if name != "request_timeout_ms"},
        request_timeout_ms=400,
    )
    async with brokers(**SESSIONS) as kafka:
        clock = Clock()
        connection = await opened(kafka, clock, config)
        kafka.on("SaslHandshake", Hold())
        clock.session_ends()
        with pytest.raises(NodeNotReadyError):
            await connection.send(PING, timeout_ms=5_000)
        assert isinstance(connection.error, KafkaTimeoutError)


@in_loop
async def test_a_token_that_does_not_come_is_not_said_to_be_the_brokers_silence():
    over = threading.Event()
    loop, ahead_s = asyncio.get_running_loop(), 0.0
    time_of_loop = loop.time
    loop.time = lambda: time_of_loop() + ahead_s

    class Slow:
        def token(self):
            nonlocal ahead_s
            ahead_s = 120.0  # the time for the connection is over now, and not while it is opened
            loop.call_soon_threadsafe(lambda: None)
            over.wait(slow_s(30))
            return "tok"

    config = build(
        ClientConfig,
        security_protocol="SASL_PLAINTEXT",
        sasl_mechanism="OAUTHBEARER",
        sasl_oauth_token_provider=Slow(),
    )
    async with brokers(**SESSIONS) as kafka:
        try:
            with pytest.raises(ConnectionFailedError, match="no credentials of OAUTHBEARER from where"):
                await Connection.open(*kafka.address(1), config, timeout_ms=60_000)
        finally:
            over.set()


@in_loop
async def test_closing_ends_a_renewal():
    async with brokers(**SESSIONS) as kafka:
        clock = Clock()
        connection = await opened(kafka, clock)
        kafka.on("SaslHandshake", Hold())
        clock.session_ends()
        sent = asyncio.create_task(connection.send(PING))
        await arrived(kafka, "SaslHandshake", 2)
        renewal = connection._renewal
        connection.close()
        with pytest.raises(NodeNotReadyError):
            await sent
        with within(1):
            await renewal
        assert connection._renewal is None
