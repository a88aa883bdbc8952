"""The options of the batch source: names, defaults and refusals of Spark's own Kafka source.

`parse_batch` checks all that can be checked without a broker. Names are case-insensitive; Spark hands them over in
lower case, errors give them as they are documented.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable, Mapping
from typing import Literal

from msgspec import Struct

from kafka_actors.cluster.subscription import check_topics
from kafka_actors.config import ConsumerConfig
from kafka_actors.errors import ConfigError
from kafka_actors.protocol.types import TopicPartition

from .kafka_options import PREFIX, consumer_config
from .offsets import EARLIEST, LATEST, Bound, End, Offsets, Timestamps, parse_offsets, parse_partitions

_STREAMING_ONLY = ("maxOffsetsPerTrigger", "minOffsetsPerTrigger", "maxTriggerDelay")
_WITHOUT_EFFECT = ("groupIdPrefix",)  # nothing here joins or names a group
# What Spark's catalog adds by itself to the options of a table (CREATE TABLE … USING kafka_actors); it gives the
# table's own options as well, once more under a prefix.
_OF_TABLE_OPTIONS = "option."
_OF_TABLES = frozenset(
    {"collation", "comment", "external", "is_managed_location", "location", "owner", "provider"}
)
_NAMES = (
    "subscribe",
    "subscribePattern",
    "assign",
    "startingOffsets",
    "startingTimestamp",
    "startingOffsetsByTimestamp",
    "startingOffsetsByTimestampStrategy",
    "endingOffsets",
    "endingTimestamp",
    "endingOffsetsByTimestamp",
    "failOnDataLoss",
    "minPartitions",
    "maxRecordsPerPartition",
    "includeHeaders",
    "kafkaConsumer.pollTimeoutMs",
    "fetchOffset.numRetries",
    "fetchOffset.retryIntervalMs",
    *_STREAMING_ONLY,
    *_WITHOUT_EFFECT,
)
_DOCUMENTED = {name.lower(): name for name in _NAMES}
_SELECTIONS = ("subscribe", "subscribePattern", "assign")
_INT_MAX = 2**31 - 1
_LONG_MAX = 2**63 - 1


class Subscribe(Struct, frozen=True):
    """All partitions of these topics."""

    topics: tuple[str, ...]


class Pattern(Struct, frozen=True):
    """All partitions of the topics whose whole name matches; Kafka's internal topics are left out."""

    pattern: str


class Assign(Struct, frozen=True):
    """These partitions."""

    partitions: tuple[TopicPartition, ...]


Selection = Subscribe | Pattern | Assign


class BatchOptions(Struct, frozen=True, kw_only=True):
    """The options of one batch read, checked. `notes` are for the log: options that have no effect."""

    consumer: ConsumerConfig
    selection: Selection
    start: Bound = End.EARLIEST
    end: Bound = End.LATEST
    no_match: Literal["error", "latest"] = "error"
    fail_on_data_loss: bool = True
    min_partitions: int | None = None
    max_records_per_partition: int | None = None
    include_headers: bool = False
    poll_timeout_ms: int = 120_000
    lookup_retries: int = 3
    lookup_retry_interval_ms: int = 10
    notes: tuple[str, ...] = ()

    @property
    def selected_by(self) -> str:
        """The name of the option that selects."""
        kinds = {Subscribe: "subscribe", Pattern: "subscribePattern", Assign: "assign"}
        return kinds[type(self.selection)]


def parse_batch(options: Mapping[str, str]) -> BatchOptions:
    """Checks the options of a batch read. Raises `ConfigError` with the option's name and what it accepts."""
    given = _Given(options)
    consumer, ignored = consumer_config(given.kafka)
    notes = [f"{name} has no effect: no group is joined" for name in given.present(_WITHOUT_EFFECT)]
    notes += [f"{name} has no effect in a batch read" for name in given.present(_STREAMING_ONLY)]
    notes += [f"{name} has no effect here" for name in ignored]
    no_match = given.choice("startingOffsetsByTimestampStrategy", ("error", "latest"), "error")
    parsed = BatchOptions(
        consumer=consumer,
        selection=_selection(given),
        start=_start(given),
        end=_end(given),
        no_match="latest" if no_match == "latest" else "error",
        fail_on_data_loss=given.boolean("failOnDataLoss", True),
        min_partitions=given.number("minPartitions", None, 1, _INT_MAX),
        max_records_per_partition=given.number("maxRecordsPerPartition", None, 1, _LONG_MAX),
        include_headers=given.boolean("includeHeaders", False),
        poll_timeout_ms=given.number("kafkaConsumer.pollTimeoutMs", 120_000, 1, _LONG_MAX) or 0,
        lookup_retries=given.number("fetchOffset.numRetries", 3, 0, _INT_MAX) or 0,
        lookup_retry_interval_ms=given.number("fetchOffset.retryIntervalMs", 10, 0, _LONG_MAX) or 0,
        notes=tuple(notes),
    )
    _check_order(parsed)
    return parsed


