"""Names with several addresses, IPv6, and ports where nobody listens: for both kinds of sockets."""

from __future__ import annotations

import asyncio
import socket
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from fakes.loop import in_loop
from fakes.refusing import refusing_port
from waiting import at_pace_s, slow_s

from kafka_actors.config import ClientConfig, build
from kafka_actors.errors import ConnectionFailedError
from kafka_actors.net import Connection, FetchSocket, KafkaClient
from kafka_actors.testing import FakeKafka

CONFIG = build(ClientConfig)

Resolve = Callable[..., None]


@pytest.fixture
def resolve(monkeypatch: pytest.MonkeyPatch) -> Resolve:
    """Makes the name `kafka.test` resolve to these addresses, each a host."""
    real = socket.getaddrinfo

    def use(*hosts: str) -> None:
        def fake(host: Any, port: Any, *args: Any, **kwargs: Any) -> Any:
            if host != "kafka.test":
                return real(host, port, *args, **kwargs)
            return [info for h in hosts for info in real(h, port, *args, **kwargs)]

        monkeypatch.setattr(socket, "getaddrinfo", fake)

    return use


@pytest.fixture(params=["asyncio", "blocking"])
def open_to(request: pytest.FixtureRequest) -> Callable[..., Any]:
    """Opens a connection of either kind and closes it."""

    async def through_asyncio(host: str, port: int, timeout_ms: float | None = None) -> None:
        (await Connection.open(host, port, CONFIG, timeout_ms=timeout_ms)).close()

    async def blocking(host: str, port: int, timeout_ms: float | None = None) -> None:
        (await asyncio.to_thread(FetchSocket(host, port, CONFIG).open, timeout_ms=timeout_ms)).close()

    return through_asyncio if request.param == "asyncio" else blocking


@contextmanager
def listening(host: str) -> Iterator[int]:
    """A broker at this address; yields its port."""
    with FakeKafka(host=host) as kafka:
        yield int(kafka.bootstrap_servers.rpartition(":")[2])


def test_all_addresses_of_a_name_are_tried(open_to: Any, resolve: Resolve) -> None:
    resolve("127.0.0.2", "::1", "127.0.0.1")

    @in_loop
    async def run() -> None:
        with listening("127.0.0.1") as port:
            await open_to("kafka.test", port)

    run()


def test_the_name_is_resolved_anew_each_time(open_to: Any, resolve: Resolve) -> None:
    @in_loop
    async def run() -> None:
        with listening("127.0.0.2") as port:
            resolve("127.0.0.1")
            with pytest.raises(ConnectionFailedError):
                await open_to("kafka.test", port)
            resolve("127.0.0.2")
            await open_to("kafka.test", port)

    run()


def test_an_address_that_never_answers_leaves_time_for_the_next(open_to: Any, resolve: Resolve) -> None:
    """A listener whose queue is full answers no SYN: what a black hole looks like."""
    resolve("127.0.0.2", "127.0.0.1")

    @in_loop
    async def run() -> None:
        with listening("127.0.0.1") as port:
            hole = socket.socket()
            hole.bind(("127.0.0.2", port))
            hole.listen(0)
            fillers = [socket.socket() for _ in range(4)]
            for filler in fillers:
                filler.setblocking(False)
                filler.connect_ex(("127.0.0.2", port))
            started, limit_s = time.monotonic(), max(6.0, at_pace_s(2))
            await open_to("kafka.test", port, 1_000 * limit_s)
            assert time.monotonic() - started >= 0.4 * limit_s  # else the hole was none
            for sock in (hole, *fillers):
                sock.close()

    run()


def test_an_address_that_accepts_and_never_answers_does_not_keep_a_client_from_the_others(
    resolve: Resolve,
) -> None:
    """A broker that is frozen: the system accepts connections in its name."""
    resolve("127.0.0.2", "127.0.0.1")

    @in_loop
    async def run() -> None:
        with listening("127.0.0.1") as port, socket.socket() as frozen:
            frozen.bind(("127.0.0.2", port))
            frozen.listen()
            setup_ms = int(1_000 * at_pace_s(0.5))
            client = KafkaClient(
                bootstrap_servers=f"kafka.test:{port}",
                socket_connection_setup_timeout_ms=setup_ms,
                socket_connection_setup_timeout_max_ms=setup_ms,
            )
            try:
                assert (await client.bootstrap(timeout_ms=1_000 * slow_s(10))).brokers
            finally:
                await client.close()

    run()


def test_ipv6(open_to: Any) -> None:
    @in_loop
    async def run() -> None:
        with listening("::1") as port:
            await open_to("::1", port)

    run()


def test_the_error_names_each_address_and_why_it_failed(open_to: Any, resolve: Resolve) -> None:
    resolve("127.0.0.2", "::1")

    @in_loop
    async def run() -> None:
        with refusing_port("127.0.0.2", "::1") as port, pytest.raises(ConnectionFailedError) as caught:
            await open_to("kafka.test", port)
        assert str(caught.value) == (
            f"kafka.test:{port}: can't connect: 127.0.0.2:{port} connection refused; [::1]:{port} connection refused"
        )

    run()


def test_a_name_that_does_not_resolve(open_to: Any) -> None:
    @in_loop
    async def run() -> None:
        with pytest.raises(
            ConnectionFailedError, match=r"no\.such\.host\.invalid:9092: the name can't be resolved"
        ):
            await open_to("no.such.host.invalid", 9092)

    run()
