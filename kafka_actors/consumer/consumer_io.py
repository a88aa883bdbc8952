"""`ConsumerIO`: the part of a consumer that lives in the IO thread, with its client, coordinator and fetcher."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Iterable, Mapping

from kafka_actors.base.arguments import API_TIMEOUT_S
from kafka_actors.base.callables import error_text
from kafka_actors.base.tasks import SILENT_S, warned_when_slow
from kafka_actors.cluster import SubscriptionState
from kafka_actors.config import ConsumerConfig
from kafka_actors.errors import (
    TEMPORARY_IN_LOOKUPS,
    ConfigError,
    IllegalGenerationError,
    KafkaActorsError,
    KafkaTimeoutError,
)
from kafka_actors.events import Event, EventSink, OffsetReset
from kafka_actors.fetch import Fetcher, LocalSources, PartitionStart
from kafka_actors.group import CommittedStart, ConsumerCoordinator, default_offset_commit_callback
from kafka_actors.net import FetchSocket, KafkaClient, ListedOffset, OffsetLookups
from kafka_actors.types import ConsumerGroupMetadata, OffsetAndMetadata, TopicPartition

from .rebalance import Drained, Offsets, Partitions, RebalanceQueue
from .subscribed_topics import ConsumerTopics
from .telemetry import ConsumerTelemetry

logger = logging.getLogger(__name__)

LAST_COMMIT = "the last commit of the group may be missing"
BEGIN_S = 10.0
"""Seconds beyond `request_timeout_ms` for topics and committed offsets, once the consumer is connected."""
BEHIND_CONNECTING = "a broker was reached, and is asked for topics and committed offsets"
JOIN_MS = 5_000
"""Milliseconds of a rebalance that are kept for joining it, behind the user's thread."""
CLOSE_S = 3.0
"""Seconds for closing connections, which waits for no broker."""


