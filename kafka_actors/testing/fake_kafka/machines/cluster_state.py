"""Brokers, topics, partitions and their leaders: what all brokers of the fake cluster know.

Theory of operation. There is one state, which every broker sees at once; a real cluster's brokers hear of
changes one after the other, and a test that needs that makes it with rules. Arrives: a broker goes or comes
back, a test moves a leader, a client creates or deletes something. Decided: who leads what from now on.

- A partition has replicas, a leader among those that are alive, and a leader epoch that rises with each new
  leader; its log is shared by the replicas, so all that live are in sync, and no election loses records.
  Records are lost only by `PartitionLog.truncate`, when a test asks for it.
- When a broker goes, the partitions that it led go to the next live replica, or have no leader until one is
  back. A partition that has a live leader keeps it: nobody returns to the preferred one.
- Groups and transactional ids are spread over the partitions of two internal topics by the hash of their
  names, as in Kafka; their leaders are the coordinators, and a coordinator's epoch rises when it becomes
  another broker. These topics have no log: `GroupHandlers`, `OffsetStore` and `TransactionHandlers` keep what
  would stand in it.
- `changed` collects the partitions that long polls have to look at again, until the next `poll`.
- `now` is the time that was passed in last, in seconds; `wall_ms` is the time of day at it. Timers and quotas
  use them, and ids come from the cluster's `Random`, so that nothing here depends on the machine that a test
  runs on.
"""

from __future__ import annotations

import re
import uuid
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING

from kafka_actors import errors

from .error_answers import Refused
from .partition_log import LogLimits, PartitionLog
from .producer_state import ProducerStates
from .quotas import ClientQuotas
from .settings import FakeBrokerSettings, check_topic_configs, log_limits, min_insync_replicas
from .timers import BrokerTimer, BrokerTimers

if TYPE_CHECKING:
    from random import Random

Release = tuple[int, int]
NO_LEADER = -1
_KRAFT = (3, 3)
INTERNAL_TOPICS = ("__consumer_offsets", "__transaction_state", "__share_group_state")
_LEGAL = re.compile(r"[a-zA-Z0-9._-]{1,249}")


class FakeNode:
    """One broker: its address, rack, whether it is alive, when it was started, and when it looks at its logs next."""

    def __init__(self, node_id: int, host: str, port: int, rack: str | None) -> None:
        self.node_id = node_id
        self.host = host
        self.port = port
        self.rack = rack
        self.alive = False
        self.started_ms = 0
        self.retention_due_ms = 0

    def start(self, now_ms: int, settings: FakeBrokerSettings) -> None:
        """Begins its life: what it does at intervals begins anew."""
        self.alive = True
        self.started_ms = now_ms
        self.retention_due_ms = now_ms + settings.log_initial_task_delay_ms


class FakePartition:
    """One partition: replicas (the preferred leader first), leader, epoch and log."""

    def __init__(self, index: int, replicas: Sequence[int], log: PartitionLog) -> None:
        self.index = index
        self.replicas = list(replicas)
        self.leader = NO_LEADER
        self.leader_epoch = -1
        self.log = log

    def lead(self, node_id: int) -> None:
        """Gives it a leader (-1: none) under a new epoch."""
        self.leader = node_id
        self.leader_epoch += 1
        if node_id != NO_LEADER:
            self.log.begin_epoch(self.leader_epoch)


class FakeTopic:
    """One topic: `configs` are those that were set, `defaults` those that the brokers' settings give it."""

    def __init__(
        self, name: str, topic_id: uuid.UUID, configs: Mapping[str, str], defaults: Mapping[str, str]
    ) -> None:
        self.name = name
        self.topic_id = topic_id
        self.configs = dict(configs)
        self.defaults = defaults
        self.partitions: list[FakePartition] = []

    def limits(self, release: Release) -> LogLimits:
        """Limits that its logs keep."""
        return log_limits({**self.defaults, **self.configs}, release)

    @property
    def min_insync_replicas(self) -> int:
        """Replicas that have to be alive for a write with acks=all."""
        return min_insync_replicas(self.configs)


