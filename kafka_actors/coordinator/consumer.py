"""`ConsumerCoordinator`: a consumer as a member of its group, and the group's committed offsets."""

from __future__ import annotations

import asyncio
import logging
import random
import time
import uuid
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import assignors
from kafka_actors.cluster import SubscriptionState
from kafka_actors.config import ConsumerConfig
from kafka_actors.errors import ConfigError, KafkaActorsError, KafkaTimeoutError
from kafka_actors.events import (
    EventSink,
    PartitionsAssigned,
    PartitionsLost,
    PartitionsRevoked,
    PatternMatchesNothing,
    log_event,
)
from kafka_actors.protocol.messages.join_group import JoinGroupResponseMember
from kafka_actors.protocol.messages.sync_group import SyncGroupRequestAssignment
from kafka_actors.protocol.types import OffsetAndMetadata, TopicPartition

from .base import BaseCoordinator, ended_error, may_commit
from .calls import Call, CallQueue
from .fetching import OffsetFetcher
from .machines.assignment import choose, group_topics, perform_assignment
from .machines.ownership import Ownership, has_mixed_protocols
from .machines.policy import GroupConfig
from .machines.states import MemberState
from .machines.steps import Assigned, Event, Lost, Revoke
from .machines.tickets import Results, Standing, Ticket
from .machines.topic_ids import TopicIds, without
from .ports import GroupClient, IgnoreRebalances, RebalanceListener
from .tasks import AutoCommitTask
from .views import topics_view

log = logging.getLogger(__name__)

__all__ = ["ConsumerCoordinator", "default_offset_commit_callback"]

Offsets = Mapping[TopicPartition, OffsetAndMetadata]
CommitCallback = Callable[[Offsets, "Results | Exception"], object]

DEFAULT_API_TIMEOUT_MS = 60_000
LOST_GRACE = 5.0
METADATA_TIMEOUT = 10.0
_FROM_CONFIG: Any = object()


def default_offset_commit_callback(offsets: Offsets, outcome: Results | Exception) -> None:
    """Logs a commit that failed; `commit_offsets_async` calls it where it is given no other."""
    if isinstance(outcome, Exception):
        log.warning("commit of %d partitions failed: %s", len(offsets), outcome)
        return
    for tp, error in outcome.items():
        if error is not None:
            log.warning("commit of %s-%d failed: %s", tp.topic, tp.partition, error)


