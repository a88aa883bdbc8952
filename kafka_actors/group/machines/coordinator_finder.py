"""Who coordinates the group: FindCoordinator, then two new connections to that broker."""

from __future__ import annotations

from collections.abc import Callable
from enum import Enum

from kafka_actors.base.backoff import Backoff, GrowingTimeout
from kafka_actors.errors import KafkaError, KafkaTimeoutError, error_for_code
from kafka_actors.protocol.messages.find_coordinator import FindCoordinatorRequest, FindCoordinatorResponse

from .error_actions import ErrorAction, GroupApi, judge
from .member_events import CoordinatorNode, GroupRequest


class _Stage(Enum):
    UNKNOWN = "unknown"
    FINDING = "finding"
    CONNECTING = "connecting"
    KNOWN = "known"


class CoordinatorFinder:
    """Finds the coordinator of `group_id` and has it connected. Times are seconds.

    request_timeout, longest_timeout: what an answer has at first, and at most where answers are late (`GrowingTimeout`).
    """

    def __init__(
        self,
        group_id: str,
        *,
        request_timeout: float,
        longest_timeout: float,
        backoff: Backoff,
    ) -> None:
        self._group_id = group_id
        self._finding = GrowingTimeout(request_timeout, longest_timeout)
        self._connecting = GrowingTimeout(request_timeout, longest_timeout)
        self._sent_at = 0.0
        self._backoff = backoff
        self._stage = _Stage.UNKNOWN
        self._not_before = 0.0
        self._node: CoordinatorNode | None = None

    @property
    def node(self) -> CoordinatorNode | None:
        """The coordinator, if it is known and connected."""
        return self._node if self._stage is _Stage.KNOWN else None

    @property
    def next_wake(self) -> float | None:
        return self._not_before if self._stage is _Stage.UNKNOWN else None

    def poll(self, now: float, send: Callable[[GroupApi, object, float], GroupRequest]) -> None:
        """Takes the next step towards a known coordinator, if one is due."""
        if self._stage is not _Stage.UNKNOWN or now < self._not_before:
            return
        self._stage = _Stage.FINDING
        self._sent_at = now
        request = FindCoordinatorRequest(coordinator_keys=[self._group_id])
        send(GroupApi.FIND_COORDINATOR, request, self._finding.seconds)

    def found(
        self, outcome: object, now: float, send: Callable[[GroupApi, object, float], GroupRequest]
    ) -> None:
        """The end of FindCoordinator. Raises what no retry mends."""
        try:
            self._node = read_coordinator(outcome, self._group_id)
        except Exception as error:
            self._failed(GroupApi.FIND_COORDINATOR, error, now)
            return
        self._finding.answered(now - self._sent_at)
        self._stage = _Stage.CONNECTING
        self._sent_at = now
        send(GroupApi.CONNECT, self._node, self._connecting.seconds)

    def connected(self, outcome: object, now: float) -> CoordinatorNode | None:
        """The end of connecting: the node, or None if it is to be found again. Raises what no retry mends."""
        if isinstance(outcome, Exception):
            self._failed(GroupApi.CONNECT, outcome, now)
            return None
        self._connecting.answered(now - self._sent_at)
        self._stage = _Stage.KNOWN
        return self._node

    def lost(self, now: float) -> None:
        """The coordinator is another one, or gone."""
        self._stage = _Stage.UNKNOWN
        self._not_before = now + self._backoff.failed(now)

    def proved(self) -> None:
        """It answered as the coordinator does."""
        self._backoff.succeeded()

    def _failed(self, api: GroupApi, error: Exception, now: float) -> None:
        if judge(api, error) is ErrorAction.FATAL:
            raise error
        if isinstance(error, KafkaTimeoutError):
            (self._finding if api is GroupApi.FIND_COORDINATOR else self._connecting).unanswered()
        self.lost(now)


def read_coordinator(outcome: object, group_id: str) -> CoordinatorNode:
    """The group's node in a FindCoordinator response of any version. Raises its error, or the outcome if it is one."""
    if isinstance(outcome, Exception):
        raise outcome
    assert isinstance(outcome, FindCoordinatorResponse)
    answer = outcome.coordinators[0] if outcome.coordinators else outcome
    error: KafkaError | None = error_for_code(
        answer.error_code, answer.error_message or None, request="FindCoordinator", group=group_id
    )
    if error is not None:
        raise error
    return CoordinatorNode(answer.node_id, answer.host, answer.port)
