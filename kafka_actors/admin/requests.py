"""Requests with retries until a deadline: to any broker, to one, or to the coordinators of groups."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Mapping
from typing import TypeVar

from kafka_actors.base.arguments import seconds_of
from kafka_actors.base.backoff import RetryTimer
from kafka_actors.cluster.snapshot import BrokerMetadata, ClusterSnapshot
from kafka_actors.errors import (
    EncodeError,
    KafkaActorsError,
    KafkaError,
    KafkaTimeoutError,
    NodeNotReadyError,
    NotControllerError,
    ProtocolError,
    UnknownTopicOrPartitionError,
)
from kafka_actors.group.machines.coordinator_finder import coordinator_in
from kafka_actors.net import KafkaClient
from kafka_actors.protocol import FindCoordinatorRequest, FindCoordinatorResponse
from kafka_actors.protocol.messages.find_coordinator import Coordinator
from kafka_actors.protocol.schema import Request, Response

__all__ = [
    "CallDeadline",
    "Coordinators",
    "ask_any",
    "ask_controller",
    "ask_node",
    "fresh_snapshot",
    "persist",
    "persist_each",
    "raise_first",
]

A = TypeVar("A")
K = TypeVar("K")
R = TypeVar("R", bound=Response)

AskGroups = Callable[[BrokerMetadata, list[str], float], Awaitable[Mapping[str, A | KafkaActorsError]]]
"""Function of a coordinator, its groups and the milliseconds left, which returns the answer or error of each group."""


AttemptEach = Callable[[list[K], float], Awaitable[Mapping[K, A | KafkaActorsError]]]
"""Function of the keys without an answer and a limit in milliseconds, which returns the answer or error of each."""


class CallDeadline:
    """Deadline of a call and of all its requests: `timeout_ms` from now, by default `request_timeout_ms`."""

    def __init__(self, client: KafkaClient, timeout_ms: float | None = None) -> None:
        self._now = client.now
        self.seconds = seconds_of(client.config.request_timeout_ms if timeout_ms is None else timeout_ms)
        self._end = client.now() + self.seconds

    def left_ms(self) -> float:
        """Milliseconds until the deadline; 0 once it has passed."""
        return max(self._end - self._now(), 0.0) * 1000


async def persist(client: KafkaClient, attempt: Callable[[float], Awaitable[A]], deadline: CallDeadline) -> A:
    """Calls `attempt(limit in milliseconds)` until it succeeds, with growing pauses after errors that may pass; returns its result.

    The limit is what is left until the deadline, at most `request_timeout_ms`: no answer is waited for longer, so no broker needs to.
    Raises the first other error, and `KafkaTimeoutError` at the deadline.
    """
    config = client.config
    backoff = RetryTimer(config.retry_backoff_ms / 1000, config.retry_backoff_max_ms / 1000, client.rand)
    while True:
        try:
            return await attempt(min(deadline.left_ms(), config.request_timeout_ms))
        except KafkaActorsError as error:
            if not _may_pass(error):
                raise
            pause = backoff.failed(client.now())
            if pause * 1000 >= deadline.left_ms():
                if isinstance(error, KafkaTimeoutError):
                    raise
                raise KafkaTimeoutError(f"no success within {deadline.seconds:g} s: {error}") from error
        await asyncio.sleep(pause)


async def persist_each(
    client: KafkaClient, keys: Iterable[K], attempt: AttemptEach[K, A], deadline: CallDeadline
) -> dict[K, A | KafkaActorsError]:
    """Answer of each key, or its error: one that does not pass, or the last one before the deadline.

    `attempt(keys without an answer, limit in milliseconds)` returns answers and errors by key, or raises an error of all.
    """
    open_ = dict.fromkeys(keys)
    answers: dict[K, A | KafkaActorsError] = {}

    async def attempt_open(limit_ms: float) -> None:
        said = await attempt(list(open_), limit_ms) if open_ else {}
        passing = None
        for key in list(open_):
            answer = said.get(key, ProtocolError(f"the broker left {key} out of its response"))
            if isinstance(answer, KafkaActorsError) and _may_pass(answer):
                passing = answer
                continue
            answers[key] = answer
            del open_[key]
        if passing is not None:
            raise passing

    try:
        await persist(client, attempt_open, deadline)
    except KafkaActorsError as error:
        answers.update(dict.fromkeys(open_, error))
    return answers


def _may_pass(error: KafkaActorsError) -> bool:
    """Whether to try again after this error. Not for a topic that doesn't exist, though a consumer would wait for it."""
    return error.retriable and not isinstance(error, UnknownTopicOrPartitionError)


