"""Random requests for the differential test about settings of topics and about the cluster.

Only settings are changed that nothing else in the test depends on: a broker acts on a changed setting some time after it has answered.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TYPE_CHECKING

from kafka_actors.protocol import (
    ApiKey,
    DescribeClusterRequest,
    DescribeConfigsRequest,
    IncrementalAlterConfigsRequest,
)
from kafka_actors.protocol.messages.describe_configs import DescribeConfigsResource
from kafka_actors.protocol.messages.incremental_alter_configs import AlterableConfig, AlterConfigsResource

if TYPE_CHECKING:
    from fakes.differential_load import Load

TOPIC = 2
SET, DELETE, APPEND, SUBTRACT = range(4)
LISTS = ("follower.replication.throttled.replicas", "leader.replication.throttled.replicas")
SETTINGS = {
    "retention.ms": ("8000000000", "9000000000", "x"),
    "flush.ms": ("8000000000", "9000000000", "x"),
    "delete.retention.ms": ("1", "86400000", "-5"),
    "min.compaction.lag.ms": ("0", "7", "1.5"),
    "unclean.leader.election.enable": ("true", "false", "perhaps"),
    "min.cleanable.dirty.ratio": ("0.25", "0.75", "x"),
    **dict.fromkeys(LISTS, ("0:1", "0:1,1:1", "1:1")),
    "no.such": ("1",),
}
"""Values that the settings are given, and among them such as can't be."""
PATIENCE_S = 30.0


class AdminLoad:
    """A part of `Load`."""

    def __init__(self, load: Load) -> None:
        self._load = load
        self.ops: list[tuple[int, Callable[[], object]]] = [
            (3, self.alter_configs),
            (3, self.describe_configs),
            (1, self.describe_cluster),
        ]

    def alter_configs(self) -> None:
        """Changes some settings of a topic."""
        random, pair = self._load.random, self._load.pair
        changes = []
        for name in random.sample(sorted(SETTINGS), random.randint(1, 2)):
            operations = [SET, SET, DELETE] + ([APPEND, SUBTRACT] if name in LISTS else [])
            operation = random.choice(operations)
            value = None if operation == DELETE else random.choice(SETTINGS[name])
            changes.append(AlterableConfig(name, operation, value))
        topic = self._load.name()
        request = IncrementalAlterConfigsRequest(
            [AlterConfigsResource(TOPIC, topic, changes)], random.random() < 0.2
        )
        pair.ask(request, self._load.version(ApiKey.INCREMENTAL_ALTER_CONFIGS), "admin")
        self._until_configs_agree(topic)

    def _until_configs_agree(self, name: str) -> None:
        """Waits until the broker shows the settings that the fake has."""
        pair = self._load.pair
        topic = pair.fake.state.topics.get(name)
        if topic is None:
            return
        wanted = {key: value for key, value in topic.configs.items() if key in SETTINGS}
        request = DescribeConfigsRequest([DescribeConfigsResource(TOPIC, name, sorted(SETTINGS))])
        deadline = time.monotonic() + PATIENCE_S
        while True:
            (found,) = pair.ask_real(request, 4).results
            real = {c.name: c.value for c in found.configs if c.config_source == 1}
            if real == wanted:
                return
            if time.monotonic() > deadline:
                raise pair.difference(f"topic {name} has {wanted}, and the broker has {real}")
            time.sleep(0.01)

    def describe_configs(self) -> None:
        """Asks for settings of a topic. Those that are left out differ by how a broker is set up."""
        random = self._load.random
        names = random.sample(sorted(SETTINGS), random.randint(1, 4))
        resource = DescribeConfigsResource(TOPIC, self._load.name(), names)
        self._load.pair.ask(
            DescribeConfigsRequest([resource]), self._load.version(ApiKey.DESCRIBE_CONFIGS), "admin"
        )

    def describe_cluster(self) -> None:
        """Asks for the brokers."""
        random = self._load.random
        version = self._load.version(ApiKey.DESCRIBE_CLUSTER)
        request = DescribeClusterRequest(
            include_cluster_authorized_operations=random.random() < 0.5,
            endpoint_type=random.choices([1, 2, 9], [6, 1, 1])[0] if version >= 1 else 1,
        )
        self._load.pair.ask(request, version, "admin")