class CoordinatorTopic:
    """The internal topic whose partitions' leaders are the coordinators of groups, or of transactional ids. `changes` counts new leaders."""

    def __init__(self, name: str, partitions: int) -> None:
        self.name = name
        self.changes = 0
        self._leaders = [NO_LEADER] * partitions
        self._epochs = [0] * partitions

    def partition_of(self, key: str) -> int:
        """Partition that a group or transactional id belongs to: by the hash of its name."""
        code = java_hash(key)
        return (0 if code == -(2**31) else abs(code)) % len(self._leaders)

    def leader_of(self, key: str) -> int:
        """Id of the coordinator, -1 where no broker is alive."""
        return self._leaders[self.partition_of(key)]

    def epoch_of(self, key: str) -> int:
        """The coordinator's epoch: it rises when another broker becomes it."""
        return self._epochs[self.partition_of(key)]

    def move(self, key: str, node_id: int) -> None:
        """Makes a broker the coordinator of a group or transactional id, and of all in the same partition."""
        self._lead(self.partition_of(key), node_id)

    def _lead(self, index: int, node_id: int) -> None:
        if NO_LEADER not in (self._leaders[index], node_id):
            self._epochs[index] += 1
        self._leaders[index] = node_id
        self.changes += 1

    def spread(self, nodes: Sequence[int], *, all_of_them: bool) -> None:
        """Gives partitions without a live leader one of these brokers; all partitions while the cluster is built."""
        for index, leader in enumerate(self._leaders):
            if not nodes:
                self._lead(index, NO_LEADER)
            elif all_of_them:
                self._leaders[index] = nodes[index % len(nodes)]
            elif leader not in nodes:
                self._lead(index, nodes[index % len(nodes)])


