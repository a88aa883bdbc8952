"""`FakeKafka` with real clients: this library's, confluent-kafka and Kafka's own tools."""

from __future__ import annotations

import asyncio
import socket
import subprocess
import threading
from collections.abc import Callable
from pathlib import Path

import pytest
from confluent_kafka import Consumer as ConfluentConsumer
from confluent_kafka import KafkaError, KafkaException
from confluent_kafka import Producer as ConfluentProducer
from confluent_kafka import TopicPartition as ConfluentPartition
from confluent_kafka.admin import AdminClient
from fakes.java_tools import Tools
from waiting import slow_s, until

import kafka_actors as ka
from kafka_actors.errors import AuthenticationError
from kafka_actors.testing import Distribution, FakeKafka, KafkaUnavailable
from kafka_actors.testing.fake_kafka import (
    AnswerWithError,
    DropConnection,
    Hold,
    LoseResponse,
)


def read(consumer: ka.Consumer, count: int) -> list[bytes]:
    found: list[bytes] = []

    def all_read() -> bool:
        batch = consumer.poll_batch(timeout_ms=200)
        found.extend(batch["value"].to_pylist() if batch is not None else [])
        return len(found) >= count

    until(all_read, 30, f"{count} records", pause=0, shown=lambda: len(found))
    return found


def write(kafka: FakeKafka, topic: str, values: list[bytes]) -> None:
    with ka.Producer(bootstrap_servers=kafka.bootstrap_servers) as producer:
        for future in [producer.send(topic, value) for value in values]:
            future.result(timeout=slow_s(20))


VALUES = [b"%d" % i for i in range(500)]


@pytest.mark.parametrize(
    "call",
    [
        lambda kafka: kafka.address(9),
        lambda kafka: kafka.kill(9),
        lambda kafka: kafka.restart(9),
        lambda kafka: kafka.remove_broker(9),
        lambda kafka: kafka.disconnect(9),
        lambda kafka: kafka.set_leader("orders", 0, 9),
        lambda kafka: kafka.set_leader("orders", 0, -1),
        lambda kafka: kafka.set_coordinator("g", 9),
        lambda kafka: kafka.set_transaction_coordinator("t", 9),
        lambda kafka: kafka.set_versions("Fetch", (4, 12), 9),
        lambda kafka: kafka.on("Fetch", Hold(), broker_id=9),
        lambda kafka: kafka.connections(9),
    ],
)
def test_a_broker_that_is_not_there_is_named_with_those_that_are(
    call: Callable[[FakeKafka], object],
) -> None:
    with FakeKafka(2, topics={"orders": 1}) as kafka:
        before = kafka.leaders("orders"), kafka.coordinator_of("g")
        with pytest.raises(ValueError, match=r"^there is no broker -?\d: brokers are 1, 2$"):
            call(kafka)
        assert (kafka.leaders("orders"), kafka.coordinator_of("g")) == before
        assert kafka.broker_ids == (1, 2)


@pytest.mark.parametrize("version", ["9.9", "4.5", "2.0", "latest", ""])
def test_a_release_that_the_brokers_cannot_be_is_refused(version: str) -> None:
    with pytest.raises(ValueError, match=f"version is '{version}': fake brokers are Kafka 2.1 to 4.4"):
        FakeKafka(version=version)


def test_nobody_else_gets_the_port_of_a_broker_that_was_killed() -> None:
    """Where a client connects to one again and again, even the client's own end may get it by chance, and is connected to itself."""
    with FakeKafka() as kafka:
        address = kafka.address(1)
        kafka.kill(1)
        with socket.socket() as other, pytest.raises(OSError, match="in use"):
            other.bind(address)
        with pytest.raises(ConnectionRefusedError):
            socket.create_connection(address, slow_s(5)).close()
        for new_port in (False, True):
            kafka.restart(1, new_port=new_port)
            socket.create_connection(kafka.address(1), slow_s(5)).close()
        with pytest.raises(ConnectionRefusedError):
            socket.create_connection(address, slow_s(5)).close()
    with socket.socket() as other:
        other.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        other.bind(address)


