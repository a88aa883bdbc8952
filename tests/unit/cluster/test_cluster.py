"""The mapping of brokers to connections, over connections that are plain objects."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest

from kafka_actors.cluster import BrokerMetadata, Cluster, ClusterSnapshot, PartitionMetadata, TopicMetadata
from kafka_actors.errors import ConnectionFailedError, DisconnectedError, NoBrokersError
from kafka_actors.protocol import MetadataRequest, MetadataResponse
from kafka_actors.protocol.messages.metadata import (
    MetadataResponseBroker,
    MetadataResponsePartition,
    MetadataResponseTopic,
)


class Conn:
    def __init__(self, net: Net, port: int) -> None:
        self.net = net
        self.port = port
        self.closing = False
        self.ended = ""

    async def send(self, request: MetadataRequest) -> MetadataResponse:
        self.net.asked[self.port] += 1
        if self.port in self.net.down:
            raise DisconnectedError(f"{self.port} is down")
        if self.port in self.net.blank:
            return MetadataResponse()
        return self.net.metadata()

    def close(self) -> None:
        self.ended = "closed"

    def abort(self) -> None:
        self.ended = "aborted"


class Net:
    """Brokers by id at ports; what they say and which of them are down is the test's to change."""

    def __init__(self, *broker_ids: int) -> None:
        self.brokers = {i: 9000 + i for i in broker_ids}
        self.topics: dict[str, list[int]] = {"t": list(broker_ids)}
        self.down: set[int] = set()
        self.blank: set[int] = set()
        self.asked: Counter[int] = Counter()
        self.opened: Counter[int] = Counter()
        self.pauses: list[float] = []
        self.on_sleep: Callable[[], Any] = lambda: None

    async def connect(self, host: str, port: int, node_id: int | None) -> Conn:
        self.opened[port] += 1
        if port in self.down:
            raise ConnectionFailedError(f"{host}:{port} refused")
        return Conn(self, port)

    async def sleep(self, seconds: float) -> None:
        self.pauses.append(seconds)
        self.on_sleep()

    def metadata(self) -> MetadataResponse:
        topics = [
            MetadataResponseTopic(
                name=name,
                partitions=[
                    MetadataResponsePartition(partition_index=i, leader_id=leader)
                    for i, leader in enumerate(leaders)
                ],
            )
            for name, leaders in self.topics.items()
        ]
        brokers = [MetadataResponseBroker(i, "h", port) for i, port in self.brokers.items()]
        return MetadataResponse(brokers=brokers, topics=topics)

    def cluster(self, hosts: str = "h:9001", **options: Any) -> Cluster[Conn]:
        return Cluster(hosts, self.connect, sleep=self.sleep, rand=lambda: 0.5, **options)


async def started(net: Net, hosts: str = "h:9001", **options: Any) -> Cluster[Conn]:
    cluster = net.cluster(hosts, **options)
    await cluster.start()
    return cluster


def run(test: Callable[[], Any]) -> Callable[[], None]:
    def plain() -> None:
        asyncio.run(test())

    plain.__name__ = test.__name__
    return plain


@run
async def test_start_connects_to_each_broker_and_learns_the_leaders() -> None:
    cluster = await started(Net(1, 2))
    assert set(cluster) == {1, 2}
    assert 1 in cluster
    assert 3 not in cluster
    assert cluster[2].port == 9002
    assert cluster.topics == {"t": [0, 1]}
    assert cluster.get_leader("t", 1) == 2
    with pytest.raises(KeyError):
        cluster.get_leader("t", 5)


@run
async def test_start_tries_each_bootstrap_host() -> None:
    net = Net(1, 2)
    net.down.add(9001)
    net.brokers.pop(1)
    net.topics = {"t": [2]}
    cluster = await started(net, "h:9001,h:9002")
    assert set(cluster) == {2}


@run
async def test_start_without_any_broker_says_why_of_each_host() -> None:
    net = Net(1)
    net.down |= {9001, 9002}
    with pytest.raises(NoBrokersError, match=r"h:9001 refused; h:9002 refused"):
        await started(net, "h:9001,h:9002")


@run
async def test_heal_culls_closing_connections_and_opens_new_ones() -> None:
    net = Net(1, 2)
    cluster = await started(net)
    old = cluster[1]
    old.closing = True
    await cluster.heal()
    assert old.ended == "aborted"
    assert cluster[1] is not old


@run
async def test_process_brokers_aborts_unknown_ones_and_returns_the_failing() -> None:
    net = Net(1, 2, 3)
    cluster = await started(net)
    gone, kept = cluster[3], cluster[1]
    net.brokers.pop(3)
    net.brokers[4] = 9004
    net.down.add(9004)
    assert await cluster.process_brokers(net.metadata().brokers) == {4}
    assert gone.ended == "aborted"
    assert cluster[1] is kept
    assert set(cluster) == {1, 2}


@run
async def test_a_broker_whose_address_changed_is_reconnected() -> None:
    net = Net(1, 2)
    cluster = await started(net)
    old = cluster[2]
    net.brokers[2] = 9902
    await cluster.heal()
    assert old.ended == "aborted"
    assert cluster[2].port == 9902


