"""The topics of a consumer's group: followed in the cluster's metadata, and shared out by the leader."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import Any

from kafka_actors.base.tasks import in_thread
from kafka_actors.cluster import ClusterSnapshot, SubscriptionState
from kafka_actors.errors import KafkaActorsError
from kafka_actors.events import EventSink, PatternMatchesNothing
from kafka_actors.protocol.messages.join_group import JoinGroupResponseMember

from .coordinator_channels import GroupClient
from .machines.assignment import GroupAssignment, TopicsView, choose, perform_assignment
from .machines.member_events import Generation, Partitions
from .machines.ownership import Ownership
from .machines.topic_ids import TopicIds
from .member_driver import MemberDriver

log = logging.getLogger(__name__)

METADATA_TIMEOUT = 10.0
"""Seconds that a leader waits for the metadata of the group's topics before it assigns without."""


class SubscribedTopics:
    """Feeds a member's `Ownership` with the cluster's metadata, and computes the assignment when the member leads.

    commits(): the partitions that the member commits now. on_recreated: learns of those whose topic was deleted and made anew.
    starts_over: the member loses these, and takes them anew.
    """

    def __init__(
        self,
        driver: MemberDriver,
        client: GroupClient,
        subscription: SubscriptionState,
        ownership: Ownership,
        commits: Callable[[], Partitions],
        on_recreated: Callable[[Partitions], None],
        events: EventSink,
        *,
        starts_over: bool = False,
    ) -> None:
        self._driver = driver
        self._client = client
        self._subscription = subscription
        self._ownership = ownership
        self._commits = commits
        self._on_recreated = on_recreated
        self._starts_over = starts_over
        self._events = events
        self._group_id = driver.group_id
        self._matched_nothing = False
        self._listening = False
        self.ids = TopicIds()

    # ------------------------------------------------------------ metadata

    def follow(self) -> None:
        """Takes the metadata as it is now, and from now on each change of it."""
        if not self._listening:
            self._listening = True
            self._client.cluster.add_listener(self._on_metadata)
        self._on_metadata(self._client.cluster)

    def stop(self) -> None:
        """Follows the metadata no more."""
        if self._listening:
            self._client.cluster.remove_listener(self._on_metadata)
            self._listening = False

    def _on_metadata(self, cluster: Any) -> None:
        """Takes new topics, partitions and racks."""
        if not self._subscription.uses_group:
            return
        snapshot = self._client.snapshot
        wanted = self._subscription.matching(snapshot)
        nothing = not wanted and self._subscription.pattern is not None
        if nothing and not self._matched_nothing:
            self._events(PatternMatchesNothing(str(self._subscription.pattern)))
        self._matched_nothing = nothing
        self._ownership.subscribed = wanted
        view = topics_view(snapshot, self._ownership.group_topics)
        reason = self._ownership.on_metadata(wanted, view)
        if reason is not None:
            self._driver.request_rejoin(reason)
        self.check_ids()

    def check_ids(self) -> None:
        """Looks for topics that were deleted and made anew: nothing processed of the old one may be committed to the new."""
        owned = self._commits()
        snapshot = self._client.snapshot
        changed = self.ids.changed(owned, {tp.topic: snapshot.topic_id(tp.topic) for tp in owned})
        if not changed:
            return
        self._on_recreated(changed)
        if self._starts_over:
            self._driver.machine.start_over(changed, "the topic was deleted and made anew")
        self._driver.wake()

    # ------------------------------------------------------------ the leader

    async def perform_assignment(
        self, protocol: str, members: Sequence[JoinGroupResponseMember]
    ) -> Mapping[str, bytes]:
        """Computes each member's assignment with the assignor of that name."""
        assignor = choose(self._ownership.assignors, protocol, self._group_id)
        leading = self._ownership.leading
        topics = self._ownership.group_topics
        await self._track(topics)
        snapshot = self._client.snapshot

        def assign() -> GroupAssignment:
            return perform_assignment(assignor, members, topics_view(snapshot, topics, racks=True))

        # In a thread: with many members and partitions it takes seconds, and heartbeats must go on. Where the system gives none, a late
        # assignment is better than the member's end.
        try:
            computing = in_thread(assign)
        except RuntimeError:
            result = assign()
        else:
            result = await computing
        for member_id in result.unreadable:
            log.warning("group %s: the metadata of member %s can't be read", self._group_id, member_id)
        if self._leads(leading):
            self._ownership.watch(result.watched)
            self._on_metadata(self._client.cluster)  # which may have changed while the assignor computed
        return {part.member_id: part.assignment for part in result.assignments}

    def watch(self) -> None:
        """Watches the group's topics for a static leader that came back: it skipped assigning (KIP-814)."""
        if self._ownership.leading is not None and not self._ownership.watching:
            self._driver.work(self._watch())

    async def _watch(self) -> None:
        leading = self._ownership.leading
        await self._track(self._ownership.group_topics)
        view = topics_view(self._client.snapshot, self._ownership.group_topics)
        if self._leads(leading) and not self._ownership.watching:
            reason = self._ownership.watch_again(view)
            if reason is not None:
                self._driver.request_rejoin(reason)

    def _leads(self, generation: Generation | None) -> bool:
        """Returns whether the member leads this generation, and has not joined again."""
        return generation is not None and generation == self._ownership.leading

    async def _track(self, topics: Collection[str]) -> None:
        """Has the metadata of these topics kept fresh; returns when it is known, or did not come in time.

        Metadata may be on its way for topics that are tracked: a member that has just subscribed may lead at once.
        """
        untracked = [topic for topic in topics if not self._client.tracks(topic)]
        unknown = [topic for topic in topics if topic not in self._client.snapshot.topics]
        if untracked:
            learned = self._client.add_topic(*untracked)
        elif unknown:
            learned = self._client.cluster.request_update()
        else:
            return
        try:
            async with asyncio.timeout(METADATA_TIMEOUT):
                await learned
        except (TimeoutError, KafkaActorsError) as error:
            log.warning(
                "group %s: no metadata of %s: %s", self._group_id, ", ".join(untracked or unknown), error
            )


def topics_view(snapshot: ClusterSnapshot, topics: Iterable[str], *, racks: bool = False) -> TopicsView:
    """Returns the partition ids of those `topics` that exist, with the racks of their replicas if asked for."""
    partitions: dict[str, tuple[int, ...]] = {}
    replica_racks: dict[tuple[str, int], tuple[str | None, ...]] = {}
    for name in topics:
        topic = snapshot.topics.get(name)
        if topic is None or not topic.partitions:
            continue
        partitions[name] = tuple(sorted(topic.partitions))
        if racks:
            for partition in topic.partitions.values():
                replica_racks[name, partition.partition] = tuple(
                    snapshot.brokers[node].rack if node in snapshot.brokers else None
                    for node in partition.replicas
                )
    return TopicsView(partitions, replica_racks)
