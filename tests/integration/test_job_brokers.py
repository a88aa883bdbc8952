"""A broker dies or stops while records arrive: what is led elsewhere goes on as if nothing were, the rest soon."""

import time
from contextlib import closing

import pytest
from confluent_kafka import ElectionType, KafkaException
from confluent_kafka.admin import AdminClient
from jobs.driver import exists
from jobs.scene import Scene
from pace import this_run
from waiting import slow_s, until

from kafka_actors.testing import KafkaCluster

pytestmark = [pytest.mark.ray, pytest.mark.kafka]


@pytest.fixture
def scene(scene_3):
    """On three brokers."""
    return scene_3


WATCHED_S = 12.0
"""So long what is led elsewhere is looked at: new leaders are there, and the group has a new coordinator, after six."""

STALL_S = 8
"""So long a partition may stand still in the test of that."""
BACKLOG = 40_000


def lead_as_preferred(cluster, group):
    """Has coordinators lead where Kafka prefers it. After a test that killed a broker it moves them back within minutes, in the midst of another."""
    cluster.coordinator_of(group)  # makes the topic if it isn't there

    def led():
        cluster.admin.elect_leaders(ElectionType.PREFERRED, None).result(slow_s(30))
        topic = cluster.admin.list_topics("__consumer_offsets", timeout=slow_s(10)).topics[
            "__consumer_offsets"
        ]
        return all(partition.leader == partition.replicas[0] for partition in topic.partitions.values())

    until(led, 30, "coordinators at their preferred brokers", pause=0.5)


@pytest.fixture
def stage(ray_local, kafka_cluster_3, group_id, tmp_path):
    """Half of the partitions led by the group's coordinator, the other half has no replica there.

    A follower that dies would hold up a partition at its own leader, whatever the consumer: until it is out of
    the in-sync replicas nothing new is behind the high watermark.
    """
    lead_as_preferred(kafka_cluster_3, group_id)
    victim = kafka_cluster_3.coordinator_of(group_id)
    a, b = (broker for broker in kafka_cluster_3.broker_ids if broker != victim)
    replicas = [[victim, a], [a, b], [victim, b], [b, a]] * 3
    topic = kafka_cluster_3.create_topic(group_id, replica_assignment=replicas)
    with closing(Scene(kafka_cluster_3, topic, 12, group_id, tmp_path)) as made:
        made.victim = victim
        yield made


def led(scene):
    """The partitions that the victim leads, and the others."""
    leaders = scene.cluster.leaders(scene.topic)
    theirs = {p for p in scene.partitions if leaders[p.partition] == scene.victim}
    return theirs, set(scene.partitions) - theirs


def elected(scene, partitions):
    """When each of them has another leader than the victim."""
    admin = AdminClient(
        {"bootstrap.servers": scene.cluster.bootstrap_servers, "socket.timeout.ms": 1000, "log_level": 0}
    )
    left, found = set(partitions), {}
    deadline = time.monotonic() + slow_s(30)
    while left:
        assert time.monotonic() < deadline, "no new leaders"
        try:
            known = admin.list_topics(scene.topic, timeout=1).topics[scene.topic].partitions
        except KafkaException:  # it asked the broker that is stopped
            continue
        for partition in [p for p in left if known[p.partition].leader not in (scene.victim, -1)]:
            found[partition] = time.monotonic()
            left.remove(partition)
        time.sleep(0.05)
    return found


@pytest.mark.parametrize("fault", ["kill", pytest.param("pause", marks=pytest.mark.slow)])
def test_a_broker_with_leaders_and_the_coordinator_is_lost(stage, fault):
    scene = stage
    scene.start(workers=2)
    scene.under_load()
    scene.flowing()
    theirs, others = led(scene)
    assert len(theirs) == len(others) == 6
    assert scene.cluster.coordinator_of(scene.group) == scene.victim
    generation = scene.status().group.generation
    at = time.monotonic()
    getattr(scene.cluster, fault)(scene.victim)
    new = elected(scene, theirs)
    scene.flowing(60)
    until(lambda: time.monotonic() > at + WATCHED_S, WATCHED_S + 1, "time to pass")
    end = time.monotonic()
    pause = max(scene.journal.longest_pause(p, at, end) for p in others)
    everyone = {e.pid for e in scene.journal.entries()}
    later = {
        p: this_run().quiet_s(when, when + scene.journal.first_after(when, [p], everyone)[p])
        for p, when in new.items()
    }
    print(f"led elsewhere: {pause:.2f} s; {max(later.values()):.2f} s after an election")
    print(f"elections {max(new.values()) - at:.1f} s after the fault")
    if fault == "pause":
        scene.cluster.resume(scene.victim)
    else:
        scene.cluster.restart(scene.victim)
    scene.flowing()
    assert scene.status().group.generation == generation
    duplicates = scene.settle()
    assert duplicates.total() == 0
    assert max(later.values()) <= 10.0
    assert pause <= 2.0


