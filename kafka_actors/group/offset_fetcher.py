"""Committed offsets: asked of the coordinator until they are known, and checked against the ids of their topics."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping, Sequence
from contextlib import suppress

from kafka_actors.base.backoff import GrowingTimeout, exponential_backoff
from kafka_actors.errors import (
    EncodeError,
    KafkaActorsError,
    KafkaTimeoutError,
    UnstableOffsetCommitError,
)
from kafka_actors.protocol import OffsetFetchRequest, OffsetFetchResponse
from kafka_actors.types import OffsetAndMetadata, TopicPartition

from .coordinator_channels import GroupClient, send_in_some_shape
from .machines.error_actions import ErrorAction, GroupApi, judge
from .machines.member_events import GroupChannel
from .machines.offset_fetch import (
    CommittedOffsets,
    offset_fetch_request,
    offsets_of_groups_request,
    read_offset_fetch,
    read_offsets_of_groups,
)
from .machines.topic_ids import (
    CommittedStart,
    Ids,
    TopicIds,
    as_committed,
    committed_starts,
    of_this_cluster,
    outdated,
)
from .member_driver import MemberDriver

Found = dict[TopicPartition, OffsetAndMetadata | None]

UNSTABLE_S = 960.0
"""Seconds for which offsets are waited for that a transaction is about to move: brokers abort it after 15 minutes at the latest
(`transaction.max.timeout.ms`), and look at it and write its markers after that."""


class OffsetFetcher:
    """Sends OffsetFetch, with retries, on a connection of its own: it holds up neither heartbeats nor commits, and waits for none."""

    def __init__(
        self,
        driver: MemberDriver,
        rand: Callable[[], float],
    ) -> None:
        self._driver = driver
        self._channels = driver.channels
        self._config = config = driver.machine.config
        self._rand = rand
        self.trouble = ""
        """Why the last request had to be repeated, for people."""
        self._patience = GrowingTimeout(config.heartbeat_timeout, config.request_timeout)

    async def fetch(self, partitions: Sequence[TopicPartition], timeout_ms: float | None) -> Found:
        """Returns offsets as they are committed. Waits and raises as `ConsumerCoordinator.fetch_committed_offsets`."""
        found: Found = {}
        if not partitions:
            return found
        try:
            async with asyncio.timeout(None if timeout_ms is None else timeout_ms / 1000):
                await self._fetch_all(list(partitions), found)
        except TimeoutError:
            why = self.trouble or self._driver.machine.trouble
            raise KafkaTimeoutError(
                f"group {self._config.group_id}: committed offsets not known after {timeout_ms:.0f} ms"
                + (f": {why}" if why else "")
            ) from None
        return found

    async def _fetch_all(self, partitions: list[TopicPartition], found: Found) -> None:
        failures, config = 0, self._config
        pending: dict[TopicPartition, float] = {}
        self.trouble = ""
        with self._channels.fetching_offsets():
            while missing := [tp for tp in partitions if tp not in found]:
                await self._driver.coordinator_known()
                if not await self._attempt(missing, found, pending):
                    failures += 1
                    await asyncio.sleep(
                        exponential_backoff(
                            failures, config.retry_backoff, config.retry_backoff_max, self._rand
                        )
                    )

    async def _attempt(
        self, partitions: list[TopicPartition], found: Found, pending: dict[TopicPartition, float]
    ) -> bool:
        """Sends one request. Returns False where something is missing and worth another one. `pending`: since when transactions are about
        to move offsets."""
        request = offset_fetch_request(self._config.group_id, partitions, require_stable=True)
        broker = self._channels.broker
        sent_at = self._driver.now()
        try:
            committed = read_offset_fetch(
                await self._channels.ask(request, self._patience.seconds * 1000, GroupChannel.OFFSET_FETCH),
                self._config.group_id,
            )
            self._patience.answered(self._driver.now() - sent_at)
            if committed.error is not None:
                raise committed.error
        except Exception as error:
            if isinstance(error, KafkaTimeoutError):
                self._patience.unanswered()
            self._judge(error, broker, sent_at)
            return False
        for tp, offset in committed.offsets.items():
            found[tp] = offset
        for refused in committed.errors.values():
            self._judge(refused, broker, sent_at)
        unstable = [tp for tp, e in committed.errors.items() if isinstance(e, UnstableOffsetCommitError)]
        waits = {tp: pending.get(tp, sent_at) for tp in unstable}
        pending.clear()
        if waits:
            pending |= waits
            self._wait_for_transactions(pending, sent_at)
        # A partition that the answer leaves out is asked again: nothing was said about it.
        return all(tp in found for tp in partitions)

    def _wait_for_transactions(self, pending: Mapping[TopicPartition, float], now: float) -> None:
        """Says that these partitions' offsets wait for the end of a transaction. Raises `KafkaTimeoutError` where it has none."""
        tp, more = min(pending), f" and {len(pending) - 1} more" if len(pending) > 1 else ""
        self.trouble = (
            f"a transaction is open that commits offsets of group {self._config.group_id} for {tp.topic}-{tp.partition}{more}: "
            "its producer ends it, or the brokers do after its transaction_timeout_ms"
        )
        if now - min(pending.values()) >= UNSTABLE_S:
            raise KafkaTimeoutError(
                f"committed offsets not known after {UNSTABLE_S:g} s: {self.trouble}; `kafka-transactions find-hanging` finds it"
            )

    def _judge(self, error: Exception, broker: object, sent_at: float) -> None:
        heard_at = self._driver.last_acknowledged
        verdict = judge(GroupApi.OFFSET_FETCH, error, alive=heard_at is not None and heard_at >= sent_at)
        if verdict is ErrorAction.REDISCOVER:
            if self._channels.broker is broker:  # else another one has been found meanwhile
                self._driver.coordinator_lost(error)
        elif verdict is not ErrorAction.RETRY:
            raise error
        self.trouble = str(error) or type(error).__name__