@pytest.mark.parametrize("version", ["2.1", "2.8", "3.9", "4.1", "4.4"])
def test_this_library_s_clients_with_each_release(version: str) -> None:
    with FakeKafka(2, version=version, topics={"orders": 4}) as kafka:
        write(kafka, "orders", VALUES)
        assert sum(kafka.end_offsets("orders").values()) == len(VALUES)
        with ka.Consumer(
            "orders", bootstrap_servers=kafka.bootstrap_servers, group_id="g", auto_offset_reset="earliest"
        ) as consumer:
            assert sorted(read(consumer, len(VALUES))) == sorted(VALUES)
            consumer.commit()
            assert kafka.group_state("g") == "Stable"
        assert kafka.committed("g") == kafka.end_offsets("orders")
        assert kafka.group_state("g") == "Empty"
        with ka.Admin(bootstrap_servers=kafka.bootstrap_servers) as admin:
            assert [topic.name for topic in admin.list_topics()] == ["orders"]


def test_async_clients(fake_kafka: FakeKafka) -> None:
    fake_kafka.create_topic("t")

    async def main() -> list[bytes]:
        servers = fake_kafka.bootstrap_servers
        async with ka.AsyncProducer(bootstrap_servers=servers) as producer:
            await asyncio.gather(*[await producer.send("t", value) for value in VALUES[:50]])
        found: list[bytes] = []
        async with ka.AsyncConsumer(
            "t", bootstrap_servers=servers, group_id="g", auto_offset_reset="earliest"
        ) as c:
            async with asyncio.timeout(slow_s(30)):
                async for message in c:
                    found.append(message.value or b"")
                    if len(found) == 50:
                        return found
        return found

    assert asyncio.run(main()) == VALUES[:50]


def test_two_consumers_share_a_topic_and_the_one_that_is_left_takes_it_all() -> None:
    with FakeKafka(topics={"t": 4}) as kafka:
        options = {
            "bootstrap_servers": kafka.bootstrap_servers,
            "group_id": "g",
            "auto_offset_reset": "earliest",
        }
        stop = threading.Event()
        with ka.Consumer("t", **options) as one:  # type: ignore[arg-type]

            def poll_other() -> None:
                with ka.Consumer("t", **options) as other:  # type: ignore[arg-type]
                    while not stop.is_set():
                        other.poll_batch(timeout_ms=50)

            thread = threading.Thread(target=poll_other)
            thread.start()

            def owns(count: int) -> bool:
                one.poll_batch(timeout_ms=50)
                return len(one.assignment()) == count

            until(lambda: owns(2), 30, "two partitions each", pause=0, shown=one.assignment)
            stop.set()
            until(lambda: owns(4), 30, "all partitions", pause=0, shown=one.assignment)
            thread.join()


def test_clients_live_through_a_dead_broker_and_moved_leaders_and_coordinators() -> None:
    with FakeKafka(3) as kafka:
        kafka.create_topic("t", 3, 3)
        with ka.Consumer(
            "t", bootstrap_servers=kafka.bootstrap_servers, group_id="g", auto_offset_reset="earliest"
        ) as consumer:
            write(kafka, "t", VALUES[:100])
            seen = read(consumer, 100)
            kafka.kill(kafka.coordinator_of("g"))
            write(kafka, "t", VALUES[100:200])
            seen += read(consumer, 100)
            kafka.set_leader("t", 0, kafka.broker_ids[0])
            kafka.set_coordinator("g", kafka.broker_ids[1])
            write(kafka, "t", VALUES[200:300])
            seen += read(consumer, 100)
            assert sorted(seen) == sorted(VALUES[:300])
            consumer.commit()
        assert kafka.committed("g") == kafka.end_offsets("t")


def test_a_response_that_is_lost_writes_nothing_twice() -> None:
    with FakeKafka(topics={"t": 1}) as kafka:
        lost = kafka.on("Produce", LoseResponse(sent_bytes=3), times=2)
        kafka.on("Metadata", DropConnection())
        write(kafka, "t", VALUES[:50])
        assert len(lost.calls) == 2
        assert [record.value for record in kafka.records("t")] == VALUES[:50]


