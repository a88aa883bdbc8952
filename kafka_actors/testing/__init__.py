"""Kafka for tests: a real cluster (`KafkaCluster`), an in-process one (`MockCluster`), and a pytest plugin.

Needs the `testing` extra; `KafkaCluster` also needs Java 17 and Maven.
"""

from kafka_actors.testing.cluster import BENCHMARK_JVM, CONTROLLER_ID, TEST_JVM, KafkaCluster
from kafka_actors.testing.distribution import DEFAULT_VERSION, Distribution, KafkaUnavailable
from kafka_actors.testing.mock import MockCluster
from kafka_actors.testing.node import NodeFailed
from kafka_actors.testing.wire import GroupDescription, GroupMember

__all__ = [
    "BENCHMARK_JVM",
    "CONTROLLER_ID",
    "DEFAULT_VERSION",
    "TEST_JVM",
    "Distribution",
    "GroupDescription",
    "GroupMember",
    "KafkaCluster",
    "KafkaUnavailable",
    "MockCluster",
    "NodeFailed",
]
