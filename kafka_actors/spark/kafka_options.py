"""`kafka.*` options, as they stand in people's jobs, to a `ConsumerConfig`."""

from __future__ import annotations

from collections.abc import Mapping

from kafka_actors.config import MIB, ConsumerConfig, build
from kafka_actors.errors import ConfigError

PREFIX = "kafka."

# A task reads few partitions, mostly one: with Java's 1 MiB a response would be too small to be worth its round trip.
_MAX_PARTITION_FETCH_BYTES = 4 * MIB

_FORBIDDEN = {
    "auto.offset.reset": "is not supported: where to start is said by startingOffsets, and what happens to offsets "
    "that are gone by failOnDataLoss",
    "key.deserializer": "is not supported: keys are binary; cast or decode the column",
    "value.deserializer": "is not supported: values are binary; cast or decode the column",
    "enable.auto.commit": "is not supported: a batch read commits no offsets",
    "interceptor.classes": "is not supported: there is no JVM to run them in",
    "on.data.loss": "is not an option of Spark's source: failOnDataLoss is",
}

# Java's keys that ask for nothing here; a job that has them means no harm.
_WITHOUT_EFFECT = frozenset(
    {
        "allow.auto.create.topics",
        "auto.include.jmx.reporter",
        "client.dns.lookup",
        "config.providers",
        "default.api.timeout.ms",
        "enable.metrics.push",
        "group.id",
        "internal.leave.group.on.close",
        "max.poll.records",
        "metadata.recovery.rebootstrap.trigger.ms",
        "metadata.recovery.strategy",
        "metric.reporters",
        "metrics.num.samples",
        "metrics.recording.level",
        "metrics.sample.window.ms",
        "partition.assignment.strategy",
    }
)
_SYSTEM_DEFAULT = frozenset({"receive.buffer.bytes", "send.buffer.bytes"})  # -1 in Java


def consumer_config(options: Mapping[str, str]) -> tuple[ConsumerConfig, list[str]]:
    """The config, and the names of the options that have no effect.

    `options` holds the keys with the prefix. Raises `ConfigError`, which names the option as it was given.
    """
    taken: dict[str, str] = {}
    ignored: list[str] = []
    for name, value in options.items():
        key = name.removeprefix(PREFIX)
        if key in _FORBIDDEN:
            raise ConfigError(name, _FORBIDDEN[key])
        if key in _WITHOUT_EFFECT:
            ignored.append(name)
        elif not (key in _SYSTEM_DEFAULT and value.strip() == "-1"):
            taken[key] = value
    if not taken.get("bootstrap.servers", "").strip():
        raise ConfigError(PREFIX + "bootstrap.servers", "must be set, to host:port of one broker or more")
    taken.setdefault("max.partition.fetch.bytes", str(_MAX_PARTITION_FETCH_BYTES))
    try:
        # Positions that are lost are this source's to handle, so the fetch code only has to report them.
        return build(ConsumerConfig, taken, auto_offset_reset="earliest", on_data_loss="fail"), ignored
    except ConfigError as error:
        raise ConfigError(_as_given(error.option, options), error.message) from None


def _as_given(name: str, options: Mapping[str, str]) -> str:
    for option in options:
        if option.removeprefix(PREFIX).replace(".", "_") == name:
            return option
    return PREFIX + name.replace("_", ".")
