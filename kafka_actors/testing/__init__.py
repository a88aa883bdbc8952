"""Kafka for tests: a real cluster (`KafkaCluster`), one inside the process (`MockCluster`), and a pytest plugin.

Needs the `testing` extra; `KafkaCluster` also needs Java 17 and Maven.
"""

from .admin import GroupDescription, GroupMember
from .cluster import BENCHMARK_JVM, CONTROLLER_ID, TEST_JVM, KafkaCluster
from .distribution import DEFAULT_VERSION, Distribution, KafkaUnavailable
from .mock import MockCluster
from .node import NodeFailed

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
