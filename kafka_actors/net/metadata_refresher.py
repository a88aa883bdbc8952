"""`MetadataRefresher`: a client's metadata, learned from the bootstrap servers and kept fresh from then on."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterable, Iterator
from typing import TypeVar

from kafka_actors.base.topics import check_topics
from kafka_actors.cluster.cluster import metadata_request
from kafka_actors.cluster.future import Future
from kafka_actors.cluster.metadata import ClusterMetadata, error_of
from kafka_actors.config import ClientConfig
from kafka_actors.errors import (
    AuthenticationError,
    ConfigError,
    KafkaActorsError,
    NoBrokersAvailable,
    NoBrokersError,
    NodeNotReadyError,
    RebootstrapRequiredError,
    UnknownHostError,
    UnrecognizedBrokerVersion,
)
from kafka_actors.protocol import MetadataRequest, MetadataResponse

from .connection_pool import ConnectionPool
from .machines.node_choice import NodeState, by_load

log = logging.getLogger(__name__)

HEDGE_S = 0.5
"""Seconds after which the next broker is asked as well."""

UNTRACKED_S = 60.0
"""Seconds for which a topic that was asked about once is kept fresh with the tracked ones."""

T = TypeVar("T")
Ask = Callable[[int, MetadataRequest], Awaitable[tuple[MetadataResponse, int]]]


class MetadataRefresher:
    """Asks for the metadata of the tracked topics when it is due, another broker where one doesn't answer.

    `topics` are the tracked ones, None for all. `ask` sends a Metadata request to a node and returns the response with its
    version on the wire. `clock` counts seconds, monotonic; `rand` gives 0..1.
    """

    def __init__(
        self,
        cluster: ClusterMetadata,
        pool: ConnectionPool,
        config: ClientConfig,
        ask: Ask,
        clock: Callable[[], float],
        rand: Callable[[], float],
    ) -> None:
        self.topics: list[str] | None = []
        self._names: frozenset[str] = frozenset()
        self._tracked: Future[ClusterMetadata] = Future()
        self._tracked.success(cluster)
        self._untracked: dict[str, float] = {}
        self._cluster = cluster
        self._pool = pool
        self._config = config
        self._ask = ask
        self._clock = clock
        self._rand = rand
        self._due = asyncio.Event()
        self._rebootstrap = False
        self._task: asyncio.Task[None] | None = None
        self._stopped = False
        cluster.add_request_listener(self._due.set)

    # ------------------------------------------------------------ topics

    def track(self, topics: Iterable[str] | None) -> Future[ClusterMetadata]:
        """Tracks these topics, None for all. The future resolves when their metadata was fetched: at once where that was so before."""
        wanted = None if topics is None else sorted(check_topics(topics))
        if wanted != self.topics or self._tracked.exception() is not None:
            self.topics, self._names = wanted, frozenset(wanted or ())
            self._tracked = self._cluster.request_update()
        return self._tracked

    def tracks(self, topic: str) -> bool:
        """Whether the topic's metadata is kept fresh."""
        return self.topics is None or topic in self._names

    def _wanted(self) -> list[str] | None:
        now = self._clock()
        self._untracked = {topic: until for topic, until in self._untracked.items() if until > now}
        return None if self.topics is None else sorted({*self.topics, *self._untracked})

    # ------------------------------------------------------------ bootstrap

    async def bootstrap(self, seconds: float) -> None:
        """Asks the bootstrap servers, again and again, until one answers; then refreshes in the background.

        Raises `NoBrokersAvailable` when `seconds` have passed, with each server's reason; before that what
        `KafkaClient.bootstrap` raises at once, and `NodeNotReadyError` after `stop`.
        """
        end = self._clock() + seconds
        while not self._cluster.snapshot().brokers:
            try:
                async with asyncio.timeout(max(end - self._clock(), 0.0)):
                    await asyncio.sleep(self._cluster.ttl() / 1000)
                    await self.refresh()
            except TimeoutError:
                raise self.not_connected(seconds) from None
            except KafkaActorsError:
                self._check_running()
                self._raise_if_hopeless()
        self.start()

    def _raise_if_hopeless(self) -> None:
        """Raises where waiting changes nothing: each server has answered, and none as a Kafka broker of a known version."""
        errors = [self._pool.error(b.node_id) for b in self._cluster.bootstrap_brokers()]
        for error in errors:
            if isinstance(error, (AuthenticationError, ConfigError)):
                raise error from error.__cause__
        if all(isinstance(e, UnrecognizedBrokerVersion) for e in errors):
            raise UnrecognizedBrokerVersion(self._bootstrap_failure()) from None
        if all(
            isinstance(e, UnknownHostError) or (isinstance(e, KafkaActorsError) and not e.retriable)
            for e in errors
        ):
            raise NoBrokersAvailable(self._bootstrap_failure()) from None

    def not_connected(self, seconds: float) -> NoBrokersAvailable:
        """The error for bootstrap servers that have not answered in that time, with a reason for each. For any thread."""
        return NoBrokersAvailable(self._bootstrap_failure(f" within {seconds:.3g} s"))

    def _bootstrap_failure(self, within: str = "") -> str:
        return f"none of the bootstrap_servers answered{within}: {self.bootstrap_errors('no answer in time')}"

    def bootstrap_errors(self, silence: str) -> str:
        """The last error of each bootstrap server; `silence` for one that had none."""
        reasons = []
        servers = self._config.bootstrap_servers
        for broker, name in zip(self._cluster.bootstrap_brokers(), servers, strict=True):
            error = self._pool.error(broker.node_id)
            text = silence if error is None else str(error)
            reasons.append(text if text.startswith(name) else f"{name}: {text}")
        return "; ".join(reasons)

    # ------------------------------------------------------------ refreshing

    def start(self) -> None:
        """Refreshes in the background from now on, in the running event loop. Raises `NodeNotReadyError` after `stop`."""
        self._check_running()
        if self._task is None or self._task.done():
            self._task = asyncio.create_task(self._run())

    async def stop(self) -> None:
        """Ends refreshing in the background, for good."""
        self._stopped = True
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait({self._task})

    def _check_running(self) -> None:
        if self._stopped:
            raise NodeNotReadyError("the client was closed")

    async def _run(self) -> None:
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
            except Exception:  # a bug here must not end refreshing for good
                log.exception("metadata could not be refreshed")

    async def refresh(self) -> None:
        """Asks once, of as many brokers as it takes. Raises `NoBrokersError` if none answers."""
        self._cluster.update_started()
        try:
            response, version = await self._ask_any(metadata_request(self._wanted()))
            self._rebootstrap = response.error_code == RebootstrapRequiredError.code
            self._cluster.update_metadata(response, version=version)
        except Exception as error:
            self._cluster.failed_update(error)
            raise

    async def fetch(self, topics: list[str]) -> None:
        """Asks about these topics only; the others stay as they are known. Raises as `refresh`, and the error of the answer."""
        self._untracked.update(dict.fromkeys(topics, self._clock() + UNTRACKED_S))
        response, version = await self._ask_any(metadata_request(topics))
        if (error := error_of(response)) is not None:
            self._cluster.request_update()
            if isinstance(error, RebootstrapRequiredError):
                self._rebootstrap = True
                raise NoBrokersError(str(error)) from error  # the next try asks the bootstrap servers
            raise error
        self._cluster.update_metadata(response, version=version, partial=True)

    # ------------------------------------------------------------ requests to any broker

    def candidates(self) -> list[int]:
        """The nodes to ask, in order: known brokers by load, then bootstrap servers, which know the brokers that are
        there now when all of the known ones are gone (KIP-899)."""
        return by_load(self._known(), self._rand) + by_load(self._bootstrap_states(), self._rand)

    def _known(self) -> list[NodeState]:
        if self._rebootstrap:  # a broker said that all known brokers are obsolete (KIP-1102)
            return []
        return [self._pool.state(node_id) for node_id in self._cluster.snapshot().brokers]

    def _bootstrap_states(self) -> list[NodeState]:
        return [self._pool.state(broker.node_id) for broker in self._cluster.bootstrap_brokers()]

    async def _ask_any(self, request: MetadataRequest) -> tuple[MetadataResponse, int]:
        return await self.ask_any(lambda node_id: self._ask(node_id, request))

    async def ask_any(self, ask: Callable[[int], Awaitable[T]]) -> T:
        """The first answer of any node, when one may be asked. Raises `NoBrokersError` if none answers."""
        while not (chosen := self.candidates()):
            states = self._known() + self._bootstrap_states()
            await asyncio.sleep(min(node.delay for node in states))
        return await first_answer(iter(chosen), ask, HEDGE_S)


async def first_answer(node_ids: Iterator[int], ask: Callable[[int], Awaitable[T]], hedge: float) -> T:
    """The first answer of any node. The next one is asked when one fails, or hasn't answered for `hedge` seconds.

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
            answered = await _settled(tasks, hedge if more else None, failures)
            if answered is not None:
                return answered.result()
    finally:
        for task in tasks:
            task.cancel()


async def _settled(
    tasks: dict[asyncio.Future[T], int], seconds: float | None, failures: list[str]
) -> asyncio.Future[T] | None:
    """The task that has an answer, None if one failed or `seconds` have passed. Failed ones are taken out."""
    done, _ = await asyncio.wait(tasks, timeout=seconds, return_when=asyncio.FIRST_COMPLETED)
    for task in done:
        error = task.exception()
        if error is None:
            return task
        if not isinstance(error, KafkaActorsError):
            raise error
        failures.append(str(error))
        del tasks[task]
    return None
