"""Decides which offset commits of one member are sent when: at most one is in flight; what is asked for meanwhile waits and is merged.

Theory of operation. Arrives: commits (`submit`), answers, lost connections, partitions that are gone (`drop`), and before each of
these what the member may commit now (`eligibility`). Decided: the next OffsetCommit or OffsetFetch, which commits are done and how,
what concerns the membership. Its part `QueuedOffsets` has the offsets, and settles the commits that wait for them; here is the
way of the requests:

    nothing in flight ──► OffsetCommit ──► answered: each partition is settled by its own code, or waits again after a backoff
                              └► no answer ──► OffsetFetch, until one is answered: what landed is done, the rest waits again

- **One at a time**, because two commits under way at once could land in the wrong order, over connections that were lost between. For
  the same reason an unknown outcome (no answer, connection lost) is resolved by OffsetFetch on a new connection before anything
  else is committed. A fetch that finds another offset than the one sent says that the commit hasn't landed: nobody else commits
  for the partition while it is this member's. It may land yet: a broker, or the network, carries out what it has kept behind
  later commits too, and within one generation nothing fences it. So these partitions are looked up once more when they have been
  quiet for a request's time, and a commit that was undone is made again (`LateCommits`); until then a crash repeats records.
- **The latest asked for wins**: of several commits of a partition that wait, the last one is sent, and the earlier ones share its outcome.
  (A job's workers are merged before, by `CommitGate`: there the furthest offset counts, and what failed is sent again though
  nobody waits.)
- **A request has no more than the coordinator can write at once** (`COMMIT_BYTES`): what has waited for longest goes first, the rest with the next
  ones, and a commit is done with its last partition. What is refused as too large is sent again in halves, and so is all that follows; with
  Kafka 4 that can't be told from other errors of a broker, so it ends at `LEAST_BYTES`.
- **A commit carries the generation that is current when it is sent.** While the group rebalances it would be refused, so it waits for the
  next generation (`GenerationRefusal`). An error about a generation that is past, or about to be, is no news of the membership.
- **What is no longer the member's** is never sent again, not even as a retry; nor is an offset of a topic that was deleted and made anew.
- **Every commit ends by its deadline**, with what is known of it then; what may have landed is resolved all the same.
- **A lost answer** costs its timeout and one OffsetFetch, and the next request gets more time (`GrowingTimeout`); an answer that comes
  late is not that of the request in flight, and is ignored.

`error_actions` says what each error code means. Source: `ConsumerCoordinator.java`, but for unknown outcomes, which Java's client
leaves to the user.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping

from kafka_actors.base.backoff import GrowingTimeout, RetryTimer
from kafka_actors.base.machine import Ready
from kafka_actors.errors import (
    CoordinatorLoadInProgressError,
    EncodeError,
    FencedInstanceIdError,
    InvalidCommitOffsetSizeError,
    KafkaError,
    KafkaTimeoutError,
    OffsetMetadataTooLargeError,
    UnknownServerError,
    error_for_code,
)
from kafka_actors.group.commit_metadata import COMMIT_BYTES
from kafka_actors.protocol.messages.offset_commit import OffsetCommitResponse
from kafka_actors.protocol.messages.offset_fetch import OffsetFetchResponse
from kafka_actors.types import OffsetAndMetadata, TopicPartition

from .embedded_protocol import GroupConfig
from .error_actions import ErrorAction, GroupApi, judge, outcome_known
from .late_commits import LateCommits
from .member_core import GRACE
from .member_events import Generation, GroupRequest
from .offset_fetch import CommittedOffsets, offset_fetch_request, read_offset_fetch
from .pending_commits import (
    FAILS_AT_ONCE,
    CommitAction,
    CommitEligibility,
    CommitReady,
    MembershipNews,
    PendingCommit,
    QueuedOffsets,
    check_offset,
    commit_request,
)

LEAST_BYTES = 16 * 1024
"""Bytes of a commit that isn't refused for its size."""
TOO_LARGE = (InvalidCommitOffsetSizeError, UnknownServerError)
"""Errors of a commit that is too large: the first up to Kafka 3.9, from 4.0 on the second, which has other reasons too."""


