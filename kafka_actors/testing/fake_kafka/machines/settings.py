"""Settings of the brokers and of topics, by Kafka's names.

Theory of operation. Two sets of settings, with two ways of being wrong.

- `FakeBrokerSettings` are made once for a cluster, from what a test writes. A name that the fake brokers
  don't have is an error of the test and raises `ValueError` with all names that there are: a setting that was
  accepted and ignored would let a test pass for the wrong reason. Values may be text, as in a file of
  settings.
- A topic's settings come from clients, by CreateTopics and IncrementalAlterConfigs. All of Kafka's names are
  known, with their defaults, because DescribeConfigs lists them all. Most are kept and have no effect: there
  are no segments, no cleaner and no second tier here. A wrong name or value is refused as Kafka does it, with
  INVALID_CONFIG and Kafka's text.

What acts is read out of a topic's settings in two places: `log_limits` makes what an append is checked
against, `min_insync_replicas` what acks=all waits for. The limits depend on the release, because Kafka 4.0
changed a default: until then records from the future were taken.

Defaults of brokers are Kafka's, with two exceptions for the sake of tests, which `FakeBrokerSettings` names.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec
from msgspec import Struct

from kafka_actors import errors
from kafka_actors.base import decoders

from .error_answers import Refused
from .log_segments import Retention
from .partition_log import LogLimits

_MOST = 2**63 - 1


class FakeBrokerSettings(Struct, frozen=True):
    """Settings of all brokers: `server.properties` with underscores in place of dots. Defaults are Kafka's, but for some that
    `KafkaCluster` sets too: no delay before a group's first rebalance, sessions of one second are allowed, and records stay on topics
    that do not say for how long."""

    auto_create_topics_enable: bool = False
    connections_max_idle_ms: int = 600_000
    connections_max_reauth_ms: int = 0
    default_replication_factor: int = 1
    delete_topic_enable: bool = True
    fetch_max_bytes: int = 57_671_680
    group_initial_rebalance_delay_ms: int = 0
    group_max_session_timeout_ms: int = 1_800_000
    group_max_size: int = 2**31 - 1
    group_min_session_timeout_ms: int = 1_000
    log_initial_task_delay_ms: int = 30_000
    log_retention_bytes: int = -1
    log_retention_check_interval_ms: int = 300_000
    log_retention_ms: int = -1
    log_segment_bytes: int = 1 << 30
    max_incremental_fetch_session_cache_slots: int = 1_000
    num_partitions: int = 1
    offset_metadata_max_bytes: int = 4_096
    offsets_retention_check_interval_ms: int = 600_000
    offsets_retention_minutes: int = 10_080
    offsets_topic_num_partitions: int = 50
    producer_id_expiration_check_interval_ms: int = 600_000
    producer_id_expiration_ms: int = 86_400_000
    transaction_abort_timed_out_transaction_cleanup_interval_ms: int = 10_000
    transaction_max_timeout_ms: int = 900_000
    transaction_state_log_num_partitions: int = 50
    transactional_id_expiration_ms: int = 604_800_000

    def topic_defaults(self) -> dict[str, str]:
        """Returns the settings of topics that the brokers' settings are the defaults of."""
        return {
            "retention.bytes": str(self.log_retention_bytes),
            "retention.ms": str(self.log_retention_ms),
            "segment.bytes": str(self.log_segment_bytes),
        }


def broker_settings(config: Mapping[str, Any]) -> FakeBrokerSettings:
    """Returns the settings of a mapping with Kafka's dotted names, or with underscores.

    Raises `ValueError` for a name that the fake brokers don't have, and for a value of another type.
    """
    fields = {name.replace(".", "_"): value for name, value in config.items()}
    unknown = sorted(fields.keys() - set(FakeBrokerSettings.__struct_fields__))
    if unknown:
        known = ", ".join(n.replace("_", ".") for n in FakeBrokerSettings.__struct_fields__)
        raise ValueError(f"fake brokers have no setting {', '.join(unknown)}; they have {known}")
    try:
        return decoders.convert(fields, FakeBrokerSettings, strict=False)
    except msgspec.ValidationError as error:
        raise ValueError(f"a setting of fake brokers: {error}") from None


TRANSACTION_VERSION = "transaction.version"
_NEWEST_TRANSACTIONS = 2


def feature_level(features: Mapping[str, int], release: tuple[int, int]) -> int:
    """Returns the level of `transaction.version` that a cluster has finalized: the newest one that its release has unless told.

    Raises `ValueError` for another feature, and for a level that the release does not have.
    """
    newest = _NEWEST_TRANSACTIONS if release >= (4, 0) else 0
    for name, level in features.items():
        if name != TRANSACTION_VERSION:
            raise ValueError(f"fake brokers have no feature {name}, only {TRANSACTION_VERSION}")
        if not 0 <= level <= newest:
            raise ValueError(
                f"{TRANSACTION_VERSION} is {level}: Kafka {release[0]}.{release[1]} has 0 to {newest}"
            )
    return features.get(TRANSACTION_VERSION, newest)


