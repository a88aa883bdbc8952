"""`kafka.*` options, as they stand in people's jobs, to a `ConsumerConfig`."""

from __future__ import annotations

from collections.abc import Container, Mapping

from msgspec import Struct

from kafka_actors.config import MIB, ConsumerConfig, build
from kafka_actors.errors import ConfigError

from .given import KAFKA

# A task reads few partitions, mostly one: with Java's 1 MiB a response would be too small to be worth its round trip.
_MAX_PARTITION_FETCH_BYTES = 4 * MIB

_FORBIDDEN = {
    "auto.offset.reset": "is not supported: where to start is said by startingOffsets, and what happens to offsets "
    "that are gone by failOnDataLoss",
    "key.deserializer": "is not supported: keys are binary; cast or decode the column",
    "value.deserializer": "is not supported: values are binary; cast or decode the column",
    "enable.auto.commit": "is not supported: offsets are committed by commitOffsets, once Spark has finished a batch",
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


class ClientOptions(Struct, frozen=True):
    """The `kafka.*` options as given, with their prefix; never shown, because there are passwords among them."""

    given: dict[str, str]

    def __repr__(self) -> str:
        return f"<ClientOptions {', '.join(sorted(self.given))}>"

    def consumer(self) -> ConsumerConfig:
        """The config of a consumer. Raises `ConfigError`, which names the option as it was given."""
        taken: dict[str, str] = {}
        for name, value in self.given.items():
            key = name.removeprefix(KAFKA)
            if key in _FORBIDDEN:
                raise ConfigError(name, _FORBIDDEN[key])
            if key not in _WITHOUT_EFFECT and not (key in _SYSTEM_DEFAULT and value.strip() == "-1"):
                taken[key] = value
        if not taken.get("bootstrap.servers", "").strip():
            raise ConfigError(KAFKA + "bootstrap.servers", "must be set, to host:port of one broker or more")
        taken.setdefault("max.partition.fetch.bytes", str(_MAX_PARTITION_FETCH_BYTES))
        try:
            # Positions that are lost are this source's to handle, so the fetch code only has to report them.
            return build(ConsumerConfig, taken, auto_offset_reset="earliest", on_data_loss="fail")
        except ConfigError as error:
            raise ConfigError(_as_given(error.option, self.given), error.message) from None

    def without_effect(self, used: Container[str] = ()) -> list[str]:
        """The names of those that mean nothing here, but in what `used` names."""
        return [
            name for name in self.given if name.removeprefix(KAFKA) in _WITHOUT_EFFECT and name not in used
        ]


def _as_given(name: str, options: Mapping[str, str]) -> str:
    for option in options:
        if option.removeprefix(KAFKA).replace(".", "_") == name:
            return option
    return KAFKA + name.replace("_", ".")
