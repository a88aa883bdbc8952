"""Clients connect with their first call: where no broker answers it says so, and the next one tries again."""

import asyncio
import threading

import pytest
from waiting import slow_s

import kafka_actors as ka
from kafka_actors.errors import NoBrokersAvailable, UsageError
from kafka_actors.net import KafkaClient
from kafka_actors.types import TopicPartition


@pytest.fixture
def late(monkeypatch):
    """No broker answers the first attempt."""
    bootstrap, attempts = KafkaClient.bootstrap, []

    async def late_bootstrap(client, *arguments, **options):
        attempts.append(client)
        if len(attempts) == 1:
            raise NoBrokersAvailable("nobody answers yet")
        await bootstrap(client, *arguments, **options)

    monkeypatch.setattr(KafkaClient, "bootstrap", late_bootstrap)
    return attempts


def threads(name):
    return [thread for thread in threading.enumerate() if thread.name.startswith(name)]


def test_a_consumer_that_no_broker_answered_is_used_again(late, cluster, kafka_topic, produce, group_id):
    topic = kafka_topic()
    produce(topic, [b"x"], partition=0)
    name = f"kafka-consumer-{group_id}"
    consumer = ka.Consumer(
        topic,
        group_id=group_id,
        bootstrap_servers=cluster.bootstrap_servers,
        auto_offset_reset="earliest",
    )
    with pytest.raises(NoBrokersAvailable, match="nobody answers yet"):
        consumer.poll_batch(timeout_ms=100_000)
    assert not threads(name)
    assert consumer.subscription() == {topic}
    with consumer:
        assert consumer.poll_batch(timeout_ms=100_000)["value"].to_pylist() == [b"x"]
        assert len(threads(name)) == 1
    with pytest.raises(UsageError, match="is closed"):
        consumer.poll_batch()


def test_an_async_consumer_that_no_broker_answered_is_used_again(late, cluster, kafka_topic, produce):
    topic = kafka_topic()
    produce(topic, [b"x"], partition=0)

    async def test():
        consumer = ka.AsyncConsumer(bootstrap_servers=cluster.bootstrap_servers, auto_offset_reset="earliest")
        await consumer.assign([TopicPartition(topic, 0)])
        with pytest.raises(NoBrokersAvailable):
            await consumer.poll_batch(timeout_ms=100_000)
        async with consumer:
            assert (await consumer.poll_batch(timeout_ms=100_000))["value"].to_pylist() == [b"x"]

    asyncio.run(test())


def test_a_producer_that_no_broker_answered_is_used_again(late, cluster, kafka_topic):
    topic = kafka_topic()
    producer = ka.Producer(bootstrap_servers=cluster.bootstrap_servers)
    with pytest.raises(NoBrokersAvailable):
        producer.send(topic, b"lost")
    with producer:
        assert producer.send(topic, b"x").result(timeout=slow_s(20)).offset == 0


def test_an_async_producer_that_no_broker_answered_is_used_again_by_whoever_waits(late, cluster, kafka_topic):
    topic = kafka_topic()

    async def test():
        producer = ka.AsyncProducer(bootstrap_servers=cluster.bootstrap_servers)
        sent = await asyncio.gather(
            producer.send(topic, b"lost"), producer.send(topic, b"lost"), return_exceptions=True
        )
        assert [type(outcome) for outcome in sent] == [NoBrokersAvailable] * 2
        async with producer:
            assert (await (await producer.send(topic, b"x"))).offset == 0

    asyncio.run(test())
