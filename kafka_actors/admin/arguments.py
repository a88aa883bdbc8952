"""Checks of the arguments of the admin's calls, before anything connects."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Any

from kafka_actors.base.arguments import integer_of, offset_of, partition_of, times_of
from kafka_actors.errors import UsageError, kind_of
from kafka_actors.net.offsets import ISOLATION_LEVELS, MAX_TIMESTAMP
from kafka_actors.types import EARLIEST, LATEST, TopicPartition

from .machines.offsets import OffsetTarget
from .results import NewPartitions, NewTopic

__all__ = [
    "bounds_of",
    "check_isolation",
    "new_topics",
    "reset_scope",
    "text",
    "texts",
    "totals_of",
    "wanted_times",
]

SPECIAL_TIMES = (EARLIEST, LATEST, MAX_TIMESTAMP)


def texts(names: Iterable[str], argument: str) -> list[str]:
    """Names as a list without repetitions. Raises `TypeError` for a single str, which is an iterable of letters."""
    if isinstance(names, str) or not isinstance(names, Iterable):
        raise TypeError(f"{argument} is {kind_of(names)}: give a list of them")
    return [text(name, argument) for name in dict.fromkeys(names)]


def text(name: str, argument: str) -> str:
    """Name that has to be a str. Raises `TypeError`."""
    if not isinstance(name, str):
        raise TypeError(f"{argument} has {name!r}, {kind_of(name)}: names are str")
    return name


def new_topics(topics: Iterable[NewTopic]) -> list[NewTopic]:
    """Topics to be created. Raises `TypeError` for what isn't a `NewTopic`, and `UsageError` for a name that is there twice."""
    if not isinstance(topics, Iterable):
        raise TypeError(f"topics is {kind_of(topics)}: give a list of them")
    made = list(topics)
    for topic in made:
        if not isinstance(topic, NewTopic):
            raise TypeError(f"topics has {topic!r}, {kind_of(topic)}: give NewTopic(name, …)")
    if twice := [name for name, times in Counter(topic.name for topic in made).items() if times > 1]:
        raise UsageError(f"topics has {twice[0]!r} more than once")
    return made


def totals_of(partitions: Mapping[str, int | NewPartitions]) -> dict[str, NewPartitions]:
    """Numbers of partitions by topic. Raises `TypeError` and `UsageError` for what can't be one."""
    if not isinstance(partitions, Mapping):
        raise TypeError(
            f"partitions is {partitions!r}, {kind_of(partitions)}: give a dict such as {{'orders': 12}}"
        )
    return {text(name, "partitions"): _total(name, total) for name, total in partitions.items()}


def _total(name: str, total: int | NewPartitions) -> NewPartitions:
    found = total if isinstance(total, NewPartitions) else NewPartitions(total)
    count: Any = found.total_count
    if isinstance(count, bool) or not isinstance(count, int) or count < 1:
        raise UsageError(
            f"{name!r} is to have {count!r} partitions, {kind_of(count)}: give a number from 1 on"
        )
    return found


def bounds_of(offsets: Mapping[TopicPartition, int]) -> dict[TopicPartition, int]:
    """Offsets before which records are to be deleted, by partition; `LATEST` is the high watermark. Raises `UsageError`."""
    if not isinstance(offsets, Mapping):
        raise UsageError(f"offsets is {offsets!r}, {kind_of(offsets)}: accepts a dict by TopicPartition")
    checked = {}
    for key, offset in offsets.items():
        tp = partition_of(key)
        checked[tp] = LATEST if offset == LATEST else offset_of(offset, tp, "delete the records of")
    return checked


def wanted_times(partitions: Mapping[TopicPartition, int]) -> dict[TopicPartition, int]:
    """Times at which offsets are listed, by partition: special ones, or milliseconds since 1970. Raises `UsageError`."""
    if not isinstance(partitions, Mapping):
        raise UsageError(
            f"partitions is {partitions!r}, {kind_of(partitions)}: accepts a dict by TopicPartition"
        )
    checked = {}
    for key, value in partitions.items():
        tp = partition_of(key)
        at = integer_of(value, f"the time for {tp.topic}-{tp.partition}")
        checked[tp] = at if at in SPECIAL_TIMES else times_of({tp: at})[tp]
    return checked


def check_isolation(level: Any) -> None:
    """Raises `UsageError` for what is no isolation level: any other would be taken for read_uncommitted."""
    if level not in ISOLATION_LEVELS:
        raise UsageError(
            f"isolation_level is {level!r}, {kind_of(level)}: give {' or '.join(map(repr, ISOLATION_LEVELS))}"
        )


def reset_scope(target: Any, topics: Any) -> dict[str, list[int] | None] | None:
    """Scope of `reset_offsets`, with partitions as lists. Raises `TypeError` for a target or topics of the wrong type, and
    `UsageError` for partitions that are none."""
    if not isinstance(target, OffsetTarget):
        raise TypeError(f"target is {target!r}, {kind_of(target)}: give OffsetTarget.earliest() or another")
    if topics is None:
        return None
    if not isinstance(topics, Mapping):
        raise TypeError(
            f"topics is {topics!r}, {kind_of(topics)}: give a dict of topics, each with partitions or None for all"
        )
    return {text(topic, "topics"): _partitions(topic, chosen) for topic, chosen in topics.items()}


def _partitions(topic: str, chosen: Any) -> list[int] | None:
    if chosen is None:
        return None
    if isinstance(chosen, str | bytes) or not isinstance(chosen, Iterable):
        raise UsageError(
            f"topics has {chosen!r}, {kind_of(chosen)}, for {topic!r}: give its partitions as a list of ints, or None for all"
        )
    return [integer_of(partition, f"a partition of {topic!r}") for partition in chosen]
