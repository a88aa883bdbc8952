"""Answers to a member's requests: what each changes.

Theory of operation. Arrives: a response, or the exception that ended its request; errors of commits that concern the membership.
Decided: the next state, what is lost, what is tried again and when. `error_actions` has the action for each error; an answer to a
request that was given up, or that is about an older generation, changes nothing.

The way of a rebalance: JoinGroup brings a generation (JOINING → SYNCING). The leader computes the assignment, an action that comes
back as an input, and sends it with SyncGroup; followers send an empty one at once. SyncGroup brings the assignment (→ STABLE, or
→ REVOKING where something has to be given up first, and then the group joins again).

What an error costs, from the least to the most: a pause (`RETRY`), a new search for the coordinator (`REDISCOVER`), a new
rebalance (`REJOIN`), all partitions (`RESET_GENERATION`), the member id as well (`RESET_MEMBER`), the membership (`FATAL`).

- An error about a generation counts only while that generation is the member's and no newer one is on its way (`_concerns`): answers
  overtake each other, because requests go over several connections.
- The session counts from the sending of a request that the coordinator answered as a member's: JoinGroup, SyncGroup, heartbeats,
  also one that says that the group rebalances.
- A lost answer ends its request after its timeout, and most often costs the coordinator (`REDISCOVER`), not the partitions: those
  go when the session ends, by this side's clock. A late or second answer is not that of a request in flight, and is ignored.
- A JoinGroup whose answer is lost is sent again with the same member id. A new member gets that id before it counts as one
  (KIP-394, Kafka 2.2), so a repeated JoinGroup leaves at most an id behind that was never used, and no member without a process.
- Partitions are taken only by SyncGroup's answer. Until then a cooperative member goes on with those that it has.
- A broker that took a JoinGroup, a SyncGroup or a heartbeat is proved to coordinate the group: the pause before the next search
  begins small again (`CoordinatorFinder`).

Source: the handlers in `AbstractCoordinator.java`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from kafka_actors.errors import (
    DecodeError,
    FencedInstanceIdError,
    InconsistentGroupProtocolError,
    InvalidSessionTimeoutError,
    KafkaError,
    TopicAuthorizationFailedError,
    error_for_code,
)
from kafka_actors.protocol.messages.describe_groups import (
    DescribedGroup,
    DescribeGroupsRequest,
    DescribeGroupsResponse,
)
from kafka_actors.protocol.messages.heartbeat import HeartbeatResponse
from kafka_actors.protocol.messages.join_group import JoinGroupResponse
from kafka_actors.protocol.messages.leave_group import LeaveGroupResponse
from kafka_actors.protocol.messages.sync_group import SyncGroupRequestAssignment, SyncGroupResponse

from .error_actions import ErrorAction, GroupApi, judge
from .member_core import MemberCore, MemberState
from .member_events import (
    NO_GENERATION,
    ComputeAssignment,
    CoordinatorFound,
    Generation,
    GroupRequest,
    TakePartitions,
    sync_request,
)

_S = MemberState
_LOSSES = (ErrorAction.RESET_GENERATION, ErrorAction.RESET_MEMBER)


class MemberAnswers:
    """Applies answers to a `MemberCore`."""

    def __init__(self, core: MemberCore) -> None:
        self._core = core

    def on_response(self, request: GroupRequest, outcome: object, now: float) -> bool:
        """Takes the answer to a request, or the exception that ended it. Returns False where it no longer matters.

        The request is no longer in flight when its handler runs, which may send another of its kind. An error that a handler raises ends the
        membership: nobody would wait for another answer.
        """
        if self._core.ended or self._core.inflight.get(request.api) is not request:
            return False
        del self._core.inflight[request.api]
        try:
            _HANDLERS[request.api](self, request, outcome, now)
        except Exception as error:
            self._core.fail(error)
        return True

    def on_membership_error(
        self, error: Exception, verdict: ErrorAction, generation: Generation, now: float
    ) -> None:
        """Takes an error that a request outside this machine (a commit) had, and that concerns the membership.

        `generation` is the one that the request was sent in: a loss in an earlier one takes nothing from the present one.
        """
        if self._core.ended:
            return
        if verdict is ErrorAction.REDISCOVER:
            self._core.coordinator_lost(str(error), now)
        elif verdict is ErrorAction.REJOIN:
            self._rebalancing(generation)
        elif verdict is ErrorAction.FATAL:
            self._core.fail(self._of_the_group(error))
        elif verdict in _LOSSES and self._concerns(generation, verdict):
            self._core.reset(str(error), keep_member_id=verdict is ErrorAction.RESET_GENERATION)

    def _concerns(self, generation: Generation, verdict: ErrorAction) -> bool:
        """Returns whether an error about this generation is about what this member is now.

        While JoinGroup is under way an illegal generation may only mean that its answer is. But who is unknown,
        or fenced, then is so for good: the rebalance went on without this member, perhaps its request got lost.
        """
        if generation != self._core.generation or generation.id == NO_GENERATION:
            return False
        return self._core.settled or (
            verdict is not ErrorAction.RESET_GENERATION and self._core.state is _S.JOINING
        )

    def _rebalancing(self, generation: Generation) -> None:
        """Joins again, because the group rebalances out of this generation; a later one is what came of that, and in other states it
        is under way, or pointless."""
        if generation.id == self._core.generation.id and self._core.state in (_S.STABLE, _S.REVOKING):
            self._core.request_rejoin("the group is rebalancing")

    # ------------------------------------------------------------ the coordinator

    def _on_found(self, request: GroupRequest, outcome: object, now: float) -> None:
        """Hands FindCoordinator's answer on; the member's next step has the finder connect to the broker that it names."""
        self._core.finder.found(outcome, now)

    def _on_connected(self, request: GroupRequest, outcome: object, now: float) -> None:
        """Takes the end of connecting. Only now the coordinator counts as found, and requests of the group are sent to it."""
        node = self._core.finder.connected(outcome, now)
        if node is not None:
            self._core.events.append(CoordinatorFound(node))

    def _on_described(self, request: GroupRequest, outcome: object, now: float) -> None:
        """Takes the described group: for the text of a fatal error (`EXPLAIN`), or for a static member that comes back."""
        group = outcome.groups[0] if isinstance(outcome, DescribeGroupsResponse) and outcome.groups else None
        if self._core.explaining:
            self._core.fail(self._inconsistent(group))
            return
        error = outcome if isinstance(outcome, Exception) else self._error_of(group)
        verdict = None if error is None else judge(GroupApi.DESCRIBE, error)
        self._core.described = verdict not in (ErrorAction.REDISCOVER, ErrorAction.RETRY)
        if verdict is ErrorAction.REDISCOVER:
            self._core.coordinator_lost(str(error), now)
        elif verdict is ErrorAction.RETRY:
            self._core.wait(now)
        else:
            # Whatever else went wrong: an old broker or a missing permission only costs the comparison.
            self._core.policy.on_described(None if error is not None else group)

    def _error_of(self, group: DescribedGroup | None) -> Exception | None:
        """Returns the error of a described group, if it has one."""
        code = 0 if group is None else group.error_code
        return error_for_code(code, request=GroupApi.DESCRIBE.value, group=self._core.config.group_id)

    def _inconsistent(self, group: DescribedGroup | None) -> Exception:
        """Returns the error of a member that has no strategy in common with its group, with both sides in its text."""
        ours = self._core.config.describe_strategy or ", ".join(
            name for name, _ in self._core.policy.protocols()
        )
        theirs = "another one"
        if group is not None and group.protocol_type not in ("", self._core.config.protocol_type):
            theirs = f"the protocol type {group.protocol_type!r}"
        elif group is not None and group.protocol_data:
            theirs = repr(group.protocol_data)
        return InconsistentGroupProtocolError(
            f"partition_assignment_strategy is {ours}, but the group {self._core.config.group_id!r} uses {theirs}",
            request="JoinGroup",
        )

    # ------------------------------------------------------------ join and sync

    def _on_join(self, request: GroupRequest, outcome: object, now: float) -> None:
        """Takes JoinGroup's answer: the generation, and for the leader all members."""
        error = self._error(request.api, outcome)
        if error is not None:
            self._on_join_error(error, outcome, now)
            return
        assert isinstance(outcome, JoinGroupResponse)
        if outcome.protocol_type not in (None, self._core.config.protocol_type):
            raise InconsistentGroupProtocolError(
                f"the group {self._core.config.group_id!r} is of the type {outcome.protocol_type!r}",
                request="JoinGroup",
            )
        self._core.finder.proved()
        self._core.generation = Generation(outcome.generation_id, outcome.member_id, outcome.protocol_name)
        self._core.leader = outcome.leader == outcome.member_id
        self._core.heartbeat.reset(now)
        self._core.heartbeat.acknowledged(request.sent_at)
        self._core.goto(_S.SYNCING)
        members = tuple(outcome.members) if self._core.leader else ()
        self._core.policy.on_joined(self._core.generation, self._core.leader, members)
        # A leader that came back as a static member is told to skip it: the group keeps its assignment (KIP-814).
        if self._core.leader and not outcome.skip_assignment:
            self._core.token += 1
            self._core.computation = (self._core.token, now + self._core.config.rebalance_timeout)
            self._core.actions.append(
                ComputeAssignment(self._core.token, outcome.protocol_name or "", members)
            )
        else:
            self.send_sync(now, ())

    def _on_join_error(self, error: Exception, outcome: object, now: float) -> None:
        """Handles an error of JoinGroup. A member id to take over is the normal course of a new member, and is used without a pause.

        Before it fails for a strategy that the group lacks (`EXPLAIN`), the member has the group described, for the text of the
        error, and stays JOINING meanwhile.
        """
        verdict = judge(GroupApi.JOIN, error)
        if verdict is ErrorAction.TAKE_MEMBER_ID:
            assert isinstance(outcome, JoinGroupResponse)  # only an answer has an id
            self._core.generation = Generation(member_id=outcome.member_id)
            self._core.request_rejoin("need to re-join with the given member id")
        elif verdict is ErrorAction.EXPLAIN:
            self._core.explaining = True
            request = DescribeGroupsRequest(groups=[self._core.config.group_id])
            self._core.send(now, GroupApi.DESCRIBE, request, self._core.config.request_timeout)
        else:
            if not isinstance(outcome, Exception) and not self._core.generation.member_id:
                # LeaveGroup would remove another one that has its group_instance_id.
                self._core.join_sent = False
            self._core.request_rejoin(f"rebalance failed: {_short(error)}")
            self._core.refused = str(error)
            self._on_membership_lost(error, verdict, now)

    def send_sync(self, now: float, assignments: Sequence[SyncGroupRequestAssignment]) -> None:
        """Sends SyncGroup, with all assignments where this member leads."""
        request = sync_request(self._core.config, self._core.generation, assignments)
        # A follower's answer waits for the leader's, whose time is the rebalance timeout (KIP-862).
        timeout = max(self._core.config.rebalance_timeout, self._core.config.request_timeout)
        self._core.send(now, GroupApi.SYNC, request, timeout)

    def _on_sync(self, request: GroupRequest, outcome: object, now: float) -> None:
        """Takes SyncGroup's answer. After any error that isn't fatal the member joins again."""
        error = self._error(request.api, outcome)
        if error is None:
            assert isinstance(outcome, SyncGroupResponse)
            if outcome.protocol_name not in (None, self._core.generation.protocol):
                raise InconsistentGroupProtocolError(
                    f"joined with {self._core.generation.protocol!r}, synced with {outcome.protocol_name!r}",
                    request="SyncGroup",
                )
            try:
                self._on_assignment_bytes(request, outcome.assignment, now)
                return
            except DecodeError as unreadable:
                error = unreadable
        self._core.request_rejoin(f"rebalance failed: {_short(error)}")
        verdict = judge(GroupApi.SYNC, error)
        if verdict is not ErrorAction.REJOIN:
            self._core.refused = str(error)
        if verdict is not ErrorAction.FATAL:
            self._core.goto(_S.JOINING)
        if isinstance(error, DecodeError):
            self._core.wait(now)
        elif verdict is not ErrorAction.REJOIN:
            self._on_membership_lost(error, verdict, now)

    def _on_assignment_bytes(self, request: GroupRequest, data: bytes, now: float) -> None:
        """Takes over an assignment. Raises `DecodeError` before anything has changed."""
        change = self._core.policy.on_synced(self._core.generation, data)
        self._core.finder.proved()
        self._core.heartbeat.acknowledged(request.sent_at)
        self._core.refused = ""
        if change.revoked:
            self._core.request_rejoin("need to revoke partitions and re-join")
            self._core.revoke(change.revoked, now)
        else:
            self._core.goto(_S.STABLE)
        if change.rejoin is not None:
            self._core.request_rejoin(change.rejoin)
            self._core.wait(now)
        else:
            self._core.backoff.succeeded()
        self._core.actions.append(
            TakePartitions(self._core.generation.id, change.added, self._core.policy.owned())
        )

    def _on_membership_lost(self, error: Exception, verdict: ErrorAction, now: float) -> None:
        """Handles an error of JoinGroup or SyncGroup that no special rule is for."""
        if verdict is ErrorAction.FATAL:
            raise error
        if verdict in _LOSSES:
            self._core.reset(_short(error), keep_member_id=verdict is ErrorAction.RESET_GENERATION)
        elif verdict is ErrorAction.REDISCOVER:
            self._core.coordinator_lost(str(error), now)
        else:
            self._core.wait(now)

    # ------------------------------------------------------------ heartbeat and leave

    def _on_heartbeat(self, request: GroupRequest, outcome: object, now: float) -> None:
        """Takes a heartbeat's answer. That the group rebalances is an answer to a member, so the session goes on."""
        error = self._error(request.api, outcome)
        verdict = None if error is None else judge(GroupApi.HEARTBEAT, error)
        if error is None or verdict is ErrorAction.REJOIN:
            self._core.finder.proved()
            self._core.heartbeat.acknowledged(request.sent_at)
            if error is not None:
                self._rebalancing(request.generation)
        elif verdict is ErrorAction.RETRY:
            self._core.heartbeat.postpone(now + self._core.config.retry_backoff)
        elif verdict is ErrorAction.REDISCOVER:
            self._core.coordinator_lost(str(error), now)
        elif verdict is not None and self._concerns(request.generation, verdict):
            self.on_membership_error(error, verdict, request.generation, now)
        elif verdict is ErrorAction.FATAL and not isinstance(error, FencedInstanceIdError):
            # Fenced in an older generation: this member itself may have taken the id over since.
            raise error

    def _on_leave(self, request: GroupRequest, outcome: object, now: float) -> None:
        """Takes LeaveGroup's answer. Errors end the membership as well, unless the coordinator has moved or is loading: a member
        that the group doesn't know has left it."""
        if self._core.state is not _S.LEAVING:
            return
        # An answer that can't be read is one all the same: what could be done has been.
        error = None if isinstance(outcome, DecodeError) else self._error(request.api, outcome)
        verdict = None if error is None else judge(GroupApi.LEAVE, error)
        if verdict is ErrorAction.REDISCOVER:
            self._core.coordinator_lost(str(error), now)
        elif verdict is ErrorAction.RETRY:
            self._core.wait(now)
        else:
            self._core.end_left()

    def _error(self, api: GroupApi, outcome: object) -> Exception | None:
        """Returns the error in an outcome, if there is one."""
        if isinstance(outcome, Exception):
            return outcome
        assert isinstance(
            outcome, (JoinGroupResponse, SyncGroupResponse, HeartbeatResponse, LeaveGroupResponse)
        )
        code = outcome.error_code
        return error_for_code(
            code, self._concerning(code), request=api.value, group=self._core.config.group_id
        )

    def _of_the_group(self, error: Exception) -> Exception:
        """Returns the error of a commit, which names a partition, as one about the group or an option of the member."""
        if not isinstance(error, KafkaError) or error.message is not None:
            return error
        concerning = self._concerning(error.code)
        topic = error.topic if isinstance(error, TopicAuthorizationFailedError) else None
        return type(error)(concerning, request=error.request, topic=topic, group=self._core.config.group_id)

    def _concerning(self, code: int) -> str | None:
        """Returns a text with the option that an error is about, which brokers don't say."""
        config = self._core.config
        if code == InvalidSessionTimeoutError.code:
            return (
                f"session_timeout_ms is {config.session_timeout * 1000:.0f}: the broker's "
                "group.min.session.timeout.ms and group.max.session.timeout.ms are its bounds"
            )
        if code == FencedInstanceIdError.code:
            return f"group_instance_id {config.group_instance_id!r} is in use elsewhere"
        return None


def _short(error: Exception) -> str:
    """Names an error in the reason of a rejoin, which the coordinator logs (KIP-800)."""
    return error.name if isinstance(error, KafkaError) else type(error).__name__


_HANDLERS: Mapping[GroupApi, Callable[[MemberAnswers, GroupRequest, object, float], None]] = {
    GroupApi.FIND_COORDINATOR: MemberAnswers._on_found,
    GroupApi.CONNECT: MemberAnswers._on_connected,
    GroupApi.DESCRIBE: MemberAnswers._on_described,
    GroupApi.JOIN: MemberAnswers._on_join,
    GroupApi.SYNC: MemberAnswers._on_sync,
    GroupApi.HEARTBEAT: MemberAnswers._on_heartbeat,
    GroupApi.LEAVE: MemberAnswers._on_leave,
}