TOPIC_CONFIGS: Mapping[str, str] = {
    "cleanup.policy": "delete",
    "compression.gzip.level": "-1",
    "compression.lz4.level": "9",
    "compression.type": "producer",
    "compression.zstd.level": "3",
    "delete.retention.ms": "86400000",
    "file.delete.delay.ms": "60000",
    "flush.messages": str(_MOST),
    "flush.ms": str(_MOST),
    "follower.replication.throttled.replicas": "",
    "index.interval.bytes": "4096",
    "leader.replication.throttled.replicas": "",
    "local.retention.bytes": "-2",
    "local.retention.ms": "-2",
    "max.compaction.lag.ms": str(_MOST),
    "max.message.bytes": "1048588",
    "message.timestamp.after.max.ms": "3600000",
    "message.timestamp.before.max.ms": str(_MOST),
    "message.timestamp.type": "CreateTime",
    "min.cleanable.dirty.ratio": "0.5",
    "min.compaction.lag.ms": "0",
    "min.insync.replicas": "1",
    "preallocate": "false",
    "remote.log.copy.disable": "false",
    "remote.log.delete.on.disable": "false",
    "remote.storage.enable": "false",
    "retention.bytes": "-1",
    "retention.ms": "604800000",
    "segment.bytes": "1073741824",
    "segment.index.bytes": "10485760",
    "segment.jitter.ms": "0",
    "segment.ms": "604800000",
    "unclean.leader.election.enable": "false",
}
"""Topic settings of Kafka 4.1 with their defaults. The fake brokers keep all, and act on those that `log_limits` and
`min_insync_replicas` read."""

_BOOLEAN, _STRING, _INT, _LONG, _DOUBLE, _LIST = 1, 2, 3, 5, 6, 7
_INTS = (
    "max.message.bytes",
    "segment.bytes",
    "segment.index.bytes",
    "index.interval.bytes",
    "min.insync.replicas",
)


def config_type(name: str) -> int:
    """Returns the number by which DescribeConfigs tells the type of a topic's setting (KIP-569)."""
    default = TOPIC_CONFIGS[name]
    if default in ("true", "false"):
        return _BOOLEAN
    if name == "cleanup.policy" or (name.endswith(".replicas") and not name.startswith("min.")):
        return _LIST
    if name.endswith(".ratio"):
        return _DOUBLE
    if name in _INTS or name.endswith(".level"):
        return _INT
    return _LONG if default.lstrip("-").isdigit() else _STRING


_CHOICES = {
    "cleanup.policy": {"compact", "delete", "compact,delete", "delete,compact", ""},
    "compression.type": {"uncompressed", "zstd", "lz4", "snappy", "gzip", "producer"},
    "message.timestamp.type": {"CreateTime", "LogAppendTime"},
}


_LEAST = {
    "compression.gzip.level": -1,
    "compression.lz4.level": 1,
    "compression.zstd.level": -131_072,
    "flush.messages": 1,
    "local.retention.bytes": -2,
    "local.retention.ms": -2,
    "max.compaction.lag.ms": 1,
    "min.insync.replicas": 1,
    "retention.bytes": -_MOST,
    "retention.ms": -1,
    "segment.bytes": 1,
    "segment.index.bytes": 4,
    "segment.ms": 1,
}
"""The smallest values of settings that are numbers, where that is not 0."""


def check_topic_configs(configs: Mapping[str, str | None]) -> None:
    """Raises `Refused` for a name that topics don't have, or a value that it can't have."""
    for name, value in configs.items():
        if name not in TOPIC_CONFIGS:
            raise Refused(errors.InvalidConfigError, f"Unknown topic config name: {name}")
        if value is None:
            raise Refused(errors.InvalidConfigError, f"Null value not supported for topic configs: {name}")
        if not _fits(name, value):
            raise Refused(errors.InvalidConfigError, f"Invalid value {value} for configuration {name}")


def _fits(name: str, value: str) -> bool:
    """Whether a value is of the setting's kind, which its default shows: a choice, a flag, a number, or any text."""
    if name in _CHOICES:
        return value in _CHOICES[name]
    kind = config_type(name)
    if kind == _BOOLEAN:
        return value.lower() in ("true", "false")
    if kind in (_STRING, _LIST):
        return True
    try:
        number = float(value) if kind == _DOUBLE else int(value)
    except ValueError:
        return False
    return _LEAST.get(name, 0) <= number <= (1 if kind == _DOUBLE else _MOST)


def log_limits(configs: Mapping[str, str], release: tuple[int, int]) -> LogLimits:
    """Returns the limits that a topic with these settings has. Before Kafka 4.0 timestamps in the future were taken."""
    defaults = dict(TOPIC_CONFIGS)
    if release < (4, 0):
        defaults["message.timestamp.after.max.ms"] = str(_MOST)
    found = {**defaults, **configs}
    policies = found["cleanup.policy"].split(",")
    return LogLimits(
        max_message_bytes=int(found["max.message.bytes"]),
        log_append_time=found["message.timestamp.type"] == "LogAppendTime",
        compacted="compact" in policies,
        timestamp_before_max_ms=int(found["message.timestamp.before.max.ms"]),
        timestamp_after_max_ms=int(found["message.timestamp.after.max.ms"]),
        retention=Retention(
            deletes="delete" in policies,
            retention_ms=int(found["retention.ms"]),
            retention_bytes=int(found["retention.bytes"]),
            segment_bytes=int(found["segment.bytes"]),
            segment_ms=int(found["segment.ms"]),
        ),
    )


def min_insync_replicas(configs: Mapping[str, str]) -> int:
    """Replicas that have to be alive for a write with acks=all."""
    return int({**TOPIC_CONFIGS, **configs}["min.insync.replicas"])
