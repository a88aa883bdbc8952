"""Arguments and results of the admin's calls. Offsets, partitions and times (milliseconds since 1970) are ints."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from msgspec import Struct

from kafka_actors.cluster.snapshot import BrokerMetadata
from kafka_actors.types import TopicPartition

__all__ = [
    "AclBinding",
    "AclBindingFilter",
    "AlterConfigOp",
    "BrokerMetadata",
    "ClusterDescription",
    "ConfigEntry",
    "ConfigResource",
    "ConfigSynonym",
    "GroupDescription",
    "GroupListing",
    "MemberDescription",
    "NewPartitions",
    "NewTopic",
    "OffsetReset",
    "PartitionDescription",
    "PartitionLag",
    "TopicDescription",
    "TopicListing",
]


class ClusterDescription(Struct, frozen=True):
    """A cluster: its id, its controller (with KRaft any broker, which passes requests on), and its brokers by id.

    `authorized_operations`: what the principal may do with the cluster itself, by the names of Java's `AclOperation`
    (`DESCRIBE`, `CREATE`, `IDEMPOTENT_WRITE`, …); None unless they were asked for, and from brokers before 2.8.
    """

    cluster_id: str | None
    controller: BrokerMetadata | None
    nodes: tuple[BrokerMetadata, ...]
    authorized_operations: frozenset[str] | None = None


class GroupListing(Struct, frozen=True):
    """A group as its coordinator lists it.

    `state` is Stable, Empty, PreparingRebalance, CompletingRebalance, Assigning, Reconciling or Dead, and empty
    for brokers before 2.6; `type` is Classic, Consumer (KIP-848), Share or Streams, and Classic for brokers that
    don't say. `protocol_type` is "consumer" for consumers and empty for a group that only commits.
    """

    group_id: str
    protocol_type: str
    state: str
    type: str


class MemberDescription(Struct, frozen=True):
    """A member of a group. Epochs and targets are those of the newer protocol (KIP-848), None for Classic.

    `target_assignment` is what the coordinator wants it to have; it differs from `assignment` while the group
    reconciles.
    """

    member_id: str
    group_instance_id: str | None
    client_id: str
    host: str
    assignment: tuple[TopicPartition, ...]
    target_assignment: tuple[TopicPartition, ...] | None = None
    member_epoch: int | None = None
    rack_id: str | None = None


class GroupDescription(Struct, frozen=True):
    """A group with its members. `state` and `type` as in `GroupListing`; `assignor` is empty while it has none.

    `group_epoch` and `target_assignment_epoch` are None for Classic groups.
    """

    group_id: str
    type: str
    state: str
    protocol_type: str
    assignor: str
    coordinator: BrokerMetadata
    members: tuple[MemberDescription, ...]
    group_epoch: int | None = None
    target_assignment_epoch: int | None = None


class PartitionLag(Struct, frozen=True):
    """Lag of a group in a partition. None is a value that isn't known.

    `current_offset`: the committed one, None where the group has committed nothing, with the `leader_epoch` that was
    committed (KIP-320); `log_end_offset`: None where the partition or its leader is gone; `lag`: the difference of the
    two. The member is the one that the partition is assigned to. A member without partitions has a row with neither
    topic nor partition.
    """

    group_id: str
    topic: str | None
    partition: int | None
    leader_epoch: int | None
    current_offset: int | None
    log_end_offset: int | None
    lag: int | None
    member_id: str | None = None
    host: str | None = None
    client_id: str | None = None


class OffsetReset(Struct, frozen=True):
    """New offset of a group in a partition. `note` says why it differs from the target, where it does."""

    group_id: str
    topic: str
    partition: int
    current_offset: int | None
    new_offset: int
    note: str | None = None


class TopicListing(Struct, frozen=True):
    """A topic. `topic_id` is written as Kafka's tools do, None for brokers before 2.8."""

    name: str
    topic_id: str | None
    is_internal: bool


class PartitionDescription(Struct, frozen=True):
    """A partition and where its replicas are, as broker ids; the first of `replicas` is the preferred leader.

    `leader` is None while there is none, `leader_epoch` None where it isn't known.
    """

    partition: int
    leader: int | None
    leader_epoch: int | None
    replicas: tuple[int, ...]
    isr: tuple[int, ...]
    offline_replicas: tuple[int, ...]


