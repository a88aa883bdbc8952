"""The sockets of `FakeKafka`: ports, connections, its thread."""

from __future__ import annotations

import socket
import threading

import pytest
from waiting import slow_s, until

from kafka_actors.protocol import ApiVersionsRequest, decode_api_versions, frame
from kafka_actors.testing import FakeKafka

ASK = frame(18, 0, 1, "test", ApiVersionsRequest())


def connect(kafka: FakeKafka, server: int = 0) -> socket.socket:
    host, port = kafka.bootstrap_servers.split(",")[server].split(":")
    return socket.create_connection((host, int(port)), timeout=slow_s(5))


def request(connection: socket.socket) -> int:
    """The number of APIs that a broker tells."""
    connection.sendall(ASK)
    with connection.makefile("rb") as stream:
        body = stream.read(int.from_bytes(stream.read(4)))
    return len(decode_api_versions(0, body[4:]).api_keys)


def test_brokers_have_ports_of_their_own_and_answer() -> None:
    with FakeKafka(2) as first, FakeKafka(2) as second:
        assert len({*first.bootstrap_servers.split(","), *second.bootstrap_servers.split(",")}) == 4
        with connect(first, 1) as connection:
            assert request(connection) > 20


def test_a_killed_broker_closes_its_connections_refuses_others_and_comes_back() -> None:
    with FakeKafka(2) as kafka, connect(kafka) as one, connect(kafka, 1) as two:
        assert request(one) == request(two)
        address = one.getpeername()
        kafka.kill(1)
        assert one.recv(1) == b""
        with pytest.raises(ConnectionRefusedError):
            socket.create_connection(address, timeout=slow_s(5))
        assert request(two) > 20
        kafka.restart(1)
        with socket.create_connection(address, timeout=slow_s(5)) as again:
            assert request(again) > 20
        kafka.restart(2, new_port=True)
        assert kafka.bootstrap_servers.split(",")[1] != f"{two.getpeername()[0]}:{two.getpeername()[1]}"


def test_connections_are_closed_on_demand_and_at_the_end() -> None:
    with FakeKafka() as kafka:
        with connect(kafka) as connection:
            request(connection)
            kafka.disconnect()
            assert connection.recv(1) == b""
        last = connect(kafka)
        request(last)
    with last:
        assert last.recv(1) == b""
    kafka.stop()
    with pytest.raises(RuntimeError, match="not running"):
        _ = kafka.bootstrap_servers


def test_the_thread_ends_with_the_brokers() -> None:
    before = set(threading.enumerate())  # one that another test has stopped may end meanwhile

    def threads() -> int:
        return sum(thread.name == "fake-kafka" for thread in set(threading.enumerate()) - before)

    with FakeKafka() as kafka:
        assert threads() == 1
        assert kafka.start() is kafka
        assert threads() == 1
    until(lambda: threads() == 0, 10, "the thread to end")


def test_what_can_not_be_is_said_at_once() -> None:
    with pytest.raises(ValueError, match="at least 1"):
        FakeKafka(0)
    with pytest.raises(ValueError, match=r"Kafka 2\.1 to 4\.4"):
        FakeKafka(version="1.0")
    with pytest.raises(ValueError, match="no setting"):
        FakeKafka(config={"no.such": 1})
    with FakeKafka() as kafka:
        with pytest.raises(ValueError, match="no API"):
            kafka.count("Nonsense")
        with pytest.raises(ValueError, match="already exists"):
            kafka.create_topic(kafka.create_topic("t"))
