"""`RetryTopics`: topics in which records on which the user's function failed wait for their next try; and `RetryTiers`, those of one job.

A tier is a topic, and how long a record waits in it; tier 0 is the topic that the job reads. A record keeps the number of its partition in
each tier, and the partitions of one number go together: to the job that has the source partition, to the same worker, or dealt in the same
slices (`lanes`), under one epoch. So who has a key's records in the source also has those that wait, and nobody else.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any

import msgspec

from kafka_actors.base.topics import check_topic
from kafka_actors.errors import ConfigError, kind_of
from kafka_actors.types import TopicPartition

from .lanes import in_topic

__all__ = ["NOT_DUE", "READS_AHEAD", "WAITS", "RetryTiers", "RetryTopics"]

NOT_DUE, READS_AHEAD = WAITS = ("not due", "reading ahead")
"""Kinds of the reasons for which a partition doesn't move and isn't stalled: its next record isn't due, or which keys wait is being read."""

_DELAY = re.compile(r"([0-9]{1,9})(ms|s|m|h|d)")
_SECONDS = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}


class RetryTopics(msgspec.Struct, frozen=True):
    """Topics for `Job(on_error=…)` in which a record on which `process` failed waits, and is tried again, while others go on.

        on_error=ka.RetryTopics("orders-retry", delays=("10s", "1m", "10m"), dead_letter_topic="orders-dead")

    Arguments:
        name: what the topics' names begin with. There is one for each delay, `orders-retry-10s` and so on, with as many partitions as the
            topic that the job reads; the job reads them too.
        delays: how long a record waits before its next try: numbers with ms, s, m, h or d. After the last try it is a dead letter.
        dead_letter_topic: where it goes then.
        keep_order: with `ordering="key"`, records behind a waiting one of their key follow it from topic to topic, and are processed behind
            it. False lets them overtake it.

    Raises `ConfigError`.
    """

    name: str
    delays: tuple[str, ...]
    dead_letter_topic: str
    keep_order: bool = True

    def __post_init__(self) -> None:
        given: Any = self.delays
        if isinstance(given, str) or not isinstance(given, Iterable):
            raise _refused(f"delays={given!r}: accepts a list such as ('10s', '1m')")
        if not (delays := tuple(given)):
            raise _refused("no delays: give at least one, such as delays=('10s', '1m')")
        msgspec.structs.force_setattr(self, "delays", delays)
        for delay in delays:
            _seconds_of(delay)
        if not isinstance(self.keep_order, bool):
            raise _refused(
                f"keep_order={self.keep_order!r}, {kind_of(self.keep_order)}: accepts True or False"
            )
        names = [check_topic(self.name, "on_error"), *(check_topic(name, "on_error") for name in self.topics)]
        names.append(check_topic(self.dead_letter_topic, "on_error"))
        if len(set(names[1:])) < len(names[1:]):
            raise _refused(f"a topic twice among {', '.join(names[1:])}")

    @property
    def topics(self) -> list[str]:
        """The names of the topics, from tier to tier."""
        return [f"{self.name}-{delay}" for delay in self.delays]

    def tiers(self, source: str, *, ordering: str) -> RetryTiers:
        """Returns the tiers of a job that reads this topic."""
        keeps = self.keep_order and ordering == "key"
        return RetryTiers(source, self.topics, [_seconds_of(delay) for delay in self.delays], keeps)


class RetryTiers(msgspec.Struct, frozen=True):
    """Retry topics of a job, and what goes together with what. `delays_s`: seconds that a record waits in each. Without topics each partition
    stands for itself. `keep_order`: records behind a waiting one of their key follow it."""

    source: str = ""
    topics: list[str] = []
    delays_s: list[float] = []
    keep_order: bool = False

    def __bool__(self) -> bool:
        return bool(self.topics)

    def tier(self, topic: str) -> int:
        """Returns the number of a topic's tier, 0 for one that is no retry topic."""
        return self.topics.index(topic) + 1 if topic in self.topics else 0

    def home(self, partition: TopicPartition) -> TopicPartition:
        """Returns the source partition, or the slice of it, with which a partition goes; any but a retry partition goes by itself."""
        return in_topic(partition, self.source) if partition.topic in self.topics else partition

    def group(self, partition: TopicPartition) -> list[TopicPartition]:
        """Returns what goes with a source partition or a slice of one: itself, and what waits behind it, from tier to tier."""
        if partition.topic != self.source:
            return [partition]
        return [partition, *(in_topic(partition, topic) for topic in self.topics)]

    def read_to(self, partition: TopicPartition, end: int | None) -> int | None:
        """Returns up to where a partition is read in a run that processes it up to `end`: to the end of its log where it is to be known which keys
        wait there, because others of the run may have put some behind that."""
        return None if self.keep_order and partition.topic in self.topics else end

    def misfits(self, partitions: Mapping[str, int]) -> str:
        """Returns, in words, which topics are missing, or have another number of partitions than the source; empty if none has. `partitions`:
        the number of each topic's."""
        wanted = partitions.get(self.source, 0)
        found = {topic: partitions.get(topic, 0) for topic in self.topics}
        wrong = {topic: number for topic, number in found.items() if number != wanted}
        if not wrong:
            return ""
        named = [
            f"{topic} has {number}" if number else f"{topic} is missing" for topic, number in wrong.items()
        ]
        topic, number = next(iter(wrong.items()))
        how = (
            "add partitions, as by kafka-actors topics alter"
            if number
            else "create them, as by kafka-actors topics create"
        )
        return (
            f"needs topics with as many partitions as {self.source}, which has {wanted}: {', '.join(named)}; "
            f"{how} --topic {self.source if number > wanted else topic} --partitions {max(number, wanted)}"
        )

    def lacking(self, partition: TopicPartition, partitions: Mapping[str, int]) -> str:
        """Returns, in words, which retry partitions are missing behind a partition, because the source has grown since the start; empty where none
        is, and where the partition is read without them. `partitions`: as for `misfits`."""
        number, wanted = partition.partition, partitions.get(self.source, 0)
        missing = [topic for topic in self.topics if partitions.get(topic, 0) <= number < wanted]
        if not missing or (partition.topic == self.source and not self.keep_order):
            return ""
        return (
            f"{', '.join(f'{topic}-{number}' for topic in missing)} {'is' if len(missing) == 1 else 'are'} missing: retry topics need as many "
            f"partitions as {self.source}, which has {wanted}; add them, as by "
            f"kafka-actors topics alter --topic {missing[0]} --partitions {wanted}"
        )

    def homes(self, partitions: Iterable[TopicPartition]) -> frozenset[TopicPartition]:
        """Returns the partitions without retry partitions, which nobody places by themselves."""
        return frozenset(each for each in partitions if each.topic not in self.topics)

    def groups(self, partitions: Iterable[TopicPartition]) -> frozenset[TopicPartition]:
        """Returns source partitions and all that goes with them."""
        return frozenset(each for partition in partitions for each in self.group(partition))


def _seconds_of(delay: Any) -> float:
    found = _DELAY.fullmatch(delay) if isinstance(delay, str) else None
    if found is None or int(found[1]) == 0:
        raise _refused(f"the delay {delay!r}: accepts a number above 0 with ms, s, m, h or d, such as '10s'")
    return int(found[1]) * _SECONDS[found[2]]


def _refused(what: str) -> ConfigError:
    return ConfigError("on_error", f"is RetryTopics with {what}")
