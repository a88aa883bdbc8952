"""`Consumer` on three real brokers of which one moves, dies or stands still."""

import itertools
import threading
import time

import pytest

import kafka_actors as ka
from kafka_actors.protocol.types import TopicPartition
from kafka_actors.testing import KafkaCluster
from kafka_actors.testing.produce import Produce

pytestmark = [pytest.mark.kafka, pytest.mark.alone]

BATCH = 200


class Stream:
    """Reads partitions in a thread; notes when records of each came, and all offsets."""

    def __init__(self, cluster, partitions, **options):
        self.seen = {tp: [] for tp in partitions}
        self.times = {tp: [time.monotonic()] for tp in partitions}
        self.error = None
        self._stop = threading.Event()
        self._consumer = ka.Consumer(
            bootstrap_servers=cluster.bootstrap_servers, auto_offset_reset="earliest", **options
        )
        self._consumer.assign(partitions)
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self):
        try:
            while not self._stop.is_set():
                batch = self._consumer.poll_batch(timeout_ms=100)
                if batch is not None:
                    partition = TopicPartition(batch["topic"][0].as_py(), batch["partition"][0].as_py())
                    self.seen[partition] += batch["offset"].to_pylist()
                    self.times[partition].append(time.monotonic())
        except Exception as error:
            self.error = error
        finally:
            self._consumer.close()

    def gap(self, partition, since=0.0):
        """The longest time without records of a partition."""
        times = [t for t in self.times[partition] if t >= since]
        return max((b - a for a, b in itertools.pairwise(times)), default=float("inf"))

    def stop(self):
        self._stop.set()
        self._thread.join(30)
        assert self.error is None, self.error


class Source:
    """Produces a little to every partition, all the time."""

    def __init__(self, cluster, partitions):
        self.sent = dict.fromkeys(partitions, 0)
        self._cluster = cluster
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self):
        from confluent_kafka import Producer

        producer = Producer(
            {
                "bootstrap.servers": self._cluster.bootstrap_servers,
                "enable.idempotence": True,
                "linger.ms": 5,
                "socket.timeout.ms": 3000,
                "message.timeout.ms": 60000,
            }
        )
        while not self._stop.wait(0.05):
            for topic, partition in self.sent:
                producer.produce(topic, b"x" * 100, partition=partition, on_delivery=self._delivered)
            producer.poll(0)
        producer.flush(60)

    def _delivered(self, error, message):
        if error is None:
            self.sent[message.topic(), message.partition()] += 1

    def stop(self):
        self._stop.set()
        self._thread.join(90)


class Scene:
    """A stream over `led`, partitions that the first broker leads, and `others`, which have nothing to do with it:
    their high watermarks don't wait for a dead follower either, so a gap in them would be ours."""

    def __init__(self, cluster, make_topic):
        self.cluster = cluster
        self.victim, second, third = cluster.broker_ids
        replicated = [[self.victim, second, third], [self.victim, third, second]]
        topic = make_topic(cluster=cluster, replica_assignment=replicated, prefix="led")
        self.led = [TopicPartition(topic, p) for p in range(2)]
        topic = make_topic(cluster=cluster, replica_assignment=[[second], [third]], prefix="others")
        self.others = [TopicPartition(topic, p) for p in range(2)]
        self.source = Source(cluster, self.led + self.others)
        self.stream = Stream(
            cluster, self.led + self.others, metadata_max_age_ms=5000, request_timeout_ms=10_000
        )


@pytest.fixture
def scene(kafka_cluster_3, kafka_topic):
    made = Scene(kafka_cluster_3, kafka_topic)
    deadline = time.monotonic() + 30
    while any(len(s) < 20 for s in made.stream.seen.values()):
        assert time.monotonic() < deadline, made.stream.seen
        time.sleep(0.05)
    yield made
    made.source.stop()
    made.stream.stop()


def finish(source, stream):
    source.stop()
    deadline = time.monotonic() + 40
    while any(len(stream.seen[p]) < source.sent[p] for p in source.sent) and time.monotonic() < deadline:
        time.sleep(0.1)
    stream.stop()
    for partition, count in source.sent.items():
        assert stream.seen[partition] == list(range(len(stream.seen[partition]))), "in order, each once"
        assert len(stream.seen[partition]) >= count, "nothing acknowledged is missing"


