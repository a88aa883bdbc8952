"""Jobs with more workers than partitions, on real Kafka and Ray: each key in order whichever worker has it, while workers come, go and die."""

import pytest
from fakes.fetching import count_fetched
from jobs.by_key import InTasks, InThreads, repeated
from jobs.ordered import LONG, OrderedJob, by_value, hit_again_and_again
from waiting import slow_s, until

import kafka_actors as ka
from kafka_actors.testing.produce import Produce

__all__ = ["by_value"]

pytestmark = [pytest.mark.ray, pytest.mark.kafka]

UNFORCED = {"start_timeout_s": 600, "drain_timeout_ms": 300_000, "rebalance_timeout_ms": 600_000}
"""A drain that is forced repeats what is in hand."""


@pytest.fixture
def scene(kafka_cluster, kafka_topic, group_id, tmp_path, produce):
    return OrderedJob(kafka_cluster, kafka_topic(2), group_id, tmp_path, produce)


def by_worker(calls):
    """Processes that made calls, by partition."""
    return {n: {call.pid for call in calls if call.partition == n} for n in (0, 1)}


@pytest.mark.parametrize("kind", [InTasks, InThreads])
def test_workers_share_a_partition_and_each_key_keeps_its_order(scene, kind):
    job = scene.job(kind, ordering="key", concurrency=4, workers=6, until=None, config=UNFORCED)
    with job.start() as running:
        # Before there are records: whoever comes up first would be through with them, and some may take their time.
        until(lambda: sharing(running) == 6, 120, "workers that share the partitions")
        scene.fill(3_000, lambda n: None if n % 20 == 0 else b"hot" if n % 5 == 1 else b"%d" % (n % 600), 2)
        scene.end(running)
    calls = scene.check()
    assert repeated(calls) == []
    assert min(len(pids) for pids in by_worker(calls).values()) >= 3


def sharing(running):
    """Number of shares in the partitions that workers have."""
    return sum(len(p.worker.split(", ")) for p in running.status().partitions if p.worker)


def test_workers_come_and_go_at_one_partition_and_nothing_comes_twice(
    kafka_cluster, kafka_topic, group_id, tmp_path, produce
):
    scene = OrderedJob(kafka_cluster, kafka_topic(1), group_id, tmp_path, produce)
    made = 0

    def fill():
        scene.fill(600, lambda n: b"hot" if n % 10 == 1 else b"%d" % (n % 300), 1)
        return made + 600

    job = scene.job(InTasks, 0.05, ordering="key", concurrency=6, workers=1, until=None, config=UNFORCED)
    with job.start() as running:
        for workers in (6, 2, 4):
            made = fill()
            running.scale(workers)
            until(lambda wanted=workers: sharing(running) == wanted, 120, "workers that share the partition")
            made = fill()
            until(lambda made=made: len(scene.calls()) >= made, 120, "calls by these workers")
        assert running.stop(timeout=slow_s(30))
    calls = scene.check()
    assert len({call.pid for call in calls}) >= 6
    assert repeated(calls) == []


@pytest.mark.slow
def test_sixteen_workers_share_one_partition_and_go_again(
    kafka_cluster, kafka_topic, group_id, tmp_path, produce
):
    """2, 16, 3 workers, half of the records with one key, a tenth without: 16 processes take a minute to come up on two cores."""
    scene = OrderedJob(kafka_cluster, kafka_topic(1), group_id, tmp_path, produce)
    made = 0

    def fill():
        scene.fill(1_000, lambda n: b"hot" if n % 2 else None if n % 10 == 0 else b"%d" % n, 1)
        return made + 1_000

    made = fill()
    job = scene.job(InTasks, 0.01, ordering="key", concurrency=8, workers=2, until=None, config=UNFORCED)
    with job.start() as running:
        for workers in (2, 16, 3):
            running.scale(workers)
            until(lambda wanted=workers: sharing(running) == wanted, 300, "workers that share the partition")
            made = fill()
            until(lambda made=made: len(scene.calls()) >= made, 300, "calls by these workers")
        assert running.stop(timeout=slow_s(60))
    calls = scene.check()
    assert len({call.pid for call in calls}) >= 12  # the hot key's is busy, and others have a slice each
    assert repeated(calls) == []


def test_records_that_workers_of_a_node_share_cross_the_network_once(fake_kafka, group_id, tmp_path):
    """Also where the functions of some are slower than those of others. Of five rounds one is enough: whoever stands still for seconds, worker
    or broker, has records of its round fetched again (`LATE_S`, `KEPT_S`)."""
    topic = fake_kafka.create_topic("shared", 1)
    scene = OrderedJob(fake_kafka, topic, group_id, tmp_path, Produce(fake_kafka.bootstrap_servers))
    sizes = count_fetched(fake_kafka)

    def fill(count):
        scene.fill(count, lambda n: b"%d" % (n % 300), 1)

    fill(100)
    job = scene.job(InTasks, 0.02, ordering="key", concurrency=8, workers=4, until=None, config=UNFORCED)
    with job.start() as running:
        until(lambda: sharing(running) == 4, 120, "workers that share the partition")
        rounds = []
        for more in range(5):
            before = sum(sizes)
            fill(1_000)
            until(
                lambda made=100 + 1_000 * (more + 1): len(scene.calls()) >= made, 120, "calls on all records"
            )
            rounds.append(sum(sizes) - before)
        assert running.stop(timeout=slow_s(30))
    assert len({call.pid for call in scene.check()}) >= 4
    sizes.clear()
    with ka.Consumer(bootstrap_servers=fake_kafka.bootstrap_servers) as consumer:
        consumer.assign([ka.TopicPartition(topic, 0)])
        consumer.seek_to_beginning()
        read = 0
        while read < 5_100:
            read += len(consumer.poll_batch(timeout_ms=1_000) or ())
    assert min(rounds) < 1.2 * sum(sizes) * 1_000 / 5_100, (rounds, sum(sizes))


@LONG
def test_nothing_is_lost_or_out_of_order_whatever_dies(scene):
    """Workers and the coordinator are killed and stopped at random moments, and the number of workers changes: so partitions are dealt anew
    meanwhile."""
    job = scene.job(
        InTasks, 0.06, ordering="key", concurrency=8, workers=5, until=None, config={"start_timeout_s": 600}
    )
    with job.start() as running:
        hit_again_and_again(scene, running, 2, (3, 6), ("worker", "coordinator"))
        scene.end(running)
    scene.check()
