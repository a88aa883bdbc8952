"""Checks of topic names and patterns, as Kafka does them (`Topic.validate`), before anything connects."""

from __future__ import annotations

import re
from collections.abc import Iterable

from kafka_actors.errors import ConfigError, kind_of

__all__ = [
    "check_dlq_topic",
    "check_pattern",
    "check_results",
    "check_retry_topic",
    "check_topic",
    "check_topics",
]

_LEGAL_TOPIC = re.compile(r"[a-zA-Z0-9._-]{1,249}")


def check_topics(topics: Iterable[str] | None) -> frozenset[str]:
    """Checks a list of topic names. Raises `ConfigError`."""
    if topics is None or isinstance(topics, str | bytes) or not isinstance(topics, Iterable):
        raise ConfigError("topics", f"is {topics!r}, {kind_of(topics)}: accepts a list of topic names")
    return frozenset(check_topic(name) for name in topics)


def check_topic(name: object, option: str = "topics") -> str:
    """Checks one topic name. Raises `ConfigError` for `option`."""
    if isinstance(name, str) and "," in name:
        raise ConfigError(option, f"has {name!r}: several topics are a list, {name.split(',')!r}")
    if not isinstance(name, str) or _LEGAL_TOPIC.fullmatch(name) is None or name in (".", ".."):
        raise ConfigError(
            option, f"has {name!r}: a topic's name has 1 to 249 of the characters a-z A-Z 0-9 . _ -"
        )
    return name


def check_pattern(pattern: str | re.Pattern[str]) -> re.Pattern[str]:
    """Compiles a pattern. Raises `ConfigError` for anything but a regular expression over text."""
    text = pattern.pattern if isinstance(pattern, re.Pattern) else pattern
    if not isinstance(text, str):
        raise ConfigError(
            "pattern", f"is {pattern!r}, {kind_of(pattern)}: accepts a regular expression, a str"
        )
    try:
        return re.compile(pattern)
    except re.error as error:
        raise ConfigError("pattern", f"is {pattern!r}, not a regular expression: {error}") from None


def check_dlq_topic(topic: str, option: str, topics: Iterable[str] | None, pattern: str | None) -> None:
    """Checks that the dead letter topic is not among the topics that are read. Raises `ConfigError`."""
    _check_not_read(
        topic, option, topics, pattern, "a record that fails would come back for ever; name another"
    )


def check_retry_topic(topic: str, option: str, topics: Iterable[str]) -> None:
    """Checks that a retry topic is not among the topics that are read anyway. Raises `ConfigError`."""
    _check_not_read(topic, option, topics, None, "records that wait would be processed at once; name another")


def check_results(topic: str, option: str, topics: Iterable[str] | None, pattern: str | None) -> None:
    """Checks that the topic of results is not among the topics that are read. Raises `ConfigError`."""
    _check_not_read(
        topic, option, topics, pattern, "each result would be read and written again for ever; name another"
    )


def _check_not_read(
    topic: str, option: str, topics: Iterable[str] | None, pattern: str | None, what_then: str
) -> None:
    read = (
        topic in topics if topics is not None else check_pattern(pattern or "").fullmatch(topic) is not None
    )
    if read:
        where = "is read here" if pattern is None else f"matches the pattern {pattern!r} that is read here"
        raise ConfigError(option, f"is {topic!r}, which {where}: {what_then}")
