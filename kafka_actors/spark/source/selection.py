"""Which topics and partitions are read: `subscribe`, `subscribePattern` or `assign`."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import ClassVar

from msgspec import Struct

from kafka_actors.base.topics import check_topics
from kafka_actors.errors import ConfigError
from kafka_actors.types import TopicPartition

from .case_insensitive import CaseInsensitiveOptions
from .offset_json import parse_partitions

SELECTIONS = ("subscribe", "subscribePattern", "assign")


class SubscribeTopics(Struct, frozen=True):
    """All partitions of these topics."""

    topics: tuple[str, ...]

    option: ClassVar[str] = "subscribe"

    def selects(self, tp: TopicPartition) -> bool:
        """Whether this partition is read, if it is there."""
        return tp.topic in self.topics


class SubscribePattern(Struct, frozen=True):
    """All partitions of the topics whose whole name matches; Kafka's internal topics are left out."""

    pattern: str

    option: ClassVar[str] = "subscribePattern"

    def selects(self, tp: TopicPartition) -> bool:
        """Whether this partition is read, if it is there."""
        return re.fullmatch(self.pattern, tp.topic) is not None


class AssignPartitions(Struct, frozen=True):
    """These partitions."""

    partitions: tuple[TopicPartition, ...]

    option: ClassVar[str] = "assign"

    def selects(self, tp: TopicPartition) -> bool:
        """Whether this partition is read, if it is there."""
        return tp in self.partitions


Selection = SubscribeTopics | SubscribePattern | AssignPartitions


def selection_of(given: CaseInsensitiveOptions) -> Selection:
    """What is selected. Raises `ConfigError` unless exactly one option says so, in its form."""
    chosen = given.present(SELECTIONS)
    if len(chosen) != 1:
        what = "are given together" if chosen else "are all missing"
        names = ", ".join(chosen or SELECTIONS)
        raise ConfigError(names, f"{what}: exactly one of {', '.join(SELECTIONS)} is needed")
    name = chosen[0]
    text = given.text(name) or ""
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
        raise ConfigError(name, f"is {text!r}: no regular expression of Python's: {error}") from None
    return SubscribePattern(text)


def _check_names(option: str, topics: Iterable[str]) -> None:
    try:
        check_topics(topics)
    except ConfigError as error:
        raise ConfigError(option, error.message) from None
