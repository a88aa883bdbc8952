"""The plan of a hand-over: the offsets at which history ends and live begins, fixed once in `handover.json`.

Theory of operation. What arrives is one read (`PlannedRead`) and what brokers say about its topics at that moment
(`ObservedTopics`). `plan_of` decides the end of the history: the present end of each log. Its leader epoch is
committed with it at the hand-over (KIP-320), and by the topic's id (KIP-516) a later driver notices a topic that was
created again. The starts of the history are added when Spark's source has resolved them (`with_starts`).

The plan is written beside Spark's checkpoint once and only read from then on, so every later driver reads the same
history and hands over at the same offsets, whatever has been appended since. `check_same` and `check_cluster` refuse a
plan that was made for another pipeline or another cluster. `Handover` decides the steps by it.

The file is a persistent form: fields are only added, under a new `format`, and a file with fields that this version doesn't
know is refused.

A partition that isn't in the plan appeared after it was made: live reads it from its first record
(`commit_of`). A topic without an id is one of a broker before Kafka 2.8, and can't be recognised if it is
created anew.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from kafka_actors.base import decoders
from kafka_actors.errors import ConfigError, HandoverError
from kafka_actors.types import OffsetAndMetadata, TopicPartition

FORMAT = 2
_READ = (1, FORMAT)
"""Formats that are read. Format 1 has no starts: its history starts where the query finds it when it begins."""


class PlannedPartition(Struct, frozen=True):
    """History of one partition. `start_offset`: its first offset, None in a plan of format 1. `end_offset`: the first
    offset that is not history. `leader_epoch`: that of the log's end, -1 where brokers don't say (KIP-320)."""

    end_offset: int
    leader_epoch: int = -1
    start_offset: int | None = None


class PlannedTopic(Struct, frozen=True):
    """History of one topic. `topic_id` is in hexadecimal digits, None for brokers before 2.8."""

    topic_id: str | None
    partitions: dict[int, PlannedPartition]


class PlannedRead(Struct, frozen=True):
    """Topics that a pipeline reads, its group and isolation level: a plan is for one such read."""

    group_id: str
    isolation_level: str
    topics: tuple[str, ...] | None
    pattern: str | None


class LogBounds(Struct, frozen=True):
    """Start and end of a partition's log (under read_committed the end is the last stable offset)."""

    start: int
    end: int
    leader_epoch: int = -1


class ObservedTopics(Struct, frozen=True):
    """Topics that a pipeline reads, as brokers describe them. Brokers have topic ids from Kafka 2.8 on."""

    cluster_id: str | None
    topic_ids: dict[str, bytes]
    logs: dict[TopicPartition, LogBounds]


