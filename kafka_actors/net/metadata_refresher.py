"""Keeps a client's metadata fresh: asks when it is due, another broker where one doesn't answer."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterator
from typing import TypeVar

from kafka_actors.cluster.metadata import ClusterMetadata
from kafka_actors.errors import KafkaActorsError, NoBrokersError, RebootstrapRequiredError
from kafka_actors.protocol import MetadataRequest, MetadataResponse
from kafka_actors.protocol.messages.metadata import MetadataRequestTopic

from .machines.node_choice import NodeState, by_load

log = logging.getLogger(__name__)

HEDGE_S = 0.5
"""A broker that takes longer is left alone with the question, and the next one is asked as well."""

GUEST_S = 60.0
"""How long a topic that was asked about once is kept fresh with the tracked ones."""

T = TypeVar("T")
Ask = Callable[[int, MetadataRequest], Awaitable[tuple[MetadataResponse, int]]]


class MetadataRefresher:
    """`ask` sends a Metadata request to a node and returns the response with its version."""

    def __init__(
        self,
        cluster: ClusterMetadata,
        ask: Ask,
        state: Callable[[int], NodeState],
        clock: Callable[[], float],
        rand: Callable[[], float],
    ) -> None:
        self.topics: list[str] | None = []
        self._guests: dict[str, float] = {}
        self._clock = clock
        self._cluster = cluster
        self._ask = ask
        self._state = state
        self._rand = rand
        self._due = asyncio.Event()
        self._rebootstrap = False
        cluster.add_request_listener(self._due.set)

    async def run(self) -> None:
        """Refreshes whenever that is due, until cancelled."""
        while True:
            self._due.clear()
            wait = self._cluster.ttl() / 1000
            if wait > 0:
                try:
                    async with asyncio.timeout(wait):
                        await self._due.wait()
                except TimeoutError:
                    pass
                continue
            try:
                await self.refresh()
            except KafkaActorsError as error:
                log.debug("metadata could not be refreshed: %s", error)
            except Exception:  # a mistake here must not leave the client with what it knows now, for good
                log.exception("metadata could not be refreshed")

    async def refresh(self) -> None:
        """Asks once, of as many brokers as it takes. Raises `NoBrokersError` if none answers."""
        self._cluster.update_started()
        try:
            response, version = await self._ask_any(_request(self._wanted()))
            self._rebootstrap = response.error_code == RebootstrapRequiredError.code
            self._cluster.update_metadata(response, version=version)
        except Exception as error:
            self._cluster.failed_update(error)
            raise

    def _wanted(self) -> list[str] | None:
        now = self._clock()
        self._guests = {topic: until for topic, until in self._guests.items() if until > now}
        return None if self.topics is None else sorted({*self.topics, *self._guests})

    async def fetch(self, topics: list[str]) -> None:
        """Asks about these topics only; what is known of others stays. Raises as `refresh`."""
        self._guests.update(dict.fromkeys(topics, self._clock() + GUEST_S))
        response, version = await self._ask_any(_request(topics))
        self._cluster.update_metadata(response, version=version, partial=True)

    def candidates(self) -> list[int]:
        """Whom to ask, in order: known brokers by load, then bootstrap servers, which know the brokers that are
        there now when all of the known ones are gone (KIP-899)."""
        states = [self._state(b.node_id) for b in self._cluster.bootstrap_brokers()]
        return by_load(self._known(), self._rand) + by_load(states, self._rand)

    def _known(self) -> list[NodeState]:
        if self._rebootstrap:  # a broker said that all we know is obsolete (KIP-1102)
            return []
        return [self._state(node_id) for node_id in self._cluster.snapshot().brokers]

    async def _ask_any(self, request: MetadataRequest) -> tuple[MetadataResponse, int]:
        return await self.ask_any(lambda node_id: self._ask(node_id, request))

    async def ask_any(self, ask: Callable[[int], Awaitable[T]]) -> T:
        """The first answer of any broker, when one may be asked. Raises `NoBrokersError` if none answers."""
        while not (chosen := self.candidates()):
            bootstrap = [self._state(b.node_id) for b in self._cluster.bootstrap_brokers()]
            await asyncio.sleep(min(node.delay for node in self._known() + bootstrap))
        return await first_answer(iter(chosen), ask, HEDGE_S)


def _request(topics: list[str] | None) -> MetadataRequest:
    named = None if topics is None else [MetadataRequestTopic(name=topic) for topic in topics]
    return MetadataRequest(topics=named, allow_auto_topic_creation=False)


async def first_answer(node_ids: Iterator[int], ask: Callable[[int], Awaitable[T]], patience: float) -> T:
    """The first answer of any node. The next is asked when one fails, or hasn't answered for `patience` seconds.

    Raises `NoBrokersError`, which says of each node why it failed.
    """
    tasks: dict[asyncio.Future[T], int] = {}
    failures: list[str] = []
    more = True
    try:
        while True:
            node_id = next(node_ids, None) if more else None
            more = node_id is not None
            if node_id is not None:
                tasks[asyncio.ensure_future(ask(node_id))] = node_id
            elif not tasks:
                raise NoBrokersError("; ".join(failures) or "no broker may be asked yet")
            answered = await _settled(tasks, patience if more else None, failures)
            if answered is not None:
                return answered.result()
    finally:
        for task in tasks:
            task.cancel()


async def _settled(
    tasks: dict[asyncio.Future[T], int], patience: float | None, failures: list[str]
) -> asyncio.Future[T] | None:
    """The task that has an answer, None if one failed or patience ran out. Failed ones are taken out."""
    done, _ = await asyncio.wait(tasks, timeout=patience, return_when=asyncio.FIRST_COMPLETED)
    for task in done:
        error = task.exception()
        if error is None:
            return task
        if not isinstance(error, KafkaActorsError):
            raise error
        failures.append(str(error))
        del tasks[task]
    return None
