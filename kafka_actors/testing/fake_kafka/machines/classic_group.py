"""One group of the classic protocol, as its coordinator keeps it.

Theory of operation. Arrives: calls of members, which wait in it, and the ends of its timers. Decided: which
calls are answered now, who is a member, and when a generation begins.

    Empty ── join ──► PreparingRebalance ── all have joined, or time is over ──► CompletingRebalance
      ▲                     ▲      ▲                                                   │
      │ nobody is left      │      └── a member joins, leaves or expires ──────────────┤
      └─────────────────────┴──────────────────────────── Stable ◄── leader's sync ────┘

- PreparingRebalance: JoinGroup waits until every member has joined (or, for the first generation, the initial
  delay is over, which newcomers prolong), the rebalance timeout at most; who has not joined by then is
  removed, unless it is static.
- CompletingRebalance: joins are answered, and the leader is told all members. SyncGroup waits for the
  leader's. Members that send none within the rebalance timeout are removed, and the next rebalance begins.
- Stable: assignments are handed out. A member that joins, changes its metadata, leaves, or lets its session
  end begins the next rebalance; the others learn it by their heartbeats. A member that joins again with
  nothing changed is answered at once.
- A member without an id gets one and comes again with it, from version 4 on (KIP-394). Until then it is
  pending, and a rebalance waits for it, for its session at most.
- A static member that joins anew takes over the place of its old member id, which is fenced (KIP-345). If
  nothing else has changed there is no rebalance; a leader is told to skip the assignment (KIP-814).
- Each call of a member begins its session anew; one that waits in a call can't expire, except a new one after
  five minutes.

What a coordinator loads was written down when the group became stable or empty: all else is lost with the one before (`unload`), and its
callers hear NOT_COORDINATOR. Sessions begin anew when the group is loaded (`load`), so none ends while nobody coordinates.

Source: Kafka's `GroupMetadataManager`, `ClassicGroup`, `ClassicGroupMember`; KIP-134, KIP-345, KIP-394,
KIP-814.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from kafka_actors import errors
from kafka_actors.protocol import JoinGroupRequest, SyncGroupResponse

from .calls import BrokerCall
from .cluster_state import ClusterState
from .error_answers import Refused
from .group_members import FakeMember, GroupMembers, join_error, protocols_of
from .timers import BrokerTimer, cancel

EMPTY, PREPARING, COMPLETING, STABLE = "Empty", "PreparingRebalance", "CompletingRebalance", "Stable"
_NEW_MEMBER_TIMEOUT_MS = 300_000


class ClassicGroup:
    """A group's members and state. Requests raise `Refused`, or are answered at once or later through their calls. `checked_ms` is when its
    offsets were looked at last, None before the first look."""

    def __init__(self, state: ClusterState) -> None:
        self.state = EMPTY
        self.state_since_ms = state.wall_ms
        self.checked_ms: int | None = None
        self.members = GroupMembers()
        self._cluster = state
        self._pending: dict[str, BrokerTimer] = {}
        self._unsynced: set[str] = set()
        self._initial = False
        self._new_member = False
        self._join_timer: BrokerTimer | None = None
        self._sync_timer: BrokerTimer | None = None
        self._saved = (self.state, self.state_since_ms, self.members.saved())

    # ---------------------------------------------------------------- JoinGroup

    def join(self, call: BrokerCall) -> None:
        """Takes in a member, or lets it rejoin."""
        request: JoinGroupRequest = call.request
        member_id = request.member_id
        if not self._accepts(member_id):
            self._remove(member_id)
            raise Refused(errors.GroupMaxSizeReachedError)
        if not self._supports(request):
            raise Refused(errors.InconsistentGroupProtocolError)
        if not member_id:
            self._join_new(call, request)
        elif member_id in self._pending:
            self._add(member_id, call, request)
        else:
            self.members.check(member_id, request.group_instance_id)
            self._rejoin(self.members.by_id[member_id], call, request)

    def _accepts(self, member_id: str) -> bool:
        """Whether there is room (`group.max.size`): in a rebalance for those that join first, else for members
        and as many more as fit.
        """
        most = self._cluster.settings.group_max_size
        member = self.members.by_id.get(member_id)
        if self.state == PREPARING:
            waiting = self.members.joined
            return member_id in waiting or len(waiting) < most
        return self.state == EMPTY or member is not None or len(self.members) < most

    def _supports(self, request: JoinGroupRequest) -> bool:
        names = [name for name, _ in protocols_of(request)]
        if self.state == EMPTY:
            return bool(request.protocol_type) and bool(names)
        return self.members.supports(request.protocol_type, names)

    def _join_new(self, call: BrokerCall, request: JoinGroupRequest) -> None:
        instance = request.group_instance_id
        member_id = f"{instance if instance is not None else call.client_id or ''}-{self._cluster.new_uuid()}"
        if instance is not None:
            old = self.members.static(instance)
            if old is None:
                self._add(member_id, call, request)
            else:
                self._replace(old, member_id, call, request)
        elif call.version >= 4:
            self._pending[member_id] = self._cluster.after(
                request.session_timeout_ms, lambda: self._pending_expired(member_id)
            )
            call.respond(join_error(call, errors.MemberIdRequiredError, member_id))
        else:
            self._add(member_id, call, request)

    def _add(self, member_id: str, call: BrokerCall, request: JoinGroupRequest) -> None:
        cancel(self._pending.pop(member_id, None))
        member = FakeMember(member_id, call, request)
        self._new_member |= self.state == PREPARING and self._initial
        self.members.add(member)
        member.join = call
        self._expect(member, _NEW_MEMBER_TIMEOUT_MS)
        self._rebalance()

    def _replace(self, old: FakeMember, member_id: str, call: BrokerCall, request: JoinGroupRequest) -> None:
        """A static member came anew: the old one of its instance id is fenced, and this one has its place."""
        old.refuse_join(errors.FencedInstanceIdError, old.member_id)
        old.answer_sync(SyncGroupResponse(error_code=errors.FencedInstanceIdError.code))
        cancel(old.timer)
        former_leader = self.members.leader
        leads = former_leader == old.member_id
        self.members.rename(old, member_id)
        old.is_new = False
        self._expect(old)
        old.update(request)
        if self.state == STABLE and self.members.elected_protocol() == self.members.protocol:
            self._save()
            # Older clients take the leader for another one, and do not assign (KIP-814).
            skips = call.version >= 9
            leader = self.members.leader if skips else former_leader
            call.respond(
                self.members.joined_response(
                    old, skip_assignment=skips and leads, alone=not skips, leader=leader
                )
            )
            return
        old.join = call
        if self.state == PREPARING:
            self._maybe_complete()
        else:
            self._prepare()

    def _rejoin(self, member: FakeMember, call: BrokerCall, request: JoinGroupRequest) -> None:
        unchanged = member.protocols == protocols_of(request)
        leads = member.member_id == self.members.leader
        if unchanged and (self.state == COMPLETING or (self.state == STABLE and not leads)):
            call.respond(self.members.joined_response(member))
            return
        member.update(request)
        member.join = call
        self._rebalance()

    # ---------------------------------------------------------------- SyncGroup, Heartbeat, LeaveGroup, OffsetCommit

    def sync(self, call: BrokerCall) -> None:
        """Hands out the assignment, as soon as the leader has sent it."""
        request = call.request
        self.members.check(request.member_id, request.group_instance_id, request.generation_id)
        for said, known in (
            (request.protocol_type, self.members.protocol_type),
            (request.protocol_name, self.members.protocol),
        ):
            if said is not None and known is not None and said != known:
                raise Refused(errors.InconsistentGroupProtocolError)
        if self.state == PREPARING:
            raise Refused(errors.RebalanceInProgressError)
        member = self.members.by_id[request.member_id]
        self._synced(member.member_id)
        if self.state == STABLE:
            call.respond(self.members.sync_response(member))
            return
        member.sync = call
        if member.member_id == self.members.leader:
            found = {a.member_id: bytes(a.assignment) for a in request.assignments}
            for other in self.members:
                other.assignment = found.get(other.member_id, b"")
            self._become(STABLE)
            for other in self.members:
                if other.answer_sync(self.members.sync_response(other)):
                    self._expect(other)

    def heartbeat(self, member_id: str, instance_id: str | None, generation: int) -> int:
        """Prolongs a member's session. Returns the error code to answer with."""
        self.members.check(member_id, instance_id, generation)
        self._expect(self.members.by_id[member_id])
        return errors.RebalanceInProgressError.code if self.state == PREPARING else 0

    def leave(self, members: Iterable[Any]) -> list[int]:
        """Removes members; returns an error code for each."""
        codes = []
        for leaving in members:
            try:
                self._leave(leaving.member_id, leaving.group_instance_id)
                codes.append(0)
            except Refused as refused:
                codes.append(refused.code)
        if 0 in codes:
            if self.state in (STABLE, COMPLETING):
                self._rebalance()
            else:
                self._maybe_complete()
        return codes

    def _leave(self, member_id: str, instance_id: str | None) -> None:
        if not member_id:
            found = self.members.static(instance_id)
            if found is None:
                raise Refused(errors.UnknownMemberIdError)
            member_id = found.member_id
        elif member_id not in self._pending:
            self.members.check(member_id, instance_id)
        self._evict(member_id)

    def check_commit(self, member_id: str, instance_id: str | None, generation: int) -> None:
        """Raises `Refused` where an OffsetCommit is not to be taken; prolongs the member's session where it is."""
        if generation < 0 and self.state == EMPTY:
            return
        if generation < 0 and not member_id and instance_id is None:
            raise Refused(errors.UnknownMemberIdError)
        self.members.check(member_id, instance_id, generation)
        if self.state == COMPLETING:
            raise Refused(errors.RebalanceInProgressError)
        self._expect(self.members.by_id[member_id])

    def check_transactional_commit(self, member_id: str, instance_id: str | None, generation: int) -> None:
        """Raises `Refused` where a TxnOffsetCommit is not to be taken: whose member is not in the group or of another generation (KIP-447).

        Requests of older versions name no member; the group's state does not matter.
        """
        if generation < 0 and self.state == EMPTY:
            return
        if generation >= 0 or member_id or instance_id is not None:
            self.members.check(member_id, instance_id, generation)

    # ---------------------------------------------------------------- rebalances

    def _rebalance(self) -> None:
        """Begins a rebalance, or goes on with the one that there is."""
        if self.state == PREPARING:
            self._maybe_complete()
        else:
            self._prepare()

    def _prepare(self) -> None:
        if self.state == COMPLETING:
            for member in self.members:
                member.assignment = b""
                if member.answer_sync(SyncGroupResponse(error_code=errors.RebalanceInProgressError.code)):
                    self._expect(member)
        self._unsynced.clear()
        cancel(self._sync_timer)
        self._initial = self.state == EMPTY
        self._become(PREPARING)
        if self._initial:
            delay = self._cluster.settings.group_initial_rebalance_delay_ms
            left = max(self.members.rebalance_ms - delay, 0)
            self._join_timer = self._cluster.after(delay, lambda: self._initial_delay_over(delay, left))
        elif self._all_joined():
            self._complete()
        else:
            self._join_timer = self._cluster.after(self.members.rebalance_ms, self._complete)

    def _initial_delay_over(self, delay: int, left: int) -> None:
        if self._new_member and left:
            self._new_member = False
            again = min(self._cluster.settings.group_initial_rebalance_delay_ms, left)
            remaining = max(left - delay, 0)
            self._join_timer = self._cluster.after(again, lambda: self._initial_delay_over(again, remaining))
        else:
            self._complete()

    def _all_joined(self) -> bool:
        return not self._pending and len(self.members.joined) == len(self.members)

    def _maybe_complete(self) -> None:
        if self.state == PREPARING and not self._initial and self._all_joined():
            self._complete()

    def _complete(self) -> None:
        cancel(self._join_timer)
        for member in self.members:
            if member.join is None and member.instance_id is None:
                self._remove(member.member_id)
        joined = self.members.joined
        if self.members and not joined:  # only static members that are away: until their sessions end
            self._join_timer = self._cluster.after(self.members.rebalance_ms, self._complete)
            return
        if self.members.leader not in joined:
            self.members.leader = joined[0] if joined else None
        self._unsynced.clear()
        self._initial = self._new_member = False
        self.members.begin_generation()
        if not self.members:
            self._become(EMPTY)
            return
        self._become(COMPLETING)
        for member in self.members:
            member.answer_join(self.members.joined_response(member))
            self._expect(member)
            member.is_new = False
            self._unsynced.add(member.member_id)
        generation = self.members.generation
        self._sync_timer = self._cluster.after(
            self.members.rebalance_ms, lambda: self._sync_expired(generation)
        )

    def _sync_expired(self, generation: int) -> None:
        if generation == self.members.generation and self.state in (COMPLETING, STABLE) and self._unsynced:
            for member_id in sorted(self._unsynced):
                self._remove(member_id)
            self._prepare()

    def _synced(self, member_id: str) -> None:
        self._unsynced.discard(member_id)
        if not self._unsynced:
            cancel(self._sync_timer)

    # ---------------------------------------------------------------- members and their sessions

    def _expect(self, member: FakeMember, timeout_ms: int | None = None) -> None:
        """Begins a member's session anew."""
        cancel(member.timer)
        wait = member.session_ms if timeout_ms is None else timeout_ms
        member.timer = self._cluster.after(wait, lambda: self._expired(member))

    def _expired(self, member: FakeMember) -> None:
        waits = member.join is not None or member.sync is not None
        if self.members.by_id.get(member.member_id) is not member or (waits and not member.is_new):
            return
        self._evict(member.member_id)
        if self.state in (STABLE, COMPLETING):
            self._rebalance()
        elif self.state == PREPARING and self._all_joined():
            self._complete()

    def _pending_expired(self, member_id: str) -> None:
        self._remove(member_id)
        if self.state == PREPARING and self._all_joined():
            self._complete()

    def _evict(self, member_id: str) -> None:
        """Removes a member that may wait in a JoinGroup."""
        if (member := self.members.by_id.get(member_id)) is not None:
            member.refuse_join(errors.UnknownMemberIdError, "")
        self._remove(member_id)

    def _remove(self, member_id: str) -> None:
        cancel(self._pending.pop(member_id, None))
        self._unsynced.discard(member_id)
        self.members.remove(member_id)

    # ---------------------------------------------------------------- states, another coordinator

    def _become(self, state: str) -> None:
        self.state = state
        self.state_since_ms = self._cluster.wall_ms
        if state in (EMPTY, STABLE):
            self._save()

    def _save(self) -> None:
        self._saved = (self.state, self.state_since_ms, self.members.saved())

    def unload(self) -> None:
        """Goes back to what was written down, without timers; who waits hears that this is its coordinator no more."""
        for member in self.members:
            member.refuse_join(errors.NotCoordinatorError, member.member_id)
            member.answer_sync(SyncGroupResponse(error_code=errors.NotCoordinatorError.code))
        self.stop()
        self.state, self.state_since_ms, members = self._saved
        self.members.restore(members)

    def load(self) -> None:
        """Begins the sessions of all members, at the coordinator that has read them, and the time to the next look at its offsets."""
        self.checked_ms = self._cluster.wall_ms
        for member in self.members:
            self._expect(member)

    def stop(self) -> None:
        """Cancels all timers: the group is deleted, or loaded elsewhere."""
        cancel(self._join_timer, self._sync_timer, *self._pending.values(), *(m.timer for m in self.members))
        self._pending.clear()
        self._unsynced.clear()
        self._initial = self._new_member = False
