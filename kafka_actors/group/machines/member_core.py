"""The part of a member's machine that every step uses: state, requests in flight, and the ways down."""

from __future__ import annotations

from collections.abc import Callable

from kafka_actors.base.backoff import Backoff
from kafka_actors.errors import KafkaTimeoutError

from .coordinator_finder import CoordinatorFinder
from .embedded_protocol import EmbeddedProtocol, GroupConfig
from .error_actions import GroupApi
from .heartbeat_timer import HeartbeatTimer
from .member_events import (
    CoordinatorNode,
    Disconnect,
    Generation,
    GroupRequest,
    LeavePlan,
    LosePartitions,
    MemberAction,
    MemberEvent,
    MemberFailed,
    MemberLeft,
    Partitions,
    RejoinStarted,
    RevokePartitions,
)
from .member_states import ENDED, MemberState, check_transition

GRACE = 1.0
"""Seconds beyond a request's own timeout after which the machine gives it up, should the shell not have."""

LEAVE_RESERVE = 1.0
"""Seconds of the time to end that a drain leaves for the LeaveGroup request."""

_TO_COORDINATOR = (GroupApi.DESCRIBE, GroupApi.JOIN, GroupApi.SYNC, GroupApi.HEARTBEAT, GroupApi.LEAVE)


class MemberCore:
    """State and bookkeeping of one member. See `GroupMember`, which adds what to do when."""

    def __init__(
        self, config: GroupConfig, policy: EmbeddedProtocol, *, rand: Callable[[], float], member_id: str = ""
    ) -> None:
        self.config = config
        self.policy = policy
        self.state = MemberState.UNJOINED
        self.generation = Generation(member_id=member_id)
        self.leader = False
        self.fatal: Exception | None = None
        self.heartbeat = HeartbeatTimer(config.heartbeat_interval, config.session_timeout)
        backoff = (config.retry_backoff, config.retry_backoff_max, rand)
        self.finder = CoordinatorFinder(
            config.group_id,
            request_timeout=self._short_timeout,
            longest_timeout=config.request_timeout,
            backoff=Backoff(*backoff),
        )
        self._backoff = Backoff(*backoff)
        self._not_before = 0.0
        self._inflight: dict[GroupApi, GroupRequest] = {}
        self._actions: list[GroupRequest | MemberAction] = []
        self._events: list[MemberEvent] = []
        self._token = 0
        self._release: RevokePartitions | None = None
        self._work: tuple[int, float] | None = None
        self._rejoin_reason: str | None = None
        self._described = False
        self._explaining = False
        self._leaving: LeavePlan | None = None
        self._started = False
        self._join_wanted = False
        self._join_sent = False
        self._idle = False
        self._progress_at: float | None = None

    @property
    def coordinator(self) -> CoordinatorNode | None:
        """The coordinator, if it is known and connected."""
        return self.finder.node

    @property
    def _short_timeout(self) -> float:
        """For requests that a broker answers at once: a frozen one is given up well before the session ends."""
        return min(self.config.request_timeout, self.config.heartbeat_timeout)

    @property
    def ended(self) -> bool:
        """Whether the member is `LEFT` or `FATAL`, for good."""
        return self.state in ENDED

    @property
    def leaving(self) -> bool:
        """Whether the member has been asked to end."""
        return self._leaving is not None

    @property
    def releasing(self) -> Partitions:
        """What is being drained and committed before it is given up."""
        return self._release.partitions if self._release else frozenset()

    @property
    def rejoin_reason(self) -> str | None:
        """Why the group should be joined again, if it should."""
        return self._rejoin_reason

    def in_flight(self, api: GroupApi) -> bool:
        """Whether a request of this kind is out."""
        return api in self._inflight

    def request_rejoin(self, reason: str) -> None:
        """Has the group rebalance as soon as this member may ask for it. The first reason is kept."""
        if self._rejoin_reason is None:
            self._rejoin_reason = reason

    def coordinator_lost(self, reason: str, now: float) -> None:
        """The coordinator does not answer, or said that it is another broker. Ownership is not touched."""
        if self.ended or self.finder.node is None:
            return
        self.finder.lost(now)
        self._actions.append(Disconnect(reason))
        self._forget(*_TO_COORDINATOR)
        self._work = None
        if self.state is MemberState.SYNCING:
            self._goto(MemberState.JOINING)

    def _goto(self, state: MemberState) -> None:
        check_transition(self.state, state)
        self.state = state
        if state is MemberState.JOINING:
            self._events.append(RejoinStarted(self._rejoin_reason or ""))

    def _send(self, now: float, api: GroupApi, body: object, timeout: float) -> None:
        self._emit(GroupRequest(api, body, timeout, now, self.generation))

    def _emit(self, request: GroupRequest) -> None:
        self._inflight[request.api] = request
        self._actions.append(request)

    def _forget(self, *apis: GroupApi) -> None:
        """Answers to these no longer matter."""
        for api in apis:
            self._inflight.pop(api, None)
            self._unsend(api)

    def _unsend(self, *apis: GroupApi) -> None:
        """Takes back requests that the shell hasn't got yet: those of these kinds, all by default."""
        self._actions = [
            action
            for action in self._actions
            if not (isinstance(action, GroupRequest) and (not apis or action.api in apis))
        ]

    def _overdue(self, now: float) -> list[tuple[GroupRequest, Exception]]:
        return [
            (request, KafkaTimeoutError(f"no answer to {request.api.value} within {request.timeout:g} s"))
            for request in self._inflight.values()
            if now >= request.sent_at + request.timeout + GRACE
        ]

    def _revoke(self, partitions: Partitions, now: float) -> None:
        """Has these drained; in `REVOKING` already, they are what is left to drain."""
        if self.state is not MemberState.REVOKING:
            self._goto(MemberState.REVOKING)
        self._token += 1
        deadline = now + self.config.revoke_timeout
        if self._leaving is not None:
            deadline = max(now, min(deadline, self._leaving.deadline - LEAVE_RESERVE))
        self._release = RevokePartitions(self._token, partitions, deadline)
        self._actions.append(self._release)

    def _lose(self, reason: str) -> None:
        self._release = None
        lost = self.policy.lose()
        if lost:
            self._actions.append(LosePartitions(lost, reason))

    def _reset(self, reason: str, *, keep_member_id: bool) -> None:
        """The membership is gone: everything is lost, a new one is to be asked for."""
        self._lose(reason)
        self._forget(GroupApi.JOIN, GroupApi.SYNC, GroupApi.DESCRIBE, GroupApi.HEARTBEAT)
        self._work = None
        self.generation = Generation(member_id=self.generation.member_id if keep_member_id else "")
        self._described = False
        self.leader = False
        self.heartbeat.stop()
        self._rejoin_reason = reason
        if self.state is not MemberState.UNJOINED:
            self._goto(MemberState.UNJOINED)

    def _fail(self, error: Exception) -> None:
        """The membership can't go on."""
        self._goto(MemberState.FATAL)
        self._lose(str(error))
        self._inflight.clear()
        self._unsend()
        self._work = None
        self.heartbeat.stop()
        self.fatal = error
        self._events.append(MemberFailed(error))

    def _end_left(self) -> None:
        """The membership ends by request."""
        if self.state is not MemberState.LEAVING:
            self._goto(MemberState.LEAVING)
        self._goto(MemberState.LEFT)
        self._lose("left the group")
        self._inflight.clear()
        self._unsend()
        self._work = None
        self.heartbeat.stop()
        self.generation = Generation()
        self._events.append(MemberLeft())

    def _wait(self, now: float) -> None:
        self._not_before = now + self._backoff.failed(now)