class _Given:
    """The options as given, by documented name."""

    def __init__(self, options: Mapping[str, str]) -> None:
        self.kafka: dict[str, str] = {}
        self._own: dict[str, str] = {}
        for name, value in options.items():
            lower = name.lower().removeprefix(_OF_TABLE_OPTIONS)
            if lower.startswith(PREFIX):
                self.kafka[lower] = value
            elif lower in _DOCUMENTED:
                self._own[_DOCUMENTED[lower]] = value
            elif lower not in _OF_TABLES:
                raise ConfigError(name, "is not an option" + _suggestion(lower))

    def present(self, names: tuple[str, ...]) -> list[str]:
        return [name for name in names if name in self._own]

    def text(self, name: str) -> str | None:
        value = self._own.get(name)
        return None if value is None else value.strip()

    def boolean(self, name: str, default: bool) -> bool:
        return self.choice(name, ("true", "false"), str(default).lower()) == "true"

    def choice(self, name: str, accepted: tuple[str, ...], default: str) -> str:
        text = self.text(name)
        value = default if text is None else text.lower()
        if value not in accepted:
            listed = " or ".join(repr(choice) for choice in accepted)
            raise ConfigError(name, f"is {self._own[name]!r}: accepts {listed}")
        return value

    def number(self, name: str, default: int | None, lowest: int, highest: int) -> int | None:
        text = self.text(name)
        if text is None:
            return default
        if not re.fullmatch(r"[+-]?[0-9]{1,19}", text) or not lowest <= int(text) <= highest:
            raise ConfigError(name, f"is {text!r}: accepts a whole number from {lowest} to {highest}")
        return int(text)


def _suggestion(name: str) -> str:
    if (guess := difflib.get_close_matches(name, _DOCUMENTED, n=1)) and guess[0] != name:
        return f"; did you mean {_DOCUMENTED[guess[0]]!r}?"
    return f"; options of the Kafka client start with {PREFIX!r}" if "." in name else ""


def _selection(given: _Given) -> Selection:
    chosen = given.present(_SELECTIONS)
    if len(chosen) != 1:
        what = "are given together" if chosen else "are all missing"
        names = ", ".join(chosen or _SELECTIONS)
        raise ConfigError(names, f"{what}: exactly one of {', '.join(_SELECTIONS)} is needed")
    name = chosen[0]
    text = given.text(name) or ""
    if name == "assign":
        partitions = parse_partitions(name, text)
        _check_names(name, (tp.topic for tp in partitions))
        return Assign(partitions)
    if name == "subscribe":
        topics = dict.fromkeys(topic for part in text.split(",") if (topic := part.strip()))
        if not topics:
            raise ConfigError(name, f"is {text!r}: accepts topic names, separated by commas")
        _check_names(name, topics)
        return Subscribe(tuple(topics))
    if not text:
        raise ConfigError(name, "is empty: accepts a regular expression for whole topic names")
    try:
        re.compile(text)
    except re.error as error:
        raise ConfigError(name, f"is {text!r}: no regular expression of Python's: {error}") from None
    return Pattern(text)


def _check_names(option: str, topics: Iterable[str]) -> None:
    try:
        check_topics(topics)
    except ConfigError as error:
        raise ConfigError(option, error.message) from None


def _start(given: _Given) -> Bound:
    timestamps = _timestamps(given, "startingTimestamp", "startingOffsetsByTimestamp")
    if timestamps is not None:
        return timestamps
    name = "startingOffsets"
    text = given.text(name)
    if text is None or text.lower() == "earliest":
        return End.EARLIEST
    if text.lower() == "latest":
        raise ConfigError(name, "can't be 'latest' in a batch read: accepts 'earliest' or offsets as JSON")
    return _offsets(name, text, LATEST, "latest", EARLIEST)


def _end(given: _Given) -> Bound:
    timestamps = _timestamps(given, "endingTimestamp", "endingOffsetsByTimestamp")
    if timestamps is not None:
        return timestamps
    name = "endingOffsets"
    text = given.text(name)
    if text is None or text.lower() == "latest":
        return End.LATEST
    if text.lower() == "earliest":
        raise ConfigError(name, "can't be 'earliest' in a batch read: accepts 'latest' or offsets as JSON")
    return _offsets(name, text, EARLIEST, "earliest", LATEST)


def _offsets(name: str, text: str, refused: int, meaning: str, special: int) -> Offsets:
    offsets = parse_offsets(name, text)
    for tp, offset in offsets.items():
        if offset == refused:
            raise ConfigError(name, f"has {offset} ({meaning}) for {_at(tp)}: not possible in a batch read")
        if offset < 0 and offset != special:
            raise ConfigError(name, f"has {offset} for {_at(tp)}: accepts offsets from 0 on, or {special}")
    return Offsets(name, offsets)


def _timestamps(given: _Given, everywhere: str, by_partition: str) -> Timestamps | None:
    """Spark's order: the one timestamp for all wins over those by partition, and these over offsets."""
    if (timestamp := given.number(everywhere, None, 0, _LONG_MAX)) is not None:
        return Timestamps(everywhere, timestamp)
    if (text := given.text(by_partition)) is None:
        return None
    timestamps = parse_offsets(by_partition, text)
    for tp, timestamp in timestamps.items():
        if timestamp < 0:
            raise ConfigError(by_partition, f"has {timestamp} for {_at(tp)}: accepts milliseconds since 1970")
    return Timestamps(by_partition, None, timestamps)


def _check_order(options: BatchOptions) -> None:
    start, end = options.start, options.end
    if not isinstance(start, Offsets) or not isinstance(end, Offsets):
        return
    for tp, first in start.by_partition.items():
        last = end.by_partition.get(tp, LATEST)
        if 0 <= last < first:
            raise ConfigError(end.option, f"has {last} for {_at(tp)}, below its {start.option}, {first}")


def _at(tp: TopicPartition) -> str:
    return f"{tp.topic}-{tp.partition}"
