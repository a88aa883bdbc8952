"""`Consumer` on three real brokers of which one moves, dies or stands still."""

import itertools
import threading
import time

import pytest
from pace import this_run
from waiting import slow_s, until

import kafka_actors as ka
from kafka_actors.testing import KafkaCluster
from kafka_actors.testing.produce import Produce
from kafka_actors.types import TopicPartition

pytestmark = pytest.mark.kafka

BATCH = 200


def longest(times, since):
    """The longest time between two of these, in seconds of a quiet machine: see `pace`."""
    known = [t for t in times if t >= since]
    return max((this_run().quiet_s(a, b) for a, b in itertools.pairwise(known)), default=float("inf"))


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
        """The longest time without records of a partition, in seconds of a quiet machine: see `pace`."""
        return longest(self.times[partition], since)

    def stop(self):
        self._stop.set()
        self._thread.join(slow_s(30))
        assert self.error is None, self.error


class Source:
    """Produces a little to every partition, all the time."""

    def __init__(self, cluster, partitions):
        self.sent = dict.fromkeys(partitions, 0)
        self.times = {partition: [] for partition in partitions}
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
        while not self._stop.wait(0.1):
            for topic, partition in self.sent:
                producer.produce(topic, b"x" * 100, partition=partition, on_delivery=self._delivered)
            producer.poll(0)
        producer.flush(60)

    def _delivered(self, error, message):
        if error is None:
            self.sent[message.topic(), message.partition()] += 1
            self.times[message.topic(), message.partition()].append(time.monotonic())

    def gap(self, partition, since=0.0):
        """The longest time without an acknowledgement: a stream of them can't have a shorter one."""
        return longest(self.times[partition], since)

    def stop(self):
        self._stop.set()
        self._thread.join(slow_s(90))


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
    until(
        lambda: all(len(s) >= 20 for s in made.stream.seen.values()),
        30,
        "records of each partition",
        shown=lambda: made.stream.seen,
    )
    yield made
    made.source.stop()
    made.stream.stop()


def finish(source, stream):
    source.stop()
    until(lambda: all(len(stream.seen[p]) >= n for p, n in source.sent.items()), 40, "all that was sent")
    stream.stop()
    for partition, count in source.sent.items():
        assert stream.seen[partition] == list(range(len(stream.seen[partition]))), "in order, each once"
        assert len(stream.seen[partition]) >= count, "nothing acknowledged is missing"


def resumed(stream, partitions, within):
    begun = time.monotonic()
    until(
        lambda: all(stream.times[p][-1] >= begun + 0.5 for p in partitions),
        within,
        "records of each partition",
        shown=lambda: {p: len(stream.seen[p]) for p in partitions},
    )


def test_brokers_that_stand_still_die_or_hand_over_hold_up_only_their_own_partitions_and_nothing_is_lost(
    scene,
):
    cluster, stream = scene.cluster, scene.stream
    for fault, heal, within in ((cluster.pause, cluster.resume, 60), (cluster.kill, cluster.restart, 40)):
        begun = time.monotonic()
        fault(scene.victim)
        resumed(stream, scene.led, within)
        heal(scene.victim)
        resumed(stream, scene.led + scene.others, within)
        for tp in scene.others:
            assert stream.gap(tp, begun) < 2 + scene.source.gap(tp, begun), fault.__name__
    for broker in list(cluster.broker_ids)[:2]:  # leaders move back and forth
        cluster.shutdown(broker)
        time.sleep(2)
        cluster.restart(broker)
    resumed(stream, scene.led + scene.others, 40)
    for broker in cluster.broker_ids:  # a consumer finds its records after every broker was restarted
        cluster.kill(broker)
    for broker in cluster.broker_ids:
        cluster.restart(broker, wait=False)
    cluster.wait_ready()
    resumed(stream, scene.led + scene.others, 40)
    finish(scene.source, stream)


def test_brokers_that_move_to_other_addresses_one_by_one_hold_up_a_consumer_for_moments():
    with KafkaCluster(brokers=2) as cluster:
        topic = cluster.create_topic("t", 3, replication_factor=2)
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
    before = set(threading.enumerate())
    with KafkaCluster(brokers=1).start() as cluster:
        topic = cluster.create_topic("t", 2)
        Produce(cluster.bootstrap_servers)(topic, [b"1"] * BATCH)
        consumer = ka.Consumer(
            [topic], group_id="g", bootstrap_servers=cluster.bootstrap_servers, auto_offset_reset="earliest"
        )
        got = 0
        while got < BATCH:
            batch = consumer.poll_batch(timeout_ms=100_000)
            got += batch.num_rows
        cluster.kill(cluster.broker_ids[0])
        consumer.poll_batch(timeout_ms=300)
        begun = time.monotonic()
        consumer.close(timeout_ms=3000)
        assert this_run().quiet_s(begun, time.monotonic()) < 8

    def left():
        new = set(threading.enumerate()) - before
        return [t.name for t in new if t.name.startswith(("kafka-consumer", "fetch-"))]

    until(lambda: not left(), 10, "the end of threads", shown=left)
