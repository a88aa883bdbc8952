"""`OffsetLookups`: offsets by timestamp and ends of epochs, from each partition's leader."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Mapping
from typing import Generic, Literal, Never, Protocol, TypeVar, get_args

from msgspec import Struct

from kafka_actors.base.machine import Ready
from kafka_actors.base.machine_driver import MachineDriver
from kafka_actors.cluster.machines.refresh import RefreshMetadata
from kafka_actors.cluster.metadata import ClusterMetadata
from kafka_actors.cluster.snapshot import ClusterSnapshot
from kafka_actors.config import ClientConfig
from kafka_actors.errors import KafkaActorsError, KafkaError, ProtocolError
from kafka_actors.protocol import ListOffsetsRequest, OffsetForLeaderEpochRequest
from kafka_actors.protocol.messages.list_offsets import ListOffsetsPartition, ListOffsetsTopic
from kafka_actors.protocol.messages.offset_for_leader_epoch import (
    OffsetForLeaderPartition,
    OffsetForLeaderTopic,
)
from kafka_actors.protocol.schema import Request, Response
from kafka_actors.types import TopicPartition

from .machines.leader_queries import AskLeader, LeaderQueries, LearnTopics, QueryAction

MAX_TIMESTAMP = -3

IsolationLevel = Literal["read_uncommitted", "read_committed"]
ISOLATION_LEVELS: tuple[IsolationLevel, ...] = get_args(IsolationLevel)

_SINCE = {MAX_TIMESTAMP: 7}  # ListOffsets version by special timestamp (KIP-734); the ends are in all
_CONSUMER = -1

A = TypeVar("A")
R = TypeVar("R", bound=Response)


class ListedOffset(Struct, frozen=True):
    """An offset found by timestamp. All are -1 where the log has no record as young as that.

    `timestamp` is the record's in milliseconds, -1 for the ends of the log; `leader_epoch` -1 if not known.
    """

    offset: int
    timestamp: int
    leader_epoch: int


class EpochEnd(Struct, frozen=True):
    """The end of the largest epoch not above the requested one (KIP-320); both -1 if the leader knows of none."""

    leader_epoch: int
    end_offset: int


Answers = dict[TopicPartition, tuple[int, A]]
"""The error code and the answer by partition."""


class LeaderClient(Protocol):
    """The methods of a client that look-ups call: `KafkaClient` has them, as has a job's link to its connection actors."""

    @property
    def config(self) -> ClientConfig: ...
    @property
    def cluster(self) -> ClusterMetadata: ...
    @property
    def snapshot(self) -> ClusterSnapshot: ...
    @property
    def rand(self) -> Callable[[], float]: ...
    def now(self) -> float: ...
    def tracks(self, topic: str) -> bool: ...
    async def fetch_metadata(self, topics: Iterable[str]) -> ClusterSnapshot: ...
    async def send(
        self,
        node_id: int,
        request: Request[R],
        *,
        timeout_ms: float | None = None,
        min_version: int | None = None,
    ) -> R: ...


class OffsetLookups:
    """Looks offsets up at the leaders, again after temporary errors, until `timeout_ms` (default `request_timeout_ms`) is over.

    A broker that doesn't answer is not waited for once its partitions are led elsewhere. Results are per
    partition: the answer, or the error that is final or was the last one.
    """

    def __init__(self, client: LeaderClient) -> None:
        self._client = client

    async def list_offsets(
        self,
        partitions: Mapping[TopicPartition, int],
        *,
        isolation_level: IsolationLevel = "read_uncommitted",
        leader_epochs: Mapping[TopicPartition, int] | None = None,
        timeout_ms: float | None = None,
        temporary: tuple[type[KafkaError], ...] = (),
    ) -> dict[TopicPartition, ListedOffset | KafkaActorsError]:
        """The first offset at or after a timestamp (milliseconds since 1970), by partition.

        `EARLIEST` and `LATEST` are the ends of the log; under read_committed the latest is the last stable
        offset. `leader_epochs` are the epochs that the caller knows: an older leader's answer is refused. `temporary` are errors after
        which it is asked again, beside the retriable ones.
        """
        known = leader_epochs or {}

        async def ask(leader: int, tps: list[TopicPartition], limit_ms: float) -> Answers[ListedOffset]:
            topics = [
                ListOffsetsTopic(
                    topic,
                    [
                        ListOffsetsPartition(tp.partition, self._epoch(tp, known), partitions[tp])
                        for tp in members
                    ],
                )
                for topic, members in by_topic(tps).items()
            ]
            request = ListOffsetsRequest(
                _CONSUMER, int(isolation_level == "read_committed"), topics, timeout_ms=int(limit_ms)
            )
            lowest = max((_SINCE.get(partitions[tp], 0) for tp in tps), default=0)
            response = await self._client.send(leader, request, timeout_ms=limit_ms, min_version=lowest)
            return {
                TopicPartition(t.name, p.partition_index): (
                    p.error_code,
                    ListedOffset(p.offset, p.timestamp, p.leader_epoch),
                )
                for t in response.topics
                for p in t.partitions
            }

        return await LeaderCall(
            self._client, partitions, "ListOffsets", ask, timeout_ms, temporary=temporary
        ).run()

    async def offsets_for_leader_epoch(
        self,
        partitions: Mapping[TopicPartition, tuple[int, int]],
        *,
        timeout_ms: float | None = None,
    ) -> dict[TopicPartition, EpochEnd | KafkaActorsError]:
        """The end offset of an epoch, by partition: `{tp: (current_leader_epoch, leader_epoch)}`."""
        known = {tp: current for tp, (current, _) in partitions.items()}

        async def ask(leader: int, tps: list[TopicPartition], limit_ms: float) -> Answers[EpochEnd]:
            topics = [
                OffsetForLeaderTopic(
                    topic,
                    [
                        OffsetForLeaderPartition(tp.partition, self._epoch(tp, known), partitions[tp][1])
                        for tp in members
                    ],
                )
                for topic, members in by_topic(tps).items()
            ]
            request = OffsetForLeaderEpochRequest(_CONSUMER, topics)
            response = await self._client.send(leader, request, timeout_ms=limit_ms)
            return {
                TopicPartition(t.topic, p.partition): (p.error_code, EpochEnd(p.leader_epoch, p.end_offset))
                for t in response.topics
                for p in t.partitions
            }

        return await LeaderCall(self._client, partitions, "OffsetForLeaderEpoch", ask, timeout_ms).run()

    def _epoch(self, tp: TopicPartition, known: Mapping[TopicPartition, int]) -> int:
        return max(known.get(tp, -1), self._client.snapshot.leader_epoch(tp))