class HandoverPlan(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Content of `handover.json`. `id` names the hand-over, `created` is the time of its planning (ISO 8601, UTC), `start`
    the text of the argument `start=` at that time."""

    format: int = FORMAT
    id: str
    created: str
    cluster_id: str | None
    group_id: str
    isolation_level: str
    pattern: str | None
    start: str | None = None
    topics: dict[str, PlannedTopic]

    @property
    def starts(self) -> dict[TopicPartition, int]:
        """The first offset of the history, by partition; empty for a plan of format 1."""
        return {
            TopicPartition(topic, p): planned.start_offset
            for topic, of_topic in self.topics.items()
            for p, planned in of_topic.partitions.items()
            if planned.start_offset is not None
        }

    def with_starts(self, starts: Mapping[TopicPartition, int], start: str | None) -> HandoverPlan:
        """A copy with the history's first offsets; `start` is the argument of that name that they come from."""
        topics = {
            topic: replace(
                of_topic,
                partitions={
                    p: replace(planned, start_offset=starts.get(TopicPartition(topic, p)))
                    for p, planned in of_topic.partitions.items()
                },
            )
            for topic, of_topic in self.topics.items()
        }
        return replace(self, start=start, topics=topics)

    @property
    def ends(self) -> dict[TopicPartition, int]:
        """The first offset that is not history, by partition."""
        return {
            TopicPartition(topic, p): planned.end_offset
            for topic, of_topic in self.topics.items()
            for p, planned in of_topic.partitions.items()
        }

    @property
    def topic_ids(self) -> dict[str, bytes]:
        """The known ids of topics."""
        return {
            topic: bytes.fromhex(planned.topic_id)
            for topic, planned in self.topics.items()
            if planned.topic_id is not None
        }

    @property
    def metadata(self) -> str:
        """The metadata of the offsets that this hand-over commits."""
        return f"kafka-actors handover {self.id}"

    def commit_of(self, tp: TopicPartition) -> OffsetAndMetadata:
        """The offset that the group commits for a partition, where live begins: 0 for one that isn't in the plan."""
        topic = self.topics.get(tp.topic)
        planned = None if topic is None else topic.partitions.get(tp.partition)
        if planned is None:
            return OffsetAndMetadata(0, self.metadata)
        return OffsetAndMetadata(planned.end_offset, self.metadata, planned.leader_epoch)

    def to_json(self) -> str:
        """The text of the file."""
        return msgspec.json.format(msgspec.json.encode(self), indent=2).decode() + "\n"

    @classmethod
    def from_json(cls, text: str, where: str) -> HandoverPlan:
        """Reads the text of a file, whose name is `where`. Raises `HandoverError` for one that is not a plan, or of a later version."""
        try:
            document: Any = msgspec.json.decode(text)
            if isinstance(document, Mapping) and document.get("format", FORMAT) not in _READ:
                raise HandoverError(
                    f"{where} has format {document['format']}: this version reads formats up to {FORMAT}"
                )
            plan = decoders.convert(document, cls, strict=False)
            plan.topic_ids  # noqa: B018  # raises for ids that are not hexadecimal
            return plan
        except (*decoders.UNREADABLE, ValueError) as error:
            raise HandoverError(f"{where} is no plan of a hand-over: {error}") from None


def plan_of(wanted: PlannedRead, cluster: ObservedTopics, plan_id: str, created: str) -> HandoverPlan:
    """Makes a plan to hand over at the present ends of the logs. Its starts come later, by `with_starts`.

    `plan_id` and `created` are passed in: machines have neither a clock nor randomness.
    """
    topics: dict[str, dict[int, PlannedPartition]] = {}
    for tp, log in sorted(cluster.logs.items()):
        topics.setdefault(tp.topic, {})[tp.partition] = PlannedPartition(log.end, log.leader_epoch)
    ids = {topic: topic_id.hex() for topic, topic_id in cluster.topic_ids.items()}
    return HandoverPlan(
        id=plan_id,
        created=created,
        cluster_id=cluster.cluster_id,
        group_id=wanted.group_id,
        isolation_level=wanted.isolation_level,
        pattern=wanted.pattern,
        topics={topic: PlannedTopic(ids.get(topic), partitions) for topic, partitions in topics.items()},
    )


def check_same(plan: HandoverPlan, wanted: PlannedRead, where: str) -> None:
    """Raises `ConfigError` for the plan of another pipeline than the one that finds it."""
    planned = f"and the plan in {where} is for"
    other = "give another pipeline a checkpoint of its own"
    if wanted.group_id != plan.group_id:
        raise ConfigError("group_id", f"is {wanted.group_id!r}, {planned} {plan.group_id!r}: {other}")
    if wanted.isolation_level != plan.isolation_level:
        raise ConfigError(
            "isolation_level", f"is {wanted.isolation_level!r}, {planned} {plan.isolation_level!r}: {other}"
        )
    if wanted.pattern != plan.pattern:
        raise ConfigError("pattern", f"is {wanted.pattern!r}, {planned} {plan.pattern!r}: {other}")
    if wanted.topics is not None and set(wanted.topics) != set(plan.topics):
        own, other_topics = ", ".join(sorted(wanted.topics)), ", ".join(sorted(plan.topics))
        raise ConfigError("topics", f"are {own}, {planned} {other_topics}: {other}")


def check_cluster(plan: HandoverPlan, cluster_id: str | None) -> None:
    """Raises `ConfigError` for brokers of another cluster than the plan's."""
    if plan.cluster_id is not None and cluster_id is not None and plan.cluster_id != cluster_id:
        raise ConfigError(
            "bootstrap_servers",
            f"are of cluster {cluster_id}, and the hand-over was planned on {plan.cluster_id}",
        )
