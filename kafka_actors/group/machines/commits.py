"""Decides which offset commits of one member are sent when: at most one is in flight; what is asked for meanwhile waits and is merged.

Arrives: commits (`submit`), answers, lost connections, and what the member may commit now (`eligibility`). Decided: the next
OffsetCommit or OffsetFetch, which commits are done and how, what concerns the membership.

- Of several commits of a partition that wait, the latest asked for is sent; the earlier ones share its outcome. (A job's workers
  are merged before, by `CommitGate`: there the furthest offset counts, and what failed is sent again though nobody waits.)
- A commit carries the generation that is current when it is sent.
- A commit whose outcome is unknown (no answer, connection lost) is resolved by OffsetFetch on a new connection
  before anything else is committed: two commits under way at once could land in the wrong order.
- A partition that is no longer this member's is never sent again, not even as a retry; nor is an offset of a topic
  that was deleted and made anew since.

Every commit ends by its deadline. `error_actions` says what each error code means.

A partition is *waiting* (asked for, not sent), *sent* (in the request in flight, or of unknown outcome), or both; it moves from
waiting to sent with a request, and back when the answer is worth another try. Source: `ConsumerCoordinator.java`, but for unknown
outcomes, which Java's client leaves to the user.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

from kafka_actors.base.backoff import Backoff, GrowingTimeout
from kafka_actors.base.machine import Ready
from kafka_actors.errors import (
    CoordinatorLoadInProgressError,
    EncodeError,
    FencedInstanceIdError,
    KafkaError,
    KafkaTimeoutError,
    OffsetMetadataTooLargeError,
    error_for_code,
)
from kafka_actors.group.commit_metadata import unpack
from kafka_actors.protocol.messages.offset_commit import OffsetCommitResponse
from kafka_actors.protocol.messages.offset_fetch import OffsetFetchResponse
from kafka_actors.types import OffsetAndMetadata, TopicPartition

from .embedded_protocol import GroupConfig
from .error_actions import ErrorAction, GroupApi, judge, outcome_known
from .member_core import GRACE
from .member_events import Generation, GroupRequest
from .offset_fetch import offset_fetch_request, read_offset_fetch
from .pending_commits import (
    CommitAction,
    CommitEligibility,
    CommitReady,
    GenerationRefusal,
    MembershipNews,
    PendingCommit,
    QueuedOffset,
    as_ours,
    check_offset,
    commit_request,
    not_owned,
    recreated,
)

_ABOUT_MEMBERSHIP = (ErrorAction.RESET_GENERATION, ErrorAction.RESET_MEMBER, ErrorAction.FATAL)
_FAILS_AT_ONCE = (*_ABOUT_MEMBERSHIP, ErrorAction.PARTITION)


class CommitQueue:
    """The commits of one member, from `submit` to the action that answers them. Times are seconds of one monotonic clock."""

    def __init__(self, config: GroupConfig, *, rand: Callable[[], float]) -> None:
        self.eligibility = CommitEligibility(connected=False, may_commit=False)
        """The member as it is now, as far as commits go: set it before each call of `poll` and of an input."""
        self._config = config
        self._patience = GrowingTimeout(config.heartbeat_timeout, config.request_timeout)
        self._backoff = Backoff(config.retry_backoff, config.retry_backoff_max, rand)
        self._not_before = 0.0
        self._waiting: dict[TopicPartition, QueuedOffset] = {}
        self._sent: dict[TopicPartition, QueuedOffset] = {}
        """Entries in the request in flight, or of unknown outcome."""
        self._request: GroupRequest | None = None
        self._unknown = False
        self._void: set[TopicPartition] = set()
        """Partitions of `_sent` that have been taken from this member since."""
        self._refusal = GenerationRefusal()
        self._commits: list[PendingCommit] = []
        self._actions: list[CommitAction] = []

    @property
    def idle(self) -> bool:
        """Whether nothing is waiting, in flight or of unknown outcome."""
        return not (self._waiting or self._sent)

    def submit(
        self, offsets: Mapping[TopicPartition, OffsetAndMetadata], now: float, timeout: float
    ) -> PendingCommit:
        """Takes a commit. Raises `UsageError` for an offset that can't be committed; nothing is taken then."""
        for tp, offset in offsets.items():
            check_offset(tp, offset)
        commit = PendingCommit(dict(offsets), now + timeout)
        for tp, offset in offsets.items():
            earlier = self._waiting.get(tp)
            commits = earlier.commits if earlier else []
            self._waiting[tp] = QueuedOffset(offset, [*commits, commit], unpack(offset.metadata).topic_id)
        if commit.done:
            self._actions.append(commit)
        else:
            self._commits.append(commit)
        return commit

    def poll(self, now: float) -> CommitReady:
        """Ends commits whose time is over, gives up what is no longer the member's, and sends the next request if none is out."""
        if self._request is not None and now >= self._request.sent_at + self._request.timeout + GRACE:
            self.on_response(self._request, KafkaTimeoutError("no answer"), now)
        self._expire(now)
        self._check_ownership()
        self._check_topics()
        if self.eligibility.ended is not None:
            self._fail_all(self.eligibility.ended)
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
            self._resolve(request, outcome, now)
        elif isinstance(outcome, Exception):
            self._on_failure(request, outcome, now)
        else:
            assert isinstance(outcome, OffsetCommitResponse)
            self._on_committed(request, outcome, now)

    def drop(self, partitions: Iterable[TopicPartition]) -> None:
        """Drops what waits or is under way for these partitions: it is about something that is gone, and is not sent (again)."""
        for tp in partitions:
            if tp in self._waiting:
                self._report(tp, self._waiting.pop(tp), not_owned(tp))
            if tp in self._sent:
                self._void.add(tp)

    def connection_lost(self, error: Exception, now: float) -> None:
        """Ends the request in flight with `error`: the connections to the coordinator are closed."""
        if self._request is not None:
            self.on_response(self._request, error, now)

    # ------------------------------------------------------------ sending

    def _send_next(self, now: float) -> None:
        group_id = self._config.group_id
        if self._unknown:
            # Not require_stable: what is asked is what landed last, not what may be read.
            body = offset_fetch_request(group_id, self._sent, require_stable=False)
            self._send(GroupApi.OFFSET_FETCH, body, now)
        elif self._may_send():
            self._refusal.clear()
            self._sent, self._waiting = self._waiting, {}
            offsets = {tp: entry.offset for tp, entry in self._sent.items()}
            self._send(GroupApi.COMMIT, commit_request(self._config, offsets, self.eligibility), now)

    def _send(self, api: GroupApi, body: object, now: float) -> None:
        """Sends a request, the only one until it has ended; its generation tells later whether an error is about the present one."""
        self._request = GroupRequest(api, body, self._patience.seconds, now, self.eligibility.generation)
        self._actions.append(self._request)

    def _may_send(self) -> bool:
        state = self.eligibility
        return bool(self._waiting) and state.may_commit and not self._refusal.holds_back(state)

    # ------------------------------------------------------------ answers

    def _on_failure(self, request: GroupRequest, error: Exception, now: float) -> None:
        """Handles a request that had no answer, or an error for the whole of it."""
        verdict = judge(GroupApi.COMMIT, error)
        self._notify(error, verdict, request)
        self._wait(now)
        if not outcome_known(error):
            self._unknown = True
            return
        for tp in list(self._sent):
            self._settle(tp, error, verdict)

    def _on_committed(self, request: GroupRequest, response: OffsetCommitResponse, now: float) -> None:
        """Settles each partition by its own code; of the errors about the membership the last one is handed on."""
        codes = {
            TopicPartition(topic.name, p.partition_index): p.error_code
            for topic in response.topics
            for p in topic.partitions
        }
        worst: tuple[KafkaError, ErrorAction] | None = None
        again = False
        for tp in list(self._sent):
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
                self._settle(tp, None, None)
                continue
            if isinstance(error, OffsetMetadataTooLargeError) and self._strip(tp):
                continue
            verdict = self._verdict(error, request.generation)
            self._settle(tp, error, verdict)
            again |= verdict not in _FAILS_AT_ONCE
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

    def _strip(self, tp: TopicPartition) -> bool:
        """Sends the user's own metadata alone, for a broker that takes less than usual. Returns False where there was no more."""
        entry = self._sent[tp]
        text, topic_id, _ = unpack(entry.offset.metadata)
        if topic_id is None:
            return False
        entry.offset = entry.offset._replace(metadata=text)
        self._requeue(tp)
        return True

    def _verdict(self, error: KafkaError, sent_in: Generation) -> ErrorAction:
        """Returns what an error means. One about a generation that is past, or about to be, only means to try again later."""
        verdict = judge(GroupApi.COMMIT, error)
        old = self.eligibility.generation != sent_in
        ending = not self.eligibility.settled and verdict is ErrorAction.RESET_GENERATION
        resets = verdict in (ErrorAction.RESET_GENERATION, ErrorAction.RESET_MEMBER)
        about_membership = resets or isinstance(error, FencedInstanceIdError)
        return ErrorAction.REJOIN if about_membership and (old or ending) else verdict

    def _resolve(self, request: GroupRequest, outcome: object, now: float) -> None:
        """Compares what the group has with the commits of unknown outcome: those that landed are done, the others wait again."""
        if isinstance(outcome, OffsetFetchResponse):
            committed = read_offset_fetch(outcome, self._config.group_id)
            error: Exception | None = committed.error
        else:
            assert isinstance(outcome, Exception)
            error = outcome
        if error is not None:
            verdict = judge(GroupApi.OFFSET_FETCH, error, alive=self.eligibility.heard_at >= request.sent_at)
            self._notify(error, verdict, request)
            self._wait(now)
            if verdict is ErrorAction.FATAL:
                self._unknown = False
                self._fail_sent(error)
            return
        for tp, entry in list(self._sent.items()):
            if tp in committed.errors:
                if judge(GroupApi.OFFSET_FETCH, committed.errors[tp]) is ErrorAction.PARTITION:
                    self._settle(tp, committed.errors[tp], ErrorAction.PARTITION)
                continue
            found = committed.offsets.get(tp)
            landed = found is not None and found[:2] == entry.offset[:2]
            self._settle(tp, None, None) if landed else self._requeue(tp)
        self._unknown = bool(self._sent)
        if self._unknown:
            self._wait(now)

    def _notify(self, error: Exception, verdict: ErrorAction, request: GroupRequest) -> None:
        """Hands an error on to the membership. Without one only a lost coordinator matters; a bad request concerns its caller alone."""
        if isinstance(error, EncodeError) or (
            self.eligibility.owned is None and verdict is not ErrorAction.REDISCOVER
        ):
            return
        self._actions.append(MembershipNews(error, verdict, request.generation))

    # ------------------------------------------------------------ outcomes

    def _settle(self, tp: TopicPartition, error: Exception | None, verdict: ErrorAction | None) -> None:
        """Ends a sent entry, or has it wait again where the error is worth another try."""
        if error is not None and verdict not in _FAILS_AT_ONCE:
            self._sent[tp].refused = error
            self._requeue(tp)
            return
        entry = self._sent.pop(tp)
        self._void.discard(tp)
        self._report(tp, entry, error, as_a_whole=verdict is not ErrorAction.PARTITION)

    def _requeue(self, tp: TopicPartition) -> None:
        """Has a sent entry wait again, unless something newer waits, the partition has gone, or nobody waits for it."""
        entry = self._sent.pop(tp)
        if tp in self._void:
            self._void.discard(tp)
            self._report(tp, entry, not_owned(tp))
            return
        newer = self._waiting.get(tp)
        if newer is not None:
            newer.commits = [*entry.commits, *newer.commits]
            newer.refused = entry.refused
        elif entry.commits:
            self._waiting[tp] = entry

    def _report(
        self, tp: TopicPartition, entry: QueuedOffset, error: Exception | None, *, as_a_whole: bool = False
    ) -> None:
        for commit in entry.commits:
            commit.results[tp] = as_ours(error)
            if error is not None and as_a_whole:
                commit.refused = error
            if commit.done:
                self._finish(commit)

    def _finish(self, commit: PendingCommit) -> None:
        """Hands a commit back. Where a partition was committed, it was not refused as a whole."""
        if any(error is None for error in commit.results.values()):
            commit.refused = None
        self._commits.remove(commit)
        self._actions.append(commit)

    def _fail_all(self, error: Exception) -> None:
        """Ends everything: the membership is over, and nothing will be committed any more."""
        self._unknown = False
        self._request = None
        self._fail_sent(error)
        for tp in list(self._waiting):
            self._report(tp, self._waiting.pop(tp), error, as_a_whole=True)

    def _fail_sent(self, error: Exception) -> None:
        """Ends what was sent, also what may have landed: nobody will find out any more."""
        for tp in list(self._sent):
            self._settle(tp, error, ErrorAction.FATAL)

    def _check_ownership(self) -> None:
        """Gives up offsets of partitions that have gone; of a sent one the outcome is still to come."""
        if self.eligibility.owned is None:
            return
        self._void.update(tp for tp in self._sent if tp not in self.eligibility.owned)
        for tp in [tp for tp in self._waiting if tp not in self.eligibility.owned]:
            self._report(tp, self._waiting.pop(tp), not_owned(tp))

    def _check_topics(self) -> None:
        """Gives up offsets of topics that were deleted and made anew."""
        for entries in (self._waiting, self._sent):
            for tp, entry in list(entries.items()):
                now = self.eligibility.topic_id(tp.topic)
                if entry.topic_id is None or now is None or entry.topic_id == now:
                    continue
                if entries is self._waiting:
                    error = recreated(tp, entry.offset.offset, entry.topic_id, now)
                    self._report(tp, self._waiting.pop(tp), error)
                else:
                    self._void.add(tp)

    def _expire(self, now: float) -> None:
        """Ends the commits whose deadline is over, each with what is known of it."""
        for commit in [t for t in self._commits if now >= t.deadline]:
            error = self._too_late(commit)
            for tp in commit.wanted:
                commit.results.setdefault(tp, error)
            commit.refused = error
            self._finish(commit)
            self._abandon(commit)

    def _too_late(self, commit: PendingCommit) -> KafkaTimeoutError:
        """Returns the error of a commit whose time is over, with the last refusal, and whether it may have landed."""
        left = sorted(tp for tp in commit.wanted if tp not in commit.results)
        first = left[0]
        more = f" and {len(left) - 1} more" if len(left) > 1 else ""
        text = f"{first.topic}-{first.partition}{more} could not be committed in time"
        entry = self._waiting.get(first) or self._sent.get(first)
        if entry is not None and entry.refused is not None:
            text += f": {entry.refused}"
        if any(tp in self._sent for tp in left):
            text += "; whether it was done is unknown"
        return KafkaTimeoutError(text)

    def _abandon(self, commit: PendingCommit) -> None:
        """Forgets a commit that nobody waits for: it is not sent if it has not been, and resolved if it may have been."""
        for entries in (self._waiting, self._sent):
            for tp in [tp for tp in commit.wanted if tp in entries]:
                entry = entries[tp]
                entry.commits = [t for t in entry.commits if t is not commit]
                if not entry.commits and entries is self._waiting:
                    del self._waiting[tp]

    def _wait(self, now: float) -> None:
        self._not_before = now + self._backoff.failed(now)

    def _next_wake(self) -> float | None:
        times = [commit.deadline for commit in self._commits]
        if self._request is not None:
            times.append(self._request.sent_at + self._request.timeout + GRACE)
        elif self.eligibility.connected and (self._unknown or self._may_send()):
            times.append(self._not_before)
        return min(times, default=None)
