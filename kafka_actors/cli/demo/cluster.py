"""Cluster of the demo, embedded or a real one, with topics of its own that are filled with orders."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any

from msgspec import Struct

from kafka_actors.base.addresses import parse_bootstrap_servers
from kafka_actors.errors import KafkaActorsError, NoBrokersAvailable

from .orders import REGIONS, make_orders

if TYPE_CHECKING:
    from confluent_kafka import Consumer
    from confluent_kafka.admin import AdminClient

__all__ = ["DemoCluster", "DemoFailed", "Filled", "check_kept", "embedded", "fill", "real"]

PARTITIONS = 4
ANSWER_S = 10.0
PRODUCER = {"linger.ms": 50, "batch.size": 200_000, "log_level": 0}


class DemoFailed(KafkaActorsError):
    """Error of a demo that can't run to its end."""


class DemoCluster(Struct, frozen=True):
    """A cluster with the demo's empty topics. `topics`: region → topic; `embedded`: brokers in this process."""

    bootstrap_servers: str
    topics: dict[str, str]
    pattern: str
    group_id: str
    embedded: bool

    @property
    def brokers(self) -> str:
        return "three embedded brokers" if self.embedded else self.bootstrap_servers

    def watermarks(self) -> dict[tuple[str, int], tuple[int, int]]:
        """First offset kept and end offset of each (topic, partition)."""
        with _consumer(self) as consumer:
            return {
                (p.topic, p.partition): consumer.get_watermark_offsets(p, timeout=ANSWER_S)
                for p in self._partitions()
            }

    def committed(self) -> dict[tuple[str, int], int | None]:
        """Committed offset of each (topic, partition), as another client reads it; None where there is none."""
        with _consumer(self) as consumer:
            answered = consumer.committed(self._partitions(), timeout=ANSWER_S)
        return {(p.topic, p.partition): p.offset if p.offset >= 0 else None for p in answered}

    def _partitions(self) -> list[Any]:
        from confluent_kafka import TopicPartition

        return [TopicPartition(t, p) for t in self.topics.values() for p in range(PARTITIONS)]


@contextmanager
def embedded() -> Iterator[DemoCluster]:
    """Three fake brokers in this process."""
    from kafka_actors.testing import FakeKafka

    topics = {region: f"orders-{region}" for region in REGIONS}
    with FakeKafka(brokers=3) as kafka:
        for topic in topics.values():
            kafka.create_topic(topic, partitions=PARTITIONS, replication_factor=3)
        yield DemoCluster(kafka.bootstrap_servers, topics, "orders-.*", "demo", embedded=True)


@contextmanager
def real(servers: str) -> Iterator[DemoCluster]:
    """A real plaintext cluster. Its topics and its group have unique names, and are deleted at the end.

    Raises `ConfigError` for a text that is not an address, `NoBrokersAvailable` where no broker answers.
    """
    bootstrap = ",".join(parse_bootstrap_servers(servers))
    admin = _admin(bootstrap)
    brokers = _brokers(admin, bootstrap)
    run = uuid.uuid4().hex[:8]
    topics = {region: f"orders-{region}-{run}" for region in REGIONS}
    place = DemoCluster(bootstrap, topics, f"orders-[a-z]+-{run}", f"demo-{run}", embedded=False)
    try:
        _create(admin, topics.values(), min(3, brokers))
        yield place
    finally:
        _delete(admin, topics.values(), place.group_id)


def _admin(bootstrap: str) -> AdminClient:
    from confluent_kafka.admin import AdminClient

    return AdminClient({"bootstrap.servers": bootstrap, "log_level": 0})


def _brokers(admin: AdminClient, bootstrap: str) -> int:
    from confluent_kafka import KafkaException

    try:
        return len(admin.list_topics(timeout=ANSWER_S).brokers)
    except KafkaException as error:
        raise NoBrokersAvailable(f"no broker answers at {bootstrap}: {error.args[0].str()}") from None


def _create(admin: AdminClient, topics: Iterable[str], replication_factor: int) -> None:
    from confluent_kafka import KafkaException
    from confluent_kafka.cimpl import NewTopic

    wanted = [NewTopic(topic, PARTITIONS, replication_factor) for topic in topics]
    for topic, future in admin.create_topics(wanted, request_timeout=ANSWER_S).items():
        try:
            future.result()
        except KafkaException as error:
            raise DemoFailed(f"topic {topic} could not be created: {error.args[0].str()}") from None


def _delete(admin: AdminClient, topics: Iterable[str], group: str) -> None:
    """Deletes the topics and the group of a run, as far as they exist; errors are ignored, because the run is over."""
    answers = [
        *admin.delete_topics(list(topics), request_timeout=ANSWER_S).values(),
        *admin.delete_consumer_groups([group], request_timeout=ANSWER_S).values(),
    ]
    for answer in answers:
        with suppress(Exception):
            answer.result()


@contextmanager
def _consumer(place: DemoCluster) -> Iterator[Consumer]:
    from confluent_kafka import Consumer

    settings = {"bootstrap.servers": place.bootstrap_servers, "group.id": place.group_id, "log_level": 0}
    consumer = Consumer(settings)
    try:
        yield consumer
    finally:
        consumer.close()


# ------------------------------------------------------------ orders


class Filled(Struct, frozen=True):
    """Orders that were produced: end offset of each partition, and revenue per country in cents."""

    ends: dict[tuple[str, int], int]
    revenue: dict[str, int]

    @property
    def orders(self) -> int:
        return sum(self.ends.values())


def fill(cluster: DemoCluster, orders: int, say: Callable[[str], None]) -> Filled:
    """Produces orders over the regions with another client than ours. Raises `DemoFailed` if the cluster did not keep all."""
    from kafka_actors.testing.produce import Produce

    produce = Produce(cluster.bootstrap_servers)
    revenue: dict[str, int] = {}
    ends: dict[tuple[str, int], int] = {}
    for number, region in zip(_shares(orders, len(REGIONS)), REGIONS, strict=True):
        keys, values = [], []
        for made in make_orders(region, number):
            keys.append(made.key)
            values.append(made.value)
            revenue[made.country] = revenue.get(made.country, 0) + made.cents
        topic = cluster.topics[region]
        counts = produce(topic, values, keys=keys, compression="zstd", config=PRODUCER)
        ends |= {(topic, partition): count for partition, count in counts.items()}
        size = sum(map(len, values)) / 1e6
        say(f"produced {number:,} orders ({size:.0f} MB of JSON, zstd) to {topic}")
    filled = Filled(ends, revenue)
    check_kept(cluster, filled)
    return filled


def _shares(total: int, parts: int) -> list[int]:
    return [total // parts + (1 if part < total % parts else 0) for part in range(parts)]


def check_kept(cluster: DemoCluster, filled: Filled) -> None:
    """Raises `DemoFailed` if an order is missing, because retention took it for one."""
    for (topic, partition), (low, high) in cluster.watermarks().items():
        produced = filled.ends.get((topic, partition), 0)
        if (low, high) != (0, produced):
            raise DemoFailed(
                f"{topic}-{partition} keeps offsets {low} to {high} of {produced} orders produced: "
                "the broker deletes records too soon; ask for fewer --orders, or give the topics a longer retention"
            )
