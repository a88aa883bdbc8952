"""Checks of arguments that users pass to methods of consumers, producers and admins.

Each function returns the argument in its canonical form, or raises `UsageError` with the value that was passed.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from operator import index
from typing import Any, SupportsIndex

from kafka_actors.errors import UsageError, kind_of
from kafka_actors.types import OffsetAndMetadata, TopicPartition

from .timeouts import checked_amount

API_TIMEOUT_S = 60.0
"""Timeout of calls that are given none: Kafka's `default.api.timeout.ms`."""
MOST_OFFSET = 2**63 - 1


def partition_of(value: Any) -> TopicPartition:
    """Checks one partition: a `TopicPartition` or a (str, int) pair."""
    pair = isinstance(value, tuple) and len(value) == 2 and isinstance(value[0], str)
    if pair and (partition := _integer(value[1])) is not None:
        return TopicPartition(value[0], partition)
    raise UsageError(
        f"{value!r}, {kind_of(value)}, is no partition: give TopicPartition(topic, partition), "
        "of a str and an int"
    )


def partitions_of(values: Any) -> list[TopicPartition]:
    """Checks an iterable of partitions."""
    if isinstance(values, TopicPartition | str | bytes) or not isinstance(values, Iterable):
        raise UsageError(f"{values!r}, {kind_of(values)}, is no list of partitions")
    return [partition_of(value) for value in values]


def listed(topics: Any) -> Any:
    """Returns an iterable of topics, which may be a generator, as a list; anything else unchanged, for a later check."""
    several = isinstance(topics, Iterable) and not isinstance(topics, str | bytes)
    return list(topics) if several else topics


def offset_of(value: Any, tp: TopicPartition, what: str) -> int:
    """Checks an offset. `what` names the operation in error messages, such as `seek`."""
    offset = _integer(value)
    if offset is None:
        raise UsageError(
            f"can't {what} {tp.topic}-{tp.partition} at {value!r}, {kind_of(value)}: offsets are ints"
        )
    if offset < 0:
        raise UsageError(f"can't {what} {tp.topic}-{tp.partition} at {offset}: offsets start at 0")
    if offset > MOST_OFFSET:
        raise UsageError(f"can't {what} {tp.topic}-{tp.partition} at {offset}: offsets have 64 bits")
    return offset


def offsets_of(values: Any) -> dict[TopicPartition, OffsetAndMetadata]:
    """Checks offsets to commit: a dict of partitions to offsets or `OffsetAndMetadata`."""
    found = {}
    for key, value in _items(values, "offsets"):
        tp = partition_of(key)
        parts = value if isinstance(value, tuple) else (value,)
        if not 1 <= len(parts) <= 3:
            raise UsageError(
                f"can't commit {tp.topic}-{tp.partition} at {value!r}: give an offset, or OffsetAndMetadata"
            )
        offset = OffsetAndMetadata(offset_of(parts[0], tp, "commit"), *parts[1:])
        epoch = _integer(offset.leader_epoch)
        if not isinstance(offset.metadata, str) or epoch is None:
            raise UsageError(
                f"can't commit {tp.topic}-{tp.partition} with {offset!r}: metadata is a str, leader_epoch an int"
            )
        try:
            offset.metadata.encode()
        except UnicodeEncodeError:
            raise UsageError(
                f"can't commit {tp.topic}-{tp.partition}: its metadata holds a lone surrogate, which UTF-8 can't express"
            ) from None
        found[tp] = OffsetAndMetadata(offset.offset, offset.metadata, epoch)
    return found


def times_of(values: Any) -> dict[TopicPartition, int]:
    """Checks timestamps to look up: a dict of partitions to milliseconds since 1970."""
    found = {}
    for key, value in _items(values, "timestamps"):
        tp = partition_of(key)
        at = _integer(value)
        if at is None or not 0 <= at <= MOST_OFFSET:
            raise UsageError(
                f"the time for {tp.topic}-{tp.partition} is {value!r}, {kind_of(value)}: "
                "give milliseconds since 1970, an int"
            )
        found[tp] = at
    return found


def integer_of(value: Any, argument: str) -> int:
    """Checks an integer. `argument` names it in the error message."""
    found = _integer(value)
    if found is None:
        raise UsageError(f"{argument} is {value!r}, {kind_of(value)}: give an int")
    return found


def seconds_of(timeout_ms: Any) -> float:
    """Converts `timeout_ms` to seconds; None means `API_TIMEOUT_S`."""
    if timeout_ms is None:
        return API_TIMEOUT_S
    return checked_amount("timeout_ms", timeout_ms) / 1000


def limit_of(timeout_ms: Any) -> float | None:
    """Converts `timeout_ms` to seconds; None means no limit."""
    return None if timeout_ms is None else seconds_of(timeout_ms)


def _items(values: Any, what: str) -> Iterable[tuple[Any, Any]]:
    if not isinstance(values, Mapping):
        raise UsageError(f"{what} is {values!r}, {kind_of(values)}: accepts a dict by TopicPartition")
    return values.items()


def _integer(value: Any) -> int | None:
    """Converts any integer type, such as numpy's, to int; returns None for anything else."""
    if isinstance(value, bool) or not isinstance(value, SupportsIndex):
        return None
    try:
        return index(value)
    except TypeError:  # arrays have __index__, too
        return None
