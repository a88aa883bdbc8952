"""Commits that are under way: who waits for them, and what becomes of them."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable, Mapping
from functools import partial

from kafka_actors.errors import KafkaTimeoutError
from kafka_actors.telemetry.attributes import Attributes
from kafka_actors.types import OffsetAndMetadata, TopicPartition

from .coordinator_channels import LOST_CONNECTION, CoordinatorChannels
from .machines.commits import CommitQueue
from .machines.member_events import GroupRequest
from .machines.pending_commits import (
    CommitAction,
    CommitEligibility,
    CommitReady,
    MembershipNews,
    PendingCommit,
    Results,
)

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

    It is polled as the queue is. eligibility: what the member may commit now. on_answer(seconds, outcome, server): learns what an
    OffsetCommit led to, that long after it was sent there. on_membership_news: takes an error that concerns the membership.
    wake: has the next poll follow soon.
    """

    def __init__(
        self,
        queue: CommitQueue,
        channels: CoordinatorChannels,
        *,
        eligibility: Callable[[], CommitEligibility],
        on_answer: Callable[[float, object, Attributes], None],
        on_membership_news: Callable[[MembershipNews], None],
        wake: Callable[[], None],
        clock: Callable[[], float],
    ) -> None:
        self._queue = queue
        self._channels = channels
        self._eligibility = eligibility
        self._on_answer = on_answer
        self._on_membership_news = on_membership_news
        self._wake = wake
        self._clock = clock
        self._tickets: dict[PendingCommit, asyncio.Future[Results]] = {}

    def submit(self, offsets: Offsets, timeout: float) -> asyncio.Future[Results]:
        """Asks for a commit within `timeout` seconds. The future gets each partition's error, or fails as a whole.

        Raises `UsageError` for an offset that can't be committed.
        """
        done: asyncio.Future[Results] = asyncio.get_running_loop().create_future()
        done.add_done_callback(lambda f: f.cancelled() or f.exception())  # retrieved, whoever else looks
        self._tickets[self._queue.submit(offsets, self._clock(), timeout)] = done
        self._wake()
        return done

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

    def _fed(self) -> CommitQueue:
        self._queue.eligibility = self._eligibility()
        return self._queue

    def drop(self, partitions: Iterable[TopicPartition]) -> None:
        """What waits or is under way for these must not be sent any more."""
        self._queue.drop(partitions)

    def connection_lost(self) -> None:
        """What was in flight gets no answer."""
        self._fed().connection_lost(LOST_CONNECTION, self._clock())

    def end(self, reason: Exception | None) -> None:
        """Nobody will answer these any more."""
        for done in self._tickets.values():
            if not done.done():
                done.set_exception(reason or KafkaTimeoutError("the coordinator was closed meanwhile"))
        self._tickets.clear()

    def _deliver(self, server: Attributes, request: GroupRequest, outcome: object) -> None:
        now = self._clock()
        self._on_answer(now - request.sent_at, outcome, server)
        self._fed().on_response(request, outcome, now)
        self._wake()

    def _answer(self, ticket: PendingCommit) -> None:
        done = self._tickets.pop(ticket)
        if done.done():
            return
        if ticket.refused is not None:
            done.set_exception(ticket.refused)
        else:
            done.set_result(ticket.results)