@pytest.mark.slow
def test_a_partition_that_stands_still_is_named_and_goes_on_when_its_leader_is_back(
    ray_local, kafka_cluster_3, group_id, produce, tmp_path
):
    cluster = kafka_cluster_3
    victim = next(b for b in cluster.broker_ids if b != cluster.coordinator_of(group_id))
    a, b = (broker for broker in cluster.broker_ids if broker != victim)
    topic = cluster.create_topic(group_id, replica_assignment=[[victim], [a], [b]])
    with closing(Scene(cluster, topic, 3, group_id, tmp_path)) as scene:
        stuck, *others = scene.partitions
        servers = cluster.bootstrap_servers
        produce(topic, [b"x" * 1000] * BACKLOG, partition=stuck.partition, bootstrap_servers=servers)
        small = {"max_poll_interval_ms": STALL_S * 1000, "worker_buffer_bytes": 2 << 20}
        scene.start(workers=1, work=0.05, batch_rows=200, config=small)
        scene.flowing(partitions=[stuck])
        cluster.kill(victim)

        def told():
            return [e.text for e in scene.status().timeline if e.kind == "stall"]

        until(told, 3 * STALL_S + 20, "a stall in the timeline")
        print(told())
        assert all(f"{topic}-{stuck.partition}" in text for text in told()), "the others have nothing to do"
        left = BACKLOG - scene.committed().get(stuck, 0)
        assert left > 0
        cluster.restart(victim)
        at = time.monotonic()
        scene.flowing(STALL_S, [stuck])
        print(f"{left} records were left; it goes on {time.monotonic() - at:.1f} s after its leader is back")
        for other in others:
            produce(topic, [b"y"] * 10, partition=other.partition, bootstrap_servers=servers)
        assert scene.settle().total() == 0


@pytest.mark.slow
def test_stop_returns_though_every_broker_is_dead(scene):
    scene.start(workers=2)
    scene.under_load()
    scene.flowing()
    pids = set(scene.pids().values())
    scene.load.stop()
    for broker in scene.cluster.broker_ids:
        scene.cluster.kill(broker)
    at = time.monotonic()
    scene.running.stop(timeout=10)
    took = this_run().quiet_s(at, time.monotonic())
    print(f"stopped in {took:.1f} s")
    assert took <= 10 + 2
    scene.running.stop(timeout=10)
    assert scene.running.status().state == "stopped"
    until(lambda: not any(exists(pid) for pid in pids), 5, "the end of all actors")
    for broker in scene.cluster.broker_ids:
        scene.cluster.restart(broker, wait=False)
    scene.cluster.wait_ready()


@pytest.mark.slow
def test_a_job_outlives_an_outage_of_all_brokers(scene):
    # On a busy machine brokers take longer to come back than a session of 45 s lasts, and whose session has ended begins at the last commit.
    scene.start(workers=2, config={"session_timeout_ms": 300_000})
    scene.under_load()
    scene.flowing()
    for broker in scene.cluster.broker_ids:
        scene.cluster.kill(broker)
    time.sleep(8)
    for broker in scene.cluster.broker_ids:
        scene.cluster.restart(broker, wait=False)
    scene.cluster.wait_ready()
    at = time.monotonic()
    scene.flowing(60)
    print(f"everything flows {time.monotonic() - at:.1f} s after the brokers are back")
    assert scene.settle().total() == 0


@pytest.mark.slow
def test_brokers_that_move_to_other_addresses_one_by_one_hold_up_a_job_for_moments(
    ray_local, group_id, tmp_path
):
    """In the end none of the addresses that the job was started with exists; who is replaced then finds the cluster too."""
    with KafkaCluster(brokers=3) as cluster:
        topic = cluster.create_topic(group_id, 6, replication_factor=3)
        with closing(Scene(cluster, topic, 6, group_id, tmp_path)) as scene:
            scene.start(workers=2)
            scene.under_load()
            scene.flowing()
            generation, former, at = (
                scene.status().group.generation,
                cluster.bootstrap_servers,
                time.monotonic(),
            )
            for broker in cluster.broker_ids:
                cluster.move(broker, "127.0.0.2")
                scene.flowing(60)
            end = time.monotonic()
            pause = max(scene.journal.longest_pause(p, at, end) for p in scene.partitions)
            print(f"longest pause {pause:.1f} s while {end - at:.0f} s of moving")
            assert not set(former.split(",")) & set(cluster.bootstrap_servers.split(","))
            for name in ("metadata.1", "coordinator.1"):
                scene.kill(name)
                until(lambda name=name: name.replace(".1", ".2") in scene.pids(), 20, f"another {name}")
            before = scene.committed()
            until(
                lambda: all(scene.committed()[p] > o for p, o in before.items()),
                30,
                "commits of every partition",
            )
            scene.flowing()
            assert scene.status().group.generation == generation
            assert scene.settle().total() == 0
    assert pause <= 15.0
