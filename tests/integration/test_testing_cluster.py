"""The kit itself: a real cluster does what KafkaCluster says of it."""

import os
import signal
import socket
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from confluent_kafka import Consumer, KafkaException, TopicPartition
from waiting import slow_s, until

from kafka_actors.testing import CONTROLLER_ID, Distribution, KafkaCluster, NodeFailed
from kafka_actors.testing.produce import Produce

Topic = Callable[..., str]


def _is_running(pid: int) -> bool:
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0]
    except FileNotFoundError:
        return False
    return state != "Z"


def test_what_is_produced_is_read_back_with_keys_headers_and_timestamps(
    kafka_cluster: KafkaCluster, kafka_topic: Topic, produce: Produce, group_id: str
) -> None:
    topic = kafka_topic(partitions=2)
    sent = produce(
        topic,
        [b"one", None, "three"],
        partition=1,
        keys=["k", None, b"\xff"],
        headers=[[("h", b"1"), ("h", None)], None, []],
        timestamps=[1_000, 2_000, 3_000],
        compression="zstd",
    )
    assert sent == {1: 3}
    assert kafka_cluster.end_offsets(topic) == {(topic, 0): 0, (topic, 1): 3}
    consumer = Consumer({"bootstrap.servers": kafka_cluster.bootstrap_servers, "group.id": group_id})
    consumer.assign([TopicPartition(topic, 1, 0)])
    got = consumer.consume(3, timeout=slow_s(20))
    consumer.close()
    assert [(m.key(), m.value(), m.headers(), m.timestamp()[1]) for m in got] == [
        (b"k", b"one", [("h", b"1"), ("h", None)], 1_000),
        (None, None, None, 2_000),
        (b"\xff", b"three", None, 3_000),
    ]


def test_produce_raises_what_the_broker_refused(kafka_topic: Topic, produce: Produce) -> None:
    topic = kafka_topic(config={"max.message.bytes": 500})
    with pytest.raises(KafkaException, match="MSG_SIZE_TOO_LARGE"):
        produce(topic, [b"fits", b"x" * 1_000])


def test_topics_grow_lose_their_start_and_go(
    kafka_cluster: KafkaCluster, kafka_topic: Topic, produce: Produce
) -> None:
    topic = kafka_topic(partitions=1)
    produce(topic, [b"x"] * 10)
    kafka_cluster.add_partitions(topic, 3)
    kafka_cluster.delete_records(topic, 0, 4)
    assert kafka_cluster.beginning_offsets(topic) == {(topic, 0): 4, (topic, 1): 0, (topic, 2): 0}
    assert kafka_cluster.leaders(topic) == {0: 1, 1: 1, 2: 1}
    kafka_cluster.delete_topic(topic)
    with pytest.raises(KeyError, match=topic):
        kafka_cluster.leaders(topic)


def test_topics_are_not_made_by_asking_for_them(kafka_cluster: KafkaCluster, produce: Produce) -> None:
    with pytest.raises((KafkaException, TimeoutError)):
        produce("nobody-made-me", [b"x"], config={"message.timeout.ms": 3_000})
    assert "nobody-made-me" not in kafka_cluster.admin.list_topics(timeout=slow_s(10)).topics


@pytest.mark.parametrize("protocol", ["classic", "consumer"])
def test_both_group_protocols_are_on(
    protocol: str, kafka_cluster: KafkaCluster, kafka_topic: Topic, produce: Produce, group_id: str
) -> None:
    topic = kafka_topic(partitions=2)
    produce(topic, [b"x"] * 5, partition=0)
    settings = {
        "bootstrap.servers": kafka_cluster.bootstrap_servers,
        "group.id": group_id,
        "group.protocol": protocol,
    }
    consumer = Consumer({**settings, "auto.offset.reset": "earliest", "enable.auto.commit": False})
    consumer.subscribe([topic])
    assert len(consumer.consume(5, timeout=slow_s(30))) == 5
    consumer.commit(asynchronous=False)
    if protocol == "classic":
        [member] = kafka_cluster.describe_group(group_id).members
        assert member.partitions == {(topic, 0), (topic, 1)}
        assert kafka_cluster.generations(group_id) == [1]
    consumer.close()
    assert kafka_cluster.committed(group_id) == {(topic, 0): 5}
    assert kafka_cluster.coordinator_of(group_id) == 1


def test_kafkas_own_tools_run_on_the_same_classpath(
    kafka_cluster: KafkaCluster, kafka_topic: Topic, produce: Produce
) -> None:
    topic = kafka_topic()
    produce(topic, [b"x" * 10] * 100)
    segment = next((kafka_cluster.data_directory(1) / f"{topic}-0").glob("*.log"))
    dump = kafka_cluster.tool("kafka.tools.DumpLogSegments", "--files", str(segment), "--print-data-log")
    assert dump.stdout.count("payload: xxxxxxxxxx") == 100
    servers = ["--bootstrap-server", kafka_cluster.bootstrap_servers]
    read = kafka_cluster.tool(
        "org.apache.kafka.tools.ConsumerPerformance",
        *servers,
        "--topic",
        topic,
        "--messages",
        "100",
        *("--timeout", str(round(slow_s(30) * 1000))),
    )
    assert "100" in read.stdout
    with pytest.raises(subprocess.CalledProcessError):
        kafka_cluster.tool("org.apache.kafka.tools.ConsumerPerformance", "--no-such-option")


