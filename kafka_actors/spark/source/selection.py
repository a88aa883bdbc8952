"""The topics, partitions and offsets that a query reads, as its options say them.

`{"orders": {"0": 23, "1": -2}}` names offsets or timestamps by partition, `{"orders": [0, 1]}` partitions alone:
the same JSON as in the options and checkpoints of Spark's own Kafka source."""

from __future__ import annotations

import re
from bisect import bisect_left
from collections.abc import Iterable
from typing import Annotated, ClassVar, TypeVar

from msgspec import Meta, Struct

from kafka_actors.base import decoders
from kafka_actors.base.topics import check_topics
from kafka_actors.cluster.snapshot import ClusterSnapshot
from kafka_actors.errors import ConfigError, KafkaError, UnknownTopicOrPartitionError, error_for_code
from kafka_actors.types import EARLIEST, LATEST, TopicPartition

from .data_source_options import LONG_MAX, CaseInsensitiveOptions
from .machines.offset_ranges import (
    Bound,
    CommittedBound,
    FixedBound,
    LogEnd,
    SpecificOffsets,
    SpecificTimestamps,
    at,
)

T = TypeVar("T")

_PartitionId = Annotated[int, Meta(ge=0, lt=2**31)]
_OFFSETS = '{"topic": {"0": 23, "1": -2}}'
_PARTITIONS = '{"topic": [0, 1]}'


def parse_offsets(option: str, text: str) -> dict[TopicPartition, int]:
    """Numbers by partition. Raises `ConfigError` for another form."""
    decoded = _decode(option, text, dict[str, dict[_PartitionId, int]], _OFFSETS)
    found: dict[TopicPartition, int] = {
        TopicPartition(topic, partition): number
        for topic, numbers in decoded.items()
        for partition, number in numbers.items()
    }
    return found


def parse_partitions(option: str, text: str) -> tuple[TopicPartition, ...]:
    """Partitions, sorted, each once. Raises `ConfigError` for another form and where there is none."""
    decoded = _decode(option, text, dict[str, list[_PartitionId]], _PARTITIONS)
    found = {TopicPartition(topic, p) for topic, partitions in decoded.items() for p in partitions}
    if not found:
        raise ConfigError(option, f"is {text!r}: names no partition; accepts JSON like {_PARTITIONS}")
    return tuple(sorted(found))


def _decode(option: str, text: str, form: type[T], example: str) -> T:
    try:
        return decoders.json(form).decode(text)
    except decoders.UNREADABLE as error:
        raise ConfigError(option, f"is {text!r}: accepts JSON like {example} ({error})") from None


_START = "startingOffsets"
_END = "endingOffsets"


def start_of(options: CaseInsensitiveOptions, *, streaming: bool) -> Bound:
    """Reads the start: by default the latest offsets in a stream, the earliest in a batch. Raises `ConfigError`."""
    timestamps = _timestamps(options, "startingTimestamp", "startingOffsetsByTimestamp")
    if timestamps is not None:
        return timestamps
    text = options.text(_START)
    word = ("latest" if streaming else "earliest") if text is None else text.lower()
    if word == "earliest":
        return LogEnd.EARLIEST
    if streaming:
        if word == "latest":
            return LogEnd.LATEST
        if word == "committed":
            return CommittedBound()
        return _offsets(_START, str(text), (EARLIEST, LATEST))
    if word == "latest":
        raise ConfigError(_START, "can't be 'latest' in a batch read: accepts 'earliest' or offsets as JSON")
    if word == "committed":
        raise ConfigError(
            _START, "can't be 'committed' in a batch read: accepts 'earliest' or offsets as JSON"
        )
    return _offsets(_START, str(text), (EARLIEST,))


def end_of(options: CaseInsensitiveOptions) -> FixedBound:
    """Reads the end of a batch: by default the latest offsets. Raises `ConfigError`."""
    timestamps = _timestamps(options, "endingTimestamp", "endingOffsetsByTimestamp")
    if timestamps is not None:
        return timestamps
    text = options.text(_END)
    if text is None or text.lower() == "latest":
        return LogEnd.LATEST
    if text.lower() == "earliest":
        raise ConfigError(_END, "can't be 'earliest' in a batch read: accepts 'latest' or offsets as JSON")
    return _offsets(_END, text, (LATEST,))


_MEANINGS = {EARLIEST: "earliest", LATEST: "latest"}


