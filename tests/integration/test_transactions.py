"""Transactions against a real broker: a copier's records are read once, whatever is aborted, fenced or killed."""

from __future__ import annotations

import asyncio
import signal
import subprocess
import sys
from collections.abc import Iterator

import pytest
from fakes.copying import consumer_of, copied, read_by_java, read_by_librdkafka, read_by_us
from waiting import slow_s, until

import kafka_actors as ka
from kafka_actors.errors import (
    ConfigError,
    IllegalGenerationError,
    InvalidTransactionTimeoutError,
    ProducerFencedError,
    TransactionAbortedError,
    UnknownMemberIdError,
    UsageError,
)
from kafka_actors.types import TopicPartition

pytestmark = pytest.mark.kafka

RECORDS = 600
ALL = list(range(RECORDS))
IN_ORDER = {0: ALL[::2], 1: ALL[1::2]}


@pytest.fixture
def source(kafka_topic, produce) -> str:
    """Numbered records in two partitions, even ones in the first."""
    name = kafka_topic(2)
    produce(name, [b"%d" % n for n in ALL], partition=[n % 2 for n in ALL])
    return name


def test_a_copier_delivers_each_record_once_and_in_order(kafka_cluster, kafka_topic, source, group_id):
    target = kafka_topic(2)
    with (
        consumer_of(kafka_cluster, source, group_id) as consumer,
        ka.Producer(
            bootstrap_servers=kafka_cluster.bootstrap_servers,
            transactional_id=group_id,
            compression_type="lz4",
        ) as producer,
    ):
        number = copied(consumer, producer, target, RECORDS, fails=frozenset([1, 3]))
        assert number >= 8
        transactions = producer._core.transactions
        assert transactions.machine.version == 2
    assert kafka_cluster.committed(group_id) == kafka_cluster.end_offsets(source)
    assert read_by_us(kafka_cluster, target, RECORDS) == IN_ORDER
    assert read_by_librdkafka(kafka_cluster, target, RECORDS) == IN_ORDER
    assert sorted(read_by_java(kafka_cluster, target, RECORDS)) == ALL


def test_a_zombie_is_refused_by_name_and_leaves_nothing(kafka_cluster, kafka_topic, group_id):
    target = kafka_topic(2)
    options = {"bootstrap_servers": kafka_cluster.bootstrap_servers, "transactional_id": group_id}
    with ka.Producer(**options) as zombie, ka.Producer(**options) as heir:
        zombie.init_transactions()
        zombie.begin_transaction()
        lost = zombie.send(target, b"1", partition=0)
        lost.result(timeout=slow_s(30))
        with heir.transaction():  # aborts what the other left open, and fences it
            heir.send(target, b"2", partition=1)
        with pytest.raises(ProducerFencedError, match="another producer began with transactional_id"):
            zombie.commit_transaction()
        with pytest.raises(ProducerFencedError):
            zombie.abort_transaction()
        with pytest.raises(ProducerFencedError):
            zombie.send(target, b"3", partition=0)
    assert read_by_us(kafka_cluster, target, 1) == {0: [], 1: [2]}


def test_offsets_of_a_former_member_are_refused_and_the_producer_goes_on(
    kafka_cluster, kafka_topic, source, group_id
):
    target = kafka_topic(2)
    with ka.Producer(
        bootstrap_servers=kafka_cluster.bootstrap_servers, transactional_id=group_id
    ) as producer:
        with consumer_of(kafka_cluster, source, group_id) as consumer:
            until(lambda: consumer.poll_batch(timeout_ms=200) is not None, 60)
            former = consumer.group_metadata()
            assert (former.group_id, former.generation_id >= 0) == (group_id, True)
        with consumer_of(kafka_cluster, source, group_id) as consumer:
            until(lambda: consumer.poll_batch(timeout_ms=200) is not None, 60)
            producer.init_transactions()
            producer.begin_transaction()
            producer.send(target, b"7", partition=0)
            with pytest.raises((IllegalGenerationError, UnknownMemberIdError)):
                producer.send_offsets_to_transaction({TopicPartition(source, 0): 50}, former)
            with pytest.raises((IllegalGenerationError, UnknownMemberIdError)):
                producer.commit_transaction()
            producer.abort_transaction()
            consumer.seek_to_committed()
            copied(consumer, producer, target, RECORDS)
    assert read_by_us(kafka_cluster, target, RECORDS) == IN_ORDER