def test_single_requests_are_refused_and_held() -> None:
    with FakeKafka(topics={"t": 1}) as kafka:
        kafka.produce("t", [b"a", b"b"])
        refused = kafka.on("Fetch", AnswerWithError(6), times=3)
        with ka.Consumer(
            "t",
            bootstrap_servers=kafka.bootstrap_servers,
            group_id="g",
            auto_offset_reset="earliest",
            enable_auto_commit=False,  # only the commit that is held
        ) as consumer:
            assert read(consumer, 2) == [b"a", b"b"]
            assert len(refused.calls) == 3
            held = kafka.on("OffsetCommit", Hold())
            thread = threading.Thread(target=consumer.commit)
            thread.start()
            until(lambda: held.calls, 20, "the commit to come")
            assert kafka.committed("g") == {}
            held.release()
            assert kafka.committed("g") == {("t", 0): 2}
            thread.join()
        assert kafka.count("Fetch") >= 4
        assert kafka.requests("OffsetCommit")[-1].client_id


@pytest.mark.parametrize("mechanism", ["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"])
def test_sasl(mechanism: str) -> None:
    with FakeKafka(users={"me": "secret,=1"}, topics={"t": 1}) as kafka:
        options = {
            "bootstrap_servers": kafka.bootstrap_servers,
            "security_protocol": "SASL_PLAINTEXT",
            "sasl_mechanism": mechanism,
            "sasl_plain_username": "me",
        }
        with ka.Admin(**options, sasl_plain_password="secret,=1") as admin:  # type: ignore[arg-type]
            assert [topic.name for topic in admin.list_topics()] == ["t"]
        with pytest.raises(AuthenticationError), ka.Admin(**options, sasl_plain_password="other") as admin:  # type: ignore[arg-type]
            admin.list_topics()
        confluent = AdminClient(
            {
                "bootstrap.servers": kafka.bootstrap_servers,
                "security.protocol": "SASL_PLAINTEXT",
                "sasl.mechanism": mechanism,
                "sasl.username": "me",
                "sasl.password": "secret,=1",
            }
        )
        assert "t" in confluent.list_topics(timeout=slow_s(10)).topics


def test_confluent_kafka(fake_kafka: FakeKafka) -> None:
    fake_kafka.create_topic("t", 2)
    servers = {"bootstrap.servers": fake_kafka.bootstrap_servers}
    producer = ConfluentProducer({**servers, "enable.idempotence": True, "compression.type": "zstd"})
    for index, value in enumerate(VALUES):
        producer.produce("t", value, partition=index % 2)
    assert producer.flush(slow_s(20)) == 0
    consumer = ConfluentConsumer(
        {**servers, "group.id": "g", "auto.offset.reset": "earliest", "enable.auto.commit": False}
    )
    consumer.subscribe(["t"])
    found: list[bytes] = []

    def all_read() -> bool:
        found.extend(message.value() for message in consumer.consume(100, 0.2))
        return len(found) >= len(VALUES)

    until(all_read, 30, "all records", pause=0, shown=lambda: len(found))
    assert sorted(found) == sorted(VALUES)
    consumer.commit(asynchronous=False)
    assert fake_kafka.committed("g") == {("t", 0): 250, ("t", 1): 250}
    assert consumer.get_watermark_offsets(ConfluentPartition("t", 0), timeout=slow_s(10)) == (0, 250)
    consumer.close()
    assert fake_kafka.group_state("g") == "Empty"


def test_it_listens_on_ipv6() -> None:
    with FakeKafka(host="::1", topics={"t": 1}) as kafka:
        with ka.Producer(bootstrap_servers=kafka.bootstrap_servers) as producer:
            producer.send("t", b"x").result(timeout=slow_s(20))
        assert [record.value for record in kafka.records("t")] == [b"x"]


def test_the_fixture_mock_cluster_is_three_of_them(mock_cluster: FakeKafka) -> None:
    mock_cluster.create_topic("six", partitions=6, replication_factor=3)
    assert set(mock_cluster.leaders("six").values()) == set(mock_cluster.broker_ids) == {1, 2, 3}


