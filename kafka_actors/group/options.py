"""Options of a coordinator: from Kafka's names, in milliseconds, to the `GroupConfig` of its machines."""

from __future__ import annotations

import uuid
from collections.abc import Iterable, Mapping
from typing import Any

import assignors
from kafka_actors.config import ConsumerConfig, build
from kafka_actors.errors import ConfigError

from .machines.embedded_protocol import GroupConfig

FROM_CONFIG: Any = object()
"""The default of arguments that are taken from the config where they aren't given: None has another meaning there."""

GROUP_OPTIONS = (
    "client_id",
    "group_id",
    "session_timeout_ms",
    "heartbeat_interval_ms",
    "request_timeout_ms",
    "retry_backoff_ms",
    "retry_backoff_max_ms",
)
CONSUMER_OPTIONS = (
    *GROUP_OPTIONS,
    "partition_assignment_strategy",
    "enable_auto_commit",
    "auto_commit_interval_ms",
    "exclude_internal_topics",
    "client_rack",
    "on_data_loss",
)


def defaults_of(names: Iterable[str]) -> dict[str, Any]:
    """Returns the defaults that these options have in `ConsumerConfig`."""
    defaults = ConsumerConfig()
    return {name: getattr(defaults, name) for name in names}


def read_options(
    config: ConsumerConfig | None, options: Mapping[str, Any], accepted: Iterable[str], owner: str
) -> ConsumerConfig:
    """Returns the config, or one made of single options. Raises `ConfigError` for both, and for an option without a meaning here."""
    if config is not None:
        if options:
            raise ConfigError(next(iter(options)), f"give {owner} a config or single options, not both")
        return config
    options = dict(options)
    if options.get("api_version", 0) is None:
        del options["api_version"]  # the page's name: probed, which is what a client does by default
    if "assignors" in options:  # the name of kafka-python's coordinator
        options.setdefault("partition_assignment_strategy", options.pop("assignors"))
    for name in options:
        if name == "api_version":
            raise ConfigError(name, "is the client's: give it to the KafkaClient, whose connections are used")
        if name not in accepted:
            raise ConfigError(name, f"is no option of {owner}; these are: {', '.join(accepted)}")
    return build(ConsumerConfig, options)


def group_config(
    config: ConsumerConfig,
    *,
    group_instance_id: str | None = FROM_CONFIG,
    rebalance_timeout_ms: int | None = None,
    revoke_timeout_ms: int | None = None,
    max_poll_interval_ms: int | None = FROM_CONFIG,
    incarnation: int | None = None,
) -> GroupConfig:
    """Returns the options of a member's machine. Raises `ConfigError` for a missing group_id. Defaults: see `BaseCoordinator`."""
    if config.group_id is None:
        raise ConfigError("group_id", "is missing: a member needs a group, and so do committed offsets")
    instance_id = config.group_instance_id if group_instance_id is FROM_CONFIG else group_instance_id
    if instance_id == "auto":
        instance_id = f"{config.group_id}-{uuid.uuid4()}"
    interval = config.max_poll_interval_ms if max_poll_interval_ms is FROM_CONFIG else max_poll_interval_ms
    rebalance_ms = rebalance_timeout_ms or interval or config.max_poll_interval_ms
    session, heartbeat = config.session_timeout_ms / 1000, config.heartbeat_interval_ms / 1000
    names = [a if isinstance(a, str) else getattr(a, "name", a) for a in config.partition_assignment_strategy]
    return GroupConfig(
        group_id=config.group_id,
        group_instance_id=instance_id,
        session_timeout=session,
        heartbeat_interval=heartbeat,
        # A coordinator that answers no heartbeat is given up while there is time to find another one.
        heartbeat_timeout=max(session / 5, heartbeat),
        rebalance_timeout=rebalance_ms / 1000,
        revoke_timeout=(rebalance_ms / 2 if revoke_timeout_ms is None else revoke_timeout_ms) / 1000,
        request_timeout=config.request_timeout_ms / 1000,
        retry_backoff=config.retry_backoff_ms / 1000,
        retry_backoff_max=config.retry_backoff_max_ms / 1000,
        max_poll_interval=None if interval is None else interval / 1000,
        describe_strategy=repr(names),
        incarnation=incarnation if instance_id is None else None,
    )


def read_strategies(config: ConsumerConfig) -> list[assignors.Assignor]:
    """Returns the assignors that the config names. Raises `ConfigError` for an unknown one."""
    try:
        return [assignors.get(name) for name in config.partition_assignment_strategy]
    except (ValueError, TypeError) as error:
        raise ConfigError("partition_assignment_strategy", str(error)) from None
