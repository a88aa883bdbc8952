"""Options of the data source as Spark passes them: case-insensitive names in lower case, values as text.

`CaseInsensitiveOptions` has them by their documented names, and refuses unknown ones. `ClientOptions` are the `kafka.*` ones
among them, named as in Java, which become the config of a consumer or a producer.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Container, Iterable, Mapping
from typing import Any, Literal, TypeVar

from msgspec import Struct

from kafka_actors.config import ClientConfig, ConsumerConfig, ProducerConfig, build
from kafka_actors.config.java import from_java, without_effect
from kafka_actors.config.references import resolve, trimmed
from kafka_actors.errors import ConfigError
from kafka_actors.options import MIB

KAFKA = "kafka."
"""Prefix of the options of the Kafka client."""

TRANSACTION_TIMEOUT_MS = 900_000
"""Longest transaction of a task, unless `kafka.transaction.timeout.ms` says otherwise: the brokers' default of `transaction.max.timeout.ms`."""

INT_MAX = 2**31 - 1
LONG_MAX = 2**63 - 1

# Options that Spark's catalog adds to those of a table (CREATE TABLE … USING kafka_actors), which it also repeats under
# a prefix; and options that Spark passes to a streaming write.
_OF_TABLE_OPTIONS = "option."
_OF_SPARK = frozenset(
    {
        "checkpointlocation",
        "collation",
        "comment",
        "external",
        "is_managed_location",
        "location",
        "owner",
        "provider",
        "queryname",
    }
)
# Options that name topics elsewhere: in the other direction, or in `.load(path)` and `.save(path)`.
_OF_TOPICS = ("path", "topic", "topics", "subscribe")
_UNITS_MS = {"us": 0.001, "ms": 1, "s": 1_000, "m": 60_000, "min": 60_000, "h": 3_600_000, "d": 86_400_000}


class CaseInsensitiveOptions:
    """Options by documented name. Raises `ConfigError` for one that is not among `names`."""

    def __init__(self, options: Mapping[str, str], names: Iterable[str]) -> None:
        documented = {name.lower(): name for name in names}
        self.kafka: dict[str, str] = {}
        """Options of the Kafka client, with their prefix."""
        self._own: dict[str, str] = {}
        for name, value in options.items():
            lower = name.lower().removeprefix(_OF_TABLE_OPTIONS)
            if lower.startswith(KAFKA):
                self.kafka[lower] = value
            elif lower in documented:
                self._own[documented[lower]] = value
            elif lower not in _OF_SPARK:
                raise ConfigError(name, "is not an option" + _suggestion(lower, documented))

    def present(self, names: Iterable[str]) -> list[str]:
        """The names among these that have a value."""
        return [name for name in names if name in self._own]

    def text(self, name: str) -> str | None:
        """The stripped value, None for a missing option."""
        value = self._own.get(name)
        return None if value is None else value.strip()

    def boolean(self, name: str, default: bool) -> bool:
        """A boolean. Raises `ConfigError` for another value."""
        return self.choice(name, ("true", "false"), str(default).lower()) == "true"

    def choice(self, name: str, accepted: tuple[str, ...], default: str) -> str:
        """Returns one of the `accepted` words, in lower case. Raises `ConfigError` for another value."""
        text = self.text(name)
        value = default if text is None else text.lower()
        if value not in accepted:
            listed = " or ".join(repr(choice) for choice in accepted)
            raise ConfigError(name, f"is {self._own[name]!r}: accepts {listed}")
        return value

    def number(self, name: str, default: int | None, lowest: int, highest: int) -> int | None:
        """A whole number between these bounds. Raises `ConfigError` for another value."""
        text = self.text(name)
        if text is None:
            return default
        if not re.fullmatch(r"[+-]?[0-9]{1,19}", text) or not lowest <= int(text) <= highest:
            raise ConfigError(name, f"is {text!r}: accepts a whole number from {lowest} to {highest}")
        return int(text)

    def duration_ms(self, name: str, default: int) -> int:
        """A duration as Spark's settings have them, such as 500ms or 15m; without a unit milliseconds.

        Raises `ConfigError` for another value.
        """
        text = self.text(name)
        if text is None:
            return default
        match = re.fullmatch(r"([0-9]{1,18})\s*([a-z]*)", text.lower())
        unit = _UNITS_MS.get(match[2] or "ms") if match else None
        if match is None or unit is None:
            raise ConfigError(
                name, f"is {text!r}: accepts a duration such as 500ms, 30s or 15m (us, ms, s, m, min, h, d)"
            )
        return int(int(match[1]) * unit)


