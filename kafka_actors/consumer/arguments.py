"""What users hand to a consumer's calls, checked: a wrong one is a `UsageError` that says what was given."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from kafka_actors.errors import UsageError, kind_of
from kafka_actors.protocol.types import OffsetAndMetadata, TopicPartition

API_TIMEOUT_S = 60.0
"""Kafka's `default.api.timeout.ms`: the bound of calls without a timeout of their own."""


def partition_of(value: Any) -> TopicPartition:
    """A `TopicPartition`, or a pair like it."""
    if isinstance(value, tuple) and len(value) == 2 and isinstance(value[0], str) and _is_int(value[1]):
        return TopicPartition(*value)
    raise UsageError(
        f"{value!r}, {kind_of(value)}, is no partition: give TopicPartition(topic, partition), "
        "of a str and an int"
    )


def partitions_of(values: Any) -> list[TopicPartition]:
    """Several of them."""
    if isinstance(values, TopicPartition | str | bytes) or not isinstance(values, Iterable):
        raise UsageError(f"{values!r}, {kind_of(values)}, is no list of partitions")
    return [partition_of(value) for value in values]


def listed(topics: Any) -> Any:
    """Topics that may come from a generator as a list; what is no series of them is left to who checks it."""
    several = isinstance(topics, Iterable) and not isinstance(topics, str | bytes)
    return list(topics) if several else topics


def offset_of(value: Any, tp: TopicPartition, what: str) -> int:
    """An offset of a log; `what` is to be done with it."""
    if not _is_int(value):
        raise UsageError(
            f"can't {what} {tp.topic}-{tp.partition} at {value!r}, {kind_of(value)}: offsets are ints"
        )
    if value < 0:
        raise UsageError(f"can't {what} {tp.topic}-{tp.partition} at {value}: offsets start at 0")
    return int(value)


def offsets_of(values: Any) -> dict[TopicPartition, OffsetAndMetadata]:
    """What is to be committed: partitions with an offset, or with an `OffsetAndMetadata`."""
    found = {}
    for key, value in _items(values, "offsets"):
        tp = partition_of(key)
        parts = value if isinstance(value, tuple) else (value,)
        if not 1 <= len(parts) <= 3:
            raise UsageError(
                f"can't commit {tp.topic}-{tp.partition} at {value!r}: give an offset, or OffsetAndMetadata"
            )
        given = OffsetAndMetadata(offset_of(parts[0], tp, "commit"), *parts[1:])
        if not isinstance(given.metadata, str) or not _is_int(given.leader_epoch):
            raise UsageError(
                f"can't commit {tp.topic}-{tp.partition} with {given!r}: metadata is a str, leader_epoch an int"
            )
        found[tp] = given
    return found


def times_of(values: Any) -> dict[TopicPartition, int]:
    """Partitions with a time in milliseconds since 1970."""
    found = {}
    for key, value in _items(values, "timestamps"):
        tp = partition_of(key)
        if not _is_int(value) or value < 0:
            raise UsageError(
                f"the time for {tp.topic}-{tp.partition} is {value!r}, {kind_of(value)}: "
                "give milliseconds since 1970, an int"
            )
        found[tp] = value
    return found


def seconds_of(timeout_ms: Any) -> float:
    """A timeout in seconds; the default one where none is given."""
    if timeout_ms is None:
        return API_TIMEOUT_S
    if isinstance(timeout_ms, bool) or not isinstance(timeout_ms, int | float) or not timeout_ms >= 0:
        raise UsageError(
            f"timeout_ms is {timeout_ms!r}, {kind_of(timeout_ms)}: accepts milliseconds, at least 0"
        )
    return timeout_ms / 1000


def _items(values: Any, what: str) -> Iterable[tuple[Any, Any]]:
    if not isinstance(values, Mapping):
        raise UsageError(f"{what} is {values!r}, {kind_of(values)}: accepts a dict by TopicPartition")
    return values.items()


def _is_int(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)
