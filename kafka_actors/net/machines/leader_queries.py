"""`LeaderQueries`: queries about partitions that only their leaders can answer, repeated until each has an answer.

Theory of operation. Each partition of a call is open until it has an answer or a final error. An open one is out (a request to its
leader is on its way), in a pause, or due. `poll` sends the due ones, in one request for each leader; for a partition without a leader
it wants metadata instead. `answered` and `failed` take the results: a temporary error begins a pause that grows with each failure of
that partition, a final one settles it. Partitions that failed together are due together, in one request. Leaders move and brokers
fail meanwhile, so the leader is looked up anew each time, an answer from a broker that was not asked last is ignored, and `moved`
gives up requests to brokers that no longer lead. At the deadline each open partition fails with the last error about it. Times are
seconds. Java: `OffsetFetcher`, `OffsetsForLeaderEpochClient`.

Each request has to end in `answered` or `failed`, for all of its partitions: one that nobody reports stays out until the deadline.
A result that comes twice, or after its partition was settled or sent elsewhere, finds no such request and changes nothing. A query
may be carried out twice, where an answer got lost: only requests that bear it belong here, such as ListOffsets or DeleteRecords
up to an offset.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import cache
from typing import Generic, NamedTuple, Never, TypeVar

from kafka_actors.base.backoff import RetryTimer
from kafka_actors.base.machine import Ready
from kafka_actors.cluster.machines.refresh import RefreshMetadata
from kafka_actors.cluster.snapshot import ClusterSnapshot
from kafka_actors.errors import KafkaActorsError, KafkaError, KafkaTimeoutError, error_for_code
from kafka_actors.types import TopicPartition

A = TypeVar("A")


@dataclass(slots=True)
class _OpenQuery:
    """A query without an answer. `leader` is the broker to which a request is out, None while none is; `error` the last one."""

    backoff: RetryTimer
    leader: int | None = None
    error: KafkaActorsError | None = None


class AskLeader(NamedTuple):
    """A request to a broker about partitions that it leads; the answer goes to `answered`, or to `failed`."""

    leader: int
    partitions: list[TopicPartition]


class LearnTopics(NamedTuple):
    """A request for the metadata of topics that aren't known."""

    topics: frozenset[str]


QueryAction = AskLeader | LearnTopics | RefreshMetadata


class LeaderQueries(Generic[A]):
    """Holds the queries of one call until each has its answer, or the deadline is over.

    `request` is the API's name, for errors; `temporary` are errors that are temporary beside those that Kafka calls retriable.
    """

    def __init__(
        self,
        partitions: Iterable[TopicPartition],
        request: str,
        *,
        deadline: float,
        retry_backoff: float,
        retry_backoff_max: float,
        rand: Callable[[], float],
        temporary: tuple[type[KafkaError], ...] = (),
    ) -> None:
        # One jitter for the call: partitions that failed together are asked about in one request again.
        jitter = cache(rand)
        self._open = {
            tp: _OpenQuery(RetryTimer(retry_backoff, retry_backoff_max, jitter)) for tp in partitions
        }
        self._request = request
        self._deadline = deadline
        self._temporary = temporary
        self.answers: dict[TopicPartition, A | KafkaActorsError] = {}
        self.snapshot = ClusterSnapshot()
        """The cluster as it is known now: set it before each call of `poll` and `moved`."""

    @property
    def done(self) -> bool:
        """Whether each partition has its answer."""
        return not self._open

    def poll(self, now: float) -> Ready[QueryAction, Never]:
        """Returns the requests that are due, which count as sent, and the time of the next ones.

        After the deadline, each open partition fails with the last error about it.
        """
        # What is due goes to its leader; where no leader is known, a backoff begins, and metadata is wanted instead.
        ask: dict[int, list[TopicPartition]] = {}
        unknown: set[str] = set()
        stale = False
        wake = self._deadline
        for tp, query in list(self._open.items()):
            if query.leader is not None:
                continue
            pause = query.backoff.remaining(now)
            if pause > 0:
                wake = min(wake, now + pause)
                continue
            leader = self.snapshot.leader(tp)
            if leader is not None and leader >= 0:
                query.leader = leader
                ask.setdefault(leader, []).append(tp)
                continue
            self._no_leader(tp, query, now)
            if tp in self._open:
                wake = min(wake, now + query.backoff.remaining(now))
                if leader is None:
                    unknown.add(tp.topic)
                else:
                    stale = True
        if now >= self._deadline:
            self._expire()
        if self.done:
            return Ready()
        actions: list[QueryAction] = [AskLeader(leader, tps) for leader, tps in ask.items()]
        if unknown:
            actions.append(LearnTopics(frozenset(unknown)))
        if stale:
            actions.append(RefreshMetadata())
        return Ready(tuple(actions), next_wake=wake)

    def _no_leader(self, tp: TopicPartition, query: _OpenQuery, now: float) -> None:
        """Treats a partition without a leader as if a broker had said so, in the words of the metadata where it has any."""
        code = self.snapshot.topic_error(tp.topic)
        if not code:
            code = 3 if self.snapshot.leader(tp) is None else 5  # no such partition, or no leader now
        self._refused(tp, query, code, now)

    def _refused(self, tp: TopicPartition, query: _OpenQuery, code: int, now: float) -> bool:
        """Notes an error code: a final one settles the partition, another begins its pause, which delays no other partition.

        Returns whether newer metadata is needed.
        """
        error = error_for_code(code, request=self._request, topic=tp.topic, partition=tp.partition)
        assert error is not None  # the caller has a code other than 0
        query.leader = None
        if not error.retriable and not isinstance(error, self._temporary):
            self._settle(tp, error)
            return False
        query.error = error
        query.backoff.failed(now)
        return error.invalid_metadata

    def answered(self, tp: TopicPartition, leader: int, code: int, answer: A, now: float) -> bool:
        """Takes a leader's answer about a partition. Returns whether newer metadata is needed."""
        query = self._open.get(tp)
        if query is None or query.leader != leader:
            return False  # the request is no longer that of this leader
        if code == 0:
            self._settle(tp, answer)
            return False
        return self._refused(tp, query, code, now)

    def failed(self, leader: int, tps: Iterable[TopicPartition], error: KafkaActorsError, now: float) -> None:
        """Takes the failure of a request to a leader, or an answer that lacks these partitions. The latter breaks the protocol, and
        is final, as any error that isn't retriable."""
        for tp in tps:
            query = self._open.get(tp)
            if query is None or query.leader != leader:
                continue
            query.leader = None
            if error.retriable:
                query.error = error
                query.backoff.failed(now)
            else:
                self._settle(tp, error)

    def moved(self) -> set[int]:
        """Gives up requests to brokers that no longer lead. Returns the brokers that need not be waited for any more."""
        left: set[int] = set()
        for tp, query in self._open.items():
            if query.leader is not None and self.snapshot.leader(tp) not in (query.leader, None):
                left.add(query.leader)
                query.leader = None
        return left - {query.leader for query in self._open.values()}

    def _expire(self) -> None:
        """Settles what is open by an error with the last one about it, which says more than that time is over."""
        for tp, query in list(self._open.items()):
            last = f": {query.error}" if query.error is not None else ""
            late = KafkaTimeoutError(
                f"{self._request} for {tp.topic}-{tp.partition}: no answer in time{last}"
            )
            late.__cause__ = query.error
            self._settle(tp, late)

    def _settle(self, tp: TopicPartition, answer: A | KafkaActorsError) -> None:
        """Gives a partition its answer, for good."""
        self.answers[tp] = answer
        del self._open[tp]
