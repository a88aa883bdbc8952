"""The plan of a hand-over: where history ends and live begins, fixed once and kept beside Spark's checkpoint."""

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
"""The formats that are read. Format 1 has no starts: its history starts where the query's first look finds it."""


class PlannedPartition(Struct, frozen=True):
    """`start_offset`: the first offset of the history, None in a plan of format 1. `end_offset`: the first offset that
    is not history. `leader_epoch`: that of the log's end, -1 where brokers don't say (KIP-320)."""

    end_offset: int
    leader_epoch: int = -1
    start_offset: int | None = None


class PlannedTopic(Struct, frozen=True):
    """`topic_id` in hexadecimal digits, None for brokers before 2.8."""

    topic_id: str | None
    partitions: dict[int, PlannedPartition]


class PlannedRead(Struct, frozen=True):
    """What a pipeline reads, by whom and how: what a plan has to be made for."""

    group_id: str
    isolation_level: str
    topics: tuple[str, ...] | None
    pattern: str | None


class LogBounds(Struct, frozen=True):
    """A partition as brokers have it: where its log starts and ends (its last stable offset under read_committed)."""

    start: int
    end: int
    leader_epoch: int = -1


class ObservedTopics(Struct, frozen=True):
    """What brokers said of the topics that a pipeline reads. `topic_ids` where they have them (from Kafka 2.8 on)."""

    cluster_id: str | None
    topic_ids: dict[str, bytes]
    logs: dict[TopicPartition, LogBounds]


class HandoverPlan(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The content of `handover.json`. `id` names the hand-over, `created` is when it was planned (ISO 8601, UTC), `start`
    is what `start=` said then, as text."""

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

    def with_starts(self, starts: Mapping[TopicPartition, int], said: str | None) -> HandoverPlan:
        """The same plan with the history's first offsets; `said` is the `start=` that they come from."""
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
        return replace(self, start=said, topics=topics)

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
        """The ids of topics, where they are known."""
        return {
            topic: bytes.fromhex(planned.topic_id)
            for topic, planned in self.topics.items()
            if planned.topic_id is not None
        }

    @property
    def metadata(self) -> str:
        """The note in the offsets that are committed by this hand-over."""
        return f"kafka-actors handover {self.id}"

    def commit_of(self, tp: TopicPartition) -> OffsetAndMetadata:
        """What the group commits for a partition: live begins there. One that isn't in the plan begins at 0."""
        topic = self.topics.get(tp.topic)
        planned = None if topic is None else topic.partitions.get(tp.partition)
        if planned is None:
            return OffsetAndMetadata(0, self.metadata)
        return OffsetAndMetadata(planned.end_offset, self.metadata, planned.leader_epoch)

    def to_json(self) -> str:
        """As it stands in the file."""
        return msgspec.json.format(msgspec.json.encode(self), indent=2).decode() + "\n"

    @classmethod
    def from_json(cls, text: str, where: str) -> HandoverPlan:
        """Raises `HandoverError` for what is no plan, or one of a later version; `where` is the file's name."""
        try:
            given: Any = msgspec.json.decode(text)
            if isinstance(given, Mapping) and given.get("format", FORMAT) not in _READ:
                raise HandoverError(
                    f"{where} has format {given['format']}: this version reads formats up to {FORMAT}"
                )
            plan = decoders.convert(given, cls, strict=False)
            plan.topic_ids  # noqa: B018  # the ids are digits
            return plan
        except (msgspec.DecodeError, msgspec.ValidationError, ValueError) as error:
            raise HandoverError(f"{where} is no plan of a hand-over: {error}") from None


def plan_of(wanted: PlannedRead, cluster: ObservedTopics, plan_id: str, created: str) -> HandoverPlan:
    """The plan to hand over where the logs end now. Its starts are still to be asked for."""
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
    """Raises `ConfigError` where a plan was made for another pipeline than the one that finds it."""
    said = f"and the plan in {where} is for"
    other = "give another pipeline a checkpoint of its own"
    if wanted.group_id != plan.group_id:
        raise ConfigError("group_id", f"is {wanted.group_id!r}, {said} {plan.group_id!r}: {other}")
    if wanted.isolation_level != plan.isolation_level:
        raise ConfigError(
            "isolation_level", f"is {wanted.isolation_level!r}, {said} {plan.isolation_level!r}: {other}"
        )
    if wanted.pattern != plan.pattern:
        raise ConfigError("pattern", f"is {wanted.pattern!r}, {said} {plan.pattern!r}: {other}")
    if wanted.topics is not None and set(wanted.topics) != set(plan.topics):
        mine, its = ", ".join(sorted(wanted.topics)), ", ".join(sorted(plan.topics))
        raise ConfigError("topics", f"are {mine}, {said} {its}: {other}")


def check_cluster(plan: HandoverPlan, cluster_id: str | None) -> None:
    """Raises `ConfigError` where the brokers are another cluster's."""
    if plan.cluster_id is not None and cluster_id is not None and plan.cluster_id != cluster_id:
        raise ConfigError(
            "bootstrap_servers",
            f"are of cluster {cluster_id}, and the hand-over was planned on {plan.cluster_id}",
        )
