"""Where the demo runs: an embedded broker, or a real cluster on which it makes topics of its own."""

from __future__ import annotations

import uuid
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any

from msgspec import Struct

from kafka_actors.base.addresses import parse_bootstrap_servers
from kafka_actors.errors import KafkaActorsError, NoBrokersAvailable

from .orders import REGIONS

if TYPE_CHECKING:
    from confluent_kafka import Consumer
    from confluent_kafka.admin import AdminClient

__all__ = ["DemoCluster", "DemoFailed", "embedded", "real"]

PARTITIONS = 4
ANSWER_S = 10.0


class DemoFailed(KafkaActorsError):
    """The demo can't show what it should."""


class DemoCluster(Struct, frozen=True):
    """A cluster with the demo's empty topics. `topics`: region → topic; `embedded`: librdkafka's mock brokers."""

    bootstrap_servers: str
    topics: dict[str, str]
    pattern: str
    group_id: str
    embedded: bool

    @property
    def brokers(self) -> str:
        return "three embedded brokers" if self.embedded else self.bootstrap_servers

    def watermarks(self) -> dict[tuple[str, int], tuple[int, int]]:
        """(topic, partition) → first offset kept and end offset."""
        with _consumer(self) as consumer:
            return {
                (p.topic, p.partition): consumer.get_watermark_offsets(p, timeout=ANSWER_S)
                for p in self._partitions()
            }

    def committed(self) -> dict[tuple[str, int], int | None]:
        """(topic, partition) → the group's committed offset, as another client sees it; None: there is none."""
        with _consumer(self) as consumer:
            answered = consumer.committed(self._partitions(), timeout=ANSWER_S)
        return {(p.topic, p.partition): p.offset if p.offset >= 0 else None for p in answered}

    def _partitions(self) -> list[Any]:
        from confluent_kafka import TopicPartition

        return [TopicPartition(t, p) for t in self.topics.values() for p in range(PARTITIONS)]


@contextmanager
def embedded() -> Iterator[DemoCluster]:
    """librdkafka's mock cluster with three brokers, in this process."""
    from kafka_actors.testing import MockCluster

    topics = {region: f"orders-{region}" for region in REGIONS}
    with MockCluster(brokers=3) as mock:
        for topic in topics.values():
            mock.create_topic(topic, partitions=PARTITIONS, replication_factor=3)
        yield DemoCluster(mock.bootstrap_servers, topics, "orders-.*", "demo", embedded=True)


@contextmanager
def real(servers: str) -> Iterator[DemoCluster]:
    """A real plaintext cluster. Its topics and its group have unique names, and are deleted at the end.

    Raises `ConfigError` for what is no address, `NoBrokersAvailable` where nobody answers.
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
    """The run is over, whatever becomes of its remains; one that failed early has less of them."""
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
