"""Requests of transactions outside of one: a producer id for a transactional id (InitProducerId), and offsets of a group that no transaction
moves any more (OffsetFetch with `require_stable`, KIP-447); and how any such request is sent."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable
from functools import partial
from typing import Any

from kafka_actors.base.backoff import RetryTimer
from kafka_actors.errors import NodeNotReadyError
from kafka_actors.group.commit_metadata import unpack
from kafka_actors.group.coordinator_channels import send_in_some_shape
from kafka_actors.group.machines.offset_fetch import offset_fetch_request, read_offset_fetch
from kafka_actors.net import KafkaClient
from kafka_actors.types import OffsetAndMetadata, ProducerIdentity, TopicPartition

from .machines.transaction_errors import TransactionApi, TransactionErrorAction, transaction_action
from .machines.transaction_requests import (
    TakeIdentity,
    TransactionRequest,
    answered_error,
    coordinator_of,
    find_coordinator,
)
from .machines.transactions import TransactionManager

logger = logging.getLogger(__name__)

_API = TransactionApi
STABLE_SINCE = 7
"""The first version of OffsetFetch with `require_stable` (Kafka 2.5)."""
_AGAIN = (TransactionErrorAction.RETRY, TransactionErrorAction.REDISCOVER)


async def outcome_of(client: KafkaClient, request: TransactionRequest) -> object:
    """Sends a request. Returns its response, or the exception that ended it."""
    try:
        node = client.least_loaded_node() if request.node is None else request.node
        if node is None:
            raise NodeNotReadyError(f"no broker may be asked now: {client.trouble()}")
        send = partial(client.send, node, min_version=request.min_version, max_version=request.max_version)
        return await send_in_some_shape(send, request.body)
    except Exception as error:
        logger.debug("%s: %s", request.api.value, error)
        return error


async def producer_identity(
    client: KafkaClient, transactional_id: str, timeout_ms: int, backoff: RetryTimer, now: Callable[[], float]
) -> ProducerIdentity:
    """Gets a producer id for a transactional id (InitProducerId), until it has one: then the transaction of every earlier producer
    with that id is ended, its markers are written, and what such a producer still sends is refused. Raises what no retry mends."""
    machine = TransactionManager(transactional_id, timeout_ms, backoff)
    machine.initialize()
    while True:
        ready = machine.poll(now())
        for action in ready.actions:
            if isinstance(action, TakeIdentity):
                return ProducerIdentity(transactional_id, action.producer_id, action.producer_epoch)
            machine.on_response(action, await outcome_of(client, action), now())
        if machine.error is not None:
            raise machine.error
        if ready.next_wake is not None:
            await asyncio.sleep(max(0.0, ready.next_wake - now()))


async def stable_offsets(
    client: KafkaClient, group_id: str, partitions: Iterable[TopicPartition], rand: Callable[[], float]
) -> dict[TopicPartition, OffsetAndMetadata]:
    """Returns the committed offsets of a group, each with its committer's own text, without those of partitions that have none. While a
    transaction that is open or being ended has moved one of them, the broker says UNSTABLE_OFFSET_COMMIT, and is asked again: the caller
    bounds the time.

    Raises the error of the broker that no retry mends.
    """
    body = offset_fetch_request(group_id, partitions, require_stable=True)
    config = client.config
    backoff = RetryTimer(config.retry_backoff_ms / 1000, config.retry_backoff_max_ms / 1000, rand)
    coordinator: int | None = None
    while True:
        wanted = TransactionRequest(_API.OFFSET_FETCH, body, coordinator, min_version=STABLE_SINCE)
        request = find_coordinator(wanted, "") if coordinator is None else wanted
        outcome: Any = await outcome_of(client, request)
        error = outcome if isinstance(outcome, Exception) else answered_error(request, outcome)
        if error is None and request is wanted:
            found = read_offset_fetch(outcome, group_id).offsets
            return {tp: _of_its_committer(offset) for tp, offset in found.items() if offset is not None}
        if error is None:
            coordinator = coordinator_of(outcome)
            continue
        action = transaction_action(request.api, error)
        if action not in _AGAIN:
            raise error
        if action is TransactionErrorAction.REDISCOVER:
            coordinator = None
        await asyncio.sleep(backoff.failed(client.now()))


def _of_its_committer(offset: OffsetAndMetadata) -> OffsetAndMetadata:
    """Returns an offset with the text that was committed with it, without what a transaction or a consumer adds."""
    return offset._replace(metadata=unpack(offset.metadata).text)
