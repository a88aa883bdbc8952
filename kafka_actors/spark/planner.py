"""Plans a batch read where the query is planned: asks the brokers once and fixes every offset."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Collection, Mapping

from kafka_actors.cluster.snapshot import ClusterSnapshot
from kafka_actors.errors import (
    ConfigError,
    UnknownTopicOrPartitionError,
    error_for_code,
)
from kafka_actors.net import EARLIEST, LATEST, KafkaClient, ListedOffset, OffsetLookups
from kafka_actors.protocol.types import TopicPartition

from .machines.ranges import Log, OffsetRange, check_named, resolve
from .offsets import Bound, Timestamps
from .options import Assign, BatchOptions, Pattern, Subscribe

logger = logging.getLogger(__name__)


def plan(options: BatchOptions) -> list[OffsetRange]:
    """The exact offset range of each partition that is read, empty ones included.

    Raises `NoBrokersAvailable`, `ConfigError` (an unknown topic, a partition that isn't named, a timestamp without
    a match), a `KafkaError` of a partition, and with `failOnDataLoss` a `DataLossError`.
    """
    return asyncio.run(_plan(options))


async def _plan(options: BatchOptions) -> list[OffsetRange]:
    client = KafkaClient(options.consumer)
    try:
        client.set_topics(_topics(options))
        await client.bootstrap()
        partitions = await _partitions(client, options)
        for bound in (options.start, options.end):
            check_named(bound, partitions)
        logs = await _logs(client, options, partitions)
        snapshot = client.snapshot
    finally:
        await client.close()
    topic_ids = {tp.topic: snapshot.topic_id(tp.topic) for tp in partitions}
    found = resolve(logs, options.start, options.end, no_match=options.no_match, topic_ids=topic_ids)
    for loss in found.losses:
        if options.fail_on_data_loss:
            raise loss
        logger.warning("%s; going on without, because failOnDataLoss is false", loss)
    return found.ranges


def _topics(options: BatchOptions) -> list[str] | None:
    """What the client has to know: None for all topics of the cluster."""
    selection = options.selection
    if isinstance(selection, Subscribe):
        return list(selection.topics)
    if isinstance(selection, Assign):
        return sorted({tp.topic for tp in selection.partitions})
    return None


async def _partitions(client: KafkaClient, options: BatchOptions) -> list[TopicPartition]:
    """The partitions selected. A topic that was just made may be unknown for a moment, so that is asked again."""
    for _ in range(options.lookup_retries):
        try:
            return _selected(client.snapshot, options)
        except ConfigError:
            await asyncio.sleep(options.lookup_retry_interval_ms / 1000)
            await client.update_metadata()
    return _selected(client.snapshot, options)


def _selected(snapshot: ClusterSnapshot, options: BatchOptions) -> list[TopicPartition]:
    selection, name = options.selection, options.selected_by
    if isinstance(selection, Pattern):
        topics: Collection[str] = snapshot.topics_matching(selection.pattern)
        if not topics:
            raise ConfigError(name, f"is {selection.pattern!r}: no topic of the cluster has such a name")
    elif isinstance(selection, Subscribe):
        topics = selection.topics
    else:
        topics = {tp.topic for tp in selection.partitions}
    there = {topic: _partitions_of(snapshot, topic, name) for topic in sorted(topics)}
    if not isinstance(selection, Assign):
        return [TopicPartition(topic, p) for topic, partitions in there.items() for p in sorted(partitions)]
    for tp in selection.partitions:
        if tp.partition not in there[tp.topic]:
            raise ConfigError(name, f"has {tp.topic}-{tp.partition}: there is no such partition")
    return list(selection.partitions)


def _partitions_of(snapshot: ClusterSnapshot, topic: str, option: str) -> set[int]:
    partitions = snapshot.partitions_for_topic(topic)
    if partitions:
        return partitions
    code = snapshot.topic_error(topic)
    if code and code != UnknownTopicOrPartitionError.code:
        error = error_for_code(code, request="Metadata", topic=topic)
        if error is not None:
            raise error
    raise ConfigError(option, f"there is no topic {topic!r} in the cluster")


async def _logs(
    client: KafkaClient, options: BatchOptions, partitions: list[TopicPartition]
) -> dict[TopicPartition, Log]:
    wanted: list[Mapping[TopicPartition, int]] = [
        dict.fromkeys(partitions, EARLIEST),
        dict.fromkeys(partitions, LATEST),
        _timestamps(options.start, partitions),
        _timestamps(options.end, partitions),
    ]
    lookups = OffsetLookups(client)
    start, end, start_match, end_match = await asyncio.gather(
        *(_look_up(lookups, options, timestamps) for timestamps in wanted)
    )
    return {
        # Retention may pass between the two answers: then the log is empty.
        tp: Log(
            start=start[tp],
            end=max(start[tp], end[tp]),
            start_match=start_match.get(tp, -1),
            end_match=end_match.get(tp, -1),
        )
        for tp in partitions
    }


def _timestamps(bound: Bound, partitions: list[TopicPartition]) -> dict[TopicPartition, int]:
    return {tp: bound.of(tp) for tp in partitions} if isinstance(bound, Timestamps) else {}


async def _look_up(
    lookups: OffsetLookups, options: BatchOptions, timestamps: Mapping[TopicPartition, int]
) -> dict[TopicPartition, int]:
    found: dict[TopicPartition, int] = {}
    left = dict(timestamps)
    for attempt in range(options.lookup_retries + 1):
        if not left:
            break
        if attempt:
            await asyncio.sleep(options.lookup_retry_interval_ms / 1000)
        last = attempt == options.lookup_retries
        answers = await lookups.list_offsets(left, isolation_level=options.consumer.isolation_level)
        for tp, answer in answers.items():
            if isinstance(answer, ListedOffset):
                found[tp] = answer.offset
                del left[tp]
            elif last or not answer.retriable:
                raise answer
    return found
