"""A member whose part of the group is partitions of the topics it subscribes to."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from kafka_actors.cluster import SubscriptionState
from kafka_actors.errors import KafkaActorsError
from kafka_actors.events import PartitionsAssigned, PartitionsLost, PartitionsRevoked, PatternMatchesNothing
from kafka_actors.metrics import Metrics
from kafka_actors.protocol.messages.join_group import JoinGroupResponseMember
from kafka_actors.types import TopicPartition

from .base_coordinator import BaseCoordinator
from .listener_calls import ListenerCall
from .machines.assignment import choose, group_topics, perform_assignment
from .machines.embedded_protocol import GroupConfig
from .machines.member_events import LosePartitions, MemberAction, RevokePartitions, TakePartitions
from .machines.ownership import Ownership, has_mixed_protocols
from .machines.topic_ids import TopicIds
from .machines.unread_partitions import UntakenPartitions
from .member_driver import LEAVE_TIMEOUT
from .options import read_strategies
from .ports import GroupClient, IgnoreRebalances, RebalanceListener
from .topics_view import topics_view

log = logging.getLogger(__name__)

METADATA_TIMEOUT = 10.0
"""Seconds that a leader waits for the metadata of the group's topics before it assigns without."""


class SubscribedMember(BaseCoordinator):
    """Follows the cluster's metadata, assigns as leader, and tells its listener what it has.

    What is committed for its partitions is its subclass's affair: `ConsumerCoordinator`.
    """

    def __init__(
        self,
        client: GroupClient,
        subscription: SubscriptionState,
        metrics: Metrics | None,
        *,
        listener: RebalanceListener | None,
        **options: Any,
    ) -> None:
        super().__init__(client, metrics, **options)
        self.subscription = subscription
        subscription.exclude_internal_topics = self._config.exclude_internal_topics
        self._listener: RebalanceListener = listener or IgnoreRebalances()
        self._matched_nothing = False
        self._topic_ids = TopicIds()
        self._untaken = UntakenPartitions()
        self._revoking: frozenset[TopicPartition] = frozenset()
        self._listening = False

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
            strategies, group_instance_id=config.group_instance_id, rack=self._config.client_rack or None
        )
        return self.ownership

    def protocol_type(self) -> str:
        """`consumer`."""
        return "consumer"

    def group_protocols(self) -> list[tuple[str, bytes]]:
        """The assignors' names with this member's subscription, the most preferred first."""
        return self.ownership.metadata()

    @property
    def assignment(self) -> frozenset[TopicPartition]:
        """The partitions this member owns, without those it is giving up."""
        return self.ownership.owned()

    async def start(self) -> None:
        """Begins to become a member, if the subscription is to topics or a pattern; else to find the coordinator.

        Returns at once. Call it again when the subscription has changed.
        """
        self._listen()
        if self.subscription.uses_group:
            self._on_metadata(self._client.cluster)
            await super().start()
        else:
            self._run()
            self._member.find_coordinator()
            self._wake()

    async def _stop(self) -> None:
        if self._listening:
            self._client.cluster.remove_listener(self._on_metadata)
            self._listening = False
        await super()._stop()

    # ------------------------------------------------------------ for the subclass

    async def _before_revoke(self, partitions: frozenset[TopicPartition], deadline: float) -> None:
        """These are about to be given up, at the latest at `deadline`."""

    def _on_recreated(self, partitions: frozenset[TopicPartition]) -> None:
        """The topic of these was deleted and made anew."""

    # ------------------------------------------------------------ metadata

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
        self._on_recreated(changed)
        if self._config.on_data_loss == "reset":
            self._member.start_over(changed, "the topic was deleted and made anew")
        self._wake()

    async def _perform_assignment(
        self, leader_id: str, protocol: str, members: Sequence[JoinGroupResponseMember]
    ) -> Mapping[str, bytes]:
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
        return {part.member_id: part.assignment for part in result.assignments}

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
                reason = self.ownership.watch_again(view)
                if reason is not None:
                    self.request_rejoin(reason)

        self._work_task = asyncio.get_running_loop().create_task(watch())

    # ------------------------------------------------------------ what happens

    def _on_action(self, action: MemberAction) -> None:
        listener = self._listener
        match action:
            case TakePartitions(generation, added, _):
                self._check_topic_ids()
                self._events(PartitionsAssigned(generation, _sorted(added)))
                self._calls.put(self._assigned_call(self._untaken.assigned(added)))
                if self.leader and not self.ownership.watching:
                    self._start_watching()
            case RevokePartitions(token, partitions, deadline):
                self._untaken.gone(partitions)
                self._revoking |= partitions
                self._calls.put(self._revoke_call(token, partitions, deadline))
            case LosePartitions(partitions, reason):
                self._untaken.gone(partitions)
                self._revoking -= partitions
                self._events(PartitionsLost(_sorted(partitions), reason))
                deadline = self._clock() + LEAVE_TIMEOUT
                self._calls.put(
                    ListenerCall(
                        lambda: listener.on_partitions_lost(partitions), "on_partitions_lost", deadline
                    )
                )

    def _assigned_call(self, number: int, *, again: bool = False) -> ListenerCall:
        """Has the listener take on what that assignment gave. Made again for what is still owned if it is cut off."""

        async def take_on() -> None:
            partitions = self._untaken.up_to(number)
            if partitions or not again:
                await self._listener.on_partitions_assigned(frozenset(partitions))
            self._untaken.taken(partitions)

        def over() -> None:
            if self._untaken.up_to(number) and self.fatal is None and not self._member.leaving:
                self._calls.put(self._assigned_call(number, again=True))

        return ListenerCall(take_on, "on_partitions_assigned", after=over, yields=True)

    def _revoke_call(
        self, token: int, partitions: frozenset[TopicPartition], deadline: float
    ) -> ListenerCall:
        async def revoke() -> None:
            await self._before_revoke(partitions, deadline)
            await self._listener.on_partitions_revoked(partitions, max(0.0, deadline - self._clock()))

        def released() -> None:
            gone = partitions & self._revoking  # without those that were lost meanwhile
            self._revoking -= gone
            if gone:
                self._events(PartitionsRevoked(self.generation, _sorted(gone)))
            self._released(token)

        return ListenerCall(revoke, "on_partitions_revoked", deadline, released)


def _sorted(partitions: Iterable[TopicPartition]) -> tuple[tuple[str, int], ...]:
    return tuple((tp.topic, tp.partition) for tp in sorted(partitions))