class TopicDescription(Struct, frozen=True):
    """A topic with its partitions, in order."""

    name: str
    topic_id: str | None
    is_internal: bool
    partitions: tuple[PartitionDescription, ...]


class NewTopic(Struct, frozen=True):
    """A topic to be created. None leaves a number to the broker's own default (KIP-464, Kafka 2.4).

    `replica_assignment` lists the broker ids of each partition, the preferred leader first, in place of the
    numbers.
    """

    name: str
    num_partitions: int | None = None
    replication_factor: int | None = None
    replica_assignment: Sequence[Sequence[int]] | None = None
    configs: Mapping[str, str] = {}


class NewPartitions(Struct, frozen=True):
    """Number of partitions that a topic is to have. `new_assignments` lists the broker ids of each added partition, the
    preferred leader first; without it brokers are chosen."""

    total_count: int
    new_assignments: Sequence[Sequence[int]] | None = None


class ConfigResource(Struct, frozen=True):
    """A resource with settings. `type` is TOPIC, BROKER, BROKER_LOGGER, CLIENT_METRICS or GROUP; the name of a broker is its
    id, and "" stands for the defaults of all brokers."""

    type: str
    name: str

    def __str__(self) -> str:
        return f"{self.type} {self.name}" if self.name else f"{self.type} default"


class ConfigSynonym(Struct, frozen=True):
    """A place that gives a setting a value. `source` as in `ConfigEntry`."""

    name: str
    value: str | None
    source: str


class ConfigEntry(Struct, frozen=True):
    """A setting of a resource. `value` is None for secrets (`is_sensitive`).

    `source` says who gives the value: DYNAMIC_TOPIC_CONFIG, DYNAMIC_BROKER_CONFIG, DYNAMIC_DEFAULT_BROKER_CONFIG,
    STATIC_BROKER_CONFIG, DYNAMIC_BROKER_LOGGER_CONFIG, DYNAMIC_CLIENT_METRICS_CONFIG, DYNAMIC_GROUP_CONFIG, DEFAULT_CONFIG
    or UNKNOWN; `type` is BOOLEAN, STRING, INT, SHORT, LONG, DOUBLE, LIST, CLASS, PASSWORD, or UNKNOWN for brokers before
    2.6. `synonyms` lists, if it was asked for, all places that give a value, the one that counts first.
    """

    name: str
    value: str | None
    source: str
    type: str
    is_read_only: bool
    is_sensitive: bool
    synonyms: tuple[ConfigSynonym, ...] = ()

    @property
    def is_default(self) -> bool:
        """Whether the value is Kafka's own default."""
        return self.source == "DEFAULT_CONFIG"


class AlterConfigOp(Struct, frozen=True):
    """A change of a setting. `op` is SET, DELETE (to the default again, without a value), or for settings that are lists
    APPEND and SUBTRACT."""

    name: str
    value: str | None = None
    op: str = "SET"


class AclBinding(Struct, frozen=True, order=True):
    """An ACL: what a principal may do with a resource, or may not. The names are Java's.

    `resource_type` is TOPIC, GROUP, CLUSTER (whose name is "kafka-cluster"), TRANSACTIONAL_ID, DELEGATION_TOKEN or USER;
    `operation` READ, WRITE, CREATE, DELETE, ALTER, DESCRIBE, ALL and others; `permission_type` ALLOW or DENY; `pattern_type`
    LITERAL, or PREFIXED for all resources whose names begin so. A resource name "*" is every resource, `host` "*" every host.
    """

    resource_type: str
    resource_name: str
    principal: str
    operation: str
    permission_type: str = "ALLOW"
    pattern_type: str = "LITERAL"
    host: str = "*"

    def __str__(self) -> str:
        names = " prefix" if self.pattern_type == "PREFIXED" else ""
        return (
            f"{self.permission_type} {self.operation} on {self.resource_type}{names} {self.resource_name} "
            f"to {self.principal} from {self.host}"
        )


class AclBindingFilter(Struct, frozen=True):
    """A choice of ACLs, with the fields of `AclBinding`; None takes every value. The `pattern_type` MATCH takes, beside ACLs of
    that very name, those of prefixes and of "*" that concern it."""

    resource_type: str | None = None
    resource_name: str | None = None
    principal: str | None = None
    operation: str | None = None
    permission_type: str | None = None
    pattern_type: str | None = None
    host: str | None = None
