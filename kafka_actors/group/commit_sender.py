"""`CommitSender`: the shell of a member's queue of commits."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping
from functools import partial

from kafka_actors.cluster import SubscriptionState
from kafka_actors.errors import KafkaTimeoutError
from kafka_actors.telemetry.attributes import Attributes
from kafka_actors.types import OffsetAndMetadata, TopicPartition

from .commit_metadata import pack, unpack
from .coordinator_channels import LOST_CONNECTION, GroupClient
from .machines.commits import CommitQueue
from .machines.member_events import GroupRequest, Partitions
from .machines.pending_commits import (
    CommitAction,
    CommitEligibility,
    CommitReady,
    MembershipNews,
    PendingCommit,
    Results,
    eligibility_of,
)
from .machines.topic_ids import TopicIds, without
from .member_driver import MemberDriver

log = logging.getLogger(__name__)

Offsets = Mapping[TopicPartition, OffsetAndMetadata]
CommitCallback = Callable[[Offsets, "Results | Exception"], object]


def default_offset_commit_callback(offsets: Offsets, outcome: Results | Exception) -> None:
    """Logs a commit that failed; `commit_offsets_async` calls it where it is given no other."""
    if isinstance(outcome, Exception):
        log.warning("commit of %d partitions failed: %s", len(offsets), outcome)
        return
    for tp, error in outcome.items():
        if error is not None:
            log.warning("commit of %s-%d failed: %s", tp.topic, tp.partition, error)


class CommitSender:
    """Feeds a `CommitQueue` with what the member may commit, sends its requests and answers whoever asked for a commit.

    It is polled as the queue is, by the member's loop. Where partitions are chosen by hand it commits without a membership.
    commits(): the partitions that the member commits now.
    on_answer(seconds, outcome, server): learns what an OffsetCommit led to, that long after it was sent there.
    """

    def __init__(
        self,
        driver: MemberDriver,
        client: GroupClient,
        subscription: SubscriptionState,
        commits: Callable[[], Partitions],
        topic_ids: TopicIds,
        *,
        on_data_loss: str,
        on_answer: Callable[[float, object, Attributes], None],
        rand: Callable[[], float],
    ) -> None:
        self._queue = CommitQueue(driver.machine.config, rand=rand)
        self._driver = driver
        self._channels = driver.channels
        self._client = client
        self._subscription = subscription
        self._commits = commits
        self._topic_ids = topic_ids
        self._on_data_loss = on_data_loss
        self._on_answer = on_answer
        self._clock = driver.now
        self._recreated: set[TopicPartition] = set()
        """Partitions of which nothing is committed until a position is of the topic as it is now."""
        self._waiting: dict[PendingCommit, asyncio.Future[Results]] = {}

    def submit(self, offsets: Offsets, timeout: float) -> asyncio.Future[Results]:
        """Asks for a commit within `timeout` seconds. The future gets each partition's error, or fails as a whole.

        Raises `UsageError` for an offset that can't be committed.
        """
        self._driver.find_coordinator()
        named = {tp: offset._replace(metadata=self._named(tp, offset)) for tp, offset in offsets.items()}
        done: asyncio.Future[Results] = asyncio.get_running_loop().create_future()
        done.add_done_callback(lambda f: f.cancelled() or f.exception())  # retrieved, whoever else looks
        self._waiting[self._queue.submit(named, self._clock(), timeout)] = done
        self._driver.wake()
        return done

    def _named(self, tp: TopicPartition, offset: OffsetAndMetadata) -> str:
        """Returns metadata that names the topic of the offset: as it does already, else as the topic was when it was assigned."""
        snapshot = self._client.snapshot
        topic_id = self._topic_ids.of_owned(tp.topic) or snapshot.topic_id(tp.topic)
        own = unpack(offset.metadata)
        if own.topic_id is not None and own.topic_id == topic_id:
            self._recreated.discard(tp)  # whoever reads it goes on in the topic as it is
        return pack(own.text, own.topic_id or topic_id, snapshot.cluster_id, done=own.done)

    def poll(self, now: float) -> CommitReady:
        """Polls the queue."""
        return self._fed().poll(now)

    def carry_out(self, action: CommitAction) -> None:
        """Sends a request, answers a commit that is done, or hands an error on to the membership."""
        match action:
            case GroupRequest():
                self._channels.start(action, partial(self._deliver, self._channels.server))
            case PendingCommit():
                self._answer(action)
            case MembershipNews():
                self._on_membership_news(action)

    def _on_membership_news(self, news: MembershipNews) -> None:
        self._driver.machine.on_membership_error(news.error, news.verdict, news.generation, self._clock())
        self._driver.wake()

    def _fed(self) -> CommitQueue:
        self._queue.eligibility = self._eligibility()
        return self._queue

    def _eligibility(self) -> CommitEligibility:
        member, topic_id = self._driver.machine, self._client.snapshot.topic_id
        if not self._subscription.uses_group:
            return eligibility_of(member, None, self._driver.fatal, topic_id)
        owned = without(self._commits(), self._recreated)
        return eligibility_of(member, owned, self._driver.fatal, topic_id)

    def on_recreated(self, partitions: Partitions) -> None:
        """Drops the commits of partitions whose topic was deleted and made anew: what was processed of the old one must not be
        committed to its successor. Where data loss is fatal, reading fails, and nothing is committed until a position is of the
        new topic."""
        self._queue.drop(partitions)
        if self._on_data_loss == "fail":
            self._recreated |= partitions

    def connection_lost(self) -> None:
        """Gives up what is in flight: it gets no answer."""
        self._fed().connection_lost(LOST_CONNECTION, self._clock())

    def end(self, reason: Exception | None) -> None:
        """Fails all commits that have no answer: nobody will give one any more."""
        for done in self._waiting.values():
            if not done.done():
                done.set_exception(reason or KafkaTimeoutError("the coordinator was closed meanwhile"))
        self._waiting.clear()

    def _deliver(self, server: Attributes, request: GroupRequest, outcome: object) -> None:
        now = self._clock()
        self._on_answer(now - request.sent_at, outcome, server)
        self._fed().on_response(request, outcome, now)
        self._driver.wake()

    def _answer(self, commit: PendingCommit) -> None:
        done = self._waiting.pop(commit)
        if done.done():
            return
        if commit.refused is not None:
            done.set_exception(commit.refused)
        else:
            done.set_result(commit.results)
