"""Client options: `kafka.*` options, named as in Java, become the config of a consumer or a producer."""

from __future__ import annotations

import re
from collections.abc import Container, Mapping
from typing import Any, Literal, TypeVar

from msgspec import Struct

from kafka_actors.config import ClientConfig, ConsumerConfig, ProducerConfig, build
from kafka_actors.config.java import from_java, without_effect
from kafka_actors.config.references import resolve
from kafka_actors.errors import ConfigError
from kafka_actors.options import MIB

from .case_insensitive import KAFKA

C = TypeVar("C", bound=ClientConfig)

# A task reads few partitions, mostly one: with Java's 1 MiB per partition a response would not be worth its round trip.
_MAX_PARTITION_FETCH_BYTES = 4 * MIB

Kind = Literal["consumer", "producer"]
_CONFIGS: dict[Kind, type[ClientConfig]] = {"consumer": ConsumerConfig, "producer": ProducerConfig}
_NO_JVM = "is not supported: there is no JVM to run it in"
_FORBIDDEN: dict[Kind, dict[str, str]] = {
    "consumer": {
        "auto.offset.reset": "is not supported: startingOffsets says where to start, and failOnDataLoss what happens to offsets "
        "that are gone",
        "key.deserializer": "is not supported: keys are binary; cast or decode the column",
        "value.deserializer": "is not supported: values are binary; cast or decode the column",
        "enable.auto.commit": "is not supported: offsets are committed by commitOffsets, once Spark has finished a batch",
        "interceptor.classes": _NO_JVM,
        "on.data.loss": "is not an option of Spark's source: failOnDataLoss is",
    },
    "producer": {
        "key.serializer": "is not supported: keys are strings or binary; encode the column",
        "value.serializer": "is not supported: values are strings or binary; encode the column",
        "interceptor.classes": _NO_JVM,
        "partitioner.class": _NO_JVM + "; the column partition says where a row goes",
        "transactional.id": "is not supported so far: rows are written at least once, each try of a task exactly once",
    },
}

# Options of other clients of ours without effect here, where Spark decides what is read, when, and how often it is retried.
_WITHOUT_EFFECT = ("group.id", "partition.assignment.strategy", "retries")


class ClientOptions(Struct, frozen=True):
    """`kafka.*` options of the user's, with their prefix. Values are never shown, because there are passwords among them.

    References such as `${env:…}` and `${file:…}` are resolved in the process that makes a client, so secrets are not sent
    to other processes.
    """

    given: dict[str, str]
    kind: Kind = "consumer"

    def __repr__(self) -> str:
        return f"<ClientOptions of a {self.kind}: {', '.join(sorted(self.given))}>"

    @property
    def key(self) -> tuple[tuple[str, str], ...]:
        """A key that is equal for equal options."""
        return tuple(sorted(self.given.items()))

    def consumer(self) -> ConsumerConfig:
        """The config of a consumer. Raises `ConfigError`, which names the option as it was given."""
        taken = self._taken()
        taken.setdefault("max_partition_fetch_bytes", str(_MAX_PARTITION_FETCH_BYTES))
        # This source handles lost positions itself, so the fetch code only reports them.
        return self._build(ConsumerConfig, taken, auto_offset_reset="earliest", on_data_loss="fail")

    def producer(self) -> ProducerConfig:
        """The config of a producer. Raises `ConfigError`, which names the option as it was given."""
        taken = self._taken()
        if taken.get("acks", "all").strip().lower() not in ("all", "-1"):
            taken.setdefault("enable_idempotence", "false")  # as in Java
        return self._build(ProducerConfig, taken)

    def without_effect(self, used: Container[str] = ()) -> list[str]:
        """The names of options without effect here, except those in `used`."""
        return [name for name in self.given if self._ignores(name) and name not in used]

    def _ignores(self, name: str) -> bool:
        """Whether an option is ignored, such as one of the other kind of client: as in Java, one set of options serves both."""
        key = name.removeprefix(KAFKA)
        field = key.replace(".", "_")
        others = {f for config in _CONFIGS.values() for f in config.__struct_fields__}
        foreign = field in others and field not in _CONFIGS[self.kind].__struct_fields__
        return foreign or key in _WITHOUT_EFFECT or without_effect(field)

    def _taken(self) -> dict[str, str]:
        taken: dict[str, str] = {}
        for name, value in self.given.items():
            key = name.removeprefix(KAFKA)
            if key in _FORBIDDEN[self.kind]:
                raise ConfigError(name, _FORBIDDEN[self.kind][key])
            if not self._ignores(name):
                field = key.replace(".", "_")
                taken[field] = value if field == "sasl_identity" else resolve(name, value)
        if not taken.get("bootstrap_servers", "").strip():
            raise ConfigError(KAFKA + "bootstrap.servers", "must be set, to host:port of one broker or more")
        return taken

    def _build(self, kind: type[C], taken: Mapping[str, str], **explicit: Any) -> C:
        origins: dict[str, str] = {}
        try:
            options, origins = from_java(taken)
            return build(kind, options, **explicit)
        except ConfigError as error:
            name = origins.get(error.option, error.option)
            raise ConfigError(_as_given(name, self.given), _suggesting(error.message)) from None


def _as_given(name: str, options: Mapping[str, str]) -> str:
    for option in options:
        if option.removeprefix(KAFKA).replace(".", "_") == name:
            return option
    return KAFKA + name.replace("_", ".")


def _suggesting(message: str) -> str:
    """The message, in which a suggested name has the form that it has among Spark's options."""
    return re.sub(
        r"did you mean '(\w+)'", lambda found: f"did you mean '{KAFKA}{found[1].replace('_', '.')}'", message
    )