def test_a_killed_brokers_partitions_get_other_leaders_and_it_comes_back(
    kafka_cluster_3: KafkaCluster, kafka_topic: Topic, produce: Produce
) -> None:
    kafka = kafka_cluster_3
    topic = kafka_topic(cluster=kafka, replica_assignment=[[1, 2, 3], [2, 3, 1], [3, 1, 2]])
    assert kafka.leaders(topic) == {0: 1, 1: 2, 2: 3}
    pid, servers = kafka.node_pid(1), kafka.bootstrap_servers
    kafka.kill(1)
    assert not kafka.is_running(1)
    assert not _is_running(pid)
    with pytest.raises(NodeFailed, match="not running"):
        kafka.node_pid(1)
    until(lambda: set(kafka.leaders(topic).values()) <= {2, 3})
    assert produce(topic, [b"x"] * 9, partition=0, bootstrap_servers=servers) == {0: 9}
    assert kafka.coordinator_of("any-group") in (2, 3)
    kafka.restart(1)
    assert kafka.live_brokers() >= {1, 2, 3}
    assert kafka.bootstrap_servers == servers
    assert kafka.node_pid(1) != pid


def test_a_paused_broker_answers_nothing_until_it_is_resumed(kafka_cluster_3: KafkaCluster) -> None:
    kafka = kafka_cluster_3
    kafka.pause(2)
    states = {
        task.read_text().rsplit(")", 1)[1].split()[0]
        for task in Path(f"/proc/{kafka.node_pid(2)}/task").glob("*/stat")
    }
    assert states == {"T"}, "every thread has stopped when pause returns"
    with socket.create_connection(
        kafka.address(2), timeout=slow_s(5)
    ) as connection:  # the kernel still accepts
        connection.sendall(b"\0\0\0\x0a\0\x12\0\0\0\0\0\1\0\0")  # ApiVersions 0
        connection.settimeout(1)
        with pytest.raises(TimeoutError):
            connection.recv(4)
        kafka.resume(2)
        connection.settimeout(slow_s(20))
        assert len(connection.recv(4)) == 4


def test_the_controller_of_three_brokers_is_a_process_of_its_own(kafka_cluster_3: KafkaCluster) -> None:
    pids = {kafka_cluster_3.node_pid(node) for node in kafka_cluster_3.node_ids}
    assert len(pids) == 4
    assert kafka_cluster_3.node_ids == (1, 2, 3, CONTROLLER_ID)
    assert kafka_cluster_3.live_brokers() == {1, 2, 3}


def test_killing_every_broker_leaves_the_controller_and_they_come_back(kafka_cluster_3: KafkaCluster) -> None:
    for broker in kafka_cluster_3.broker_ids:
        kafka_cluster_3.kill(broker)
    assert kafka_cluster_3.live_brokers() == set()
    assert kafka_cluster_3.is_running(CONTROLLER_ID)
    for broker in kafka_cluster_3.broker_ids:
        kafka_cluster_3.restart(broker, wait=False)
    kafka_cluster_3.wait_ready()
    assert kafka_cluster_3.live_brokers() == {1, 2, 3}


_OWNER = """
import sys, time
from kafka_actors.testing import KafkaCluster
cluster = KafkaCluster().start()
print(cluster.node_pid(1), cluster.data_directory(1).parents[1], flush=True)
time.sleep(600)
"""


@pytest.mark.kafka
def test_nothing_is_left_when_the_owner_is_killed(kafka_cluster: KafkaCluster) -> None:
    owner = subprocess.Popen([sys.executable, "-c", _OWNER], stdout=subprocess.PIPE, text=True)
    assert owner.stdout is not None
    pid, directory = owner.stdout.readline().split()
    assert _is_running(int(pid))
    owner.send_signal(signal.SIGKILL)
    owner.wait()
    until(lambda: not _is_running(int(pid)) and not os.path.exists(directory))


def test_a_kept_directory_starts_again_with_its_data(kafka_cluster: KafkaCluster, tmp_path: Path) -> None:
    config = {"num.partitions": 3, "log.segment.bytes": 1_048_576}
    with KafkaCluster(directory=tmp_path, broker_config=config) as first:
        first.create_topic("kept", 2)
        Produce(first.bootstrap_servers)("kept", [b"x"] * 7, partition=1)
        assert "log.segment.bytes=1048576" in (tmp_path / "node-1" / "server.properties").read_text()
    with KafkaCluster(directory=tmp_path, broker_config=config) as second:
        assert second.end_offsets("kept") == {("kept", 0): 0, ("kept", 1): 7}


def test_a_broker_that_cannot_start_says_why() -> None:
    with pytest.raises(NodeFailed, match=r"(?s)node 1 ended while starting.*num\.io\.threads"):
        KafkaCluster(broker_config={"num.io.threads": "many"}).start()


def test_an_unknown_node_is_named(kafka_cluster: KafkaCluster) -> None:
    with pytest.raises(ValueError, match=r"no node 7; its nodes: \[1\]"):
        kafka_cluster.kill(7)


@pytest.mark.skipif(sys.platform != "linux", reason="needs /proc")
def test_a_broker_reads_its_classes_from_their_archive(kafka_cluster: KafkaCluster) -> None:
    archive = Distribution.get().class_archive
    assert archive.stat().st_size
    assert str(archive) in Path(f"/proc/{kafka_cluster.node_pid(1)}/maps").read_text()
