"""Questions about partitions that only their leaders can answer, asked until each has an answer. Pure.

Leaders move, brokers fail: what is temporary is asked again, after a pause that grows per partition, of whoever
leads then. Times are seconds.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Generic, NamedTuple, Never, TypeVar

from kafka_actors.base.backoff import Backoff
from kafka_actors.base.machine import Ready
from kafka_actors.cluster.snapshot import ClusterSnapshot
from kafka_actors.errors import KafkaActorsError, KafkaTimeoutError, error_for_code
from kafka_actors.types import TopicPartition

A = TypeVar("A")


@dataclass(slots=True)
class _OpenQuery:
    """A question without an answer. `asked` is the leader that is thinking about it, None if none is."""

    backoff: Backoff
    asked: int | None = None
    error: KafkaActorsError | None = None


class AskLeader(NamedTuple):
    """Ask this broker about partitions that it leads; the answer goes to `answered`, or to `failed`."""

    leader: int
    partitions: list[TopicPartition]


class LearnTopics(NamedTuple):
    """Ask for the metadata of topics that aren't known."""

    topics: frozenset[str]


class RefreshMetadata(NamedTuple):
    """Ask for newer metadata: a partition has no leader."""


QueryAction = AskLeader | LearnTopics | RefreshMetadata


class LeaderQueries(Generic[A]):
    """Holds the questions of one call until each has its answer, or the deadline is over. `request` is the API's name, for errors."""

    def __init__(
        self,
        partitions: Iterable[TopicPartition],
        request: str,
        *,
        deadline: float,
        retry_backoff: float,
        retry_backoff_max: float,
        rand: Callable[[], float],
    ) -> None:
        self._open = {tp: _OpenQuery(Backoff(retry_backoff, retry_backoff_max, rand)) for tp in partitions}
        self._request = request
        self._deadline = deadline
        self.answers: dict[TopicPartition, A | KafkaActorsError] = {}
        self.snapshot = ClusterSnapshot()
        """The cluster as it is known now: set it before each call of `poll` and `moved`."""

    @property
    def done(self) -> bool:
        """Whether each partition has its answer."""
        return not self._open

    def poll(self, now: float) -> Ready[QueryAction, Never]:
        """Says whom to ask. Partitions whose pause is over and whose leader is known count as asked then.

        After the deadline, what is still open fails with the last that was heard about it.
        """
        ask: dict[int, list[TopicPartition]] = {}
        unknown: set[str] = set()
        stale = False
        wake = self._deadline
        for tp, question in list(self._open.items()):
            if question.asked is not None:
                continue
            pause = question.backoff.remaining(now)
            if pause > 0:
                wake = min(wake, now + pause)
                continue
            leader = self.snapshot.leader(tp)
            if leader is not None and leader >= 0:
                question.asked = leader
                ask.setdefault(leader, []).append(tp)
                continue
            self._no_leader(tp, question, now)
            if tp in self._open:
                wake = min(wake, now + question.backoff.remaining(now))
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

    def _no_leader(self, tp: TopicPartition, question: _OpenQuery, now: float) -> None:
        code = self.snapshot.topic_error(tp.topic)
        if not code:
            code = 3 if self.snapshot.leader(tp) is None else 5
        self._refused(tp, question, code, now)

    def _refused(self, tp: TopicPartition, question: _OpenQuery, code: int, now: float) -> bool:
        """Notes an error code. Returns whether metadata is to be asked for."""
        error = error_for_code(code, request=self._request, topic=tp.topic, partition=tp.partition)
        assert error is not None  # the caller has a code other than 0
        question.asked = None
        if not error.retriable:
            self._settle(tp, error)
            return False
        question.error = error
        question.backoff.failed(now)
        return error.invalid_metadata

    def answered(self, tp: TopicPartition, leader: int, code: int, answer: A, now: float) -> bool:
        """A leader's answer about a partition. Returns whether metadata is to be asked for."""
        question = self._open.get(tp)
        if question is None or question.asked != leader:
            return False  # no longer asked of this one
        if code == 0:
            self._settle(tp, answer)
            return False
        return self._refused(tp, question, code, now)

    def failed(self, leader: int, tps: Iterable[TopicPartition], error: KafkaActorsError, now: float) -> None:
        """The request to a leader failed, or what it answered says nothing of these partitions."""
        for tp in tps:
            question = self._open.get(tp)
            if question is None or question.asked != leader:
                continue
            question.asked = None
            if error.retriable:
                question.error = error
                question.backoff.failed(now)
            else:
                self._settle(tp, error)

    def moved(self) -> set[int]:
        """Takes back questions from who no longer leads. Returns those that need not be waited for any more."""
        left: set[int] = set()
        for tp, question in self._open.items():
            if question.asked is not None and self.snapshot.leader(tp) not in (question.asked, None):
                left.add(question.asked)
                question.asked = None
        return left - {question.asked for question in self._open.values()}

    def _expire(self) -> None:
        for tp, question in list(self._open.items()):
            heard = f": {question.error}" if question.error is not None else ""
            late = KafkaTimeoutError(
                f"{self._request} for {tp.topic}-{tp.partition}: no answer in time{heard}"
            )
            late.__cause__ = question.error
            self._settle(tp, late)

    def _settle(self, tp: TopicPartition, answer: A | KafkaActorsError) -> None:
        self.answers[tp] = answer
        del self._open[tp]
