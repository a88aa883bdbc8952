"""What the examples share: a broker, orders to read, and a Spark session."""

import json
import os
import random
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import kafka_actors as ka
from kafka_actors.admin import NewTopic

COUNTRIES = ["DE", "FR", "IT", "ES"]


class Brokers:
    """Where they are, and how topics are made there."""

    def __init__(self, servers: str, create: Callable[[str, int], None]) -> None:
        self.servers = servers
        self._create = create

    def create(self, *topics: str, partitions: int = 4) -> None:
        for topic in topics:
            self._create(topic, partitions)


@contextmanager
def brokers() -> Iterator[Brokers]:
    """Those that `BOOTSTRAP` names, or one that lives as long as this process."""
    if servers := os.environ.get("BOOTSTRAP"):
        with ka.Admin(bootstrap_servers=servers) as admin:
            yield Brokers(
                servers, lambda topic, partitions: admin.create_topics([NewTopic(topic, partitions)])
            )
        return
    from kafka_actors.testing import FakeKafka

    with FakeKafka() as kafka:
        yield Brokers(
            kafka.bootstrap_servers, lambda topic, partitions: kafka.create_topic(topic, partitions)
        )


def produce_orders(servers: str, topic: str, count: int, *, timestamp_ms: int | None = None) -> None:
    """Orders in JSON, the same ones each time, keyed by their ids. Some of them are none."""
    dice = random.Random(7)
    with ka.Producer(bootstrap_servers=servers) as producer:
        for number in range(count):
            order = {
                "order_id": f"o-{number}",
                "country": dice.choice(COUNTRIES),
                "amount_cents": dice.randrange(-500, 50_000),
                "items": dice.randrange(1, 9),
            }
            value = b"{broken" if number % 5000 == 4999 else json.dumps(order).encode()
            producer.send(topic, value, key=str(order["order_id"]).encode(), timestamp_ms=timestamp_ms)
        producer.flush()


def values(spark: Any, servers: str, topic: str) -> list[bytes]:
    """What is in a topic now, sorted."""
    read = spark.read.format("kafka_actors").option("kafka.bootstrap.servers", servers)
    return sorted(
        bytes(row.value) for row in read.option("subscribe", topic).load().select("value").collect()
    )


@contextmanager
def spark_session() -> Iterator[Any]:
    """A small local one. No JAR: Spark finds the source where the package is installed. It is registered for an editable install, which
    Spark's own search passes over."""
    from pyspark.sql import SparkSession

    from pyspark_kafka_actors import DefaultSource

    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    spark = (
        SparkSession.builder.master("local[2]")
        .config("spark.ui.enabled", "false")
        .config("spark.sql.shuffle.partitions", "2")
        .config("spark.log.level", "ERROR")
        .getOrCreate()
    )
    spark.dataSource.register(DefaultSource)
    try:
        yield spark
    finally:
        spark.stop()