class ClusterState:
    """All that the brokers share. wall_ms: milliseconds since the epoch at time 0 of the clock that is passed in, `now`."""

    def __init__(self, release: Release, settings: FakeBrokerSettings, random: Random, wall_ms: int) -> None:
        self.release = release
        self.settings = settings
        self.random = random
        self.cluster_id = f"fake-{random.getrandbits(64):016x}"
        self.nodes: dict[int, FakeNode] = {}
        self.topics: dict[str, FakeTopic] = {}
        self.changed: set[tuple[str, int]] = set()
        self.offsets_topic = CoordinatorTopic("__consumer_offsets", settings.offsets_topic_num_partitions)
        self.transactions_topic = CoordinatorTopic(
            "__transaction_state", settings.transaction_state_log_num_partitions
        )
        self._producer_ids = 0
        self.timers = BrokerTimers()
        self.quotas = ClientQuotas()
        self.now = 0.0
        self._wall_ms = wall_ms

    @property
    def wall_ms(self) -> int:
        """Milliseconds since the epoch at `now`, the time that was passed in last."""
        return self._wall_ms + int(self.now * 1000)

    def after(self, ms: int, call: Callable[[], object]) -> BrokerTimer:
        """Has a call made when so many milliseconds have passed."""
        return self.timers.at(self.now + ms / 1000, call)

    def retain(self) -> None:
        """Deletes the records whose retention was over when the brokers that are alive looked at their logs last."""
        interval, now_ms = max(self.settings.log_retention_check_interval_ms, 1), self.wall_ms
        for node in self.nodes.values():
            if node.alive and now_ms >= node.retention_due_ms:
                looked_ms = now_ms - (now_ms - node.retention_due_ms) % interval
                node.retention_due_ms = looked_ms + interval
                self._retain(node.node_id, looked_ms)

    def _retain(self, node_id: int, looked_ms: int) -> None:
        """Has one broker look at its logs: those that it leads, or has as the first live replica where nobody leads."""
        for topic in self.topics.values():
            retention = topic.limits(self.release).retention
            for partition in topic.partitions:
                led = partition.leader != NO_LEADER
                if node_id not in ([partition.leader] if led else self.isr(partition)[:1]):
                    continue
                if partition.log.retain(retention, looked_ms):
                    self.changed.add((topic.name, partition.index))

    def new_uuid(self) -> uuid.UUID:
        """A random id, from the cluster's own source of randomness."""
        return uuid.UUID(int=self.random.getrandbits(128), version=4)

    def new_producer_id(self) -> int:
        """The next producer id."""
        self._producer_ids += 1
        return self._producer_ids - 1

    # ---------------------------------------------------------------- brokers

    def add_node(self, node_id: int, host: str, port: int, rack: str | None = None) -> None:
        """Adds a broker, alive."""
        if node_id in self.nodes:
            raise ValueError(f"there is a broker {node_id} already")
        self.nodes[node_id] = FakeNode(node_id, host, port, rack)
        self.nodes[node_id].start(self.wall_ms, self.settings)
        self._spread_coordinators(all_of_them=True)

    def set_alive(self, node_id: int, alive: bool) -> None:
        """Takes a broker down or brings it back; leaders move as its partitions need it. One that leads what nobody led meanwhile has read
        its producers from a snapshot."""
        if alive and not self.nodes[node_id].alive:
            self.nodes[node_id].start(self.wall_ms, self.settings)
        self.nodes[node_id].alive = alive
        for topic in self.topics.values():
            for partition in topic.partitions:
                if partition.leader == NO_LEADER or not self.nodes[partition.leader].alive:
                    self._elect(topic, partition)
                    if alive and partition.leader == node_id:
                        partition.log.producers.reload()
        self._spread_coordinators(all_of_them=False)

    def remove_node(self, node_id: int) -> None:
        """Removes a broker for good: it is no replica of anything any more."""
        self.set_alive(node_id, False)
        del self.nodes[node_id]
        for topic in self.topics.values():
            for partition in topic.partitions:
                partition.replicas = [r for r in partition.replicas if r != node_id]

    @property
    def live(self) -> list[FakeNode]:
        """Brokers that are alive, by id."""
        return [self.nodes[i] for i in sorted(self.nodes) if self.nodes[i].alive]

    def isr(self, partition: FakePartition) -> list[int]:
        """Replicas that are alive."""
        return [r for r in partition.replicas if r in self.nodes and self.nodes[r].alive]

    def _elect(self, topic: FakeTopic, partition: FakePartition) -> None:
        leader = next(iter(self.isr(partition)), NO_LEADER)
        if leader != partition.leader:
            partition.lead(leader)
            self.changed.add((topic.name, partition.index))

    def move_leader(self, name: str, index: int, node_id: int) -> None:
        """Gives a partition another leader under a new epoch; a broker that is no replica becomes one. -1: none."""
        topic, partition = self.topics[name], self.topics[name].partitions[index]
        if node_id != NO_LEADER and node_id not in partition.replicas:
            partition.replicas.append(node_id)
        partition.lead(node_id)
        self.changed.add((topic.name, index))

    # ---------------------------------------------------------------- topics

    def create_topic(
        self, name: str, assignment: Sequence[Sequence[int]], configs: Mapping[str, str] | None = None
    ) -> FakeTopic:
        """Creates a topic with the replicas of each partition. Raises `Refused`."""
        self.check_new_name(name)
        check_topic_configs(configs or {})
        topic = FakeTopic(name, self.new_uuid(), configs or {}, self.settings.topic_defaults())
        self.topics[name] = topic
        self.add_partitions(topic, assignment)
        return topic

    def check_new_name(self, name: str) -> None:
        """Raises `Refused` for a name that is not legal, or taken."""
        check_topic_name(name)
        if name in self.topics:
            raise Refused(errors.TopicAlreadyExistsError, f"Topic '{name}' already exists.")
        like = name.replace(".", "_")
        if like != name or "_" in name:
            for other in self.topics:
                if other.replace(".", "_") == like:
                    raise Refused(errors.InvalidTopicError, f"'{name}' collides with topic: {other}")

    def add_partitions(self, topic: FakeTopic, assignment: Sequence[Sequence[int]]) -> None:
        """Adds partitions with these replicas."""
        settings = self.settings
        for replicas in assignment:
            producers = ProducerStates(
                settings.producer_id_expiration_ms, settings.producer_id_expiration_check_interval_ms
            )
            partition = FakePartition(len(topic.partitions), replicas, PartitionLog(producers))
            topic.partitions.append(partition)
            self._elect(topic, partition)

    def place(self, count: int, replication_factor: int) -> list[list[int]]:
        """Returns replicas for new partitions: in turn over the brokers that are alive, then over those that are not, which ZooKeeper does
        not know. Raises `Refused`.
        """
        if replication_factor < 1:
            raise Refused(errors.InvalidReplicationFactorError, "Replication factor must be larger than 0.")
        if count < 1:
            raise Refused(errors.InvalidPartitionsError, "Number of partitions was set to an invalid value.")
        live = [node.node_id for node in self.live]
        down = sorted(self.nodes.keys() - set(live)) if self.has_kraft else []
        if not live:
            raise Refused(errors.InvalidReplicationFactorError, "All brokers are currently fenced.")
        if replication_factor > len(live) + len(down):
            raise Refused(
                errors.InvalidReplicationFactorError,
                f"The target replication factor of {replication_factor} cannot be reached because only "
                f"{len(live) + len(down)} broker(s) are registered.",
            )
        first = self.random.randrange(len(live))
        placed = []
        for begin in range(first, first + count):
            chosen = [nodes[(begin + r) % len(nodes)] for nodes in (live, down) for r in range(len(nodes))]
            placed.append(chosen[:replication_factor])
        return placed

    @property
    def has_kraft(self) -> bool:
        """Whether the brokers register with controllers, as in releases whose KRaft mode is meant for production, in place of ZooKeeper."""
        return self.release >= _KRAFT

    def delete_topic(self, name: str) -> FakeTopic:
        """Removes a topic and returns it."""
        topic = self.topics.pop(name)
        self.changed |= {(name, partition.index) for partition in topic.partitions}
        return topic

    def topic_by_id(self, topic_id: uuid.UUID) -> FakeTopic | None:
        """Returns the topic with an id, None where there is none."""
        return next((t for t in self.topics.values() if t.topic_id == topic_id), None)

    def partition(self, name: str, index: int) -> FakePartition:
        """Returns a partition. Raises `Refused` where it does not exist."""
        topic = self.topics.get(name)
        if topic is None or not 0 <= index < len(topic.partitions):
            raise Refused(errors.UnknownTopicOrPartitionError)
        return topic.partitions[index]

    def led_by(self, node_id: int, name: str, index: int, epoch: int = -1) -> FakePartition:
        """Returns a partition that a broker leads, under the epoch that the client knows (-1: it says none).

        Raises `Refused` where it does not exist, another one leads it, or the epoch is another one (KIP-320).
        """
        partition = self.partition(name, index)
        if partition.leader != node_id:
            raise Refused(errors.NotLeaderOrFollowerError)
        check_epoch(partition, epoch)
        return partition

    def _spread_coordinators(self, *, all_of_them: bool) -> None:
        nodes = [node.node_id for node in self.live]
        for topic in (self.offsets_topic, self.transactions_topic):
            topic.spread(nodes, all_of_them=all_of_them and not self.topics)


def java_hash(text: str) -> int:
    """Java's `hashCode` of a string."""
    value = 0
    units = text.encode("utf-16-be")
    for i in range(0, len(units), 2):
        value = (31 * value + int.from_bytes(units[i : i + 2])) & 0xFFFFFFFF
    return value - 2**32 if value >= 2**31 else value


def check_epoch(partition: FakePartition, epoch: int) -> None:
    """Raises `Refused` where a client's leader epoch is older or newer than the partition's (-1: it says none)."""
    if epoch == -1 or epoch == partition.leader_epoch:
        return
    older = epoch < partition.leader_epoch
    raise Refused(errors.FencedLeaderEpochError if older else errors.UnknownLeaderEpochError)


def check_topic_name(name: str) -> None:
    """Raises `Refused` for a name that no topic can have."""
    if name in (".", "..") or not _LEGAL.fullmatch(name):
        raise Refused(errors.InvalidTopicError, f"Topic name is invalid: '{name}'")