class ConsumerCoordinator(BaseCoordinator):
    """A consumer's membership and its committed offsets.

    client: metadata, and connections to the coordinator. subscription: what is wanted; it learns what was
    assigned. listener: learns of rebalances. consumed: what auto-commit and `close` commit: the next offset of
    each partition that came before the batch or message in hand; None turns both off.

    rebalance_timeout_ms: how long the group waits for its members to rejoin (default `max_poll_interval_ms`, as
    in Java). revoke_timeout_ms: how long a drain may take (default half of that). max_poll_interval_ms: None
    where nobody calls `user_progress`. group_instance_id "auto" makes one up. member_id: of a dynamic member
    that goes on with a membership of an earlier process.

    Raises `ConfigError` for a missing group_id, an unknown assignor, contradicting timeouts.
    """

    def __init__(
        self,
        client: GroupClient,
        subscription: SubscriptionState,
        *,
        config: ConsumerConfig,
        listener: RebalanceListener | None = None,
        consumed: Callable[[], Offsets] | None = None,
        group_instance_id: str | None = _FROM_CONFIG,
        member_id: str = "",
        rebalance_timeout_ms: int | None = None,
        revoke_timeout_ms: int | None = None,
        max_poll_interval_ms: int | None = _FROM_CONFIG,
        on_fatal: Callable[[Exception], None] | None = None,
        events: EventSink = log_event,
        clock: Callable[[], float] = time.monotonic,
        rand: Callable[[], float] = random.random,
    ) -> None:
        strategies = [_assignor(name) for name in config.partition_assignment_strategy]
        instance_id = config.group_instance_id if group_instance_id is _FROM_CONFIG else group_instance_id
        interval = (
            config.max_poll_interval_ms if max_poll_interval_ms is _FROM_CONFIG else max_poll_interval_ms
        )
        group = _group_config(
            config,
            instance_id,
            rebalance_timeout_ms or config.max_poll_interval_ms,
            revoke_timeout_ms,
            interval,
        )
        if has_mixed_protocols(strategies):
            log.warning(
                "partition_assignment_strategy %s holds an eager strategy: every rebalance of group %s takes all "
                "partitions from all members",
                group.describe_strategy,
                group.group_id,
            )
        self.ownership = Ownership(
            strategies, group_instance_id=group.group_instance_id, rack=config.client_rack or None
        )
        super().__init__(
            client,
            group,
            self.ownership,
            member_id="" if group.group_instance_id else member_id,
            clock=clock,
            rand=rand,
            events=events,
            on_fatal=on_fatal,
        )
        self.subscription = subscription
        self._config = config
        self._listener: RebalanceListener = listener or IgnoreRebalances()
        self._consumed = consumed
        self._calls = CallQueue(clock, self._fail)
        self._tickets: dict[Ticket, asyncio.Future[Results]] = {}
        self._fetcher = OffsetFetcher(self, self._channels, group, rand)
        self._matched_nothing = False
        self._topic_ids = TopicIds()
        self._recreated: set[TopicPartition] = set()
        self._listening = False
        self._auto_commit: AutoCommitTask | None = None

    @property
    def assignment(self) -> frozenset[TopicPartition]:
        """The partitions this member owns, without those it is giving up."""
        return self.ownership.owned()

    def now(self) -> float:
        """The time by this coordinator's clock."""
        return self._clock()

    # ------------------------------------------------------------ membership

    async def start(self) -> None:
        """Begins to become a member, if the subscription is to topics or a pattern; and to auto-commit, if wanted.

        Returns at once. Call it again when the subscription has changed.
        """
        self._listen()
        if self.subscription.uses_group:
            self._on_metadata(self._client.cluster)
            await super().start()
        else:
            self._run()
            self._member.find_coordinator()
        if self._config.enable_auto_commit and self._consumed is not None and self._auto_commit is None:
            self._auto_commit = AutoCommitTask(self, self._config.auto_commit_interval_ms / 1000)
            self._auto_commit.reschedule()
        self._wake()

    async def close(self, autocommit: bool = True, leave: bool = True, timeout_ms: float = 10_000) -> None:
        """Drains and commits, leaves the group, and closes all connections, within `timeout_ms` and a little.

        autocommit: commit what was consumed, if auto-commit is on. leave: tell the group; without it a static
        member's partitions wait for it until its session ends. Never raises for a broker that doesn't answer.
        """
        timeout = timeout_ms / 1000
        if self._auto_commit is not None:
            self._auto_commit.stop()
        if not autocommit:
            self._consumed = None
        if self._loop_task is not None and self.fatal is None:
            if not self.subscription.uses_group:
                await self._commit_quietly(timeout)
            await self._leave(timeout, leave, "the consumer is being closed")
            await self._drain_calls()
        if self._listening:
            self._client.cluster.remove_listener(self._on_metadata)
            self._listening = False
        await self._calls.close()
        await self._stop()
        self._end_tickets()

    async def _drain_calls(self) -> None:
        try:
            async with asyncio.timeout(LOST_GRACE):
                await self._calls.drained()
        except TimeoutError:
            log.warning("group %s: a rebalance listener did not return while closing", self.group_id)

    def _listen(self) -> None:
        if not self._listening:
            self._listening = True
            self._client.cluster.add_listener(self._on_metadata)

    def _on_metadata(self, cluster: Any) -> None:
        """What the cluster has now: new topics, partitions and racks."""
        if not self.subscription.uses_group:
            return
        snapshot = self._client.snapshot
        wanted = self.subscription.matching(snapshot)
        nothing = not wanted and self.subscription.pattern is not None
        if nothing and not self._matched_nothing:
            self._events(PatternMatchesNothing(str(self.subscription.pattern)))
        self._matched_nothing = nothing
        self.ownership.subscribed = wanted
        view = topics_view(snapshot, self.ownership.group_topics)
        reason = self.ownership.on_metadata(wanted, view)
        if reason is not None:
            self.request_rejoin(reason)
        self._check_topic_ids()

    def _check_topic_ids(self) -> None:
        """What was processed of a topic that is gone must not be committed to its successor."""
        owned = self.ownership.owned() | self.ownership.releasing
        snapshot = self._client.snapshot
        changed = self._topic_ids.changed(owned, {tp.topic: snapshot.topic_id(tp.topic) for tp in owned})
        if not changed:
            return
        self._commits.drop(changed)
        if self._config.on_data_loss == "reset":
            self._member.start_over(changed, "the topic was deleted and made anew")
        else:  # reading it fails with a named error; nothing more is committed until then
            self._recreated |= changed
        self._wake()

    async def _perform_assignment(
        self, protocol: str, members: Sequence[JoinGroupResponseMember]
    ) -> Sequence[SyncGroupRequestAssignment]:
        assignor = choose(self.ownership.assignors, protocol, self.group_id)
        await self._track(group_topics(members))
        view = topics_view(
            self._client.snapshot, self.ownership.group_topics, racks=bool(self._config.client_rack)
        )
        # In a thread: with many members and partitions it takes seconds, and heartbeats must go on.
        result = await asyncio.to_thread(perform_assignment, assignor, members, view)
        for member_id in result.unreadable:
            log.warning("group %s: the metadata of member %s can't be read", self.group_id, member_id)
        self.ownership.watch(result.watched)
        return result.assignments

    async def _track(self, topics: Iterable[str]) -> None:
        """Has the metadata of these topics kept fresh; returns when it is known, or did not come in time."""
        missing = [topic for topic in topics if not self._client.tracks(topic)]
        if not missing:
            return
        try:
            async with asyncio.timeout(METADATA_TIMEOUT):
                for future in [self._client.add_topic(topic) for topic in missing]:
                    await future
        except (TimeoutError, KafkaActorsError) as error:
            log.warning("group %s: no metadata of %s: %s", self.group_id, ", ".join(missing), error)

    def _start_watching(self) -> None:
        """A static leader that came back skipped assigning, and watches what it finds (KIP-814)."""

        async def watch() -> None:
            await self._track(self.ownership.group_topics)
            view = topics_view(self._client.snapshot, self.ownership.group_topics)
            if self.leader and not self.ownership.watching:
                self.ownership.watch(view.only(self.ownership.group_topics))

        self._work_task = asyncio.get_running_loop().create_task(watch())

    # ------------------------------------------------------------ what happens

    def _on_event(self, event: Event) -> None:
        listener = self._listener
        match event:
            case Assigned(generation, added, _):
                self._check_topic_ids()
                self._events(PartitionsAssigned(generation, _sorted(added)))
                self._calls.put(
                    Call(lambda: listener.on_partitions_assigned(added), "on_partitions_assigned")
                )
                if self.leader and not self.ownership.watching:
                    self._start_watching()
            case Revoke(token, partitions, deadline):
                self._calls.put(self._revoke_call(token, partitions, deadline))
            case Lost(partitions, reason):
                self._events(PartitionsLost(_sorted(partitions), reason))
                deadline = self._clock() + LOST_GRACE
                self._calls.put(
                    Call(lambda: listener.on_partitions_lost(partitions), "on_partitions_lost", deadline)
                )

    def _revoke_call(self, token: int, partitions: frozenset[TopicPartition], deadline: float) -> Call:
        async def revoke() -> None:
            await self._commit_quietly(deadline - self._clock(), only=partitions)
            await self._listener.on_partitions_revoked(partitions, max(0.0, deadline - self._clock()))

        def released() -> None:
            self._events(PartitionsRevoked(self.generation, _sorted(partitions)))
            self._member.on_released(token, self._clock())
            self._wake()

        return Call(revoke, "on_partitions_revoked", deadline, released)

    def _after_step(self) -> None:
        if self.subscription.uses_group:
            self.subscription.assign_from_group(self.ownership.owned() | self.ownership.releasing)
        if self._member.ended:
            self._end_tickets()

    # ------------------------------------------------------------ commits

    def _standing(self) -> Standing:
        member = self._member
        ended = ended_error(member, self._crashed)
        connected = member.coordinator is not None
        if not self.subscription.uses_group:
            return Standing(connected, True, ended=ended)
        owned = without(self.ownership.owned() | self.ownership.releasing, self._recreated)
        return Standing(connected, may_commit(member), member.settled, member.generation, owned, ended)

    def _submit(self, offsets: Offsets, timeout_ms: float | None) -> asyncio.Future[Results]:
        self._run()
        self._member.find_coordinator()
        timeout = DEFAULT_API_TIMEOUT_MS if timeout_ms is None else timeout_ms
        done: asyncio.Future[Results] = asyncio.get_running_loop().create_future()
        done.add_done_callback(lambda f: f.cancelled() or f.exception())  # retrieved, whoever else looks
        self._tickets[self._commits.submit(offsets, self._clock(), timeout / 1000)] = done
        self._wake()
        return done

    def _on_committed(self, ticket: Ticket) -> None:
        done = self._tickets.pop(ticket)
        if done.done():
            return
        if ticket.refused is not None:
            done.set_exception(ticket.refused)
        else:
            done.set_result(ticket.results)

    def _end_tickets(self) -> None:
        """Nobody will answer these any more."""
        for done in self._tickets.values():
            if not done.done():
                done.set_exception(self.fatal or KafkaTimeoutError("the coordinator was closed meanwhile"))
        self._tickets.clear()

    async def commit_offsets_sync(self, offsets: Offsets, timeout_ms: float | None = None) -> Results:
        """Commits, with retries, for at most `timeout_ms` (60 s). Returns each partition's error, None for success.

        Raises where nothing was committed and the reason concerns the whole commit: the membership is lost or
        fenced, not authorized, no answer in time (whether it was carried out is then unknown).
        """
        return await self._submit(offsets, timeout_ms)

    def commit_offsets_async(
        self, offsets: Offsets, callback: CommitCallback | None = None
    ) -> asyncio.Future[Results]:
        """Commits in the background. `callback(offsets, outcome)` gets what `commit_offsets_sync` returns or raises.

        Returns a future of the same.
        """
        done = self._submit(offsets, None)
        report = callback or default_offset_commit_callback

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
            results = await self.commit_offsets_sync(offsets, max(0.0, seconds * 1000))
            default_offset_commit_callback(offsets, results)
        except KafkaActorsError as error:
            default_offset_commit_callback(offsets, error)

    async def fetch_committed_offsets(
        self, partitions: Iterable[TopicPartition], timeout_ms: float | None = None
    ) -> dict[TopicPartition, OffsetAndMetadata | None]:
        """The group's committed offset of each partition, None where there is none.

        Retries what passes, pending transactions too, for `timeout_ms` (None: until it is known). Raises a
        partition's error, what ended the membership, `KafkaTimeoutError`.
        """
        self._run()
        self._member.find_coordinator()
        self._wake()
        return await self._fetcher.fetch([TopicPartition(*tp) for tp in partitions], timeout_ms)


