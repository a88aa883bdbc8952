"""One member of a classic consumer group: finds the coordinator, joins, syncs, heartbeats, leaves.

The machine does no IO. `poll(now)` gives the requests to send, the events to carry out, and when to be called
again; `on_response` takes the answers. It never waits inside a step: a drain, the leader's computation and a commit
are events that come back as calls. Every wait has a deadline.

Sources: `AbstractCoordinator.java`; KIP-62 (heartbeats apart from progress), KIP-345 and KIP-814 (static
members), KIP-394 (member id required), KIP-429 (cooperative), KIP-800 (reasons).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from kafka_actors.base.machine import Ready, earliest
from kafka_actors.errors import KafkaTimeoutError
from kafka_actors.protocol.messages.describe_groups import DescribeGroupsRequest
from kafka_actors.protocol.messages.heartbeat import HeartbeatRequest
from kafka_actors.protocol.messages.join_group import JoinGroupRequest, JoinGroupRequestProtocol
from kafka_actors.protocol.messages.leave_group import LeaveGroupRequest, MemberIdentity
from kafka_actors.protocol.messages.sync_group import SyncGroupRequestAssignment

from .error_actions import GroupApi
from .member_answers import Answers
from .member_core import GRACE
from .member_events import NO_GENERATION, LeavePlan, LosePartitions, MemberReady, Partitions, TakePartitions
from .member_states import MemberState

JOIN_MARGIN = 5.0
"""Seconds that JoinGroup waits beyond the rebalance timeout, as in Java's client."""
MAX_REASON = 255

_S = MemberState
_JOINED = (_S.JOINING, _S.SYNCING, _S.STABLE, _S.REVOKING)


