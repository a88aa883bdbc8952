"""Why nothing is read of a partition, as a running job tells it: the reasons are made to happen on real Kafka."""

import confluent_kafka
import pytest
from fakes.prometheus import blocked_at
from waiting import until

import kafka_actors as ka

pytestmark = [pytest.mark.ray, pytest.mark.kafka]


@pytest.fixture
def scene(scene_3):
    """On three brokers."""
    return scene_3


@pytest.fixture
def topics(scene):
    """Three topics of one partition; the last has its only replica on a broker that doesn't coordinate the group."""
    cluster, names = scene.cluster, [f"{scene.topic}-{what}" for what in ("open", "poison", "lost")]
    scene.victim = next(b for b in cluster.broker_ids if b != cluster.coordinator_of(scene.group))
    for name in names[:2]:
        cluster.create_topic(name, replication_factor=3)
    cluster.create_topic(names[2], replica_assignment=[[scene.victim]])
    return names


def begun(scene, topic):
    """A producer with a record in a transaction that is open."""
    producer = confluent_kafka.Producer(
        {
            "bootstrap.servers": scene.cluster.bootstrap_servers,
            "transactional.id": topic,
            # By default the broker aborts it after a minute, in which the job may still be starting.
            "transaction.timeout.ms": 600_000,
        }
    )
    producer.init_transactions()
    producer.begin_transaction()
    producer.produce(topic, b"later")
    producer.flush()
    return producer


def test_each_reason_is_told_for_as_long_as_it_lasts(scene, topics):
    opened, poison, lost = topics

    def work(batch):
        if batch["topic"][0].as_py() == poison:
            raise ValueError("always")

    running = scene.start(
        topics=topics,
        workers=1,
        process=work,
        retries=10_000,
        status_address="127.0.0.1:0",
        config={"isolation_level": "read_committed"},
    )
    page = running.status().page

    def told():
        return {topic: reason for (topic, _), reason in blocked_at(page).items()}

    def told_by(seconds, what, holds):
        try:
            until(lambda: holds(told()), seconds, what)
        except AssertionError as error:
            error.add_note(f"told: {told()}")
            raise

    producer = begun(scene, opened)
    with ka.Producer(bootstrap_servers=scene.cluster.bootstrap_servers) as other:
        other.send(poison, b"no order")
    expected = {opened: "open_transaction", poison: "retrying"}
    told_by(60, "an open transaction and a poison record", lambda now: now == expected)
    running.pause()
    told_by(30, "a pause", lambda now: now.get(poison) == "paused")
    running.resume()
    told_by(30, "retries again", lambda now: now.get(poison) == "retrying")
    producer.commit_transaction()
    told_by(60, "no open transaction any more", lambda now: opened not in now)
    scene.cluster.kill(scene.victim)
    told_by(90, "a partition without a leader", lambda now: now.get(lost) == "no_leader")
