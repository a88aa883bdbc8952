"""Settings of the brokers and of topics, by Kafka's names."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec
from msgspec import Struct

from kafka_actors import errors
from kafka_actors.base import decoders

from .error_answers import Refused
from .partition_log import LogLimits

_MOST = 2**63 - 1


class FakeBrokerSettings(Struct, frozen=True):
    """Settings of all brokers: `server.properties` with underscores in place of dots. Defaults are Kafka's, but for two that
    `KafkaCluster` sets too: no delay before a group's first rebalance, and sessions of one second are allowed."""

    auto_create_topics_enable: bool = False
    default_replication_factor: int = 1
    delete_topic_enable: bool = True
    fetch_max_bytes: int = 57_671_680
    group_initial_rebalance_delay_ms: int = 0
    group_max_session_timeout_ms: int = 1_800_000
    group_max_size: int = 2**31 - 1
    group_min_session_timeout_ms: int = 1_000
    max_incremental_fetch_session_cache_slots: int = 1_000
    num_partitions: int = 1
    offset_metadata_max_bytes: int = 4_096
    offsets_retention_check_interval_ms: int = 600_000
    offsets_retention_minutes: int = 10_080
    offsets_topic_num_partitions: int = 50
    producer_id_expiration_check_interval_ms: int = 600_000
    producer_id_expiration_ms: int = 86_400_000


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

_CHOICES = {
    "cleanup.policy": {"compact", "delete", "compact,delete", "delete,compact", ""},
    "compression.type": {"uncompressed", "zstd", "lz4", "snappy", "gzip", "producer"},
    "message.timestamp.type": {"CreateTime", "LogAppendTime"},
}


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
    if name in _CHOICES:
        return value in _CHOICES[name]
    default = TOPIC_CONFIGS[name]
    if default in ("true", "false"):
        return value.lower() in ("true", "false")
    if not default.lstrip("-").replace(".", "").isdigit():
        return True
    try:
        return float(value) >= (1 if name == "min.insync.replicas" else -2)
    except ValueError:
        return False


def log_limits(configs: Mapping[str, str], release: tuple[int, int]) -> LogLimits:
    """Returns the limits that a topic with these settings has. Before Kafka 4.0 timestamps in the future were taken."""
    defaults = dict(TOPIC_CONFIGS)
    if release < (4, 0):
        defaults["message.timestamp.after.max.ms"] = str(_MOST)
    found = {**defaults, **configs}
    return LogLimits(
        max_message_bytes=int(found["max.message.bytes"]),
        log_append_time=found["message.timestamp.type"] == "LogAppendTime",
        compacted="compact" in found["cleanup.policy"].split(","),
        timestamp_before_max_ms=int(found["message.timestamp.before.max.ms"]),
        timestamp_after_max_ms=int(found["message.timestamp.after.max.ms"]),
    )


def min_insync_replicas(configs: Mapping[str, str]) -> int:
    """Replicas that have to be alive for a write with acks=all."""
    return int({**TOPIC_CONFIGS, **configs}["min.insync.replicas"])
