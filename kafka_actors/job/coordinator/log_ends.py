"""Where the logs of a job's partitions begin and end: the brokers are asked for as long as somebody wants to know."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Protocol

from kafka_actors.config import JobConfig
from kafka_actors.net import KafkaClient, OffsetLookups
from kafka_actors.types import LATEST, TopicPartition

from .repeated_query import RepeatedQuery

__all__ = ["AskForEnds", "LogEnds", "asking"]

PATIENCE_MS = 5_000.0
"""A broker that does not answer keeps the ends of the others waiting for so long."""


class AskForEnds(Protocol):
    """One end of the log of each of these partitions, without those that nobody can say now."""

    async def __call__(self, partitions: Iterable[TopicPartition]) -> Mapping[TopicPartition, int]: ...


def asking(client: KafkaClient, config: JobConfig, which: int = LATEST) -> AskForEnds:
    """Asks the leaders, one request each, for this end (`LATEST` or `EARLIEST`); under `read_committed` the latest is
    the last stable offset."""
    lookups = OffsetLookups(client)

    async def ask(partitions: Iterable[TopicPartition]) -> Mapping[TopicPartition, int]:
        found = await lookups.list_offsets(
            dict.fromkeys(partitions, which), isolation_level=config.isolation_level, timeout_ms=PATIENCE_MS
        )
        return {tp: listed.offset for tp, listed in found.items() if not isinstance(listed, Exception)}

    return ask


class LogEnds(RepeatedQuery[Mapping[TopicPartition, int]]):
    """The last answer for each partition. `partitions()`: those that are of interest at the moment; `told()` is called
    after each answer."""

    def __init__(
        self,
        ask: AskForEnds,
        partitions: Callable[[], Iterable[TopicPartition]],
        told: Callable[[], object] = lambda: None,
    ) -> None:
        super().__init__("the ends of the logs", self._look, {}, told)
        self._ask_brokers = ask
        self._partitions = partitions

    async def _look(self) -> Mapping[TopicPartition, int]:
        wanted = set(self._partitions())
        found = await self._ask_brokers(wanted) if wanted else {}
        known = {**self.answer, **found}
        return {tp: end for tp, end in known.items() if tp in wanted}

    def latest(self, partition: TopicPartition, fetched: int | None) -> int | None:
        """The end of a log: what was asked, or what a fetch has said of it if that is further."""
        known = [end for end in (fetched, self.answer.get(partition)) if end is not None]
        return max(known, default=None)
