"""`Producer` on three real brokers of which one moves, dies or stands still under load."""

import threading
import time
from contextlib import closing, suppress

import pyarrow as pa
import pytest
from pace import this_run
from waiting import at_pace_s, slow_s, until

import kafka_actors as ka
from kafka_actors.errors import DeliveryTimeoutError, KafkaTimeoutError, UndeliveredError
from kafka_actors.types import TopicPartition

pytestmark = pytest.mark.kafka

PARTITIONS = 4


class Load:
    """Sends numbered records to every partition, all the time, batch by batch."""

    def __init__(self, cluster, topic, **options):
        self.topic = topic
        self.futures = []
        self.producer = ka.Producer(
            bootstrap_servers=cluster.bootstrap_servers, request_timeout_ms=5_000, **options
        )
        self._next = 0
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self):
        while not self._stop.wait(0.01):
            numbers = range(self._next, self._next + 400)
            batch = pa.record_batch(
                {
                    "value": [b"%09d" % n + bytes(50) for n in numbers],
                    "partition": pa.array([n % PARTITIONS for n in numbers], pa.int32()),
                }
            )
            self.futures.append(self.producer.send_batch(batch, self.topic))
            self._next += 400

    def acknowledged(self):
        return sum(f.rows for f in self.futures if f.done())

    def wait(self, more, within=40.0):
        wanted = self.acknowledged() + more
        until(
            lambda: self.acknowledged() >= wanted, within, f"{wanted} records", 0.02, shown=self.acknowledged
        )

    def stop(self):
        self._stop.set()
        self._thread.join(slow_s(60))
        assert not self._thread.is_alive()
        self.producer.close(timeout_ms=slow_s(60) * 1000)
        for future in self.futures:
            future.result(timeout=0)
        return self._next

    def close(self):
        """Ends it, whatever happened: a producer that is left over keeps the process of a failed run from ending."""
        self._stop.set()
        self._thread.join(slow_s(60))
        with suppress(UndeliveredError, KafkaTimeoutError):
            self.producer.close(timeout_ms=1_000)


def read_all(cluster, topic):
    """The numbers in each partition, in the order of the log."""
    ends = cluster.end_offsets(topic)
    with ka.Consumer(bootstrap_servers=cluster.bootstrap_servers, auto_offset_reset="earliest") as consumer:
        consumer.assign([TopicPartition(topic, p) for p in range(PARTITIONS)])
        found = {p: [] for p in range(PARTITIONS)}
        deadline = time.monotonic() + slow_s(40)
        while sum(map(len, found.values())) < sum(ends.values()) and time.monotonic() < deadline:
            batch = consumer.poll_batch(timeout_ms=200)
            if batch is not None:
                found[batch["partition"][0].as_py()] += [int(v[:9]) for v in batch["value"].to_pylist()]
    return found


def check(cluster, topic, sent):
    found = read_all(cluster, topic)
    for partition, numbers in found.items():
        assert numbers == list(range(partition, sent, PARTITIONS)), "each once and in order"


@pytest.fixture
def topic(kafka_cluster_3, kafka_topic):
    return kafka_topic(
        PARTITIONS,
        cluster=kafka_cluster_3,
        replication_factor=3,
        config={"min.insync.replicas": "2"},
    )


# What is sent again is the same bytes, whatever the codec: the faults with another one are for the whole run.
@pytest.mark.parametrize("codec", ["none", pytest.param("zstd", marks=pytest.mark.slow)])
def test_brokers_that_die_stand_still_or_hand_over_under_load_lose_nothing_and_repeat_nothing(
    kafka_cluster_3, topic, codec
):
    with closing(Load(kafka_cluster_3, topic, compression_type=codec, batch_size=20_000)) as load:
        load.wait(2_000)
        victim = kafka_cluster_3.leaders(topic)[0]
        kafka_cluster_3.kill(victim)
        load.wait(40_000)
        kafka_cluster_3.restart(victim)
        load.wait(4_000)
        # One that stands still gives no answer: the outcome of requests is unknown, and some are carried out when it wakes.
        victim = kafka_cluster_3.leaders(topic)[0]
        kafka_cluster_3.pause(victim)
        load.wait(40_000, within=60)
        kafka_cluster_3.resume(victim)
        for broker in kafka_cluster_3.broker_ids[:2]:  # what the first one led moves twice
            load.wait(4_000)
            kafka_cluster_3.shutdown(broker)
            load.wait(4_000)
            kafka_cluster_3.restart(broker)
        load.wait(4_000)
        check(kafka_cluster_3, topic, load.stop())


def test_what_no_broker_acknowledges_fails_in_its_time_and_says_so(kafka_cluster_3, kafka_topic):
    alone = kafka_cluster_3.broker_ids[0]
    topic = kafka_topic(1, cluster=kafka_cluster_3, replica_assignment=[[alone]])
    limit_ms = round(1000 * max(3.0, at_pace_s(1)))
    producer = ka.Producer(
        bootstrap_servers=kafka_cluster_3.bootstrap_servers,
        request_timeout_ms=limit_ms // 3,
        delivery_timeout_ms=limit_ms,
        linger_ms=limit_ms // 2,  # the two records below are in one batch
    )

    def acknowledged():
        try:
            return producer.send(topic, b"before").result(timeout=slow_s(60))
        except DeliveryTimeoutError:  # connecting took all of its time
            return None

    until(acknowledged, 30, "a first record to be acknowledged")
    kafka_cluster_3.kill(alone)
    began = time.monotonic()
    asked, unasked = producer.send(topic, b"one"), producer.send(topic, b"two")
    error = asked.exception(timeout=slow_s(20))
    assert isinstance(error, DeliveryTimeoutError)
    now = time.monotonic()
    assert now - began > limit_ms / 1000 - 0.5
    assert this_run().quiet_s(began, now) < 10
    assert f"{topic}-0: 2 records not acknowledged within delivery_timeout_ms ({limit_ms})" in str(error)
    with pytest.raises(UndeliveredError, match="1 record was not delivered"):
        producer.flush(timeout_ms=10_000)
    assert unasked.done()
    producer.close()


def test_close_ends_in_its_time_without_any_broker(kafka_cluster_3, kafka_topic):
    alone = kafka_cluster_3.broker_ids[0]
    topic = kafka_topic(1, cluster=kafka_cluster_3, replica_assignment=[[alone]])
    producer = ka.Producer(bootstrap_servers=kafka_cluster_3.bootstrap_servers)
    producer.send(topic, b"before").result(timeout=slow_s(20))
    kafka_cluster_3.pause(alone)
    future = producer.send(topic, b"late")
    began = time.monotonic()
    with pytest.raises(UndeliveredError, match="closed before it was acknowledged"):
        producer.close(timeout_ms=1_000)
    assert this_run().quiet_s(began, time.monotonic()) < 5
    assert isinstance(future.exception(timeout=0), KafkaTimeoutError)
    producer.close()