def _offsets(name: str, text: str, special: tuple[int, ...]) -> SpecificOffsets:
    offsets = parse_offsets(name, text)
    for tp, offset in offsets.items():
        if offset in _MEANINGS and offset not in special:
            raise ConfigError(
                name, f"has {offset} ({_MEANINGS[offset]}) for {at(tp)}: not possible in a batch read"
            )
        if offset < 0 and offset not in special:
            accepted = " or ".join(map(str, special))
            raise ConfigError(name, f"has {offset} for {at(tp)}: accepts offsets from 0 on, or {accepted}")
    return SpecificOffsets(name, offsets)


def _timestamps(
    options: CaseInsensitiveOptions, everywhere: str, by_partition: str
) -> SpecificTimestamps | None:
    """Reads timestamps, in Spark's order of precedence: one for all partitions, then those by partition, then offsets."""
    if (timestamp := options.number(everywhere, None, 0, LONG_MAX)) is not None:
        return SpecificTimestamps(everywhere, timestamp)
    if (text := options.text(by_partition)) is None:
        return None
    timestamps = parse_offsets(by_partition, text)
    for tp, timestamp in timestamps.items():
        if timestamp < 0:
            raise ConfigError(by_partition, f"has {timestamp} for {at(tp)}: accepts milliseconds since 1970")
    return SpecificTimestamps(by_partition, None, timestamps)


SELECTIONS = ("subscribe", "subscribePattern", "assign")


class SubscribeTopics(Struct, frozen=True):
    """Selects all partitions of these topics."""

    topics: tuple[str, ...]

    option: ClassVar[str] = "subscribe"

    def selects(self, tp: TopicPartition) -> bool:
        """Whether this partition is read, if it is there."""
        return tp.topic in self.topics


class SubscribePattern(Struct, frozen=True):
    """Selects all partitions of the topics whose whole name matches, without Kafka's internal topics."""

    pattern: str

    option: ClassVar[str] = "subscribePattern"

    def selects(self, tp: TopicPartition) -> bool:
        """Whether this partition is read, if it is there."""
        return re.fullmatch(self.pattern, tp.topic) is not None


class AssignPartitions(Struct, frozen=True):
    """Selects these partitions, which are sorted."""

    partitions: tuple[TopicPartition, ...]

    option: ClassVar[str] = "assign"

    def selects(self, tp: TopicPartition) -> bool:
        """Whether this partition is read, if it is there."""
        at = bisect_left(self.partitions, tp)
        return self.partitions[at : at + 1] == (tp,)


Selection = SubscribeTopics | SubscribePattern | AssignPartitions


def selection_of(options: CaseInsensitiveOptions) -> Selection:
    """Reads the selection. Raises `ConfigError` unless exactly one option selects, in its form."""
    chosen = options.present(SELECTIONS)
    if len(chosen) != 1:
        what = "are given together" if chosen else "are all missing"
        names = ", ".join(chosen or SELECTIONS)
        raise ConfigError(names, f"{what}: exactly one of {', '.join(SELECTIONS)} is needed")
    name = chosen[0]
    text = options.text(name) or ""
    if name == "assign":
        partitions = parse_partitions(name, text)
        _check_names(name, (tp.topic for tp in partitions))
        return AssignPartitions(partitions)
    if name == "subscribe":
        topics = dict.fromkeys(topic for part in text.split(",") if (topic := part.strip()))
        if not topics:
            raise ConfigError(name, f"is {text!r}: accepts topic names, separated by commas")
        _check_names(name, topics)
        return SubscribeTopics(tuple(topics))
    if not text:
        raise ConfigError(name, "is empty: accepts a regular expression for whole topic names")
    try:
        re.compile(text)
    except re.error as error:
        raise ConfigError(
            name, f"is {text!r}, which is not a regular expression of Python's: {error}"
        ) from None
    return SubscribePattern(text)


def _check_names(option: str, topics: Iterable[str]) -> None:
    try:
        check_topics(topics)
    except ConfigError as error:
        raise ConfigError(option, error.message) from None


def error_of_topic(snapshot: ClusterSnapshot, topic: str) -> KafkaError | None:
    """The error with which metadata leave out a topic that may well be there, such as one that may not be described; None for others."""
    code = snapshot.topic_error(topic)
    if code == UnknownTopicOrPartitionError.code or snapshot.partitions_for_topic(topic) is not None:
        return None
    return error_for_code(code, request="Metadata", topic=topic)
