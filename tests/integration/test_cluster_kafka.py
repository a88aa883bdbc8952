"""The mapping of brokers to connections, over real brokers that come and go."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

import pytest
from fakes.loop import in_loop
from waiting import slow_s

from kafka_actors.cluster import Cluster
from kafka_actors.config import ClientConfig, build
from kafka_actors.errors import NoBrokersError
from kafka_actors.net import Connection, KafkaClient
from kafka_actors.testing import KafkaCluster

CONFIG = build(
    ClientConfig,
    socket_connection_setup_timeout_ms=slow_s(2) * 1000,
    request_timeout_ms=slow_s(5) * 1000,
)


async def connect(host: str, port: int, node_id: int | None) -> Connection:
    return await Connection.open(host, port, CONFIG)


@asynccontextmanager
async def started(kafka: KafkaCluster) -> AsyncIterator[Cluster[Connection]]:
    cluster = Cluster(kafka.bootstrap_servers, connect)
    await cluster.start()
    try:
        yield cluster
    finally:
        cluster.stop()


@in_loop
async def test_start_and_heal_through_the_death_and_return_of_a_broker(
    kafka_cluster_3: KafkaCluster, kafka_topic: Callable[..., str]
) -> None:
    topic = kafka_topic(partitions=6, replication_factor=3, cluster=kafka_cluster_3)
    async with started(kafka_cluster_3) as cluster:
        assert set(cluster) == {1, 2, 3}
        assert set(cluster.topics[topic]) == set(range(6))
        victim = cluster.get_leader(topic, 0)
        kept = {i: cluster[i] for i in cluster if i != victim}
        await asyncio.to_thread(kafka_cluster_3.kill, victim)
        while set(cluster) != set(kept) or victim in cluster.leaders.values():
            await cluster.heal()
        assert {i: cluster[i] for i in cluster} == kept
        assert cluster.get_leader(topic, 0) in kept
        await asyncio.to_thread(kafka_cluster_3.restart, victim)
        while victim not in cluster:
            await cluster.heal()
        assert not cluster[victim].closing


@in_loop
async def test_heal_takes_what_a_client_knows(
    kafka_cluster: KafkaCluster, kafka_topic: Callable[..., str]
) -> None:
    topic = kafka_topic(partitions=2)
    async with KafkaClient(bootstrap_servers=kafka_cluster.bootstrap_servers) as client:
        await client.set_topics([topic])
        cluster = Cluster(kafka_cluster.bootstrap_servers, connect, fetch_metadata=client.update_metadata)
        await cluster.heal(client.snapshot)
        assert set(cluster) == {1}
        assert cluster.leaders == {(topic, 0): 1, (topic, 1): 1}
        cluster.stop()


@in_loop
async def test_start_without_brokers_names_each_host() -> None:
    with pytest.raises(NoBrokersError, match=r"127\.0\.0\.1:1: can't connect"):
        await Cluster("127.0.0.1:1", connect).start()
