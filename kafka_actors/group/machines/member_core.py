"""State of a group's member, and the transitions that lose something: common to `ClassicMember` and `MemberAnswers`.

Theory of operation. `ClassicMember` has the steps of each state, `MemberAnswers` what answers mean; both change the member only by
the methods here, so that no way out of a state forgets a part: a coordinator that is lost (`coordinator_lost`) keeps the partitions, a
membership that is lost (`reset`) takes them and the requests in flight, an end (`fail`, `end_left`) takes everything. Requests and
calls to make are collected in `actions`; what has been given up and not been sent yet is taken out again (`unsend`).

A transition that the table lacks raises `IllegalTransition`: it is a defect of this package, and a loud one
is found by the property tests. There is at most one request of each kind in flight; an answer to any other is
late, and ignored. Drains and computations have numbers (`token`) for the same reason.

The states, and which may follow which::

            ┌──────────────── lost: illegal generation, unknown member, session ended ────────────────┐
            ▼                                                                                         │
        UNJOINED ──► JOINING ──► SYNCING ──► STABLE ──► REVOKING (eager: all; else what is not wanted)│
                        ▲  ▲        │  │        │           │                                         │
                        │  └────────┘  └► REVOKING (cooperative: the difference, new generation) ─────┘
                        └───────────────────────┴───────────┘
        any of them ──► LEAVING ──► LEFT            any of them ──► FATAL

The states and names are this member's own view: the broker's are in `ClassicGroupState`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from enum import Enum

from kafka_actors.base.backoff import RetryTimer
from kafka_actors.base.callables import error_text
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


class MemberState(Enum):
    """The state of a member in its group."""

    UNJOINED = "unjoined"
    """Owns nothing and has no valid generation."""
    JOINING = "joining"
    """Has given up what it must, and wants an answer to JoinGroup. Keeps what a cooperative member may keep."""
    SYNCING = "syncing"
    """Has a new generation, wants its assignment; the leader computes everybody's."""
    STABLE = "stable"
    """Has its assignment."""
    REVOKING = "revoking"
    """Waits, up to a deadline, until partitions are drained and committed under the current generation."""
    LEAVING = "leaving"
    """Owns nothing, has asked the coordinator to forget it."""
    LEFT = "left"
    """Ended by request."""
    FATAL = "fatal"
    """Ended by an error that no retry mends."""


_S = MemberState

LEGAL_PREVIOUS: Mapping[MemberState, frozenset[MemberState]] = {
    _S.UNJOINED: frozenset({_S.JOINING, _S.SYNCING, _S.STABLE, _S.REVOKING}),
    _S.JOINING: frozenset({_S.UNJOINED, _S.SYNCING, _S.STABLE, _S.REVOKING}),
    _S.SYNCING: frozenset({_S.JOINING}),
    _S.STABLE: frozenset({_S.SYNCING}),
    _S.REVOKING: frozenset({_S.SYNCING, _S.STABLE, _S.JOINING}),
    _S.LEAVING: frozenset({_S.UNJOINED, _S.JOINING, _S.SYNCING, _S.STABLE, _S.REVOKING}),
    _S.LEFT: frozenset({_S.LEAVING}),
    _S.FATAL: frozenset({_S.UNJOINED, _S.JOINING, _S.SYNCING, _S.STABLE, _S.REVOKING, _S.LEAVING}),
}

ENDED = frozenset({_S.LEFT, _S.FATAL})


class IllegalTransition(Exception):
    """A step that the state machine does not have: a defect in this package."""

    def __init__(self, before: MemberState, after: MemberState) -> None:
        super().__init__(f"a member can't go from {before.value} to {after.value}")
        self.before = before
        self.after = after


def check_transition(before: MemberState, after: MemberState) -> None:
    """Raises `IllegalTransition` unless `after` may follow `before`."""
    if before not in LEGAL_PREVIOUS[after]:
        raise IllegalTransition(before, after)


