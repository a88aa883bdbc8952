"""The JSON forms that Spark's Kafka source has for partitions and offsets, and what a start or an end can be.

`{"orders": {"0": 23, "1": -2}}` names offsets or timestamps by partition, `{"orders": [0, 1]}` partitions alone:
the same text as in Spark's options and checkpoints.
"""

from __future__ import annotations

from enum import Enum
from typing import Annotated, TypeVar

import msgspec
from msgspec import Meta, Struct

from kafka_actors.base import decoders
from kafka_actors.errors import ConfigError
from kafka_actors.types import EARLIEST, LATEST, TopicPartition

T = TypeVar("T")

_PartitionId = Annotated[int, Meta(ge=0, lt=2**31)]
_OFFSETS = '{"topic": {"0": 23, "1": -2}}'
_PARTITIONS = '{"topic": [0, 1]}'


class LogEnd(Enum):
    """An end of the log."""

    EARLIEST = EARLIEST
    LATEST = LATEST


class GivenOffsets(Struct, frozen=True):
    """Offsets by partition, from `option`; `EARLIEST` and `LATEST` stand for the ends of the log."""

    option: str
    by_partition: dict[TopicPartition, int]


class GivenTimestamps(Struct, frozen=True):
    """Milliseconds since 1970, from `option`: one for all partitions, or by partition."""

    option: str
    everywhere: int | None = None
    by_partition: dict[TopicPartition, int] = {}

    def of(self, tp: TopicPartition) -> int:
        """The timestamp of one partition. Raises `KeyError` for one that isn't named."""
        return self.by_partition[tp] if self.everywhere is None else self.everywhere


Fixed = LogEnd | GivenOffsets | GivenTimestamps


class GivenCommitted(Struct, frozen=True):
    """What a group has committed; the earliest offset of a partition for which it has nothing."""


Bound = Fixed | GivenCommitted


def at(tp: TopicPartition) -> str:
    """A partition as errors name it."""
    return f"{tp.topic}-{tp.partition}"


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
    except (msgspec.DecodeError, UnicodeEncodeError) as error:
        raise ConfigError(option, f"is {text!r}: accepts JSON like {example} ({error})") from None
