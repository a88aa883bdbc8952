"""One member of a classic consumer group: finds the coordinator, joins, syncs, heartbeats, leaves.

Theory of operation. Arrives: what the user wants (`start`, `leave`, `user_progress`), answers (`on_response`), the end of a drain
(`on_released`) and of the leader's computation (`on_assignment`). Decided, in `poll`: which requests to send, which partitions to
take, revoke or lose, and when the session, a drain or the membership is over. `member_core` has the states and what may follow
what; each has a step here (`_STEPS`), repeated until it waits for something. The machine never waits inside a step: a drain, the
leader's computation and a commit are actions that come back as inputs. A poll first ends what is overdue, then looks for the
coordinator, makes the steps, and at last sends a heartbeat. Every wait has an end by itself:

    an answer               the request's timeout     as if it had failed; most often the coordinator is looked for again
    the session             no acknowledged heartbeat the partitions are lost, and the group is joined again with the same member id
    a drain                 `revoke_timeout`          goes on without it; while leaving, time for LeaveGroup is kept
    the leader's assignment the rebalance timeout     FATAL: the assignor is at fault
    `user_progress`         `max_poll_interval`       leaves until the user asks for more (KIP-62)
    the end of `leave`      the caller's timeout      LEFT without an answer: the broker waits for the session's end

- A coordinator that is lost does not cost the partitions: the session goes on, by this side's clock, while another one is looked for.
- Heartbeats go on while JoinGroup is pending and while partitions are drained, over another connection than JoinGroup's, which waits
  for the slowest member.
- What is to be given up is drained before JoinGroup is sent: of an eager member all, of a cooperative one what it no longer wants.
  In the drain the generation still holds, so its offsets can be committed.
- A static member (KIP-345) asks who is in the group before its first JoinGroup, and says nothing when it leaves for a restart.

Its parts: `MemberCore` has the state, `MemberAnswers` what answers mean, `CoordinatorFinder` the way to the coordinator,
`HeartbeatTimer` the session, an `EmbeddedProtocol` what is owned; `member_events` makes the requests.

Sources: `AbstractCoordinator.java`; KIP-62 (heartbeats apart from progress), KIP-345 and KIP-814 (static
members), KIP-394 (member id required), KIP-429 (cooperative), KIP-800 (reasons).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from kafka_actors.base.machine import Ready, earliest
from kafka_actors.errors import KafkaTimeoutError
from kafka_actors.protocol.messages.describe_groups import DescribeGroupsRequest
from kafka_actors.protocol.messages.sync_group import SyncGroupRequestAssignment

from .embedded_protocol import EmbeddedProtocol, GroupConfig
from .error_actions import GroupApi
from .member_answers import MemberAnswers
from .member_core import GRACE, MemberCore, MemberState
from .member_events import (
    NO_GENERATION,
    CoordinatorNode,
    Generation,
    LeavePlan,
    LosePartitions,
    MemberReady,
    Partitions,
    TakePartitions,
    heartbeat_request,
    join_request,
    leave_request,
)

JOIN_MARGIN = 5.0
"""Seconds that JoinGroup waits beyond the rebalance timeout, as in Java's client."""

_S = MemberState
_JOINED = (_S.JOINING, _S.SYNCING, _S.STABLE, _S.REVOKING)