class ConsumerIO:
    """Connections, membership and fetching of one consumer. All coroutines run in the IO thread.

    `on_attention` is called there when the user's thread should look at `error`, `commit_due` or `rebalances`,
    or at its positions; `on_ready` when there may be records.
    """

    def __init__(
        self,
        config: ConsumerConfig,
        subscription: SubscriptionState,
        *,
        events: EventSink,
        on_attention: Callable[[], None],
        on_ready: Callable[[], None],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.config = config
        self.observer = ConsumerTelemetry(config.group_id, config.client_id, config.worker_buffer_bytes)
        self._forget_gauges: Callable[[], None] | None = None
        self.subscription = subscription
        self.client = KafkaClient(config, clock=clock)
        self.topics = ConsumerTopics(self.client, config, subscription, on_checked=self._topics_checked)
        self._topic_error: Exception | None = None
        self.lookups = OffsetLookups(self.client)
        client = self.client
        self._sources = LocalSources(
            config, locate=lambda broker: client.snapshot.brokers.get(broker), connect=FetchSocket
        )
        self.fetcher = Fetcher(
            config,
            sources=self._sources.get,
            lookups=self.lookups,
            request_metadata=self._request_metadata,
            events=self._on_event,
            on_ready=on_ready,
            recorder=self.observer.recorder,
            clock=clock,
        )
        self.rebalances = RebalanceQueue(self, on_attention)
        self.error: Exception | None = None
        self.commit_due = False
        self._events = events
        self._on_attention = on_attention
        self._clock = clock
        self._coordinator: ConsumerCoordinator | None = None
        self._member = False
        self._ticking: asyncio.Task[None] | None = None
        self._epoch = 0

    # ------------------------------------------------------------ life

    async def begin(self) -> None:
        """Connects, and begins to read the subscription or assignment. Raises `NoBrokersAvailable`, with a reason for each
        server, and `KafkaTimeoutError`."""
        limit_s = self.config.request_timeout_ms / 1000 + BEGIN_S
        try:
            async with asyncio.timeout(limit_s):
                await self._begin_all()
        except TimeoutError:
            raise KafkaTimeoutError(f"no answer within {limit_s:g} s: {BEHIND_CONNECTING}") from None

    async def _begin_all(self) -> None:
        self.client.set_topics(self.subscription.metadata_topics())
        with warned_when_slow(logger, lambda: f"trying on: {self.client.not_connected(SILENT_S)}"):
            await self.client.bootstrap()
        self.client.cluster.add_listener(lambda _: self._on_metadata())
        await self.fetcher.start()
        self._forget_gauges = self.observer.follow(self.fetcher)
        self._on_metadata()
        self._ticking = asyncio.create_task(self._tick())
        if self.subscription.uses_group:
            await self.subscribed()
        elif self.subscription.assigned:
            await self.assigned(self.subscription.assigned, {})

    async def close(self, offsets: Offsets, timeout_s: float) -> None:
        """Commits `offsets`, leaves the group unless under a static id, which isn't made up, closes all: within `timeout_s` and a little."""
        if self._forget_gauges is not None:
            self._forget_gauges()
        if self._ticking is not None:
            self._ticking.cancel()
        try:
            async with asyncio.timeout(timeout_s):
                await self._leave(offsets, timeout_s, leave=self.config.group_instance_id in (None, "auto"))
        except Exception as error:  # also one of a user's assignor, which ended the membership
            logger.warning("%s: %s", LAST_COMMIT, error_text(error) or "no answer in time")
        try:
            async with asyncio.timeout(CLOSE_S):
                await self.fetcher.close()
                await self._sources.close()
                await self.client.close()
        except TimeoutError:
            logger.warning("connections could not be closed in %g s: they are given up", CLOSE_S)

    # ------------------------------------------------------------ subscription and assignment

    async def subscribed(self) -> None:
        """Joins the group for a changed subscription, to topics or a pattern."""
        self._topics_checked(None)
        try:
            await self.topics.follow(until_known=self.subscription.pattern is not None)
        finally:  # also where the user's call ends before: the subscription stands
            self._member = True
            self.rebalances.wait_for_user(True)
            await (await self._use_group()).start()

    async def assigned(self, partitions: Partitions, offsets: Offsets) -> None:
        """Reads partitions assigned by hand; those that stay keep their positions. Commits `offsets`, of those that go."""
        self._topics_checked(None)
        await self.topics.follow(until_known=True)
        self.topics.check()
        held = self._held
        await self.commit_and_revoke(self.stop_delivery(held - partitions), offsets)
        if new := partitions - held:
            self.begin_fetching(await self.starts(new))

    async def unsubscribed(self, offsets: Offsets) -> None:
        """Stops reading: commits `offsets` and leaves the group, as `close` does. Clears the error that ended the work so
        far."""
        try:
            await self._leave(offsets, self.config.request_timeout_ms / 1000)
        except Exception as error:
            logger.warning("%s: %s", LAST_COMMIT, error)
        finally:
            self.subscription.unsubscribe()
            self.fetcher.revoke(self._held)
            self.client.set_topics([])
            self.error = None

    async def starts(self, partitions: Partitions) -> dict[TopicPartition, PartitionStart]:
        """Returns where fetching begins: at the committed offsets if there are any. Called by `RebalanceQueue` too."""
        committed_starts: Mapping[TopicPartition, CommittedStart] = {}
        if self.config.group_id is not None:
            committed_starts = await (await self._use_group()).fetch_committed_starts(partitions)
        self._epoch += 1
        starts = {}
        for tp in partitions:
            committed = committed_starts.get(tp, CommittedStart())
            starts[tp] = PartitionStart(
                epoch=(0, self._epoch),
                offset=committed.offset,
                leader_epoch=committed.leader_epoch,
                from_start=self.topics.is_new(tp),
                topic_id=committed.topic_id,
            )
        return starts

    def begin_fetching(self, starts: Mapping[TopicPartition, PartitionStart]) -> None:
        """Starts fetching. Called by `RebalanceQueue` too."""
        self.fetcher.assign(starts)

    @property
    def _held(self) -> Partitions:
        return self.fetcher.partitions

    # ------------------------------------------------------------ the group

    async def _use_group(self) -> ConsumerCoordinator:
        if self.config.group_id is None:
            raise ConfigError("group_id", "is needed to subscribe, and for committed offsets")
        if self._coordinator is None:
            interval_ms = self.config.max_poll_interval_ms
            left_ms = interval_ms - self.config.heartbeat_interval_ms - JOIN_MS  # since it was heard of
            self._coordinator = ConsumerCoordinator(
                self.client,
                self.subscription,
                config=self.config,
                listener=self.rebalances,
                reads=lambda: self._held,
                events=self._events,
                on_fatal=self.fail,
                rebalance_timeout_ms=interval_ms,
                revoke_timeout_ms=max(left_ms, interval_ms // 2),
                max_poll_interval_ms=interval_ms,
                clock=self._clock,
            )
        return self._coordinator

    async def _leave(self, offsets: Offsets, timeout_s: float, *, leave: bool = True) -> None:
        """Commits `offsets` and ends the membership, while the user's thread waits here."""
        coordinator, self._coordinator, self._member = self._coordinator, None, False
        if coordinator is None:
            return
        try:
            if offsets := self.topics.existing(offsets):
                default_offset_commit_callback(
                    offsets, await coordinator.commit_offsets_sync(offsets, timeout_ms=timeout_s * 1000 / 2)
                )
        finally:
            # Not before the commit: of partitions that are given up nothing is committed any more.
            self.rebalances.wait_for_user(False)
            await coordinator.close(autocommit=False, leave=leave, timeout_ms=timeout_s * 1000 / 4)

    def stop_delivery(self, partitions: Partitions) -> Drained:
        """Stops handing out partitions that will be revoked. Called by `RebalanceQueue`."""
        return self.fetcher.drain(partitions)

    async def commit_and_revoke(self, drained: Drained, offsets: Offsets) -> None:
        """Commits the offsets of revoked partitions and removes them, unless assigned anew meanwhile. Called by `RebalanceQueue`."""
        try:
            if self._coordinator is not None and (offsets := self.topics.existing(offsets)):
                default_offset_commit_callback(offsets, await self._coordinator.commit_offsets_sync(offsets))
        except Exception as error:
            logger.warning("offsets of revoked partitions could not be committed: %s", error)
        finally:
            self.fetcher.release(drained)

    def lose(self, partitions: Partitions) -> None:
        """Removes partitions that are lost. Called by `RebalanceQueue`."""
        self.fetcher.revoke(partitions)

    def progress(self) -> None:
        """Counts `max_poll_interval_ms` from now: the user's thread polled."""
        if self._coordinator is not None and self._member:
            self._coordinator.user_progress()

    # ------------------------------------------------------------ offsets

    async def commit(self, offsets: Offsets, timeout_s: float) -> None:
        """Commits. Raises the first error of a partition, or that of the whole request."""
        end = self._clock() + timeout_s
        try:
            async with asyncio.timeout(timeout_s):
                await self.topics.check_partitions(offsets)
        except TimeoutError:
            raise KafkaTimeoutError(f"no broker described the partitions within {timeout_s:g} s") from None
        left_ms = max(end - self._clock(), 0.0) * 1000
        outcome = await (await self._use_group()).commit_offsets_sync(offsets, timeout_ms=left_ms)
        failed = next((error for error in outcome.values() if error is not None), None)
        if failed is not None:
            raise failed

    @property
    def auto_commits(self) -> bool:
        """Whether positions are committed without being asked to."""
        return self.config.enable_auto_commit and self.config.group_id is not None

    async def commit_quietly(self, offsets: Offsets) -> bool:
        """Commits for auto-commit, which repeats a failed one. Returns whether the offsets were taken."""
        try:
            if offsets := self.topics.existing(offsets):
                await self.commit(offsets, API_TIMEOUT_S)
        except Exception as error:
            logger.warning("auto-commit failed, the next one will cover it: %s", error)
            return False
        return True

    async def committed(
        self, partitions: Iterable[TopicPartition], timeout_s: float
    ) -> dict[TopicPartition, OffsetAndMetadata | None]:
        """Returns the offsets that the group has committed, None where nothing. Raises `KafkaTimeoutError`, which says why."""
        group = await self._use_group()
        return dict(await group.fetch_committed_offsets(frozenset(partitions), timeout_ms=timeout_s * 1000))

    def group_metadata(self, group_id: str) -> ConsumerGroupMetadata:
        """Returns the membership in this group, for offsets that a transaction commits. For any thread. Raises
        `IllegalGenerationError` for a subscriber that isn't a member now: its offsets would be taken without a check."""
        coordinator = self._coordinator
        found = ConsumerGroupMetadata(group_id) if coordinator is None else coordinator.group_metadata()
        # After the generation: the next one is entered only when the loss of the one before stands there.
        lost = self.rebalances.handling_loss or (coordinator is not None and coordinator.losing)
        if self.subscription.uses_group and (lost or found.generation_id < 0):
            raise IllegalGenerationError("it is not a member of its group now: poll", group=group_id)
        return found

    async def list_offsets(
        self, wanted: Mapping[TopicPartition, int], timeout_s: float
    ) -> dict[TopicPartition, ListedOffset]:
        """Returns offsets by timestamp. Raises the first error of a partition."""
        isolation, limit_ms = self.config.isolation_level, timeout_s * 1000
        with warned_when_slow(logger, lambda: self.topics.lookup_waits_for(wanted)):
            found = await self.lookups.list_offsets(
                wanted, isolation_level=isolation, timeout_ms=limit_ms, temporary=TEMPORARY_IN_LOOKUPS
            )
        for answer in found.values():
            if isinstance(answer, KafkaActorsError):
                raise answer
        return {tp: answer for tp, answer in found.items() if not isinstance(answer, KafkaActorsError)}

    async def position(self, tp: TopicPartition, timeout_s: float) -> None:
        """Returns when the position is known. Raises `KafkaTimeoutError`, `UsageError` if unassigned."""
        try:
            async with asyncio.timeout(timeout_s):
                while self.fetcher.position(tp) is None:
                    self._raise_error()
                    if (failed := self.fetcher.failure(tp)) is not None:
                        raise failed.with_traceback(None)
                    await asyncio.sleep(0.01)
        except TimeoutError:
            reason = self.topics.absence(tp) or self.fetcher.reason(tp)
            raise KafkaTimeoutError(
                f"the position of {tp.topic}-{tp.partition} is not known: {reason}"
            ) from None

    # ------------------------------------------------------------ metadata

    def _on_metadata(self) -> None:
        self.fetcher.update_metadata(self.client.snapshot)
        self._sources.follow()
        self.topics.check()

    def _request_metadata(self) -> None:
        self.client.cluster.request_update()

    # ------------------------------------------------------------ the user's thread

    async def _tick(self) -> None:
        """Wakes the user's thread regularly: only it knows its positions, and that it still polls."""
        pause = min(1.0, self.config.max_poll_interval_ms / 10_000)
        committed = self._clock()
        while True:
            await asyncio.sleep(pause)
            if self._clock() - committed >= self.config.auto_commit_interval_ms / 1000:
                committed = self._clock()
                self.commit_due = self.auto_commits
            self._on_attention()

    def _on_event(self, event: Event) -> None:
        self._events(event)
        if isinstance(event, OffsetReset):
            self._on_attention()

    def _topics_checked(self, error: Exception | None) -> None:
        """Takes the error of a topic that may not be read; None ends the one before: it may be read again, or was subscribed to before."""
        if self.error is self._topic_error:
            self.error = error
        self._topic_error = error
        if error is not None:
            self.fail(error)

    def fail(self, error: Exception) -> None:
        """Ends the consumer's work: the user's next call raises `error`, or one that came before. That of a topic, which may end, yields."""
        if self.error is None or self.error is self._topic_error:
            self.error = error
        self._on_attention()

    def _raise_error(self) -> None:
        if self.error is not None:
            raise self.error.with_traceback(None)
