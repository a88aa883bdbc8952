"""Where the logs of a job's partitions end now, asked of the brokers for as long as somebody decides by the lag."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable, Mapping
from typing import Protocol

from kafka_actors.config import JobConfig
from kafka_actors.errors import KafkaActorsError
from kafka_actors.net import LATEST, KafkaClient, OffsetLookups
from kafka_actors.protocol.types import TopicPartition

from .loops import Loops

__all__ = ["AskForEnds", "LogEnds", "asking"]

PATIENCE_MS = 5_000.0
"""A broker that does not answer keeps the ends of the others waiting for so long."""

logger = logging.getLogger(__name__)


class AskForEnds(Protocol):
    """The end offsets of these partitions, without those that nobody can say now."""

    async def __call__(self, partitions: Iterable[TopicPartition]) -> Mapping[TopicPartition, int]: ...


def asking(client: KafkaClient, config: JobConfig) -> AskForEnds:
    """Asks the leaders, one request each; under `read_committed` for the last stable offsets."""
    lookups = OffsetLookups(client)

    async def ask(partitions: Iterable[TopicPartition]) -> Mapping[TopicPartition, int]:
        found = await lookups.list_offsets(
            dict.fromkeys(partitions, LATEST), isolation_level=config.isolation_level, timeout_ms=PATIENCE_MS
        )
        return {tp: listed.offset for tp, listed in found.items() if not isinstance(listed, Exception)}

    return ask


class LogEnds:
    """The last answer for each partition. `partitions()`: those that are of interest at the moment."""

    def __init__(self, ask: AskForEnds, partitions: Callable[[], Iterable[TopicPartition]]) -> None:
        self._ask = ask
        self._partitions = partitions
        self._every_s: float | None = None
        self._asking = False
        self._ends: Mapping[TopicPartition, int] = {}

    def keep(self, every_s: float | None, loops: Loops) -> None:
        """From now on asks every so many seconds; None asks no more."""
        self._every_s = every_s
        if every_s is not None and not self._asking:
            self._asking = True
            loops.go(self._go_on())

    async def _go_on(self) -> None:
        while self._every_s is not None:
            if partitions := list(self._partitions()):
                try:
                    self._ends = {**self._ends, **await self._ask(partitions)}
                except KafkaActorsError as error:
                    logger.debug("the ends of the logs are not known now: %s", error)
                wanted = set(partitions)
                self._ends = {tp: end for tp, end in self._ends.items() if tp in wanted}
            if self._every_s is not None:
                await asyncio.sleep(self._every_s)
        self._asking = False
        self._ends = {}

    def latest(self, partition: TopicPartition, fetched: int | None) -> int | None:
        """The end of a log: what was asked, or what a fetch has said of it if that is further."""
        known = [end for end in (fetched, self._ends.get(partition)) if end is not None]
        return max(known, default=None)
