"""Plans a batch read where the query is planned: asks the brokers once and fixes every offset."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterable

from kafka_actors.admin.requests import raise_first
from kafka_actors.types import EARLIEST, LATEST, TopicPartition

from .machines.filter_ranges import EVERYTHING, FilterRange, narrowed
from .machines.offset_ranges import LogRange, TaskRange, check_named, check_order, resolve
from .offset_json import Fixed, GivenCommitted, GivenTimestamps
from .options import BatchOptions
from .planning_brokers import PlanningBrokers

logger = logging.getLogger(__name__)


def plan(options: BatchOptions, narrowing: FilterRange = EVERYTHING) -> list[TaskRange]:
    """The exact offset range of each partition that is read, empty ones included, as far as filters leave it.

    Raises `NoBrokersAvailable`, `ConfigError` (an unknown topic, a partition that isn't named, a timestamp without
    a match, a start behind its end), a `KafkaError` of a partition, and with `failOnDataLoss` a `DataLossError`.
    """
    return asyncio.run(_plan(options, narrowing))


async def _plan(options: BatchOptions, narrowing: FilterRange) -> list[TaskRange]:
    start, end = options.start, options.end
    assert not isinstance(start, GivenCommitted)  # a stream's
    brokers = PlanningBrokers(options)
    try:
        await brokers.connect()
        partitions = await brokers.partitions()
        for bound in (start, end):
            check_named(bound, partitions)
        logs = await logs_of(brokers, partitions, start, end)
        topic_ids = brokers.topic_ids(partitions)
        from_ms = narrowing.from_ms
        young = {} if from_ms is None else await brokers.offsets(dict.fromkeys(partitions, from_ms))
    finally:
        await brokers.close()
    found = resolve(logs, start, end, no_match=options.no_match, topic_ids=topic_ids)
    if options.fail_on_data_loss:
        raise_first(found.losses)
    check_order(logs, start, end, no_match=options.no_match)
    for loss in found.losses:
        logger.warning("%s; going on without, because failOnDataLoss is false", loss)
    return narrowed(found.ranges, narrowing, young)


async def logs_of(
    brokers: PlanningBrokers, partitions: Iterable[TopicPartition], start: Fixed, end: Fixed
) -> dict[TopicPartition, LogRange]:
    """What the logs hold, and what matches the timestamps of `start` and `end`. Raises as `PlanningBrokers.offsets`."""
    tps = list(partitions)
    first, last, start_match, end_match = await asyncio.gather(
        brokers.offsets(dict.fromkeys(tps, EARLIEST)),
        brokers.offsets(dict.fromkeys(tps, LATEST)),
        brokers.offsets(_timestamps(start, tps)),
        brokers.offsets(_timestamps(end, tps)),
    )
    return {
        # Retention may pass between two answers, and records may arrive.
        tp: LogRange(
            start=first[tp],
            end=max(first[tp], last[tp], start_match.get(tp, -1), end_match.get(tp, -1)),
            start_match=start_match.get(tp, -1),
            end_match=end_match.get(tp, -1),
        )
        for tp in tps
    }


def _timestamps(bound: Fixed, partitions: list[TopicPartition]) -> dict[TopicPartition, int]:
    return {tp: bound.of(tp) for tp in partitions} if isinstance(bound, GivenTimestamps) else {}