def resumed(stream, partitions, within):
    begun = time.monotonic()
    while any(stream.times[p][-1] < begun + 0.5 for p in partitions):
        assert time.monotonic() - begun < within, {p: len(stream.seen[p]) for p in partitions}
        time.sleep(0.05)


def test_a_killed_broker_holds_up_only_its_own_partitions_and_nothing_is_lost(scene):
    begun = time.monotonic()
    scene.cluster.kill(scene.victim)
    resumed(scene.stream, scene.led, 40)
    scene.cluster.restart(scene.victim)
    finish(scene.source, scene.stream)
    assert max(scene.stream.gap(tp, begun) for tp in scene.others) < 2


def test_a_paused_broker_holds_up_only_its_own_partitions_and_nothing_is_lost(scene):
    begun = time.monotonic()
    scene.cluster.pause(scene.victim)
    resumed(scene.stream, scene.led, 60)
    scene.cluster.resume(scene.victim)
    finish(scene.source, scene.stream)
    assert max(scene.stream.gap(tp, begun) for tp in scene.others) < 2


def test_leaders_that_move_back_and_forth_lose_and_repeat_nothing(scene):
    cluster = scene.cluster
    for broker in list(cluster.broker_ids)[:2]:
        cluster.shutdown(broker)
        time.sleep(2)
        cluster.restart(broker)
    resumed(scene.stream, scene.led + scene.others, 40)
    finish(scene.source, scene.stream)


def test_a_consumer_finds_its_records_after_every_broker_was_restarted(kafka_cluster_3, kafka_topic):
    topic = kafka_topic(partitions=2, cluster=kafka_cluster_3, replication_factor=3)
    produce = Produce(kafka_cluster_3.bootstrap_servers)
    produce(topic, [b"1"] * BATCH)
    stream = Stream(kafka_cluster_3, [TopicPartition(topic, p) for p in range(2)])
    for broker in kafka_cluster_3.broker_ids:
        kafka_cluster_3.kill(broker)
    for broker in kafka_cluster_3.broker_ids:
        kafka_cluster_3.restart(broker, wait=False)
    kafka_cluster_3.wait_ready()
    produce(topic, [b"2"] * BATCH)
    deadline = time.monotonic() + 40
    while sum(map(len, stream.seen.values())) < 2 * BATCH:
        assert time.monotonic() < deadline, stream.seen
        time.sleep(0.1)
    stream.stop()


@pytest.mark.timeout(300)
def test_brokers_that_move_to_other_addresses_one_by_one_hold_up_a_consumer_for_moments():
    with KafkaCluster(brokers=3) as cluster:
        topic = cluster.create_topic("t", 3, replication_factor=3)
        partitions = [TopicPartition(topic, p) for p in range(3)]
        source, stream = Source(cluster, partitions), Stream(cluster, partitions)
        resumed(stream, partitions, 30)
        former, begun = cluster.bootstrap_servers, time.monotonic()
        for broker in cluster.broker_ids:
            cluster.move(broker, "127.0.0.2")
            resumed(stream, partitions, 60)
        gap = max(stream.gap(tp, begun) for tp in partitions)
        print(f"longest gap {gap:.1f} s")
        assert not set(former.split(",")) & set(cluster.bootstrap_servers.split(","))
        finish(source, stream)
    assert gap <= 15


def test_close_ends_in_time_with_every_broker_dead():
    with KafkaCluster(brokers=1).start() as cluster:
        topic = cluster.create_topic("t", 2)
        Produce(cluster.bootstrap_servers)(topic, [b"1"] * BATCH)
        consumer = ka.Consumer(
            [topic], group_id="g", bootstrap_servers=cluster.bootstrap_servers, auto_offset_reset="earliest"
        )
        got = 0
        while got < BATCH:
            batch = consumer.poll_batch(timeout_ms=10_000)
            got += batch.num_rows
        cluster.kill(cluster.broker_ids[0])
        consumer.poll_batch(timeout_ms=300)
        begun = time.monotonic()
        consumer.close(timeout_ms=3000)
        assert time.monotonic() - begun < 8
    assert not [t.name for t in threading.enumerate() if t.name.startswith(("kafka-consumer", "fetch-"))]