class LeaderCall(Generic[A]):
    """Drives the queries of one call: a task for each request to a leader.

    `ask` gets a leader, its partitions and the milliseconds within which it has to answer: what is left of the call, at most
    `request_timeout_ms`, so that an answer that is lost doesn't cost the whole call.
    """

    def __init__(
        self,
        client: LeaderClient,
        partitions: Iterable[TopicPartition],
        request: str,
        ask: Callable[[int, list[TopicPartition], float], Awaitable[Answers[A]]],
        timeout_ms: float | None,
        *,
        temporary: tuple[type[KafkaError], ...] = (),
    ) -> None:
        self._client = client
        self._request = request
        self._ask = ask
        config = client.config
        limit = config.request_timeout_ms if timeout_ms is None else timeout_ms
        self._deadline = client.now() + limit / 1000
        self._lookups: LeaderQueries[A] = LeaderQueries(
            partitions,
            request,
            deadline=self._deadline,
            retry_backoff=config.retry_backoff_ms / 1000,
            retry_backoff_max=config.retry_backoff_max_ms / 1000,
            rand=client.rand,
            temporary=temporary,
        )
        self._tasks: dict[asyncio.Task[None], int] = {}
        self._driver = MachineDriver(client.now, on_crash=self._crashed)
        self._driver.add(self, self._carry_out)
        self._error: Exception | None = None

    async def run(self) -> dict[TopicPartition, A | KafkaActorsError]:
        listener = self._on_metadata
        self._client.cluster.add_listener(listener)
        try:
            self._driver.start()
            await self._driver.until(lambda: self._lookups.done or self._error is not None, None)
            if self._error is not None:
                raise self._error
            return self._lookups.answers
        finally:
            self._client.cluster.remove_listener(listener)
            for task in self._tasks:
                task.cancel()
            await self._driver.stop()

    def poll(self, now: float) -> Ready[QueryAction, Never]:
        """Polls the queries with the present snapshot of the cluster."""
        self._lookups.snapshot = self._client.snapshot
        return self._lookups.poll(now)

    def _carry_out(self, action: QueryAction) -> None:
        match action:
            case AskLeader(leader, tps):
                self._tasks[asyncio.create_task(self._ask_leader(leader, tps))] = leader
            case LearnTopics(topics):
                self._tasks[asyncio.create_task(self._learn(topics))] = -1
            case RefreshMetadata():
                self._client.cluster.request_update()

    def _crashed(self, error: Exception) -> None:
        self._error = error

    async def _ask_leader(self, leader: int, tps: list[TopicPartition]) -> None:
        stale = False
        try:
            left_ms = (self._deadline - self._client.now()) * 1000
            limit_ms = min(left_ms, self._client.config.request_timeout_ms)
            answers = await self._ask(leader, tps, limit_ms)
            now = self._client.now()
            for tp in [tp for tp in tps if tp in answers]:
                code, answer = answers[tp]
                stale |= self._lookups.answered(tp, leader, code, answer, now)
            missing = ProtocolError(f"broker {leader} left partitions out of its {self._request} response")
            self._lookups.failed(leader, [tp for tp in tps if tp not in answers], missing, now)
        except KafkaActorsError as error:
            self._lookups.failed(leader, tps, error, self._client.now())
            stale = error.retriable
        if stale:
            self._client.cluster.request_update()
        self._forget_task()

    async def _learn(self, topics: frozenset[str]) -> None:
        try:
            await self._client.fetch_metadata(sorted(topics))
        except KafkaActorsError:
            pass  # the partitions stay unknown, and are tried again after their pause
        self._forget_task()

    def _forget_task(self) -> None:
        task = asyncio.current_task()
        assert task is not None  # it runs in one
        self._tasks.pop(task, None)
        self._driver.wake()

    def _on_metadata(self, _: object) -> None:
        self._lookups.snapshot = self._client.snapshot
        left = self._lookups.moved()
        for task in [task for task, leader in self._tasks.items() if leader in left]:
            task.cancel()
            del self._tasks[task]
        self._driver.wake()


def by_topic(tps: Iterable[TopicPartition]) -> dict[str, list[TopicPartition]]:
    grouped: dict[str, list[TopicPartition]] = {}
    for tp in tps:
        grouped.setdefault(tp.topic, []).append(tp)
    return grouped
