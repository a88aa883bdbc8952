"""`ConsumerCoordinator`: a consumer as a member of its group, and the group's committed offsets."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Never

from kafka_actors.base.machine import Ready
from kafka_actors.base.machine_driver import no_action
from kafka_actors.cluster import SubscriptionState
from kafka_actors.errors import KafkaActorsError
from kafka_actors.events import PartitionNotRead
from kafka_actors.metrics import Metrics
from kafka_actors.protocol.messages.join_group import JoinGroupResponseMember
from kafka_actors.telemetry.attributes import Attributes, of_cluster
from kafka_actors.telemetry.spans import settling
from kafka_actors.types import OffsetAndMetadata, TopicPartition

from .base_coordinator import BaseCoordinator
from .commit_sender import CommitCallback, CommitSender, Offsets, default_offset_commit_callback
from .coordinator_channels import GroupClient
from .machines.embedded_protocol import GroupConfig
from .machines.member_core import MemberState
from .machines.member_events import (
    LosePartitions,
    MemberAction,
    Partitions,
    RevokePartitions,
    TakePartitions,
)
from .machines.ownership import Ownership, has_mixed_protocols
from .machines.pending_commits import Results
from .machines.topic_ids import CommittedStart
from .machines.unread_partitions import PartitionUnread, UnreadWatch
from .metrics import ConsumerCoordinatorMetrics
from .offset_fetcher import GroupOffsets
from .options import CONSUMER_OPTIONS, defaults_of, read_strategies
from .rebalance_listener import IgnoreRebalances, RebalanceCalls, RebalanceListener
from .subscribed_topics import SubscribedTopics

__all__ = ["AutoCommitTask", "ConsumerCoordinator", "default_offset_commit_callback"]

log = logging.getLogger(__name__)

DEFAULT_API_TIMEOUT_MS = 60_000


class ConsumerCoordinator(BaseCoordinator):
    """A consumer's membership and its committed offsets.

    Its parts: `Ownership` decides which partitions are taken over and given up, `SubscribedTopics` follows the metadata and
    assigns as leader, `RebalanceCalls` makes the listener's calls, `CommitSender` commits, `GroupOffsets` knows what is committed.

    client: metadata, and connections to the coordinator. subscription: topics, a pattern, or partitions chosen by hand; it learns
    what was assigned. metrics: as for `BaseCoordinator`. listener: learns of rebalances. consumed: what auto-commit and
    `close` commit: the next offset of each partition that came before the batch or message in hand; None turns both
    off. reads: the owned partitions that are read, or whose reason not to be is told by others; of any other that stays
    so for 30 s there is a `PartitionNotRead`. commits: the partitions to commit, of those that are owned or being released; by default
    all of these. on_recreated: learns of owned partitions whose topic was made anew, and whose readers find that
    by themselves; without it they are lost and taken anew, unless data loss is fatal. default_offset_commit_callback: of `commit_offsets_async`
    without a callback.

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
        commits: Callable[[Partitions], Partitions] | None = None,
        metric_group_prefix: str = "consumer",
        default_offset_commit_callback: CommitCallback = default_offset_commit_callback,
        on_recreated: Callable[[Partitions], object] | None = None,
        **options: Any,
    ) -> None:
        super().__init__(client, metrics, metric_group_prefix=metric_group_prefix, **options)
        self.subscription = subscription
        subscription.exclude_internal_topics = self._config.exclude_internal_topics
        self._consumed = consumed
        self._recreated = on_recreated
        self._commits = commits
        self._report = default_offset_commit_callback
        self._auto_commit: AutoCommitTask | None = None
        self.consumer_sensors = ConsumerCoordinatorMetrics(
            self.metrics, metric_group_prefix, subscription, self._tags, group_id=self.group_id
        )
        driver = self._driver
        self._calls = RebalanceCalls(
            driver, listener or IgnoreRebalances(), self._before_revoke, self._events
        )
        self._topics = SubscribedTopics(
            driver,
            client,
            subscription,
            self.ownership,
            self._committed,
            self._on_recreated,
            self._events,
            starts_over=on_recreated is None and self._config.on_data_loss == "reset",
        )
        self._committer = CommitSender(
            driver,
            client,
            subscription,
            self._committed,
            self._topics.ids,
            on_data_loss=self._config.on_data_loss,
            on_answer=self.consumer_sensors.answered,
            rand=self._rand,
        )
        self._offsets = GroupOffsets(driver, client, self._topics.ids, self._rand)
        driver.loop.add(self._committer, self._committer.carry_out)
        if reads is not None:
            self._unread = _WatchedReading(subscription, self.ownership, reads)
            driver.loop.add(self._unread, no_action, self._publish_unread)

    def _make_policy(self, config: GroupConfig) -> Ownership:
        strategies = read_strategies(self._config)
        if has_mixed_protocols(strategies):
            log.warning(
                "partition_assignment_strategy %s holds an eager strategy: every rebalance of group %s takes all "
                "partitions from all members",
                config.describe_strategy,
                config.group_id,
            )
        self.ownership = Ownership(
            strategies,
            group_instance_id=config.group_instance_id,
            rack=self._config.client_rack or None,
            incarnation=config.incarnation,
        )
        return self.ownership

    # ------------------------------------------------------------ membership

    def protocol_type(self) -> str:
        """Returns `consumer`."""
        return "consumer"

    def group_protocols(self) -> list[tuple[str, bytes]]:
        """Returns the assignors' names with this member's subscription, the most preferred first."""
        return self.ownership.metadata()

    @property
    def assignment(self) -> frozenset[TopicPartition]:
        """The partitions that this member owns, without those it is giving up."""
        return self.ownership.owned()

    @property
    def losing(self) -> bool:
        """Whether partitions were lost of which the listener has not been told yet. For any thread."""
        return self._calls.untold > 0

    async def start(self) -> None:
        """Begins to become a member, if the subscription is to topics or a pattern; else to find the coordinator. Begins to
        auto-commit, if that is on.

        Returns at once. Call it again when the subscription has changed.
        """
        self._topics.follow()
        if self.subscription.uses_group:
            await super().start()
        else:
            self._driver.find_coordinator()
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
        if self._driver.loop.running and self.fatal is None and not self.subscription.uses_group:
            await self._commit_quietly(timeout_ms / 1000)
        await super().close(leave=leave, timeout_ms=timeout_ms)
        self._topics.stop()
        self._committer.end(self.fatal)
        self.consumer_sensors.close()

    async def _perform_assignment(
        self, leader_id: str, protocol: str, members: Sequence[JoinGroupResponseMember]
    ) -> Mapping[str, bytes]:
        return await self._topics.perform_assignment(protocol, members)

    def _on_action(self, action: MemberAction) -> None:
        match action:
            case TakePartitions(generation, added, _):
                self._topics.check_ids()
                self._calls.assigned(generation, added)
                self._topics.watch()
            case RevokePartitions():
                self._offsets.forget(action.partitions)
                self._calls.revoke(action)
            case LosePartitions():
                self._offsets.forget(action.partitions)
                self._calls.lost(action)

    async def _before_revoke(self, partitions: Partitions, deadline: float) -> None:
        await self._commit_quietly(deadline - self._clock(), only=partitions)

    def _on_recreated(self, partitions: Partitions) -> None:
        self._committer.on_recreated(partitions)
        self._offsets.forget(partitions)
        if self._recreated is not None:
            self._recreated(partitions)

    def _on_disconnected(self) -> None:
        self._committer.connection_lost()

    def _after_poll(self) -> None:
        if self.subscription.uses_group:
            self.subscription.assign_from_group(self.ownership.owned() | self.ownership.releasing)
        if self._member.ended:
            self._committer.end(self.fatal)

    def _publish_unread(self, event: PartitionUnread) -> None:
        tp, seconds = event
        reason = "nobody knows why: please report it"
        if tp in self._calls.untaken:
            reason = f"its committed offset is not known: {self._offsets.trouble or 'no answer yet'}"
        self._events(PartitionNotRead(tp.topic, tp.partition, round(seconds, 1), reason))

    # ------------------------------------------------------------ commits

    def _committed(self) -> Partitions:
        held = self.ownership.owned() | self.ownership.releasing
        return held if self._commits is None else self._commits(held)

    def _submit(self, offsets: Offsets, timeout_s: float) -> asyncio.Future[Results]:
        done = self._committer.submit(offsets, timeout_s)
        done.add_done_callback(lambda _: self._offsets.forget(offsets))
        return done

    async def learn_topic_ids(self, offsets: Offsets) -> None:
        """Asks for newer metadata where offsets to commit name another topic than is known: those of a job's workers may, which hear first
        of one that was made anew. Without that they would be refused."""
        await self._offsets.learn_ids(offsets)

    async def commit_offsets_sync(self, offsets: Offsets, *, timeout_ms: float | None = None) -> Results:
        """Commits, with retries, for at most `timeout_ms` (60 s). Returns each partition's error, None for success.

        Metadata goes into an envelope that names the topic (`commit_metadata`), unless it is one. An offset of a topic
        that was deleted and made anew is never sent: `TopicRecreatedError`.

        Raises where nothing was committed and the reason concerns the whole commit: the membership is lost or
        fenced, not authorized, no answer in time (whether it was carried out is then unknown).
        """
        with settling(self.group_id) as answered:
            timeout_s = (DEFAULT_API_TIMEOUT_MS if timeout_ms is None else timeout_ms) / 1000
            results = await self._submit(offsets, timeout_s)
            answered(self._who(), next((error for error in results.values() if error is not None), None))
            return results

    def _who(self) -> Attributes:
        return (*of_cluster(self._client.snapshot.cluster_id), *self._driver.channels.server)

    def commit_offsets_async(
        self, offsets: Offsets, callback: CommitCallback | None = None
    ) -> asyncio.Future[Results]:
        """Commits in the background. `callback(offsets, outcome)` gets what `commit_offsets_sync` returns or raises.

        Returns a future of the same.
        """
        done = self._submit(offsets, DEFAULT_API_TIMEOUT_MS / 1000)
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
        """Auto-commits before partitions go. A failure goes to the callback: the partitions go all the same."""
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
        """Returns the group's committed offset of each partition, None where there is none, or one of a topic that was deleted
        and made anew since.

        Retries what passes, pending transactions too, for `timeout_ms` (None: until it is known). Raises a
        partition's error, what ended the membership, `KafkaTimeoutError`.
        """
        return await self._offsets.committed(partitions, timeout_ms)

    async def fetch_committed_starts(
        self, partitions: Iterable[TopicPartition]
    ) -> dict[TopicPartition, CommittedStart]:
        """Returns where these partitions are to be taken on. Waits and raises as `fetch_committed_offsets`."""
        config = self._config
        fatal = config.on_data_loss == "fail" or config.auto_offset_reset == "none"
        return await self._offsets.starts(partitions, loss_is_fatal=fatal)

    async def refresh_committed_offsets_if_needed(
        self, *, timeout_ms: float | None = None
    ) -> dict[TopicPartition, OffsetAndMetadata | None]:
        """Returns the committed offset of each assigned partition, None where there is none.

        Asks the coordinator only for those that came, or were committed, since it was last asked. Raises as
        `fetch_committed_offsets`.
        """
        return await self._offsets.refresh(lambda: self.subscription.assigned, timeout_ms)


class AutoCommitTask:
    """Commits what was consumed every `interval` seconds, while its coordinator is a member or assigns by hand."""

    def __init__(self, coordinator: ConsumerCoordinator, interval: float) -> None:
        self._coordinator = coordinator
        self._interval = interval
        self._timer: asyncio.TimerHandle | None = None
        self._task: asyncio.Task[None] | None = None
        self._stopped = False

    def reschedule(self, at: float | None = None) -> None:
        """Has the next commit made at `at` by the coordinator's clock, an interval from now by default."""
        self.stop()
        self._stopped = False
        delay = self._interval if at is None else max(0.0, at - self._coordinator.now())
        self._timer = asyncio.get_running_loop().call_later(delay, self._start)

    def stop(self) -> None:
        """Makes no other commit. One that is under way goes on."""
        self._stopped = True
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _start(self) -> None:
        self._task = asyncio.get_running_loop().create_task(self._commit())

    async def _commit(self) -> None:
        try:
            await self._coordinator.commit_consumed()
        except Exception as error:  # also of the user's `consumed`: the next one is due all the same
            log.warning("group %s: auto-commit failed: %s", self._coordinator.group_id, error)
        if not self._stopped:
            self.reschedule()


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
