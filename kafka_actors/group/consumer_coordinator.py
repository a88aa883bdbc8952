"""`ConsumerCoordinator`: a consumer as a member of its group, and the group's committed offsets."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from typing import Any, Never

from kafka_actors.base.machine import Ready
from kafka_actors.cluster import SubscriptionState
from kafka_actors.errors import KafkaActorsError
from kafka_actors.events import PartitionNotRead
from kafka_actors.metrics import Metrics
from kafka_actors.telemetry.attributes import Attributes, of_cluster
from kafka_actors.telemetry.spans import settling
from kafka_actors.types import OffsetAndMetadata, TopicPartition

from .commit_metadata import pack, unpack
from .commit_sender import CommitCallback, CommitSender, Offsets, default_offset_commit_callback
from .machines.commits import CommitQueue
from .machines.committed_starts import CommittedStart, Ids, as_committed, of_this_cluster, origins, outdated
from .machines.member_events import LosePartitions, MemberAction, Partitions, RevokePartitions
from .machines.member_states import MemberState
from .machines.ownership import Ownership
from .machines.pending_commits import CommitEligibility, MembershipNews, Results, eligibility_of
from .machines.topic_ids import without
from .machines.unread_partitions import PartitionUnread, UnreadWatch
from .metrics import ConsumerCoordinatorMetrics
from .offset_fetcher import OffsetFetcher
from .options import CONSUMER_OPTIONS, defaults_of
from .ports import GroupClient, RebalanceListener
from .subscribed_member import SubscribedMember
from .tasks import AutoCommitTask

__all__ = ["ConsumerCoordinator", "default_offset_commit_callback"]

DEFAULT_API_TIMEOUT_MS = 60_000


class ConsumerCoordinator(SubscribedMember):
    """A consumer's membership and its committed offsets.

    client: metadata, and connections to the coordinator. subscription: what is wanted; it learns what was
    assigned. metrics: as for `BaseCoordinator`. listener: learns of rebalances. consumed: what auto-commit and
    `close` commit: the next offset of each partition that came before the batch or message in hand; None turns both
    off. reads: the owned partitions that are read, or whose reason not to be is told by others; of any other that stays
    so for 30 s there is a `PartitionNotRead`. default_offset_commit_callback: of `commit_offsets_async` without a callback.

    Other arguments as for `BaseCoordinator`; options, single or as `config`: those of `DEFAULT_CONFIG`. `assignors` is
    another name of `partition_assignment_strategy`. Raises `ConfigError` for a missing group_id, an unknown option or
    assignor, contradicting timeouts.
    """

    DEFAULT_CONFIG: Mapping[str, Any] = {
        "metric_group_prefix": "consumer",
        "default_offset_commit_callback": default_offset_commit_callback,
        **defaults_of(CONSUMER_OPTIONS),
        "assignors": defaults_of(CONSUMER_OPTIONS)["partition_assignment_strategy"],
    }

    def __init__(
        self,
        client: GroupClient,
        subscription: SubscriptionState,
        metrics: Metrics | None = None,
        *,
        listener: RebalanceListener | None = None,
        consumed: Callable[[], Offsets] | None = None,
        reads: Callable[[], Partitions] | None = None,
        metric_group_prefix: str = "consumer",
        default_offset_commit_callback: CommitCallback = default_offset_commit_callback,
        **options: Any,
    ) -> None:
        super().__init__(
            client,
            subscription,
            metrics,
            listener=listener,
            metric_group_prefix=metric_group_prefix,
            **options,
        )
        self._consumed = consumed
        self._report = default_offset_commit_callback
        self.consumer_sensors = ConsumerCoordinatorMetrics(
            self.metrics, metric_group_prefix, subscription, self._tags, group_id=self.group_id
        )
        self._committer = CommitSender(
            CommitQueue(self._group_config, rand=self._rand),
            self._channels,
            eligibility=self._eligibility,
            on_membership_news=self._on_membership_news,
            on_answer=self.consumer_sensors.answered,
            wake=self._wake,
            clock=self._clock,
        )
        self._loop.add(self._committer, self._committer.carry_out)
        if reads is not None:
            self._unread = _WatchedReading(self.subscription, self.ownership, reads)
            self._loop.add(self._unread, _no_action, self._publish_unread)
        self._fetcher = OffsetFetcher(self, self._channels, self._group_config, self._rand)
        self._committed: dict[TopicPartition, OffsetAndMetadata | None] = {}
        self._forgotten = 0
        """How often something was forgotten of `_committed`."""
        self._recreated: set[TopicPartition] = set()
        self._auto_commit: AutoCommitTask | None = None

    # ------------------------------------------------------------ membership

    async def start(self) -> None:
        """As `SubscribedMember.start`; and begins to auto-commit, if wanted."""
        await super().start()
        if self._config.enable_auto_commit and self._consumed is not None and self._auto_commit is None:
            self._auto_commit = AutoCommitTask(self, self._config.auto_commit_interval_ms / 1000)
            self._auto_commit.reschedule()

    async def close(self, autocommit: bool = True, *, leave: bool = True, timeout_ms: float = 10_000) -> None:
        """Drains and commits, leaves the group, and closes all connections, within `timeout_ms` and a little.

        autocommit: commit what was consumed, if auto-commit is on. leave: tell the group; without it a static
        member's partitions wait for it until its session ends. Never raises for a broker that doesn't answer.
        """
        if self._auto_commit is not None:
            self._auto_commit.stop()
        if not autocommit:
            self._consumed = None
        if self._loop.running and self.fatal is None and not self.subscription.uses_group:
            await self._commit_quietly(timeout_ms / 1000)
        await super().close(leave=leave, timeout_ms=timeout_ms)

    async def _stop(self) -> None:
        await super()._stop()
        self._committer.end(self.fatal)
        self.consumer_sensors.close()

    def _on_action(self, action: MemberAction) -> None:
        if isinstance(action, RevokePartitions | LosePartitions):
            self._forget_committed(action.partitions)
        super()._on_action(action)

    def _on_recreated(self, partitions: frozenset[TopicPartition]) -> None:
        """What was processed of a topic that is gone must not be committed to its successor."""
        self._committer.drop(partitions)
        self._forget_committed(partitions)
        if (
            self._config.on_data_loss == "fail"
        ):  # reading it fails; nothing is committed until a position is of the new one
            self._recreated |= partitions

    async def _before_revoke(self, partitions: frozenset[TopicPartition], deadline: float) -> None:
        await self._commit_quietly(deadline - self._clock(), only=partitions)

    def _on_disconnected(self) -> None:
        self._committer.connection_lost()

    def _on_membership_news(self, news: MembershipNews) -> None:
        self._member.on_membership_error(news.error, news.verdict, news.generation, self._clock())
        self._wake()

    def _after_poll(self) -> None:
        if self.subscription.uses_group:
            self.subscription.assign_from_group(self.ownership.owned() | self.ownership.releasing)
        if self._member.ended:
            self._committer.end(self.fatal)

    def _publish_unread(self, event: PartitionUnread) -> None:
        tp, seconds = event
        reason = "nobody knows why: please report it"
        if tp in self._untaken:
            reason = f"its committed offset is not known: {self._fetcher.trouble or 'no answer yet'}"
        self._events(PartitionNotRead(tp.topic, tp.partition, round(seconds, 1), reason))

    # ------------------------------------------------------------ commits

    def _eligibility(self) -> CommitEligibility:
        if not self.subscription.uses_group:
            return eligibility_of(self._member, None, self._crashed, self._client.snapshot.topic_id)
        owned = without(self.ownership.owned() | self.ownership.releasing, self._recreated)
        return eligibility_of(self._member, owned, self._crashed, self._client.snapshot.topic_id)

    def _submit(self, offsets: Offsets, timeout_ms: float | None) -> asyncio.Future[Results]:
        self._run()
        self._member.find_coordinator()
        timeout = DEFAULT_API_TIMEOUT_MS if timeout_ms is None else timeout_ms
        named = {tp: offset._replace(metadata=self._named(tp, offset)) for tp, offset in offsets.items()}
        done = self._committer.submit(named, timeout / 1000)
        done.add_done_callback(lambda _: self._forget_committed(offsets))
        return done

    def _named(self, tp: TopicPartition, offset: OffsetAndMetadata) -> str:
        """Metadata that names the topic of the offset: as it does already, else as the topic was when it was assigned."""
        snapshot = self._client.snapshot
        topic_id = self._topic_ids.of_owned(tp.topic) or snapshot.topic_id(tp.topic)
        text, named, _ = unpack(offset.metadata)
        if named is not None and named == topic_id:
            self._recreated.discard(tp)  # whoever reads it goes on in the topic as it is
        return pack(text, named or topic_id, snapshot.cluster_id)

    async def commit_offsets_sync(self, offsets: Offsets, *, timeout_ms: float | None = None) -> Results:
        """Commits, with retries, for at most `timeout_ms` (60 s). Returns each partition's error, None for success.

        Metadata goes into an envelope that names the topic (`commit_metadata`), unless it is one. An offset of a topic
        that was deleted and made anew is never sent: `TopicRecreatedError`.

        Raises where nothing was committed and the reason concerns the whole commit: the membership is lost or
        fenced, not authorized, no answer in time (whether it was carried out is then unknown).
        """
        with settling(self.group_id) as answered:
            results = await self._submit(offsets, timeout_ms)
            answered(self._who(), next((error for error in results.values() if error is not None), None))
            return results

    def _who(self) -> Attributes:
        return (*of_cluster(self._client.snapshot.cluster_id), *self._channels.server)

    def commit_offsets_async(
        self, offsets: Offsets, callback: CommitCallback | None = None
    ) -> asyncio.Future[Results]:
        """Commits in the background. `callback(offsets, outcome)` gets what `commit_offsets_sync` returns or raises.

        Returns a future of the same.
        """
        done = self._submit(offsets, None)
        report = callback or self._report

        def finished(future: asyncio.Future[Results]) -> None:
            if not future.cancelled():
                error = future.exception()
                report(offsets, error if isinstance(error, Exception) else future.result())

        done.add_done_callback(finished)
        return done

    async def commit_consumed(self) -> None:
        """Commits what was consumed (`consumed`). Raises as `commit_offsets_sync`."""
        offsets = self._consumed() if self._consumed is not None else {}
        if offsets and (not self.subscription.uses_group or self.generation >= 0):
            await self.commit_offsets_sync(offsets)

    async def _commit_quietly(self, seconds: float, only: frozenset[TopicPartition] | None = None) -> None:
        """Auto-commit before partitions go. What fails is logged: the partitions go all the same."""
        if self._consumed is None or not self._config.enable_auto_commit or self.state is MemberState.FATAL:
            return
        offsets = {tp: o for tp, o in self._consumed().items() if only is None or tp in only}
        if not offsets:
            return
        try:
            results = await self.commit_offsets_sync(offsets, timeout_ms=max(0.0, seconds * 1000))
            self._report(offsets, results)
        except KafkaActorsError as error:
            self._report(offsets, error)

    # ------------------------------------------------------------ committed offsets

    async def fetch_committed_offsets(
        self, partitions: Iterable[TopicPartition], *, timeout_ms: float | None = None
    ) -> dict[TopicPartition, OffsetAndMetadata | None]:
        """The group's committed offset of each partition, None where there is none, or one of a topic that was deleted and
        made anew since.

        Retries what passes, pending transactions too, for `timeout_ms` (None: until it is known). Raises a
        partition's error, what ended the membership, `KafkaTimeoutError`.
        """
        found, ids = await self._fetch(partitions, timeout_ms)
        return as_committed(found, ids)

    async def fetch_origins(
        self, partitions: Iterable[TopicPartition]
    ) -> dict[TopicPartition, CommittedStart]:
        """Where these partitions are to be taken on. Waits and raises as `fetch_committed_offsets`."""
        wanted = [TopicPartition(*tp) for tp in partitions]
        found, ids = await self._fetch(wanted, None)
        config = self._config
        fatal = config.on_data_loss == "fail" or config.auto_offset_reset == "none"
        return origins(wanted, found, ids, self._topic_ids, loss_is_fatal=fatal)

    async def _fetch(
        self, partitions: Iterable[TopicPartition], timeout_ms: float | None
    ) -> tuple[dict[TopicPartition, OffsetAndMetadata | None], Ids]:
        """Committed offsets as they are, and the present ids of their topics."""
        self._run()
        self._member.find_coordinator()
        self._wake()
        found = await self._fetcher.fetch([TopicPartition(*tp) for tp in partitions], timeout_ms)
        found = of_this_cluster(found, self._client.snapshot.cluster_id)
        if outdated(found, self._present_ids(found)):  # or what is known of the cluster is
            with suppress(KafkaActorsError, TimeoutError):
                async with asyncio.timeout(self._group_config.request_timeout):
                    await self._client.cluster.request_update()
        return found, self._present_ids(found)

    def _present_ids(self, partitions: Iterable[TopicPartition]) -> Ids:
        snapshot = self._client.snapshot
        return {topic: snapshot.topic_id(topic) for topic in {tp.topic for tp in partitions}}

    async def refresh_committed_offsets_if_needed(
        self, *, timeout_ms: float | None = None
    ) -> dict[TopicPartition, OffsetAndMetadata | None]:
        """The committed offset of each assigned partition, None where there is none.

        Asks the coordinator only for those that came, or were committed, since it was last asked. Raises as
        `fetch_committed_offsets`.
        """
        needed = [tp for tp in self.subscription.assigned if tp not in self._committed]
        before = self._forgotten
        found = await self.fetch_committed_offsets(needed, timeout_ms=timeout_ms)
        assigned = self.subscription.assigned
        known = {tp: offset for tp, offset in (self._committed | found).items() if tp in assigned}
        if self._forgotten == before:  # else what was found may be older than a commit that came meanwhile
            self._committed = known
        return dict(known)

    def _forget_committed(self, partitions: Iterable[TopicPartition]) -> None:
        """What is known of these no longer holds."""
        self._forgotten += 1
        for tp in partitions:
            self._committed.pop(tp, None)


class _WatchedReading:
    """Feeds an `UnreadWatch` with what is owned and not read; is polled as the watch is."""

    def __init__(
        self, subscription: SubscriptionState, ownership: Ownership, reads: Callable[[], Partitions]
    ) -> None:
        self._subscription = subscription
        self._ownership = ownership
        self._reads = reads
        self.watch = UnreadWatch()

    def poll(self, now: float) -> Ready[Never, PartitionUnread]:
        """Looks at what is read, and polls the watch."""
        if not self._subscription.uses_group:
            return Ready()
        self.watch.observe(self._ownership.owned() - self._reads(), now)
        return self.watch.poll(now)


def _no_action(action: Never) -> None:
    """Carries out the actions of a machine that has none."""
