"""What brokers are asked again and again, for as long as somebody wants to know it."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import Generic, TypeVar

from kafka_actors.base.tasks import OwnedTasks, woken
from kafka_actors.errors import KafkaActorsError

__all__ = ["RETRY_S", "RepeatedQuery"]

logger = logging.getLogger(__name__)

T = TypeVar("T")

RETRY_S = 2.0
"""A question without an answer is put again after so long at the latest."""


class RepeatedQuery(Generic[T]):
    """`answer`: the last one; `nothing` before there is one, and once nobody wants it any more.

    `what` is asked about, for the log. `ask()` may raise a `KafkaActorsError`: then the answer before stays. `told()`
    is called after each answer.
    """

    def __init__(
        self,
        what: str,
        ask: Callable[[], Awaitable[T]],
        nothing: T,
        told: Callable[[], object] = lambda: None,
    ) -> None:
        self.answer = nothing
        self._what = what
        self._ask = ask
        self._nothing = nothing
        self._told = told
        self._every_s: float | None = None
        self._asking = False
        self._wake = asyncio.Event()

    def keep(self, every_s: float | None, loops: OwnedTasks) -> None:
        """From now on asks every so many seconds; None asks no more."""
        if every_s != self._every_s:
            self._wake.set()
        self._every_s = every_s
        if every_s is not None and not self._asking:
            self._asking = True
            loops.go(self._go_on())

    def soon(self) -> None:
        """The answer may be another one now: asks at once, if anybody wants to know."""
        self._wake.set()

    async def _go_on(self) -> None:
        while self._every_s is not None:
            self._wake.clear()
            limit = None
            try:
                self.answer = await self._ask()
                self._told()
            except KafkaActorsError as error:
                logger.debug("%s: not known now: %s", self._what, error)
                limit = RETRY_S
            if self._every_s is not None:
                await woken(self._wake, self._every_s if limit is None else min(self._every_s, limit))
        self._asking = False
        self.answer = self._nothing