def _suggestion(name: str, documented: Mapping[str, str]) -> str:
    if name in _OF_TOPICS:
        return f"; topics are named by {'subscribe' if 'subscribe' in documented else 'topic'}"
    if (guess := difflib.get_close_matches(name, documented, n=1)) and guess[0] != name:
        return f"; did you mean {documented[guess[0]]!r}?"
    return f"; options of the Kafka client start with {KAFKA!r}" if "." in name else ""


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
        "value.deserializer": "is not supported: values are binary; say decode, or cast the column",
        "enable.auto.commit": "is not supported: offsets are committed by commitOffsets, once Spark has finished a batch",
        "interceptor.classes": _NO_JVM,
        "on.data.loss": "is not an option of Spark's source: failOnDataLoss is",
    },
    "producer": {
        "key.serializer": "is not supported: keys are strings or binary; encode the column",
        "value.serializer": "is not supported: values are strings or binary; encode the column",
        "interceptor.classes": _NO_JVM,
        "partitioner.class": _NO_JVM + "; the column partition says where a row goes",
        "transactional.id": "is not supported: .options(**kafka_actors.spark.transactional(df)) gives each task one of its own",
    },
}

# Options of other clients of ours without effect here, where Spark decides what is read, when, and how often it is retried.
_WITHOUT_EFFECT = ("group.id", "partition.assignment.strategy", "retries")


class ClientOptions(Struct, frozen=True):
    """`kafka.*` options of the user's, with their prefix. Values are never shown, because there are passwords among them.

    References such as `${env:…}` and `${file:…}` are resolved in the process that makes a client, so secrets are not sent
    to other processes.
    """

    options: dict[str, str]
    kind: Kind = "consumer"

    def __repr__(self) -> str:
        return f"<ClientOptions of a {self.kind}: {', '.join(sorted(self.options))}>"

    @property
    def key(self) -> tuple[tuple[str, str], ...]:
        """A key that is equal for equal options."""
        return tuple(sorted(self.options.items()))

    def consumer(self) -> ConsumerConfig:
        """The config of a consumer. Raises `ConfigError`, which names the option as it was given."""
        effective = self._effective()
        effective.setdefault("max_partition_fetch_bytes", str(_MAX_PARTITION_FETCH_BYTES))
        # This source handles lost positions itself, so the fetch code only reports them.
        return self._build(ConsumerConfig, effective, auto_offset_reset="earliest", on_data_loss="fail")

    def producer(self, transactional_id: str | None = None) -> ProducerConfig:
        """The config of a producer, with transactions where there is an id. Raises `ConfigError`, which names the option as it was given."""
        effective = self._effective()
        if transactional_id is not None:
            effective.setdefault("transaction_timeout_ms", str(TRANSACTION_TIMEOUT_MS))
            return self._build(ProducerConfig, effective, transactional_id=transactional_id)
        if effective.get("acks", "all").strip().lower() not in ("all", "-1"):
            effective.setdefault("enable_idempotence", "false")  # as in Java
        return self._build(ProducerConfig, effective)

    def without_effect(self, used: Container[str] = ()) -> list[str]:
        """The names of options without effect here, except those in `used`."""
        return [name for name in self.options if self._ignores(name) and name not in used]

    def _ignores(self, name: str) -> bool:
        """Whether an option is ignored, such as one of the other kind of client: as in Java, one set of options serves both."""
        key = name.removeprefix(KAFKA)
        field = key.replace(".", "_")
        others = {f for config in _CONFIGS.values() for f in config.__struct_fields__}
        foreign = field in others and field not in _CONFIGS[self.kind].__struct_fields__
        return foreign or key in _WITHOUT_EFFECT or without_effect(field)

    def _effective(self) -> dict[str, str]:
        effective: dict[str, str] = {}
        for name, value in self.options.items():
            key = name.removeprefix(KAFKA)
            if key in _FORBIDDEN[self.kind]:
                raise ConfigError(name, _FORBIDDEN[self.kind][key])
            if not self._ignores(name):
                field = key.replace(".", "_")
                effective[field] = value if field == "sasl_identity" else trimmed(resolve(name, value))
        if not effective.get("bootstrap_servers", "").strip():
            raise ConfigError(KAFKA + "bootstrap.servers", "must be set, to host:port of one broker or more")
        return effective

    def _build(self, kind: type[C], effective: Mapping[str, str], **explicit: Any) -> C:
        origins: dict[str, str] = {}
        try:
            options, origins = from_java(effective)
            return build(kind, options, **explicit)
        except ConfigError as error:
            name = origins.get(error.option, error.option)
            raise ConfigError(_users_name(name, self.options), _suggesting(error.message)) from None


def _users_name(name: str, options: Mapping[str, str]) -> str:
    for option in options:
        if option.removeprefix(KAFKA).replace(".", "_") == name:
            return option
    return KAFKA + name.replace("_", ".")


def _suggesting(message: str) -> str:
    """The message, in which a suggested name has the form that it has among Spark's options."""
    return re.sub(
        r"did you mean '(\w+)'", lambda found: f"did you mean '{KAFKA}{found[1].replace('_', '.')}'", message
    )