class ClassicMember:
    """One membership, from `start` to `LEFT` or `FATAL`; all public attributes may be read at any time.

    policy: what the group shares out. rand: 0..1. member_id: of a dynamic member that goes on with a membership of an earlier process.
    """

    def __init__(
        self, config: GroupConfig, policy: EmbeddedProtocol, *, rand: Callable[[], float], member_id: str = ""
    ) -> None:
        self.config = config
        self.policy = policy
        self._core = MemberCore(config, policy, rand=rand, member_id=member_id)
        self._answers = MemberAnswers(self._core)
        self.heartbeat = self._core.heartbeat
        """The times of this member's heartbeats."""
        self.request_rejoin = self._core.request_rejoin
        self.coordinator_lost = self._core.coordinator_lost
        self.on_response = self._answers.on_response
        self.on_membership_error = self._answers.on_membership_error

    @property
    def state(self) -> MemberState:
        """The member's state."""
        return self._core.state

    @property
    def generation(self) -> Generation:
        """The generation that the member is in, and its id."""
        return self._core.generation

    @property
    def leader(self) -> bool:
        """Whether this member assigns for the group."""
        return self._core.leader

    @property
    def fatal(self) -> Exception | None:
        """The error that ended the membership."""
        return self._core.fatal

    @property
    def ended(self) -> bool:
        """Whether the member is `LEFT` or `FATAL`, for good."""
        return self._core.ended

    @property
    def leaving(self) -> bool:
        """Whether the member has been asked to end."""
        return self._core.leaving

    @property
    def settled(self) -> bool:
        """Whether no JoinGroup is due or under way, whose answer would bring a new generation."""
        return self._core.settled

    @property
    def coordinator(self) -> CoordinatorNode | None:
        """The coordinator, if it is known and connected."""
        return self._core.coordinator

    @property
    def trouble(self) -> str:
        """Why the coordinator is not known, or the group not joined, for people; empty where nothing went wrong."""
        return self._core.finder.trouble or self._core.refused

    @property
    def rejoin_reason(self) -> str | None:
        """Why the group should be joined again, if it should."""
        return self._core.rejoin_reason

    # ------------------------------------------------------------ inputs

    def find_coordinator(self) -> None:
        """Finds the coordinator and stays connected to it, without a membership (for commits by hand)."""
        self._core.started = True

    def start(self, now: float, reason: str = "the consumer starts") -> None:
        """Becomes a member and stays one. A second call changes nothing."""
        if not self._core.join_wanted:
            self._core.started = self._core.join_wanted = True
            self._core.progress_at = now
            self._core.request_rejoin(reason)

    def leave(
        self, now: float, timeout: float, *, ask: bool = True, reason: str = "the consumer is closed"
    ) -> None:
        """Drains what is owned, then ends within `timeout` seconds. The first call counts."""
        if self._core.leave_plan is None and not self._core.ended:
            self._core.plan_leave(LeavePlan(now + timeout, ask, reason), now)

    def user_progress(self, now: float) -> None:
        """Notes that the user asked for more: resets `max_poll_interval`, and joins again if that had passed."""
        self._core.progress_at = now
        self._core.stopped_polling = False

    def start_over(self, partitions: Partitions, reason: str) -> None:
        """Loses what is owned of these and takes it again: they are not what they were, because a topic was made anew."""
        held = partitions & self.policy.owned()
        if held and not self._core.ended:
            self._core.actions.append(LosePartitions(held, reason))
            self._core.actions.append(TakePartitions(self._core.generation.id, held, self.policy.owned()))

    def on_released(self, token: int, now: float) -> None:
        """Notes that the partitions of that `RevokePartitions` are drained and committed. Too late a call changes nothing."""
        if self._core.revocation is not None and self._core.revocation.token == token:
            self._end_release()

    def computes(self, token: int) -> bool:
        """Returns whether the result of that `ComputeAssignment` is waited for."""
        return self._core.computation is not None and self._core.computation[0] == token

    def on_assignment(
        self, token: int, assignments: Sequence[SyncGroupRequestAssignment], now: float
    ) -> None:
        """Takes the result of that `ComputeAssignment`. Too late a call changes nothing."""
        if self.computes(token):
            self._core.computation = None
            self._answers.send_sync(now, assignments)

    def poll(self, now: float) -> MemberReady:
        """Ends what is overdue, makes the steps that are due, and sends a heartbeat if it is time."""
        finder_wake = None
        if not self._core.ended:
            self._expire(now)
        if not self._core.ended and self._core.started:
            finding = self._core.finder.poll(now)
            finder_wake = finding.next_wake
            for request in finding.actions:
                self._core.emit(request)
            while not self._core.ended and _STEPS[self._core.state](self, now):
                pass
            self._send_heartbeat(now)
        ready = Ready(tuple(self._core.actions), tuple(self._core.events), self._next_wake(finder_wake))
        self._core.actions.clear()
        self._core.events.clear()
        return ready

    # ------------------------------------------------------------ what time ends

    def _expire(self, now: float) -> None:
        """Ends what is overdue: all requests, then the first of the rest; the next poll, which is due at once, finds another."""
        for request, error in self._core.overdue(now):
            self.on_response(request, error, now)
        if self._core.ended:
            return
        if self._core.leave_plan is not None and now >= self._core.leave_plan.deadline:
            self._core.end_left()
        elif self._in_session and self.heartbeat.session_expired(now):
            self.coordinator_lost("the session timed out without an acknowledged heartbeat", now)
            self._core.reset("session timed out", keep_member_id=True)
        elif self._core.revocation is not None and now >= self._core.revocation.deadline:
            self._end_release()
        elif self._core.computation is not None and now >= self._core.computation[1]:
            self._core.fail(KafkaTimeoutError("the assignor did not finish within the rebalance timeout"))
        elif self._polls_expire_at() is not None and now >= (self._polls_expire_at() or now):
            self._stop_for_progress(now)

    @property
    def _in_session(self) -> bool:
        return self._core.generation.id != NO_GENERATION and self._core.state in _JOINED

    def _polls_expire_at(self) -> float | None:
        interval, last = self.config.max_poll_interval, self._core.progress_at
        if interval is None or last is None or self._core.state is not _S.STABLE:
            return None
        return last + interval

    def _stop_for_progress(self, now: float) -> None:
        """Leaves the group until the user asks for more (KIP-62): without progress others should have the partitions."""
        self._core.stopped_polling = True
        self._core.forget(GroupApi.HEARTBEAT)
        if self.config.group_instance_id is None and self._core.coordinator is not None:
            self._send_leave(now, "max_poll_interval_ms has passed without progress")
        self._core.reset("max_poll_interval_ms has passed without progress", keep_member_id=False)

    def _end_release(self) -> None:
        """Ends the drain, done or not: from here on others may have the partitions, so nothing of them may be committed."""
        assert self._core.revocation is not None  # called while there is one
        self.policy.released(self._core.revocation.partitions)
        self._core.revocation = None

    # ------------------------------------------------------------ one step in each state

    def _step_unjoined(self, now: float) -> bool:
        if self._core.leave_plan is not None:
            self._core.goto(_S.LEAVING)
            return True
        if not self._core.join_wanted or self._core.stopped_polling:
            return False
        self._core.goto(_S.JOINING)
        return True

    def _step_stable(self, now: float) -> bool:
        if self._core.leave_plan is not None:
            return self._release_and_leave(now)
        if self._core.rejoin_reason is None or now < self._core.not_before:
            return False
        to_release = self.policy.before_join()
        if to_release:
            self._core.revoke(to_release, now)
        else:
            self._core.goto(_S.JOINING)
        return True

    def _step_revoking(self, now: float) -> bool:
        if self._core.revocation is not None:
            return False
        if self._core.leave_plan is not None:
            return self._release_and_leave(now)
        to_release = self.policy.before_join()  # the subscription may have shrunk meanwhile
        if to_release:
            self._core.revoke(to_release, now)
        else:
            self._core.goto(_S.JOINING)
        return True

    def _step_joining(self, now: float) -> bool:
        if self._core.leave_plan is not None:
            return self._release_and_leave(now)
        if self._core.coordinator is None or now < self._core.not_before:
            return False
        if self._core.inflight.keys() & {GroupApi.JOIN, GroupApi.DESCRIBE}:
            return False
        if self.config.group_instance_id and not self._core.generation.member_id and not self._core.described:
            self._core.described = True
            request = DescribeGroupsRequest(groups=[self.config.group_id])
            self._core.send(now, GroupApi.DESCRIBE, request, self._core.short_timeout)
        else:
            self._send_join(now)
        return False

    def _step_syncing(self, now: float) -> bool:
        return self._core.leave_plan is not None and self._release_and_leave(now)

    def _step_leaving(self, now: float) -> bool:
        assert self._core.leave_plan is not None  # that is what leaving is
        if not (self._core.leave_plan.ask and self._core.join_sent):
            self._core.end_left()
        elif (
            self._core.coordinator is not None
            and GroupApi.LEAVE not in self._core.inflight
            and now >= self._core.not_before
        ):
            self._send_leave(now, self._core.leave_plan.reason)
        return False

    def _step_ended(self, now: float) -> bool:
        return False

    def _release_and_leave(self, now: float) -> bool:
        self._core.forget(GroupApi.JOIN, GroupApi.SYNC, GroupApi.DESCRIBE)
        self._core.computation = None
        rest = self.policy.release_all()
        if rest:
            self._core.revoke(rest, now)
        else:
            self._core.goto(_S.LEAVING)
        return True

    # ------------------------------------------------------------ requests

    def _send_join(self, now: float) -> None:
        reason = self._core.rejoin_reason or ""
        self._core.rejoin_reason = None
        self._core.join_sent = True
        self._core.explaining = False
        request = join_request(self.config, self._core.generation, self.policy.protocols(), reason)
        timeout = max(self.config.rebalance_timeout + JOIN_MARGIN, self.config.request_timeout)
        self._core.send(now, GroupApi.JOIN, request, timeout)
        if self._core.generation.id == NO_GENERATION:
            self.heartbeat.postpone(now + self.config.heartbeat_interval)

    def _send_heartbeat(self, now: float) -> None:
        """Sends a heartbeat if one is due, also while JoinGroup is pending: its answer shows that the coordinator is alive."""
        if not self._heartbeats or self._core.coordinator is None or now < self.heartbeat.due_at():
            return
        request = heartbeat_request(self.config, self._core.generation)
        self.heartbeat.sent(now)
        self._core.send(now, GroupApi.HEARTBEAT, request, self.config.heartbeat_timeout)

    @property
    def _heartbeats(self) -> bool:
        known = self._core.generation.id != NO_GENERATION or (
            GroupApi.JOIN in self._core.inflight and self._core.generation.member_id
        )
        return bool(known) and self._core.state in _JOINED and GroupApi.HEARTBEAT not in self._core.inflight

    def _send_leave(self, now: float, reason: str) -> None:
        request = leave_request(self.config, self._core.generation, reason)
        self._core.send(now, GroupApi.LEAVE, request, self._core.short_timeout)

    # ------------------------------------------------------------ the next wake-up

    def _next_wake(self, finder_wake: float | None) -> float | None:
        if self._core.ended or not self._core.started:
            return None
        times: list[float | None] = [r.sent_at + r.timeout + GRACE for r in self._core.inflight.values()]
        times += [finder_wake, self._polls_expire_at()]
        if self._in_session:
            times.append(self.heartbeat.expires_at())
        if self._core.revocation is not None:
            times.append(self._core.revocation.deadline)
        if self._core.computation is not None:
            times.append(self._core.computation[1])
        if self._core.leave_plan is not None:
            times.append(self._core.leave_plan.deadline)
        if self._core.coordinator is not None:
            times += self._wakes_with_coordinator()
        return earliest(times)

    def _wakes_with_coordinator(self) -> list[float]:
        times = [self.heartbeat.due_at()] if self._heartbeats else []
        if self._backs_off():
            times.append(self._core.not_before)
        return times

    def _backs_off(self) -> bool:
        if self._core.state is _S.JOINING:
            return not self._core.inflight.keys() & {GroupApi.JOIN, GroupApi.DESCRIBE}
        if self._core.state is _S.LEAVING:
            return GroupApi.LEAVE not in self._core.inflight
        return self._core.state is _S.STABLE and self._core.rejoin_reason is not None


_STEPS: Mapping[MemberState, Callable[[ClassicMember, float], bool]] = {
    _S.UNJOINED: ClassicMember._step_unjoined,
    _S.JOINING: ClassicMember._step_joining,
    _S.SYNCING: ClassicMember._step_syncing,
    _S.STABLE: ClassicMember._step_stable,
    _S.REVOKING: ClassicMember._step_revoking,
    _S.LEAVING: ClassicMember._step_leaving,
    _S.LEFT: ClassicMember._step_ended,
    _S.FATAL: ClassicMember._step_ended,
}