@run
async def test_process_topics_returns_topics_that_lack_a_connected_leader() -> None:
    net = Net(1, 2)
    cluster = await started(net)
    net.topics = {"t": [1, -1], "u": [7], "v": [2]}
    assert cluster.process_topics(net.metadata().topics) == {"t", "u"}
    assert cluster.leaders == {("t", 0): 1, ("v", 0): 2}
    erroneous = [MetadataResponseTopic(name="bad", error_code=3)]
    assert cluster.process_topics(erroneous) == {"bad"}
    assert cluster.topics == {}


@run
async def test_heal_repeats_with_growing_pauses_until_nothing_is_missing() -> None:
    net = Net(1, 2)
    cluster = await started(net)
    net.topics = {"t": [-1, 2]}

    def elect() -> None:
        if len(net.pauses) == 3:
            net.topics = {"t": [1, 2]}

    net.on_sleep = elect
    await cluster.heal()
    assert net.pauses == [0.1, 0.2, 0.4]
    assert cluster.get_leader("t", 0) == 1


@run
async def test_heal_is_bounded_when_something_stays_missing() -> None:
    net = Net(1, 2)
    cluster = await started(net, attempts=5)
    net.asked.clear()
    net.topics = {"t": [-1, 2]}
    await cluster.heal()
    assert len(net.pauses) == 4
    assert net.asked.total() == 5
    assert cluster.get_leader("t", 1) == 2


@run
async def test_get_metadata_asks_each_connection_in_turn() -> None:
    net = Net(1, 2)
    cluster = await started(net)
    net.asked.clear()
    net.down.add(9001)
    assert len((await cluster.get_metadata()).brokers) == 2
    assert net.asked == {9001: 1, 9002: 1}
    net.down.add(9002)
    with pytest.raises(NoBrokersError, match=r"broker 1: 9001 is down; broker 2: 9002 is down"):
        await cluster.get_metadata()


@run
async def test_a_broker_that_names_none_does_not_have_the_connections_to_all_closed() -> None:
    net = Net(1, 2)
    cluster = await started(net)
    before = {broker_id: cluster[broker_id] for broker_id in cluster}
    net.blank.add(9001)
    await cluster.heal()
    assert {broker_id: cluster[broker_id] for broker_id in cluster} == before
    assert (await cluster.get_metadata()).brokers
    net.blank.add(9002)
    with pytest.raises(NoBrokersError, match=r"broker 1: .*without naming any broker; broker 2: "):
        await cluster.get_metadata()


@run
async def test_when_every_known_broker_is_gone_bootstrap_starts_again() -> None:
    net = Net(1, 2)
    cluster = await started(net, "h:9001,h:9009")
    net.down |= {9001, 9002}
    net.brokers = {1: 9101, 2: 9102}
    for broker_id in cluster:
        cluster[broker_id].closing = True
    await cluster.heal()
    assert {cluster[i].port for i in cluster} == {9101, 9102}


@run
async def test_heal_takes_a_snapshot_and_another_source_of_metadata() -> None:
    net = Net(1)
    snapshots = [snapshot({1: 9001, 2: 9002}, [2])]

    async def fetch() -> ClusterSnapshot:
        return snapshots[-1]

    cluster = net.cluster(fetch_metadata=fetch)
    await cluster.heal(snapshot({1: 9001}, [-1]))
    assert set(cluster) == {1, 2}
    assert cluster.leaders == {("t", 0): 2}
    assert not net.asked


def snapshot(brokers: dict[int, int], leaders: list[int]) -> ClusterSnapshot:
    parts = {i: PartitionMetadata(i, leader) for i, leader in enumerate(leaders)}
    return ClusterSnapshot(
        brokers={i: BrokerMetadata(i, "h", port) for i, port in brokers.items()},
        topics={"t": TopicMetadata("t", partitions=parts)},
    )


@run
async def test_stop_closes_each_connection() -> None:
    cluster = await started(Net(1, 2))
    conns = list(cluster.conns.values())
    cluster.stop()
    assert [conn.ended for conn in conns] == ["closed", "closed"]
    assert not cluster.conns


@run
async def test_heal_waits_for_no_topic_whose_error_lasts() -> None:
    net = Net(1)
    cluster = await started(net)
    refused = MetadataResponseTopic(name="secret", error_code=29)
    answer = net.metadata()
    answer = MetadataResponse(brokers=answer.brokers, topics=[*answer.topics, refused])
    await cluster.heal(answer)
    assert net.pauses == []
    assert cluster.topics == {"t": [0]}


@run
async def test_stop_ends_healing_and_keeps_no_connection_that_comes_later() -> None:
    net = Net(1, 2)
    net.down.add(9002)
    net.topics = {"t": [1, 2]}
    cluster = net.cluster("h:9001")
    net.on_sleep = cluster.stop
    await cluster.start()
    assert len(net.pauses) == 1
    late: list[Conn] = []

    async def connect(host: str, port: int, node_id: int | None) -> Conn:
        cluster.stop()
        late.append(Conn(net, port))
        return late[-1]

    cluster = Cluster("h:9001", connect, sleep=net.sleep)
    assert await cluster.process_brokers(net.metadata().brokers) == {1, 2}
    assert [conn.ended for conn in late] == ["closed", "closed"]
    assert not cluster.conns