COPIER = """
import sys, time
import kafka_actors as ka
servers, name, source, target = sys.argv[1:]
options = {"auto_offset_reset": "earliest", "enable_auto_commit": False, "session_timeout_ms": 6000}
with ka.Consumer(bootstrap_servers=servers, **options) as consumer:
    consumer.assign([ka.TopicPartition(source, 0)])
    producer = ka.Producer(bootstrap_servers=servers, transactional_id=name, transaction_timeout_ms=600_000)
    producer.init_transactions()
    producer.begin_transaction()
    while (batch := consumer.poll_batch(timeout_ms=500)) is None:
        pass
    producer.send_batch(batch.select(["value", "partition"]), topic=target).result()
    producer.send_offsets_to_transaction({ka.TopicPartition(source, 0): 10}, ka.ConsumerGroupMetadata(name))
    print("written", flush=True)
    time.sleep(1000)
"""


def test_a_copier_killed_in_a_transaction_goes_on_where_it_was_committed(
    kafka_cluster, kafka_topic, source, group_id
):
    target = kafka_topic(2)
    killed = subprocess.Popen(
        [sys.executable, "-c", COPIER, kafka_cluster.bootstrap_servers, group_id, source, target],
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        assert killed.stdout.readline() == "written\n"
    finally:
        killed.send_signal(signal.SIGKILL)
        killed.wait()
        killed.stdout.close()
    with ka.Producer(
        bootstrap_servers=kafka_cluster.bootstrap_servers, transactional_id=group_id
    ) as producer:
        producer.init_transactions()  # ends what was left open, long before its timeout of ten minutes
        with consumer_of(kafka_cluster, source, group_id, isolation_level="read_committed") as consumer:
            copied(consumer, producer, target, RECORDS)
    assert read_by_us(kafka_cluster, target, RECORDS) == IN_ORDER


def test_refusals_name_what_is_wrong(kafka_cluster, kafka_topic, group_id):
    target, servers = kafka_topic(2), kafka_cluster.bootstrap_servers
    with pytest.raises(ConfigError, match="acks: is 1: must be 'all' with a transactional_id"):
        ka.Producer(bootstrap_servers=servers, transactional_id=group_id, acks="1", enable_idempotence=False)
    with (
        ka.Producer(
            bootstrap_servers=servers, transactional_id=f"{group_id}-slow", transaction_timeout_ms=2**30
        ) as producer,
        pytest.raises(InvalidTransactionTimeoutError, match=r"brokers' transaction\.max\.timeout\.ms"),
    ):
        producer.init_transactions()
    with (
        ka.Producer(bootstrap_servers=servers) as producer,
        pytest.raises(UsageError, match="transactional_id"),
    ):
        producer.begin_transaction()
    with ka.Producer(bootstrap_servers=servers, transactional_id=group_id) as producer:
        with pytest.raises(UsageError, match="records are sent in transactions"):
            producer.send(target, b"1")
        with producer.transaction():
            with pytest.raises(UsageError, match="the producer is in a transaction"):
                producer.begin_transaction()
            producer.send(target, b"5", partition=0)
        producer.begin_transaction()
        given_up = producer.send(target, b"6", partition=1)
        producer.abort_transaction()
        failed = given_up.exception(timeout=slow_s(10))
        assert failed is None or isinstance(failed, TransactionAbortedError)
        producer.flush()
    assert read_by_us(kafka_cluster, target, 1) == {0: [5], 1: []}


def test_the_async_producer_has_the_same_transactions(kafka_cluster, kafka_topic, group_id):
    target = kafka_topic(2)

    async def main() -> Iterator[None]:
        async with ka.AsyncProducer(
            bootstrap_servers=kafka_cluster.bootstrap_servers, transactional_id=group_id
        ) as producer:
            for n in range(4):
                try:
                    async with producer.transaction():
                        await producer.send(target, b"%d" % n, partition=n % 2)
                        if n == 1:
                            raise InterruptedError
                except InterruptedError:
                    pass
            await producer.begin_transaction()
            await producer.send(target, b"9", partition=0)  # aborted by the end of the block

    asyncio.run(main())
    assert read_by_us(kafka_cluster, target, 3) == {0: [0, 2], 1: [3]}