GRACE = 1.0
"""Seconds beyond a request's own timeout after which the machine gives it up, should the shell not have."""

LEAVE_RESERVE = 1.0
"""Seconds of the time to end that a drain leaves for the LeaveGroup request."""

_TO_COORDINATOR = (GroupApi.DESCRIBE, GroupApi.JOIN, GroupApi.SYNC, GroupApi.HEARTBEAT, GroupApi.LEAVE)


class MemberCore:
    """State, requests in flight and collected actions of one member; how a membership is reset, fails or ends.

    `ClassicMember` has the steps and `MemberAnswers` what answers mean; both work on this.
    """

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
            request_timeout=self.short_timeout,
            longest_timeout=config.request_timeout,
            backoff=RetryTimer(*backoff),
        )
        self.backoff = RetryTimer(*backoff)
        self.not_before = 0.0
        """The next step towards a membership is not taken before this moment."""
        self.inflight: dict[GroupApi, GroupRequest] = {}
        """The requests without an answer, one of each kind at most. An answer to another one is late, and is ignored."""
        self.actions: list[GroupRequest | MemberAction] = []
        self.events: list[MemberEvent] = []
        self.token = 0
        """Number of the last drain or computation: the end of an earlier one is ignored."""
        self.revocation: RevokePartitions | None = None
        """The drain that `REVOKING` waits for."""
        self.computation: tuple[int, float] | None = None
        """Token and deadline of the leader's computation, while it is under way."""
        self.rejoin_reason: str | None = None
        self.described = False
        self.explaining = False
        self.leave_plan: LeavePlan | None = None
        self.started = False
        self.join_wanted = False
        self.join_sent = False
        """Whether the group may have this member, which then says when it leaves: known by its id, or by a JoinGroup without an answer."""
        self.stopped_polling = False
        self.progress_at: float | None = None
        self.refused = ""
        """Why the group was not joined when it was tried last, for people; empty since it was."""

    @property
    def coordinator(self) -> CoordinatorNode | None:
        """The coordinator, if it is known and connected."""
        return self.finder.node

    @property
    def short_timeout(self) -> float:
        """Seconds for requests that a broker answers at once: a frozen one is given up well before the session ends."""
        return min(self.config.request_timeout, self.config.heartbeat_timeout)

    @property
    def ended(self) -> bool:
        """Whether the member is `LEFT` or `FATAL`, for good."""
        return self.state in ENDED

    @property
    def leaving(self) -> bool:
        """Whether the member has been asked to end."""
        return self.leave_plan is not None

    @property
    def settled(self) -> bool:
        """Whether no JoinGroup is due or under way, whose answer would bring a new generation."""
        return self.state in (MemberState.SYNCING, MemberState.STABLE, MemberState.REVOKING)

    def request_rejoin(self, reason: str) -> None:
        """Has the group rebalance as soon as this member may ask for it. The first reason is kept."""
        if self.rejoin_reason is None:
            self.rejoin_reason = reason

    def coordinator_lost(self, reason: str, now: float) -> None:
        """Has the coordinator found again: it does not answer, or said that it is another broker. Ownership is not touched."""
        if self.ended or self.finder.node is None:
            return
        self.finder.lost(now)
        self.actions.append(Disconnect(reason))
        if GroupApi.DESCRIBE in self.inflight:
            self.described = self.explaining = False  # the group is described by the next coordinator
        self.forget(*_TO_COORDINATOR)
        self.computation = None
        if self.state is MemberState.SYNCING:
            self.goto(MemberState.JOINING)

    def goto(self, state: MemberState) -> None:
        """Changes the state. Raises `IllegalTransition`."""
        check_transition(self.state, state)
        self.state = state
        if state is MemberState.JOINING:
            self.events.append(RejoinStarted(self.rejoin_reason or ""))

    def send(self, now: float, api: GroupApi, body: object, timeout: float) -> None:
        """Sends a request of the current generation."""
        self.emit(GroupRequest(api, body, timeout, now, self.generation))

    def emit(self, request: GroupRequest) -> None:
        """Takes a request into the actions, and notes that it is in flight."""
        self.inflight[request.api] = request
        self.actions.append(request)

    def forget(self, *apis: GroupApi) -> None:
        """Gives up requests of these kinds: answers to them are ignored."""
        for api in apis:
            self.inflight.pop(api, None)
            self.unsend(api)

    def unsend(self, *apis: GroupApi) -> None:
        """Takes back requests that the shell hasn't got yet: those of these kinds, all by default."""
        self.actions = [
            action
            for action in self.actions
            if not (isinstance(action, GroupRequest) and (not apis or action.api in apis))
        ]

    def overdue(self, now: float) -> list[tuple[GroupRequest, Exception]]:
        """Returns the requests that have had no answer in time, each with its error."""
        return [
            (request, KafkaTimeoutError(f"no answer to {request.api.value} within {request.timeout:g} s"))
            for request in self.inflight.values()
            if now >= request.sent_at + request.timeout + GRACE
        ]

    def revoke(self, partitions: Partitions, now: float) -> None:
        """Has these partitions drained. In `REVOKING` they replace the ones before."""
        if self.state is not MemberState.REVOKING:
            self.goto(MemberState.REVOKING)
        self.token += 1
        deadline = self._drained_by(now + self.config.revoke_timeout, now)
        self.revocation = RevokePartitions(self.token, partitions, deadline)
        self.actions.append(self.revocation)

    def plan_leave(self, plan: LeavePlan, now: float) -> None:
        """Has the membership end. A drain that is under way leaves time for LeaveGroup too."""
        self.leave_plan = plan
        if self.revocation is not None:
            self.revocation = replace(
                self.revocation, deadline=self._drained_by(self.revocation.deadline, now)
            )

    def _drained_by(self, deadline: float, now: float) -> float:
        """Returns the deadline of a drain: an earlier one where the membership is to end."""
        if self.leave_plan is not None:
            deadline = max(now, min(deadline, self.leave_plan.deadline - LEAVE_RESERVE))
        return deadline

    def lose(self, reason: str) -> None:
        """Loses all partitions."""
        self.revocation = None
        lost = self.policy.lose()
        if lost:
            self.actions.append(LosePartitions(lost, reason))

    def reset(self, reason: str, *, keep_member_id: bool) -> None:
        """Loses everything: the membership is gone, and a new one has to be asked for. A member id that may have passed to another
        process is not kept."""
        self.lose(reason)
        keep_member_id = keep_member_id and self.config.incarnation is None
        self.forget(GroupApi.JOIN, GroupApi.SYNC, GroupApi.DESCRIBE, GroupApi.HEARTBEAT)
        self.computation = None
        self.generation = Generation(member_id=self.generation.member_id if keep_member_id else "")
        self.described = False
        self.join_sent = self.join_sent and bool(self.generation.member_id)
        self.leader = False
        self.heartbeat.stop()
        self.rejoin_reason = reason
        if self.state is not MemberState.UNJOINED:
            self.goto(MemberState.UNJOINED)

    def fail(self, error: Exception) -> None:
        """Ends the membership for an error."""
        self.goto(MemberState.FATAL)
        self.lose(error_text(error))
        self.inflight.clear()
        self.unsend()
        self.computation = None
        self.heartbeat.stop()
        self.fatal = error
        self.events.append(MemberFailed(error))

    def end_left(self) -> None:
        """Ends the membership by request."""
        if self.state is not MemberState.LEAVING:
            self.goto(MemberState.LEAVING)
        self.goto(MemberState.LEFT)
        self.lose("left the group")
        self.inflight.clear()
        self.unsend()
        self.computation = None
        self.heartbeat.stop()
        self.generation = Generation()
        self.events.append(MemberLeft())

    def wait(self, now: float) -> None:
        """Waits for a backoff before the next step."""
        self.not_before = now + self.backoff.failed(now)