class GroupOffsets:
    """A consumer's view of its group's committed offsets: without those of topics that were deleted and made anew since.

    Remembers what it found (`refresh`), until `forget` says that it may have changed.
    """

    def __init__(
        self, driver: MemberDriver, client: GroupClient, topic_ids: TopicIds, rand: Callable[[], float]
    ) -> None:
        self._client = client
        self._topic_ids = topic_ids
        self._driver = driver
        self._timeout = driver.machine.config.request_timeout
        self._fetcher = OffsetFetcher(driver, rand)
        self._known: Found = {}
        self._forgotten = 0
        """Number of times that partitions were dropped from `_known`."""

    @property
    def trouble(self) -> str:
        """Why the last request had to be repeated, for people; empty if it had not."""
        return self._fetcher.trouble

    async def committed(self, partitions: Iterable[TopicPartition], timeout_ms: float | None) -> Found:
        """Does what `ConsumerCoordinator.fetch_committed_offsets` says."""
        return as_committed(*await self._fetch(partitions, timeout_ms))

    async def starts(
        self, partitions: Iterable[TopicPartition], *, loss_is_fatal: bool
    ) -> dict[TopicPartition, CommittedStart]:
        """Does what `ConsumerCoordinator.fetch_committed_starts` says."""
        wanted = [TopicPartition(*tp) for tp in partitions]
        found, ids = await self._fetch(wanted, None)
        return committed_starts(wanted, found, ids, self._topic_ids, loss_is_fatal=loss_is_fatal)

    async def refresh(
        self, assigned: Callable[[], Collection[TopicPartition]], timeout_ms: float | None
    ) -> Found:
        """Returns the committed offset of each assigned partition, asking only for those that aren't known."""
        needed = [tp for tp in assigned() if tp not in self._known]
        before = self._forgotten
        found = await self.committed(needed, timeout_ms)
        still = assigned()
        known = {tp: offset for tp, offset in (self._known | found).items() if tp in still}
        if self._forgotten == before:  # else what was found may be older than a commit that came meanwhile
            self._known = known
        return dict(known)

    def forget(self, partitions: Iterable[TopicPartition]) -> None:
        """Forgets what is known of these: it has changed, or may."""
        self._forgotten += 1
        for tp in partitions:
            self._known.pop(tp, None)

    async def _fetch(
        self, partitions: Iterable[TopicPartition], timeout_ms: float | None
    ) -> tuple[Found, Ids]:
        """Returns committed offsets as they are, and the present ids of their topics."""
        self._driver.find_coordinator()
        found = await self._fetcher.fetch([TopicPartition(*tp) for tp in partitions], timeout_ms)
        found = of_this_cluster(found, self._client.snapshot.cluster_id)
        await self.learn_ids(found)
        return found, self._present_ids(found)

    async def learn_ids(self, offsets: Mapping[TopicPartition, OffsetAndMetadata | None]) -> None:
        """Asks for newer metadata, for at most the time of a request, where offsets name another id than their topic is known to have:
        either they are of a topic that is gone, or what is known here is of one."""
        if outdated(offsets, self._present_ids(offsets)):
            with suppress(KafkaActorsError, TimeoutError):
                async with asyncio.timeout(self._timeout):
                    await self._client.cluster.request_update()

    def _present_ids(self, partitions: Iterable[TopicPartition]) -> Ids:
        snapshot = self._client.snapshot
        return {topic: snapshot.topic_id(topic) for topic in {tp.topic for tp in partitions}}


async def fetch_offsets_of_groups(
    send: Callable[[OffsetFetchRequest], Awaitable[OffsetFetchResponse]],
    groups: Mapping[str, Iterable[TopicPartition] | None],
    *,
    require_stable: bool = False,
) -> dict[str, CommittedOffsets]:
    """Returns the committed offsets of groups that have one coordinator, which `send` asks: in one request if the broker can
    (OffsetFetch 8, Kafka 3.0), else one group after the other.

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
