"""Committed offsets, asked of the coordinator until they are known."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING

from kafka_actors.base.backoff import GrowingTimeout, exponential_backoff
from kafka_actors.errors import EncodeError, KafkaTimeoutError
from kafka_actors.protocol import OffsetFetchRequest, OffsetFetchResponse
from kafka_actors.types import OffsetAndMetadata, TopicPartition

from .coordinator_channels import CoordinatorChannels
from .machines.embedded_protocol import GroupConfig
from .machines.error_actions import ErrorAction, GroupApi, judge
from .machines.member_events import GroupChannel
from .machines.offset_fetch import (
    CommittedOffsets,
    offset_fetch_request,
    offsets_of_groups_request,
    read_offset_fetch,
    read_offsets_of_groups,
)
from .request_versions import send_in_some_shape

if TYPE_CHECKING:
    from .base_coordinator import BaseCoordinator

Found = dict[TopicPartition, OffsetAndMetadata | None]


class OffsetFetcher:
    """OffsetFetch with retries, on a connection of its own: it holds up neither heartbeats nor commits, and waits for none."""

    def __init__(
        self,
        coordinator: BaseCoordinator,
        channels: CoordinatorChannels,
        config: GroupConfig,
        rand: Callable[[], float],
    ) -> None:
        self._coordinator = coordinator
        self._channels = channels
        self._config = config
        self._rand = rand
        self.trouble = ""
        """Why the last request had to be repeated, for people."""
        self._patience = GrowingTimeout(config.heartbeat_timeout, config.request_timeout)

    async def fetch(self, partitions: Sequence[TopicPartition], timeout_ms: float | None) -> Found:
        """See `ConsumerCoordinator.fetch_committed_offsets`."""
        found: Found = {}
        if not partitions:
            return found
        try:
            async with asyncio.timeout(None if timeout_ms is None else timeout_ms / 1000):
                await self._fetch_all(list(partitions), found)
        except TimeoutError:
            raise KafkaTimeoutError(
                f"group {self._config.group_id}: committed offsets not known after {timeout_ms:g} ms"
            ) from None
        return found

    async def _fetch_all(self, partitions: list[TopicPartition], found: Found) -> None:
        failures, config = 0, self._config
        self.trouble = ""
        with self._channels.fetching_offsets():
            while missing := [tp for tp in partitions if tp not in found]:
                await self._coordinator.ensure_coordinator_known()
                if not await self._attempt(missing, found):
                    failures += 1
                    await asyncio.sleep(
                        exponential_backoff(
                            failures, config.retry_backoff, config.retry_backoff_max, self._rand
                        )
                    )

    async def _attempt(self, partitions: list[TopicPartition], found: Found) -> bool:
        """One request. False: something is missing and worth another one."""
        request = offset_fetch_request(self._config.group_id, partitions, require_stable=True)
        broker = self._channels.broker
        asked = self._coordinator.now()
        try:
            committed = read_offset_fetch(
                await self._channels.ask(request, self._patience.seconds * 1000, GroupChannel.OFFSET_FETCH),
                self._config.group_id,
            )
            self._patience.answered(self._coordinator.now() - asked)
            if committed.error is not None:
                raise committed.error
        except Exception as error:
            if isinstance(error, KafkaTimeoutError):
                self._patience.unanswered()
            self._judge(error, broker, asked)
            return False
        for tp, offset in committed.offsets.items():
            found[tp] = offset
        for refused in committed.errors.values():
            self._judge(refused, broker, asked)
        return not committed.errors

    def _judge(self, error: Exception, broker: object, asked: float) -> None:
        heard_at = self._coordinator.last_heartbeat_sent_and_acked
        verdict = judge(GroupApi.OFFSET_FETCH, error, alive=heard_at is not None and heard_at >= asked)
        if verdict is ErrorAction.REDISCOVER:
            if self._channels.broker is broker:  # else another one has been found meanwhile
                self._coordinator.coordinator_dead(error)
        elif verdict is not ErrorAction.RETRY:
            raise error
        self.trouble = str(error) or type(error).__name__


async def fetch_offsets_of_groups(
    send: Callable[[OffsetFetchRequest], Awaitable[OffsetFetchResponse]],
    groups: Mapping[str, Iterable[TopicPartition] | None],
    *,
    require_stable: bool = False,
) -> dict[str, CommittedOffsets]:
    """Committed offsets of groups that have one coordinator, which `send` asks: at once if it can (OffsetFetch 8,
    Kafka 3.0), else one group after the other.

    groups: the partitions to ask for of each, None for all that the group has committed. Errors are in each group's
    `CommittedOffsets`, for the caller to retry or raise. Raises what `send` raises.
    """
    if not groups:
        return {}
    if len(groups) > 1:
        try:
            request = offsets_of_groups_request(groups, require_stable=require_stable)
            return read_offsets_of_groups(await send(request))
        except EncodeError:
            pass  # too old a broker: nothing was sent
    found = {}
    for group_id, partitions in groups.items():
        request = offsets_of_groups_request({group_id: partitions}, require_stable=require_stable)
        found[group_id] = read_offset_fetch(await send_in_some_shape(send, request), group_id)
    return found