class GenerationRefusal:
    """The generation whose commits the group no longer takes, because it rebalances: what waits goes with the next one."""

    def __init__(self) -> None:
        self._generation: Generation | None = None
        self._joining = False
        """Whether the member was not through with JoinGroup and SyncGroup when it heard so: it may come out in the same
        generation, because a JoinGroup that is repeated while the group waits for SyncGroup brings no new one."""

    def refused(self, generation: Generation, member: CommitEligibility) -> None:
        """Takes that the group refused a commit of this generation."""
        self._generation = generation
        self._joining = not (member.settled and member.may_commit)

    def holds_back(self, member: CommitEligibility) -> bool:
        """Whether a commit of the member would be refused again."""
        return member.generation == self._generation and not (self._joining and member.settled)

    def clear(self) -> None:
        self._generation = None


class CommitQueue:
    """The commits of one member, from `submit` to the action that answers them. Times are seconds of one monotonic clock."""

    def __init__(self, config: GroupConfig, *, rand: Callable[[], float]) -> None:
        self.eligibility = CommitEligibility(connected=False, may_commit=False)
        """The member as it is now, as far as commits go: set it before each call of `poll` and of an input."""
        self._config = config
        self._patience = GrowingTimeout(config.heartbeat_timeout, config.request_timeout)
        self._backoff = RetryTimer(config.retry_backoff, config.retry_backoff_max, rand)
        self._not_before = 0.0
        self._request: GroupRequest | None = None
        self._unknown = False
        self._most_bytes = COMMIT_BYTES
        self._refusal = GenerationRefusal()
        self._late = LateCommits(config.request_timeout)
        self._actions: list[CommitAction] = []
        self._offsets = QueuedOffsets(self._actions.append)

    @property
    def idle(self) -> bool:
        """Whether nothing is waiting, in flight or of unknown outcome."""
        return not (self._offsets.waiting or self._offsets.sent)

    def submit(
        self, offsets: Mapping[TopicPartition, OffsetAndMetadata], now: float, timeout: float
    ) -> PendingCommit:
        """Takes a commit. Raises `UsageError` for an offset that can't be committed; nothing is taken then."""
        for tp, offset in offsets.items():
            check_offset(tp, offset)
        commit = PendingCommit(dict(offsets), now + timeout)
        self._offsets.put(commit)
        return commit

    def poll(self, now: float) -> CommitReady:
        """Ends commits whose time is over, gives up what is no longer the member's, and sends the next request if none is out."""
        if self._request is not None and now >= self._request.sent_at + self._request.timeout + GRACE:
            self.on_response(self._request, KafkaTimeoutError("no answer"), now)
        self._offsets.expire(now)
        if self.eligibility.owned is not None:
            self._offsets.keep(self.eligibility.owned)
        self._offsets.keep_topics(self.eligibility.topic_id)
        self._late.keep(self.eligibility)
        if self.eligibility.ended is not None:
            self._unknown, self._request = False, None
            self._offsets.fail(self.eligibility.ended)
        elif self._request is None and self.eligibility.connected and now >= self._not_before:
            self._send_next(now)
        ready: CommitReady = Ready(tuple(self._actions), (), self._next_wake())
        self._actions.clear()
        return ready

    def on_response(self, request: GroupRequest, outcome: object, now: float) -> None:
        """Takes the answer to the request in flight, or the exception that ended it. Answers to other requests are ignored."""
        if request is not self._request:
            return
        self._request = None
        if isinstance(outcome, KafkaTimeoutError):
            self._patience.unanswered()
        elif not isinstance(outcome, Exception):
            self._patience.answered(now - request.sent_at)
        if request.api is GroupApi.OFFSET_FETCH:
            self._looked_up(request, outcome, now)
        elif isinstance(outcome, Exception):
            self._on_failure(request, outcome, now)
        else:
            assert isinstance(outcome, OffsetCommitResponse)
            self._on_committed(request, outcome, now)

    def drop(self, partitions: Iterable[TopicPartition]) -> None:
        """Drops what waits or is under way for these partitions: it is about something that is gone, and is not sent (again)."""
        self._offsets.drop(partitions)

    def connection_lost(self, error: Exception, now: float) -> None:
        """Ends the request in flight with `error`: the connections to the coordinator are closed."""
        if self._request is not None:
            self.on_response(self._request, error, now)

    # ------------------------------------------------------------ sending

    def _send_next(self, now: float) -> None:
        """Sends what is due, in this order: a look-up of what may have landed, the offsets that wait, a second
        look at late commits.
        """
        group_id = self._config.group_id
        if self._unknown:
            # Not require_stable: what is asked is what landed last, not what may be read.
            body = offset_fetch_request(group_id, self._offsets.sent, require_stable=False)
            self._send(GroupApi.OFFSET_FETCH, body, now)
        elif self._may_send():
            self._refusal.clear()
            commit = commit_request(self._config, self._offsets.begin(self._most_bytes), self.eligibility)
            self._send(GroupApi.COMMIT, commit, now)
        elif self._late.due_at <= now:
            body = offset_fetch_request(group_id, self._late.partitions, require_stable=False)
            self._send(GroupApi.OFFSET_FETCH, body, now)

    def _send(self, api: GroupApi, body: object, now: float) -> None:
        """Sends a request, the only one until it has ended; its generation tells later whether an error is about the present one."""
        self._request = GroupRequest(api, body, self._patience.seconds, now, self.eligibility.generation)
        self._actions.append(self._request)

    def _may_send(self) -> bool:
        state = self.eligibility
        return bool(self._offsets.waiting) and state.may_commit and not self._refusal.holds_back(state)

    # ------------------------------------------------------------ answers

    def _on_failure(self, request: GroupRequest, error: Exception, now: float) -> None:
        """Handles a request that had no answer, or an error for the whole of it."""
        verdict = judge(GroupApi.COMMIT, error)
        self._notify(error, verdict, request)
        self._wait(now)
        if not outcome_known(error):
            self._unknown = True
            self._late.unanswered(self._offsets.sent, request.generation, now)
            return
        for tp in list(self._offsets.sent):
            self._offsets.settle(tp, error, verdict)

    def _on_committed(self, request: GroupRequest, response: OffsetCommitResponse, now: float) -> None:
        """Settles each partition by its own code; of the errors about the membership the last one is handed on."""
        codes = {
            TopicPartition(topic.name, p.partition_index): p.error_code
            for topic in response.topics
            for p in topic.partitions
        }
        worst: tuple[KafkaError, ErrorAction] | None = None
        again = False
        smaller = self._send_less(codes.values())
        for tp in list(self._offsets.sent):
            # A partition that the answer leaves out is asked again: nothing was said about it.
            code = codes.get(tp, CoordinatorLoadInProgressError.code)
            error = error_for_code(
                code,
                request="OffsetCommit",
                topic=tp.topic,
                partition=tp.partition,
                group=self._config.group_id,
            )
            if error is None:
                self._landed(tp)
                continue
            if isinstance(error, OffsetMetadataTooLargeError) and self._offsets.strip(tp):
                continue
            if smaller and isinstance(error, TOO_LARGE):
                self._offsets.settle(tp, error, ErrorAction.RETRY)
                continue
            verdict = self._verdict(error, request.generation)
            self._offsets.settle(tp, error, verdict)
            again |= verdict not in FAILS_AT_ONCE
            if verdict not in (ErrorAction.PARTITION, ErrorAction.RETRY):
                worst = error, verdict
            if verdict is ErrorAction.REJOIN and self.eligibility.owned is not None:
                self._refusal.refused(request.generation, self.eligibility)
        if worst is not None:
            self._notify(*worst, request)
        if again:
            self._wait(now)
        else:
            self._backoff.succeeded()

    def _send_less(self, codes: Collection[int]) -> bool:
        """Halves what one request may have from now on, if the answer to this one may say that it had too much. Returns whether it does."""
        if 0 in codes or not any(error.code in codes for error in TOO_LARGE):
            return False
        size = self._offsets.bytes_sent()
        if size <= LEAST_BYTES or len(self._offsets.sent) == 1:
            return False
        self._most_bytes = max(min(self._most_bytes, size // 2), LEAST_BYTES)
        return True

    def _verdict(self, error: KafkaError, sent_in: Generation) -> ErrorAction:
        """Returns what an error means. One about a generation that is past, or about to be, only means to try again later."""
        verdict = judge(GroupApi.COMMIT, error)
        old = self.eligibility.generation != sent_in
        ending = not self.eligibility.settled and verdict is ErrorAction.RESET_GENERATION
        resets = verdict in (ErrorAction.RESET_GENERATION, ErrorAction.RESET_MEMBER)
        about_membership = resets or isinstance(error, FencedInstanceIdError)
        return ErrorAction.REJOIN if about_membership and (old or ending) else verdict

    def _looked_up(self, request: GroupRequest, outcome: object, now: float) -> None:
        """Takes what the group has: for commits of unknown outcome, or for those that a late one may have undone."""
        if isinstance(outcome, OffsetFetchResponse):
            committed = read_offset_fetch(outcome, self._config.group_id)
            error: Exception | None = committed.error
        else:
            assert isinstance(outcome, Exception)
            error = outcome
        if error is None:
            if self._unknown:
                self._resolve(committed, now)
            else:
                self._offsets.put_again(self._late.undone(committed, now))
            return
        verdict = judge(GroupApi.OFFSET_FETCH, error, alive=self.eligibility.heard_at >= request.sent_at)
        self._notify(error, verdict, request)
        self._wait(now)
        if verdict is ErrorAction.FATAL:
            self._unknown = False
            self._late.clear()
            self._offsets.fail_sent(error)

    def _resolve(self, committed: CommittedOffsets, now: float) -> None:
        """Compares what the group has with the commits of unknown outcome: those that landed are done, the others wait again."""
        for tp, entry in list(self._offsets.sent.items()):
            if tp in committed.errors:
                if judge(GroupApi.OFFSET_FETCH, committed.errors[tp]) is ErrorAction.PARTITION:
                    self._offsets.settle(tp, committed.errors[tp], ErrorAction.PARTITION)
                continue
            found = committed.offsets.get(tp)
            if found is not None and found[:2] == entry.offset[:2]:
                self._landed(tp)
            else:
                self._offsets.requeue(tp)
        self._unknown = bool(self._offsets.sent)
        if self._unknown:
            self._wait(now)

    def _landed(self, tp: TopicPartition) -> None:
        self._late.committed(tp, self._offsets.sent[tp].offset)
        self._offsets.settle(tp, None, None)

    def _notify(self, error: Exception, verdict: ErrorAction, request: GroupRequest) -> None:
        """Hands an error on to the membership. Without one only a lost coordinator matters; a bad request concerns its caller alone."""
        if isinstance(error, EncodeError) or (
            self.eligibility.owned is None and verdict is not ErrorAction.REDISCOVER
        ):
            return
        self._actions.append(MembershipNews(error, verdict, request.generation))

    def _wait(self, now: float) -> None:
        self._not_before = now + self._backoff.failed(now)

    def _next_wake(self) -> float | None:
        """Returns when something is due without an input: a deadline, the end of a request's time, or of a
        backoff.
        """
        times = [commit.deadline for commit in self._offsets.commits]
        if self._request is not None:
            times.append(self._request.sent_at + self._request.timeout + GRACE)
        elif self.eligibility.connected and (self._unknown or self._may_send()):
            times.append(self._not_before)
        elif self.eligibility.connected and self._late.partitions:
            times.append(max(self._late.due_at, self._not_before))
        return min(times, default=None)
