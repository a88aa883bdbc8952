"""Repeated questions to the brokers: where the job's logs begin and end, how many members the group has.

A question is put at an interval for as long as somebody wants the answer. The last answer is read at any time, without
waiting.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterable, Mapping
from typing import Generic, TypeAlias, TypeVar

from kafka_actors.base.tasks import OwnedTasks, woken
from kafka_actors.config import JobConfig
from kafka_actors.errors import KafkaActorsError
from kafka_actors.net import KafkaClient, OffsetLookups
from kafka_actors.types import LATEST, TopicPartition

__all__ = ["RETRY_S", "LogEndLookup", "LogEnds", "RepeatedQuery", "log_end_lookup"]

logger = logging.getLogger(__name__)

T = TypeVar("T")

RETRY_S = 2.0
"""A query that failed is repeated after this time, or its interval if that is shorter."""
LOOKUP_TIMEOUT_MS = 5_000.0
"""A broker that does not answer delays the ends of the other brokers' partitions by this much at most."""

LogEndLookup: TypeAlias = Callable[[Iterable[TopicPartition]], Awaitable[Mapping[TopicPartition, int]]]
"""Returns one end of the log of each partition; those that no broker can tell now are missing."""


class RepeatedQuery(Generic[T]):
    """A query that is repeated at an interval.

    `answer` is the last one; `empty` before the first, and once nobody wants it any more. `what` names the subject in the
    log. `ask()` may raise a `KafkaActorsError`: then the last answer stays. `on_answer()` is called after each answer.
    """

    def __init__(
        self,
        what: str,
        ask: Callable[[], Awaitable[T]],
        empty: T,
        on_answer: Callable[[], object] = lambda: None,
    ) -> None:
        self.answer = empty
        self._what = what
        self._ask = ask
        self._empty = empty
        self._on_answer = on_answer
        self._every_s: float | None = None
        self._running = False
        self._wake = asyncio.Event()

    def set_interval(self, every_s: float | None, tasks: OwnedTasks) -> None:
        """Asks every so many seconds from now on; None ends the query."""
        if every_s != self._every_s:
            self._wake.set()
        self._every_s = every_s
        if every_s is not None and not self._running:
            self._running = True
            tasks.create_task(self._repeat())

    def refresh(self) -> None:
        """Asks at once, if anybody wants the answer, because it may have changed."""
        self._wake.set()

    async def _repeat(self) -> None:
        while self._every_s is not None:
            self._wake.clear()
            limit = None
            try:
                self.answer = await self._ask()
                self._on_answer()
            except KafkaActorsError as error:
                logger.debug("%s: not known now: %s", self._what, error)
                limit = RETRY_S
            if self._every_s is not None:
                await woken(self._wake, self._every_s if limit is None else min(self._every_s, limit))
        self._running = False
        self.answer = self._empty


class LogEnds(RepeatedQuery[Mapping[TopicPartition, int]]):
    """The last known end of each partition's log. `partitions()` returns those that are of interest now."""

    def __init__(
        self,
        lookup: LogEndLookup,
        partitions: Callable[[], Iterable[TopicPartition]],
        on_answer: Callable[[], object] = lambda: None,
    ) -> None:
        super().__init__("the ends of the logs", self._look_up, {}, on_answer)
        self._lookup = lookup
        self._partitions = partitions

    async def _look_up(self) -> Mapping[TopicPartition, int]:
        wanted = set(self._partitions())
        found = await self._lookup(wanted) if wanted else {}
        known = {**self.answer, **found}
        return {tp: end for tp, end in known.items() if tp in wanted}

    def latest(self, partition: TopicPartition, fetched: int | None) -> int | None:
        """Returns the end of a log: the last answer, or the end that a fetch response had if that is further."""
        known = [end for end in (fetched, self.answer.get(partition)) if end is not None]
        return max(known, default=None)


def log_end_lookup(client: KafkaClient, config: JobConfig, which: int = LATEST) -> LogEndLookup:
    """Makes a lookup of one end (`LATEST` or `EARLIEST`), with one ListOffsets request to each leader. Under
    `read_committed` the latest is the last stable offset."""
    lookups = OffsetLookups(client)

    async def look_up(partitions: Iterable[TopicPartition]) -> Mapping[TopicPartition, int]:
        found = await lookups.list_offsets(
            dict.fromkeys(partitions, which),
            isolation_level=config.isolation_level,
            timeout_ms=LOOKUP_TIMEOUT_MS,
        )
        return {tp: listed.offset for tp, listed in found.items() if not isinstance(listed, Exception)}

    return look_up
