"""Looks for the broker that coordinates the group: FindCoordinator to any broker, then two new connections to the one named.

Theory of operation. Arrives: the answer to FindCoordinator, the end of connecting, and word from the member that the coordinator is
lost, or that it has answered well. Decided: the next request, and when. Two requests lead to a coordinator, one after the other:

UNKNOWN ── poll ──► FINDING ── answer ──► FOUND ── poll ──► CONNECTING ── connected ──► KNOWN; every failure, and `lost`, leads
back to UNKNOWN, where the next try waits for a backoff. The backoff begins anew only once the broker has answered as the group's
coordinator does (`proved`): one that is named, takes connections and refuses all requests is asked less and less often.

A request that had no answer in its time gives the next one twice the time, up to `longest_timeout`; an answer within the usual time
ends that (`GrowingTimeout`). So a frozen broker is detected early, and a slow one gets enough time in the end. An error that no retry
mends is raised, and ends the membership. Source: `AbstractCoordinator.ensureCoordinatorReady`.
"""

from __future__ import annotations

from enum import Enum

from kafka_actors.base.backoff import GrowingTimeout, RetryTimer
from kafka_actors.base.machine import Ready
from kafka_actors.errors import KafkaError, KafkaTimeoutError, error_for_code
from kafka_actors.protocol.messages.find_coordinator import (
    Coordinator,
    FindCoordinatorRequest,
    FindCoordinatorResponse,
)

from .error_actions import ErrorAction, GroupApi, judge
from .member_events import CoordinatorNode, Generation, GroupRequest, MemberEvent


class _Stage(Enum):
    UNKNOWN = "unknown"
    FINDING = "finding"
    FOUND = "found"
    CONNECTING = "connecting"
    KNOWN = "known"


class CoordinatorFinder:
    """Finds the coordinator of `group_id` and has it connected. Times are seconds.

    request_timeout, longest_timeout: what an answer has at first, and at most where answers are late (`GrowingTimeout`).
    backoff: between tries.
    """

    def __init__(
        self,
        group_id: str,
        *,
        request_timeout: float,
        longest_timeout: float,
        backoff: RetryTimer,
    ) -> None:
        self._group_id = group_id
        self._finding = GrowingTimeout(request_timeout, longest_timeout)
        self._connecting = GrowingTimeout(request_timeout, longest_timeout)
        self._sent_at = 0.0
        self._backoff = backoff
        self._stage = _Stage.UNKNOWN
        self._not_before = 0.0
        self._node: CoordinatorNode | None = None
        self.trouble = ""
        """Why the last try failed, for people; empty where it didn't."""

    @property
    def node(self) -> CoordinatorNode | None:
        """The coordinator, if it is known and connected."""
        return self._node if self._stage is _Stage.KNOWN else None

    def poll(self, now: float) -> Ready[GroupRequest, MemberEvent]:
        """Sends the next request towards a known coordinator, if one is due."""
        if self._stage is _Stage.UNKNOWN and now < self._not_before:
            return Ready(next_wake=self._not_before)
        if self._stage is _Stage.UNKNOWN:
            self._stage = _Stage.FINDING
            body = FindCoordinatorRequest(coordinator_keys=[self._group_id])
            return Ready((self._send(GroupApi.FIND_COORDINATOR, body, self._finding.seconds, now),))
        if self._stage is _Stage.FOUND:
            self._stage = _Stage.CONNECTING
            return Ready((self._send(GroupApi.CONNECT, self._node, self._connecting.seconds, now),))
        return Ready()

    def _send(self, api: GroupApi, body: object, timeout: float, now: float) -> GroupRequest:
        self._sent_at = now
        return GroupRequest(api, body, timeout, now, Generation())

    def found(self, outcome: object, now: float) -> None:
        """Takes the answer to FindCoordinator, or the exception that ended it. Raises an error that no retry mends."""
        try:
            self._node = read_coordinator(outcome, self._group_id)
        except Exception as error:
            self._failed(GroupApi.FIND_COORDINATOR, error, now)
            return
        self._finding.answered(now - self._sent_at)
        self._stage = _Stage.FOUND

    def connected(self, outcome: object, now: float) -> CoordinatorNode | None:
        """Takes the end of connecting. Returns the node, or None if it is to be found again. Raises an error that no retry mends."""
        if isinstance(outcome, Exception):
            self._failed(GroupApi.CONNECT, outcome, now)
            return None
        self._connecting.answered(now - self._sent_at)
        self._stage, self.trouble = _Stage.KNOWN, ""
        return self._node

    def lost(self, now: float) -> None:
        """Looks for the coordinator again after a backoff: it is another one, or gone."""
        self._stage = _Stage.UNKNOWN
        self._not_before = now + self._backoff.failed(now)

    def proved(self) -> None:
        """Notes that the node answered as the group's coordinator does."""
        self._backoff.succeeded()

    def _failed(self, api: GroupApi, error: Exception, now: float) -> None:
        """Tries again after a backoff. Raises an error that no retry mends."""
        if judge(api, error) is ErrorAction.FATAL:
            raise error
        if isinstance(error, KafkaTimeoutError):
            (self._finding if api is GroupApi.FIND_COORDINATOR else self._connecting).unanswered()
        self.trouble = str(error) or type(error).__name__
        self.lost(now)


def read_coordinator(outcome: object, group_id: str) -> CoordinatorNode:
    """Returns the node in a FindCoordinator response of any version. Raises its error, or the outcome if that is an exception."""
    if isinstance(outcome, Exception):
        raise outcome
    assert isinstance(outcome, FindCoordinatorResponse)
    found = coordinator_in(outcome.coordinators[0] if outcome.coordinators else outcome, group_id)
    if isinstance(found, KafkaError):
        raise found
    return found


def coordinator_in(
    answer: Coordinator | FindCoordinatorResponse, group_id: str
) -> CoordinatorNode | KafkaError:
    """Returns the node, or the error, that one answer has: an element of a response, or a response from before version 4."""
    error = error_for_code(
        answer.error_code, answer.error_message or None, request="FindCoordinator", group=group_id
    )
    return error or CoordinatorNode(answer.node_id, answer.host, answer.port)
