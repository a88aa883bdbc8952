"""A job on real Kafka and real Ray: the whole way from a topic to committed offsets."""

import pytest
from jobs.journal import Journal
from jobs.scene import recorder
from waiting import slow_s, until

import kafka_actors as ka

pytestmark = [pytest.mark.ray, pytest.mark.kafka]


@pytest.fixture
def journal(tmp_path):
    return Journal(tmp_path / "journal")


def test_a_bounded_job_processes_everything_once_and_commits_to_the_end(
    ray_local, kafka_cluster_3, kafka_topic, produce, group_id, journal
):
    topic = kafka_topic(12, cluster=kafka_cluster_3, replication_factor=3)
    values = [b"%d" % n for n in range(24_000)]
    produce(topic, values, bootstrap_servers=kafka_cluster_3.bootstrap_servers)
    job = ka.Job(
        topics=[topic],
        group_id=group_id,
        bootstrap_servers=kafka_cluster_3.bootstrap_servers,
        process=recorder(journal, workers=4, work=0.1),
        batch_rows=100,  # eight seconds of work for three: a worker that is late by some has its share, too
        workers=4,
        until="latest",
        config={"start_timeout_s": 600, "drain_timeout_ms": 50_000},
    )
    with job.start() as running:
        running.wait(timeout=slow_s(60))
    ends = kafka_cluster_3.end_offsets(topic)
    assert sum(ends.values()) == 24_000
    assert journal.missing(ends) == {}
    assert journal.duplicates() == {}
    assert len({e.pid for e in journal.entries()}) == 4
    assert kafka_cluster_3.committed(group_id) == ends


def test_another_client_of_the_group_sees_the_same_offsets_and_nothing_left(scene, produce):
    from confluent_kafka import Consumer, TopicPartition

    servers = scene.cluster.bootstrap_servers
    produce(scene.topic, [b"%d" % n for n in range(6_000)], bootstrap_servers=servers)
    scene.start(until="latest").wait(timeout=slow_s(60))
    ends = scene.ends()
    assert sum(ends.values()) == 6_000
    consumer = Consumer(
        {
            "bootstrap.servers": servers,
            "group.id": scene.group,
            "auto.offset.reset": "earliest",
            "log_level": 0,
        }
    )
    asked = consumer.committed([TopicPartition(*p) for p in scene.partitions], timeout=slow_s(10))
    assert {(p.topic, p.partition): p.offset for p in asked} == ends
    consumer.subscribe([scene.topic])
    seen = []

    def assigned():
        seen.extend(consumer.consume(10, timeout=0.2))
        return len(consumer.assignment()) == 12

    until(assigned, 30, "all partitions for the other client")
    seen.extend(consumer.consume(10, timeout=2))
    assert seen == []
    produce(scene.topic, [b"one more"], partition=3, bootstrap_servers=servers)
    assert [m.value() for m in consumer.consume(1, timeout=slow_s(10))] == [b"one more"], (
        "or it would see nothing ever"
    )
    consumer.close()


def test_partitions_that_appear_are_read_from_their_start_under_latest(scene, produce):
    servers = scene.cluster.bootstrap_servers
    produce(scene.topic, [b"before"] * 120, bootstrap_servers=servers)
    scene.start(workers=2, auto_offset_reset="latest", config={"metadata_max_age_ms": 1500})
    until(lambda: scene.committed() == scene.ends(), 30, "the ends to be committed as where the job starts")
    scene.cluster.add_partitions(scene.topic, 16)
    produce(
        scene.topic,
        [b"%d" % n for n in range(160)],
        partition=[n % 16 for n in range(160)],
        bootstrap_servers=servers,
    )
    until(lambda: scene.committed() == scene.ends(), 60, "everything committed")
    counts = {p.partition: sum(c.values()) for p, c in scene.journal.counts().items()}
    assert counts == dict.fromkeys(range(16), 10)


def test_a_bounded_job_ends_behind_records_that_were_aborted(
    ray_local, kafka_cluster, kafka_topic, group_id, journal
):
    """Its end is a marker: no record has the offset before it, and none of the last twenty is handed out."""
    from confluent_kafka import Producer

    servers = kafka_cluster.bootstrap_servers
    topic = kafka_topic()
    producer = Producer({"bootstrap.servers": servers, "transactional.id": topic})
    producer.init_transactions()
    for end, count in ((producer.commit_transaction, 10), (producer.abort_transaction, 20)):
        producer.begin_transaction()
        for number in range(count):
            producer.produce(topic, b"%d" % number, partition=0)
        producer.flush()
        end()
    job = ka.Job(
        topics=[topic],
        group_id=group_id,
        bootstrap_servers=servers,
        process=recorder(journal),
        until="latest",
        config={"isolation_level": "read_committed", "start_timeout_s": 600},
    )
    with job.start() as running:
        running.wait(timeout=slow_s(60))
    assert {partition: sorted(seen) for partition, seen in journal.counts().items()} == {
        (topic, 0): list(range(10))
    }
    assert kafka_cluster.committed(group_id) == kafka_cluster.end_offsets(topic) == {(topic, 0): 32}
    assert running.status().lag == 0