def test_transactions_of_confluent_kafka(fake_kafka: FakeKafka) -> None:
    fake_kafka.create_topic("in")
    fake_kafka.create_topic("out")
    fake_kafka.produce("in", VALUES[:4])
    servers = {"bootstrap.servers": fake_kafka.bootstrap_servers}

    def begun() -> ConfluentProducer:
        made = ConfluentProducer({**servers, "transactional.id": "tx"})
        made.init_transactions(slow_s(20))
        made.begin_transaction()
        return made

    consumer = ConfluentConsumer(
        {**servers, "group.id": "g", "auto.offset.reset": "earliest", "enable.auto.commit": False}
    )
    consumer.subscribe(["in"])
    found: list[bytes] = []

    def all_read() -> bool:
        found.extend(message.value() for message in consumer.consume(10, 0.2))
        return len(found) >= 4

    until(all_read, 30, "all records", pause=0, shown=lambda: len(found))
    producer = begun()
    for value in found:
        producer.produce("out", value)
    positions = consumer.position(consumer.assignment())
    producer.send_offsets_to_transaction(positions, consumer.consumer_group_metadata(), slow_s(20))
    assert fake_kafka.committed("g") == {}
    producer.commit_transaction(slow_s(20))
    assert fake_kafka.committed("g") == {("in", 0): 4}
    producer.begin_transaction()
    producer.produce("out", b"aborted")
    producer.flush(slow_s(20))
    producer.abort_transaction(slow_s(20))
    producer.begin_transaction()
    producer.produce("out", b"fenced")
    producer.flush(slow_s(20))
    second = begun()
    with pytest.raises(KafkaException) as fenced:
        producer.commit_transaction(slow_s(20))
    assert fenced.value.args[0].code() == KafkaError._FENCED
    second.produce("out", b"second")
    second.commit_transaction(slow_s(20))
    assert [r.value for r in fake_kafka.records("out", read_committed=True)] == [*VALUES[:4], b"second"]
    assert len(fake_kafka.records("out")) == 7
    consumer.close()


def test_transactions_of_kafka_s_own_producer(fake_kafka: FakeKafka, tmp_path: Path) -> None:
    fake_kafka.create_topic("in")
    fake_kafka.create_topic("out")
    fake_kafka.produce("in", VALUES[:50])
    try:
        Distribution.get()
    except KafkaUnavailable as error:
        pytest.skip(str(error))
    tools = Tools(tmp_path)
    try:
        copier = [
            "--input-topic",
            "in",
            "--input-partition",
            "0",
            "--output-topic",
            "out",
            "--max-messages",
            "50",
        ]
        copier += [
            "--broker-list",
            fake_kafka.bootstrap_servers,
            "--consumer-group",
            "g",
            "--transaction-size",
            "10",
        ]
        tools(
            "org.apache.kafka.tools.TransactionalMessageCopier",
            *copier,
            *("--transactional-id", "tx", "--enable-random-aborts", "--group-mode", "--use-group-metadata"),
        )
        servers = ("--bootstrap-server", fake_kafka.bootstrap_servers)
        described = tools(
            "org.apache.kafka.tools.TransactionsCommand", *servers, "describe", "--transactional-id", "tx"
        )
    finally:
        tools.close()
    copied = [r.value for r in fake_kafka.records("out", read_committed=True)]
    assert copied == VALUES[:50]
    assert fake_kafka.committed("g") == {("in", 0): 50}
    assert "CompleteCommit" in described


def test_kafka_s_own_tools(fake_kafka: FakeKafka) -> None:
    try:
        kafka = Distribution.get()
    except KafkaUnavailable as error:
        pytest.skip(str(error))
    servers = ["--bootstrap-server", fake_kafka.bootstrap_servers]

    def tool(name: str, *args: str, stdin: str = "") -> str:
        command = kafka.command(f"org.apache.kafka.tools.{name}", *servers, *args)
        done = subprocess.run(
            command, input=stdin, capture_output=True, text=True, timeout=slow_s(60), check=False
        )
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    tool("TopicCommand", "--create", "--topic", "t", "--partitions", "2", "--replication-factor", "1")
    tool("ConsoleProducer", "--topic", "t", stdin="one\ntwo\nthree\n")
    args = ["--topic", "t", "--from-beginning", "--group", "g", "--max-messages", "3"]
    printed = tool("consumer.ConsoleConsumer", *args).splitlines()  # and its log
    assert {"one", "two", "three"} <= set(printed)
    assert sum(fake_kafka.committed("g").values()) == 3
    described = tool("consumer.group.ConsumerGroupCommand", "--describe", "--group", "g")
    assert {line.split()[1] for line in described.splitlines() if line.startswith("g ")} == {"t"}
