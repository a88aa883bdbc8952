"""A producer that is called from where it can't wait, in the wrong loop, or with what is no partition."""

import asyncio
import threading

import numpy as np
import pyarrow as pa
import pytest
from waiting import slow_s, until

import kafka_actors as ka
from kafka_actors.errors import UsageError


@pytest.fixture
def producer(cluster):
    with ka.Producer(bootstrap_servers=cluster.bootstrap_servers) as made:
        yield made


def test_a_callback_that_raises_holds_up_nobodys_outcome(cluster, kafka_topic):
    """Outcomes of four partitions that are acknowledged together, and the memory that they took."""
    topic, first = kafka_topic(4), []
    with ka.Producer(bootstrap_servers=cluster.bootstrap_servers, linger_ms=200) as producer:
        futures = [producer.send(topic, b"x", partition=p) for p in range(4)]

        def raising(future):
            first.append(future)
            raise ValueError("the user's own")

        for future in futures:
            future.add_done_callback(raising)
        assert [future.result(timeout=slow_s(20)).partition for future in futures] == [0, 1, 2, 3]
        producer.flush(timeout_ms=200_000)
    assert producer._core.intake.used == 0
    assert len(first) == 4


@pytest.mark.parametrize("call", ["flush", "close", "send", "result"])
def test_a_callback_that_would_wait_for_what_comes_through_its_thread_is_told_so(cluster, kafka_topic, call):
    topic, other = kafka_topic(), kafka_topic()
    errors, over = [], threading.Event()
    # No record is sent before the flush: a callback of an outcome that is known is called at once, in this thread.
    producer = ka.Producer(bootstrap_servers=cluster.bootstrap_servers, linger_ms=60_000)

    def callback(_):
        try:
            more = producer.send(topic, b"y")  # what need not wait may be sent
            if call == "send":
                producer.send(other, b"z")  # of which nothing is known yet
            elif call == "result":
                more.result()
            else:
                getattr(producer, call)()
        except Exception as error:
            errors.append(error)
        over.set()

    with producer:
        producer.send(topic, b"x").add_done_callback(callback)
        producer.flush(timeout_ms=200_000)
        assert over.wait(slow_s(20))
        (error,) = errors
        assert isinstance(error, UsageError)
        assert "callback" in str(error)
        sent = producer.send(other, b"z")
        producer.flush(timeout_ms=200_000)
        assert sent.result(timeout=slow_s(20)).offset == 0


def test_the_asyncio_twin_belongs_to_one_event_loop(cluster, kafka_topic):
    """No outcome would ever come in another one."""
    topic = kafka_topic()
    producer = ka.AsyncProducer(bootstrap_servers=cluster.bootstrap_servers)

    async def send():
        return await (await producer.send(topic, b"x"))

    async def used():
        assert (await send()).offset == 0
        with pytest.raises(UsageError, match="await the future there"):
            (await producer.send(topic, b"x")).result()
        await producer.flush()

    asyncio.run(used())
    for call in (send, producer.flush, producer.close):
        with pytest.raises(UsageError, match="this AsyncProducer belongs to the event loop"):
            asyncio.run(call())


@pytest.mark.kafka
def test_a_partition_that_a_topic_has_got_meanwhile_is_sent_to(producer, cluster, kafka_topic):
    def grow(topic):
        producer.send(topic, b"x").result(timeout=slow_s(20))
        cluster.add_partitions(topic, 3)

    for send in (
        lambda topic: producer.send(topic, b"x", partition=2).result(timeout=slow_s(20)).partition == 2,
        lambda topic: (
            (topic, 2)
            in producer.send_batch(pa.record_batch({"value": [b"x"], "partition": [2]}), topic)
            .result(timeout=slow_s(20))
            .partitions
        ),
    ):
        topic = kafka_topic(1)
        grow(topic)

        def is_sent(topic=topic, send=send):
            try:
                assert send(topic)
            except UsageError:  # a broker may take a moment to know of it
                return False
            return True

        until(is_sent, 20, "the new partition to be known", pause=0.0)


@pytest.mark.parametrize("partition", ["1", 1.0, True])
def test_what_is_no_partition_fails_alone(producer, kafka_topic, partition):
    """In a request with the records of others it would fail with all of them."""
    topic = kafka_topic(2)
    sent = producer.send(topic, b"x", partition=np.int64(1))
    with pytest.raises(UsageError, match=r"partition is .*: it must be an int"):
        producer.send(topic, b"x", partition=partition)
    with pytest.raises(UsageError, match=r"timestamp_ms is 1\.5, a float: it must be an int"):
        producer.send(topic, b"x", timestamp_ms=1.5)
    with pytest.raises(UsageError, match=r"timestamp_ms is 1\d{18}: Arrow's columns, in microseconds, hold"):
        producer.send(topic, b"x", timestamp_ms=1_800_000_000_000_000_000)
    with pytest.raises(UsageError, match=r"timestamp_ms is .*: it must be an int of 64 bits"):
        producer.send(topic, b"x", timestamp_ms=2**63)
    assert sent.result(timeout=slow_s(20)).offset == 0


def test_javas_longest_time_means_without_end(cluster, kafka_topic):
    servers, topic = cluster.bootstrap_servers, kafka_topic(1)
    with ka.Producer(bootstrap_servers=servers, max_block_ms=2**63 - 1) as producer:
        assert producer.send(topic, b"x").result(timeout=slow_s(20)).offset == 0