class ClassicMember(Answers):
    """One membership, from `start` to `LEFT` or `FATAL`; all public attributes may be read at any time.

    state, generation, coordinator, leader, fatal, releasing, rejoin_reason, heartbeat: see `MemberCore`.
    """

    # ------------------------------------------------------------ inputs

    def find_coordinator(self) -> None:
        """Find the coordinator and stay connected to it, without a membership (for commits by hand)."""
        self._started = True

    def start(self, now: float, reason: str = "the consumer starts") -> None:
        """Become a member and stay one. A second call changes nothing."""
        if not self._join_wanted:
            self._started = self._join_wanted = True
            self._progress_at = now
            self.request_rejoin(reason)

    def leave(
        self, now: float, timeout: float, *, ask: bool = True, reason: str = "the consumer is closed"
    ) -> None:
        """Drain what is owned, then end within `timeout` seconds. The first call counts."""
        if self._leaving is None and not self.ended:
            self._leaving = LeavePlan(now + timeout, ask, reason)

    def user_progress(self, now: float) -> None:
        """The user asked for more: resets `max_poll_interval`, and joins again if that had passed."""
        self._progress_at = now
        self._idle = False

    def start_over(self, partitions: Partitions, reason: str) -> None:
        """These are not what they were (a topic was made anew): what is owned of them is lost and assigned again."""
        held = partitions & self.policy.owned()
        if held and not self.ended:
            self._actions.append(LosePartitions(held, reason))
            self._actions.append(TakePartitions(self.generation.id, held, self.policy.owned()))

    def on_released(self, token: int, now: float) -> None:
        """The partitions of that `RevokePartitions` are drained and committed. Too late a call changes nothing."""
        if self._release is not None and self._release.token == token:
            self._end_release()

    def on_assignment(
        self, token: int, outcome: Sequence[SyncGroupRequestAssignment] | Exception, now: float
    ) -> None:
        """The result of that `ComputeAssignment`. Too late a call changes nothing."""
        if self._work is None or self._work[0] != token:
            return
        self._work = None
        if isinstance(outcome, Exception):
            self._fail(outcome)
        else:
            self._send_sync(now, outcome)

    def poll(self, now: float) -> MemberReady:
        """All that is to be done now, and when to be called again."""
        finder_wake = None
        if not self.ended:
            self._expire(now)
        if not self.ended and self._started:
            finding = self.finder.poll(now)
            finder_wake = finding.next_wake
            for request in finding.actions:
                self._emit(request)
            while not self.ended and _STEPS[self.state](self, now):
                pass
            self._send_heartbeat(now)
        ready = Ready(tuple(self._actions), tuple(self._events), self._next_wake(finder_wake))
        self._actions.clear()
        self._events.clear()
        return ready

    # ------------------------------------------------------------ what time ends

    def _expire(self, now: float) -> None:
        for request, error in self._overdue(now):
            self.on_response(request, error, now)
        if self.ended:
            return
        if self._leaving is not None and now >= self._leaving.deadline:
            self._end_left()
        elif self._in_session and self.heartbeat.session_expired(now):
            self.coordinator_lost("the session timed out without an acknowledged heartbeat", now)
            self._reset("session timed out", keep_member_id=True)
        elif self._release is not None and now >= self._release.deadline:
            self._end_release()
        elif self._work is not None and now >= self._work[1]:
            self._fail(KafkaTimeoutError("the assignor did not finish within the rebalance timeout"))
        elif self._polls_expire_at() is not None and now >= (self._polls_expire_at() or now):
            self._stop_for_progress(now)

    @property
    def _in_session(self) -> bool:
        return self.generation.id != NO_GENERATION and self.state in _JOINED

    def _polls_expire_at(self) -> float | None:
        interval, last = self.config.max_poll_interval, self._progress_at
        if interval is None or last is None or self.state is not _S.STABLE:
            return None
        return last + interval

    def _stop_for_progress(self, now: float) -> None:
        """KIP-62: who makes no progress gives its partitions to others, until it asks for more."""
        self._idle = True
        self._forget(GroupApi.HEARTBEAT)
        if self.config.group_instance_id is None and self.coordinator is not None:
            self._send_leave(now, "max_poll_interval_ms has passed without progress")
        self._reset("max_poll_interval_ms has passed without progress", keep_member_id=False)

    def _end_release(self) -> None:
        assert self._release is not None  # called while there is one
        self.policy.released(self._release.partitions)
        self._release = None

    # ------------------------------------------------------------ one step in each state

    def _step_unjoined(self, now: float) -> bool:
        if self._leaving is not None:
            self._goto(_S.LEAVING)
            return True
        if not self._join_wanted or self._idle:
            return False
        self._goto(_S.JOINING)
        return True

    def _step_stable(self, now: float) -> bool:
        if self._leaving is not None:
            return self._give_up_and_leave(now)
        if self._rejoin_reason is None or now < self._not_before:
            return False
        to_release = self.policy.before_join()
        if to_release:
            self._revoke(to_release, now)
        else:
            self._goto(_S.JOINING)
        return True

    def _step_revoking(self, now: float) -> bool:
        if self._release is not None:
            return False
        if self._leaving is not None:
            return self._give_up_and_leave(now)
        to_release = self.policy.before_join()  # the subscription may have shrunk meanwhile
        if to_release:
            self._revoke(to_release, now)
        else:
            self._goto(_S.JOINING)
        return True

    def _step_joining(self, now: float) -> bool:
        if self._leaving is not None:
            return self._give_up_and_leave(now)
        if self.coordinator is None or now < self._not_before:
            return False
        if self._inflight.keys() & {GroupApi.JOIN, GroupApi.DESCRIBE}:
            return False
        if self.config.group_instance_id and not self.generation.member_id and not self._described:
            self._described = True
            request = DescribeGroupsRequest(groups=[self.config.group_id])
            self._send(now, GroupApi.DESCRIBE, request, self._short_timeout)
        else:
            self._send_join(now)
        return False

    def _step_syncing(self, now: float) -> bool:
        return self._leaving is not None and self._give_up_and_leave(now)

    def _step_leaving(self, now: float) -> bool:
        assert self._leaving is not None  # that is what leaving is
        if not (self._leaving.ask and self._join_sent):
            self._end_left()
        elif (
            self.coordinator is not None and GroupApi.LEAVE not in self._inflight and now >= self._not_before
        ):
            self._send_leave(now, self._leaving.reason)
        return False

    def _step_ended(self, now: float) -> bool:
        return False

    def _give_up_and_leave(self, now: float) -> bool:
        self._forget(GroupApi.JOIN, GroupApi.SYNC, GroupApi.DESCRIBE)
        self._work = None
        rest = self.policy.give_up()
        if rest:
            self._revoke(rest, now)
        else:
            self._goto(_S.LEAVING)
        return True

    # ------------------------------------------------------------ requests

    def _send_join(self, now: float) -> None:
        reason = self._rejoin_reason or ""
        self._rejoin_reason = None
        self._join_sent = True
        self._explaining = False
        config = self.config
        protocols = [JoinGroupRequestProtocol(name=n, metadata=m) for n, m in self.policy.protocols()]
        request = JoinGroupRequest(
            group_id=config.group_id,
            session_timeout_ms=round(config.session_timeout * 1000),
            rebalance_timeout_ms=round(config.rebalance_timeout * 1000),
            member_id=self.generation.member_id,
            group_instance_id=config.group_instance_id,
            protocol_type=config.protocol_type,
            protocols=protocols,
            reason=reason[:MAX_REASON] or None,
        )
        timeout = max(config.rebalance_timeout + JOIN_MARGIN, config.request_timeout)
        self._send(now, GroupApi.JOIN, request, timeout)
        if self.generation.id == NO_GENERATION:
            self.heartbeat.postpone(now + config.heartbeat_interval)

    def _send_heartbeat(self, now: float) -> None:
        """Also while JoinGroup is pending, when an answer shows that the coordinator is alive and still is it."""
        if not self._heartbeats or self.coordinator is None or now < self.heartbeat.due_at():
            return
        request = HeartbeatRequest(
            group_id=self.config.group_id,
            generation_id=self.generation.id,
            member_id=self.generation.member_id,
            group_instance_id=self.config.group_instance_id,
        )
        self.heartbeat.sent(now)
        self._send(now, GroupApi.HEARTBEAT, request, self.config.heartbeat_timeout)

    @property
    def _heartbeats(self) -> bool:
        known = self.generation.id != NO_GENERATION or (
            GroupApi.JOIN in self._inflight and self.generation.member_id
        )
        return bool(known) and self.state in _JOINED and GroupApi.HEARTBEAT not in self._inflight

    def _send_leave(self, now: float, reason: str) -> None:
        identity = MemberIdentity(
            member_id=self.generation.member_id,
            group_instance_id=self.config.group_instance_id,
            reason=reason[:MAX_REASON],
        )
        request = LeaveGroupRequest(group_id=self.config.group_id, members=[identity])
        self._send(now, GroupApi.LEAVE, request, self._short_timeout)

    # ------------------------------------------------------------ the next wake-up

    def _next_wake(self, finder_wake: float | None) -> float | None:
        if self.ended or not self._started:
            return None
        times: list[float | None] = [r.sent_at + r.timeout + GRACE for r in self._inflight.values()]
        times += [finder_wake, self._polls_expire_at()]
        if self._in_session:
            times.append(self.heartbeat.expires_at())
        if self._release is not None:
            times.append(self._release.deadline)
        if self._work is not None:
            times.append(self._work[1])
        if self._leaving is not None:
            times.append(self._leaving.deadline)
        if self.coordinator is not None:
            times += self._wakes_with_coordinator()
        return earliest(times)

    def _wakes_with_coordinator(self) -> list[float]:
        times = [self.heartbeat.due_at()] if self._heartbeats else []
        if self._backs_off():
            times.append(self._not_before)
        return times

    def _backs_off(self) -> bool:
        if self.state is _S.JOINING:
            return not self._inflight.keys() & {GroupApi.JOIN, GroupApi.DESCRIBE}
        if self.state is _S.LEAVING:
            return GroupApi.LEAVE not in self._inflight
        return self.state is _S.STABLE and self._rejoin_reason is not None


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