async def ask_any(client: KafkaClient, request: Request[R], limit_ms: float) -> R:
    """Sends a request to the broker with the fewest requests in flight. Raises as `KafkaClient.send`."""
    node_id = client.least_loaded_node()
    if node_id is None:
        raise NodeNotReadyError("no broker can take a request now")
    return await ask_node(client, node_id, request, limit_ms)


async def ask_node(client: KafkaClient, node_id: int, request: Request[R], limit_ms: float) -> R:
    """Sends a request to a broker, within `limit_ms` and `request_timeout_ms`. Raises as `KafkaClient.send`."""
    return await client.send(node_id, request, timeout_ms=min(limit_ms, client.config.request_timeout_ms))


async def ask_controller(client: KafkaClient, request: Request[R], deadline: CallDeadline) -> R:
    """Sends a request to the controller; under KRaft that is any broker, which passes the request on. Raises as `KafkaClient.send`."""
    snapshot = await fresh_snapshot(client, deadline.left_ms())
    if snapshot.controller_id not in snapshot.brokers:
        raise NotControllerError("no broker is the controller now", request="Metadata")
    assert snapshot.controller_id is not None
    return await ask_node(client, snapshot.controller_id, request, deadline.left_ms())


async def fresh_snapshot(client: KafkaClient, limit_ms: float) -> ClusterSnapshot:
    """Metadata of the cluster, requested anew. Raises as `KafkaClient.update_metadata`, and `KafkaTimeoutError`."""
    try:
        async with asyncio.timeout(limit_ms / 1000):
            return await client.update_metadata()
    except TimeoutError:
        raise KafkaTimeoutError(f"no broker described the cluster within {limit_ms / 1000:g} s") from None


def raise_first(errors: Iterable[KafkaActorsError]) -> None:
    """Raises the first error, if there is one, with a note on the others."""
    found = list(errors)
    if not found:
        return
    for other in found[1:]:
        if other is not found[0]:  # one error may be that of all
            found[0].add_note(f"and {other}")
    raise found[0]


class Coordinators:
    """Sends requests about groups to their coordinators, and finds these again after errors that may pass."""

    def __init__(self, client: KafkaClient) -> None:
        self._client = client

    async def ask(
        self, group_ids: Iterable[str], ask: AskGroups[A], deadline: CallDeadline
    ) -> dict[str, A | KafkaActorsError]:
        """Answer of each group, or its error: one that does not pass, or the last one before the deadline."""

        async def attempt(its_groups: list[str], _: float) -> dict[str, A | KafkaActorsError]:
            return await self._round(its_groups, ask, deadline)

        return await persist_each(self._client, group_ids, attempt, deadline)

    async def _round(
        self, group_ids: list[str], ask: AskGroups[A], deadline: CallDeadline
    ) -> dict[str, A | KafkaActorsError]:
        """Finds the coordinators of groups and sends each one request."""
        answers: dict[str, A | KafkaActorsError] = {}
        by_node: dict[BrokerMetadata, list[str]] = {}
        for group_id, found in (await self._find(group_ids, deadline.left_ms())).items():
            if isinstance(found, KafkaActorsError):
                answers[group_id] = found
            else:
                by_node.setdefault(found, []).append(group_id)

        async def one(node: BrokerMetadata, its_groups: list[str]) -> None:
            try:
                said = await ask(node, its_groups, deadline.left_ms())
            except KafkaActorsError as error:
                said = dict.fromkeys(its_groups, error)
            missing = ProtocolError(f"broker {node.node_id} left a group out of its response")
            answers.update({group_id: said.get(group_id, missing) for group_id in its_groups})

        await asyncio.gather(*(one(node, groups) for node, groups in by_node.items()))
        return answers

    async def _find(
        self, group_ids: list[str], limit_ms: float
    ) -> dict[str, BrokerMetadata | KafkaActorsError]:
        try:
            request = FindCoordinatorRequest(coordinator_keys=group_ids)
            response = await ask_any(self._client, request, limit_ms)
        except EncodeError:  # before KIP-699 (Kafka 3.0): one at a time
            return {group_id: await self._find_one(group_id, limit_ms) for group_id in group_ids}
        return {c.key: _coordinator(c, c.key) for c in response.coordinators}

    async def _find_one(self, group_id: str, limit_ms: float) -> BrokerMetadata | KafkaActorsError:
        request = FindCoordinatorRequest(key=group_id)
        try:
            response = await ask_any(self._client, request, limit_ms)
        except KafkaActorsError as error:
            return error
        return _coordinator(response, group_id)


def _coordinator(
    found: Coordinator | FindCoordinatorResponse, group_id: str
) -> BrokerMetadata | KafkaActorsError:
    node = coordinator_in(found, group_id)
    return node if isinstance(node, KafkaError) else BrokerMetadata(node.node_id, node.host, node.port)
