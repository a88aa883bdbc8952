"""State that librdkafka's mock cluster keeps and drops: the demo stands on this."""

import pytest
from confluent_kafka import Consumer, TopicPartition
from confluent_kafka.admin import AdminClient
from fakes.loop import in_loop
from waiting import slow_s

from kafka_actors.errors import KafkaActorsError
from kafka_actors.net import KafkaClient
from kafka_actors.protocol import ApiKey, FindCoordinatorRequest, HeartbeatRequest
from kafka_actors.testing import MockCluster
from kafka_actors.testing.produce import Produce


def _watermarks(mock: MockCluster, topic: str, partition: int) -> tuple[int, int]:
    consumer = Consumer({"bootstrap.servers": mock.bootstrap_servers, "group.id": "looks", "log_level": 0})
    low, high = consumer.get_watermark_offsets(TopicPartition(topic, partition), timeout=slow_s(10))
    consumer.close()
    return low, high


def test_a_topic_is_made_with_the_partitions_and_replicas_asked_for(mock_cluster: MockCluster) -> None:
    mock_cluster.create_topic("six", partitions=6, replication_factor=3)
    admin = AdminClient({"bootstrap.servers": mock_cluster.bootstrap_servers})
    found = admin.list_topics("six", timeout=slow_s(10))
    assert sorted(found.brokers) == [1, 2, 3]
    assert {p: sorted(data.replicas) for p, data in found.topics["six"].partitions.items()} == {
        p: [1, 2, 3] for p in range(6)
    }


def test_a_topic_that_is_asked_for_appears_with_four_partitions(mock_cluster: MockCluster) -> None:
    sent = Produce(mock_cluster.bootstrap_servers)("appears", [b"x"] * 40, compression="zstd")
    admin = AdminClient({"bootstrap.servers": mock_cluster.bootstrap_servers})
    assert sorted(admin.list_topics("appears", timeout=slow_s(10)).topics["appears"].partitions) == [
        0,
        1,
        2,
        3,
    ]
    assert sum(sent.values()) == 40


def test_a_partition_silently_keeps_only_its_last_five_megabytes(mock_cluster: MockCluster) -> None:
    mock_cluster.create_topic("big", partitions=2)
    produce = Produce(mock_cluster.bootstrap_servers)
    assert produce("big", [b"x" * 1_000] * 8_000, partition=0) == {0: 8_000}
    assert produce("big", [b"x" * 1_000] * 4_000, partition=1) == {1: 4_000}
    low, high = _watermarks(mock_cluster, "big", 0)
    assert high == 8_000
    assert 2_000 < low < 6_000
    assert _watermarks(mock_cluster, "big", 1) == (0, 4_000)


def test_compressed_records_count_with_their_compressed_size(mock_cluster: MockCluster) -> None:
    mock_cluster.create_topic("zstd", partitions=1)
    produce = Produce(mock_cluster.bootstrap_servers)
    produce("zstd", [b"x" * 1_000] * 20_000, compression="zstd")
    assert _watermarks(mock_cluster, "zstd", 0) == (0, 20_000)


def test_leaders_move_when_told(mock_cluster: MockCluster) -> None:
    mock_cluster.create_topic("moves", partitions=1, replication_factor=3)
    admin = AdminClient({"bootstrap.servers": mock_cluster.bootstrap_servers})
    for broker in (1, 2, 3):
        mock_cluster.set_leader("moves", 0, broker)
        assert admin.list_topics("moves", timeout=slow_s(10)).topics["moves"].partitions[0].leader == broker
    with pytest.raises(RuntimeError, match="make 1 the leader of moves-9"):
        mock_cluster.set_leader("moves", 9, 1)


@in_loop
async def test_a_coordinator_is_who_was_made_it(mock_cluster: MockCluster) -> None:
    async with KafkaClient(bootstrap_servers=mock_cluster.bootstrap_servers) as client:
        for broker in (1, 2, 3):
            mock_cluster.set_coordinator("g", broker)
            found = await client.send(2, FindCoordinatorRequest(key="g"), max_version=3)
            assert found.node_id == broker


@in_loop
async def test_errors_come_in_the_order_in_which_they_were_given(mock_cluster: MockCluster) -> None:
    async with KafkaClient(bootstrap_servers=mock_cluster.bootstrap_servers) as client:
        mock_cluster.push_errors(ApiKey.HEARTBEAT, 27, 15)
        beats = [await client.send(2, HeartbeatRequest(group_id="g")) for _ in range(2)]
        assert [beat.error_code for beat in beats] == [27, 15]


@in_loop
async def test_a_broker_that_is_down_takes_no_connection_until_it_is_up(mock_cluster: MockCluster) -> None:
    async with KafkaClient(bootstrap_servers=mock_cluster.bootstrap_servers) as client:
        mock_cluster.set_down(1)
        with pytest.raises(KafkaActorsError):
            await client.send(1, HeartbeatRequest(), timeout_ms=500)
        mock_cluster.set_up(1)
        assert (await client.send(1, HeartbeatRequest(group_id="g"), timeout_ms=10_000)).error_code


def test_a_cluster_that_is_not_running_says_so() -> None:
    mock = MockCluster(brokers=1)
    with pytest.raises(RuntimeError, match="not running"):
        mock.create_topic("any")
    with mock:
        assert mock.bootstrap_servers.count(":") == 1
    with pytest.raises(RuntimeError, match="not running"):
        _ = mock.bootstrap_servers