def _group_config(
    config: ConsumerConfig,
    instance_id: str | None,
    rebalance_timeout_ms: int,
    revoke_timeout_ms: int | None,
    max_poll_interval_ms: int | None,
) -> GroupConfig:
    if config.group_id is None:
        raise ConfigError("group_id", "is missing: a member needs a group, and so do committed offsets")
    if instance_id == "auto":
        instance_id = f"{config.group_id}-{uuid.uuid4()}"
    session = config.session_timeout_ms / 1000
    interval = config.heartbeat_interval_ms / 1000
    names = [a if isinstance(a, str) else getattr(a, "name", a) for a in config.partition_assignment_strategy]
    return GroupConfig(
        group_id=config.group_id,
        group_instance_id=instance_id,
        session_timeout=session,
        heartbeat_interval=interval,
        # A coordinator that answers no heartbeat is given up while there is time to find another one.
        heartbeat_timeout=max(session / 5, interval),
        rebalance_timeout=rebalance_timeout_ms / 1000,
        revoke_timeout=(rebalance_timeout_ms / 2 if revoke_timeout_ms is None else revoke_timeout_ms) / 1000,
        request_timeout=config.request_timeout_ms / 1000,
        retry_backoff=config.retry_backoff_ms / 1000,
        retry_backoff_max=config.retry_backoff_max_ms / 1000,
        max_poll_interval=None if max_poll_interval_ms is None else max_poll_interval_ms / 1000,
        describe_strategy=repr(names),
    )


def _assignor(name: Any) -> assignors.Assignor:
    try:
        return assignors.get(name)
    except (ValueError, TypeError) as error:
        raise ConfigError("partition_assignment_strategy", str(error)) from None


def _sorted(partitions: Iterable[TopicPartition]) -> tuple[tuple[str, int], ...]:
    return tuple((tp.topic, tp.partition) for tp in sorted(partitions))
