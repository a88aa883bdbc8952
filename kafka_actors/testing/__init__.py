"""Kafka for tests: brokers in this process (`FakeKafka`), a real cluster (`KafkaCluster`), and a pytest plugin.

`KafkaCluster` needs the `testing` extra, Java 17 and Maven; `FakeKafka` nothing.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from kafka_actors.lazy import lazily

if TYPE_CHECKING:
    from .cluster import BENCHMARK_JVM, CONTROLLER_ID, TEST_JVM, KafkaCluster
    from .distribution import DEFAULT_VERSION, Distribution, KafkaUnavailable
    from .fake_kafka.fake_kafka import FakeKafka
    from .node import NodeFailed
    from .requests import GroupDescription, GroupMember

# Imported when first used: every run of pytest with the package installed loads the plugin.
_HOMES = {
    "BENCHMARK_JVM": "cluster",
    "CONTROLLER_ID": "cluster",
    "DEFAULT_VERSION": "distribution",
    "Distribution": "distribution",
    "FakeKafka": "fake_kafka.fake_kafka",
    "GroupDescription": "requests",
    "GroupMember": "requests",
    "KafkaCluster": "cluster",
    "KafkaUnavailable": "distribution",
    "NodeFailed": "node",
    "TEST_JVM": "cluster",
}

__all__ = [
    "BENCHMARK_JVM",
    "CONTROLLER_ID",
    "DEFAULT_VERSION",
    "TEST_JVM",
    "Distribution",
    "FakeKafka",
    "GroupDescription",
    "GroupMember",
    "KafkaCluster",
    "KafkaUnavailable",
    "NodeFailed",
]

__getattr__ = lazily(__name__, _HOMES)


def __dir__() -> list[str]:
    return __all__
