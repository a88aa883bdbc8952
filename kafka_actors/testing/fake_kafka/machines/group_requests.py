"""Requests of the classic group protocol: finding the coordinator, membership, and groups' administration.

Theory of operation. Arrives: one request about a group. Decided here: whether this broker coordinates the
group, and whether the group exists; what then happens is the group's own decision (`ClassicGroup`). A handler
returns the response, or None where the group answers later: JoinGroup waits for the other members, SyncGroup
for the leader's assignment.

- A group's coordinator is the leader of the partition of the offsets topic that the hash of its name chooses.
  All other brokers answer NOT_COORDINATOR, so a client that doesn't look for the coordinator again can't go
  on.
- A group exists from its first JoinGroup or commit on. A request of a member for a group that doesn't is
  answered with UNKNOWN_MEMBER_ID, by which clients know to join anew.
- When a coordinator moves or restarts (`coordinators_moved`, `restarted`), the group goes on from what it had
  written down. Calls that wait in the old coordinator are answered with NOT_COORDINATOR. `FakeCluster` looks
  for that at each poll. While no broker is alive nobody coordinates, and no time of members runs.
- ListGroups tells a broker's own groups; to see all, clients ask all brokers. DescribeGroups tells protocol
  and metadata only of a stable group, and an unknown one as Dead, or from version 6 on with an error.
- DeleteGroups takes empty groups only, and their offsets go with them (`on_delete`).

Source: `GroupCoordinatorService`, `KafkaApis`; KIP-229, KIP-345, KIP-394, KIP-518, KIP-699, KIP-1043.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from kafka_actors import errors
from kafka_actors.protocol import (
    ApiKey,
    DeleteGroupsRequest,
    DeleteGroupsResponse,
    DescribeGroupsRequest,
    DescribeGroupsResponse,
    FindCoordinatorRequest,
    FindCoordinatorResponse,
    HeartbeatRequest,
    HeartbeatResponse,
    JoinGroupRequest,
    JoinGroupResponse,
    LeaveGroupRequest,
    LeaveGroupResponse,
    ListGroupsRequest,
    ListGroupsResponse,
    SyncGroupRequest,
    SyncGroupResponse,
)
from kafka_actors.protocol.messages.delete_groups import DeletableGroupResult
from kafka_actors.protocol.messages.describe_groups import DescribedGroup, DescribedGroupMember
from kafka_actors.protocol.messages.find_coordinator import Coordinator
from kafka_actors.protocol.messages.leave_group import MemberIdentity, MemberResponse
from kafka_actors.protocol.messages.list_groups import ListedGroup

from .calls import BrokerCall
from .classic_group import EMPTY, STABLE, ClassicGroup
from .cluster_state import NO_LEADER, ClusterState
from .error_answers import Refused
from .group_members import join_error

GROUP_OPERATIONS = 3400
"""All operations on a group, as a bit field: brokers without an authorizer allow them."""
_GROUP_OPERATIONS_BEFORE_4 = 328
_GROUP, _TRANSACTION = 0, 1


class GroupHandlers:
    """The groups of all coordinators, and the requests about them."""

    def __init__(self, state: ClusterState) -> None:
        self._state = state
        self.groups: dict[str, ClassicGroup] = {}
        self._coordinators: dict[str, int] = {}
        self.on_delete: Callable[[str], object] = lambda group_id: None
        self.handlers: dict[ApiKey, Callable[[BrokerCall], Any]] = {
            ApiKey.FIND_COORDINATOR: self._find_coordinator,
            ApiKey.JOIN_GROUP: self._join,
            ApiKey.SYNC_GROUP: self._sync,
            ApiKey.HEARTBEAT: self._heartbeat,
            ApiKey.LEAVE_GROUP: self._leave,
            ApiKey.LIST_GROUPS: self._list,
            ApiKey.DESCRIBE_GROUPS: self._describe,
            ApiKey.DELETE_GROUPS: self._delete,
        }

    # ---------------------------------------------------------------- coordinators

    def check_coordinator(self, call: BrokerCall, group_id: str) -> None:
        """Raises `Refused` where the broker is not the group's coordinator."""
        if self._state.offsets_topic.leader_of(group_id) != call.node_id:
            raise Refused(errors.NotCoordinatorError)

    def coordinators_moved(self) -> None:
        """Has groups begin anew whose coordinator is another broker now, once there is one."""
        for group_id, group in self.groups.items():
            before, coordinator = self._coordinators[group_id], self._state.offsets_topic.leader_of(group_id)
            if before == coordinator:
                continue
            self._coordinators[group_id] = coordinator
            if before != NO_LEADER:
                group.unload()
            if coordinator != NO_LEADER:
                group.load()

    def restarted(self, node_id: int) -> None:
        """Ends what groups had in the memory of a coordinator that was restarted."""
        for group_id, coordinator in self._coordinators.items():
            if coordinator == node_id:
                self._coordinators[group_id] = NO_LEADER
                self.groups[group_id].unload()

    def create(self, group_id: str) -> ClassicGroup:
        """Returns a group; a new one where there is none."""
        if group_id not in self.groups:
            self.groups[group_id] = ClassicGroup(self._state)
            self._coordinators[group_id] = self._state.offsets_topic.leader_of(group_id)
        return self.groups[group_id]

    def _find_coordinator(self, call: BrokerCall) -> FindCoordinatorResponse:
        """Names the coordinators of keys: of one key before version 4, of many from then on (KIP-699), each with
        its own error.
        """
        request: FindCoordinatorRequest = call.request
        keys = request.coordinator_keys if call.version >= 4 else [request.key]
        found = [self._coordinator_of(key, request.key_type) for key in keys]
        if call.version >= 4:
            return FindCoordinatorResponse(coordinators=found)
        one = found[0]
        return FindCoordinatorResponse(
            error_code=one.error_code,
            error_message=None if one.error_code else "NONE",
            node_id=one.node_id,
            host=one.host,
            port=one.port,
        )

    def _coordinator_of(self, key: str, key_type: int) -> Coordinator:
        """Names one coordinator.

        A group's is that of its partition of the offsets topic, also if there is no such group yet.
        """
        topics = {_GROUP: self._state.offsets_topic, _TRANSACTION: self._state.transactions_topic}
        if key_type not in topics:  # there are no share groups
            return Coordinator(key, -1, "", -1, errors.InvalidRequestError.code)
        node = self._state.nodes.get(topics[key_type].leader_of(key))
        if node is None:
            return Coordinator(key, -1, "", -1, errors.CoordinatorNotAvailableError.code)
        return Coordinator(key, node.node_id, node.host, node.port)

    # ---------------------------------------------------------------- members

    def _join(self, call: BrokerCall) -> JoinGroupResponse | None:
        """Lets the group decide about a member.

        Refused here are empty names, other brokers' groups, sessions outside of the brokers' bounds, and a
        member id of a group that isn't there.
        """
        request: JoinGroupRequest = call.request
        settings = self._state.settings
        try:
            self._check_group_id(request.group_id)
            self.check_coordinator(call, request.group_id)
            shortest, longest = settings.group_min_session_timeout_ms, settings.group_max_session_timeout_ms
            if not shortest <= request.session_timeout_ms <= longest:
                raise Refused(errors.InvalidSessionTimeoutError)
            if request.member_id and request.group_id not in self.groups:
                raise Refused(errors.UnknownMemberIdError)
            self.create(request.group_id).join(call)
        except Refused as refused:
            full = refused.code == errors.GroupMaxSizeReachedError.code
            return join_error(call, refused.code, "" if full else request.member_id)
        return None

    def _sync(self, call: BrokerCall) -> SyncGroupResponse | None:
        """Lets the group answer now or later.

        From version 5 on the member names the protocol that it was told (KIP-559).
        """
        request: SyncGroupRequest = call.request
        try:
            if call.version >= 5 and (request.protocol_type is None or request.protocol_name is None):
                raise Refused(errors.InconsistentGroupProtocolError)
            self._group(call, request.group_id).sync(call)
        except Refused as refused:
            return SyncGroupResponse(error_code=refused.code)
        return None

    def _heartbeat(self, call: BrokerCall) -> HeartbeatResponse:
        """Answers at once: the code says whether the group rebalances, and so has the member join again."""
        request: HeartbeatRequest = call.request
        try:
            group = self._group(call, request.group_id)
            code = group.heartbeat(request.member_id, request.group_instance_id, request.generation_id)
        except Refused as refused:
            code = refused.code
        return HeartbeatResponse(error_code=code)

    def _leave(self, call: BrokerCall) -> LeaveGroupResponse:
        """Removes members: one before version 3, several from then on, each with its own error (KIP-345).

        Of a group that isn't there each is unknown.
        """
        request: LeaveGroupRequest = call.request
        members = request.members if call.version >= 3 else [MemberIdentity(request.member_id)]
        try:
            self._check_group_id(request.group_id)
            self.check_coordinator(call, request.group_id)
        except Refused as refused:
            return LeaveGroupResponse(error_code=refused.code)
        group = self.groups.get(request.group_id)
        unknown = errors.UnknownMemberIdError.code
        codes = group.leave(members) if group is not None else [unknown] * len(members)
        if call.version < 3:
            return LeaveGroupResponse(error_code=codes[0])
        return LeaveGroupResponse(
            members=[
                MemberResponse(member.member_id, member.group_instance_id, code)
                for member, code in zip(members, codes, strict=True)
            ]
        )

    def _group(self, call: BrokerCall, group_id: str) -> ClassicGroup:
        """Returns the group that a member's request is about.

        Raises `Refused` where this isn't its coordinator, or where there is no such group.
        """
        self._check_group_id(group_id)
        self.check_coordinator(call, group_id)
        group = self.groups.get(group_id)
        if group is None:
            raise Refused(errors.UnknownMemberIdError)
        return group

    def _check_group_id(self, group_id: str) -> None:
        if not group_id:
            raise Refused(errors.InvalidGroupIdError)

    # ---------------------------------------------------------------- administration

    def _list(self, call: BrokerCall) -> ListGroupsResponse:
        """Lists the groups that this broker coordinates, by states (KIP-518) and types (KIP-848) where the
        client names some. All are classic.
        """
        request: ListGroupsRequest = call.request
        states = {state.lower() for state in request.states_filter}
        types = {kind.lower() for kind in request.types_filter}
        listed = [
            ListedGroup(group_id, group.members.protocol_type or "", group.state, "classic")
            for group_id, group in self.groups.items()
            if self._state.offsets_topic.leader_of(group_id) == call.node_id
            and (not states or group.state.lower() in states)
            and (not types or "classic" in types)
        ]
        return ListGroupsResponse(groups=listed)

    def _describe(self, call: BrokerCall) -> DescribeGroupsResponse:
        request: DescribeGroupsRequest = call.request
        found = [self._described(call, group_id) for group_id in request.groups]
        return DescribeGroupsResponse(groups=found)

    def _described(self, call: BrokerCall, group_id: str) -> DescribedGroup:
        """Describes one group.

        Members have their metadata and assignments only while the group is stable; in between the broker has
        none that hold.
        """
        try:
            self.check_coordinator(call, group_id)
        except Refused as refused:
            return DescribedGroup(error_code=refused.code, group_id=group_id)
        allowed = GROUP_OPERATIONS if self._state.release >= (4, 0) else _GROUP_OPERATIONS_BEFORE_4
        operations = allowed if call.request.include_authorized_operations else -0x80000000
        group = self.groups.get(group_id)
        if group is None:
            return DescribedGroup(
                error_code=errors.GroupIdNotFoundError.code if call.version >= 6 else 0,
                error_message=f"Group {group_id} not found." if call.version >= 6 else None,
                group_id=group_id,
                group_state="Dead",
                authorized_operations=operations if call.version < 6 else -0x80000000,
            )
        stable = group.state == STABLE
        protocol = group.members.protocol or ""
        return DescribedGroup(
            group_id=group_id,
            group_state=group.state,
            protocol_type=group.members.protocol_type or "",
            protocol_data=protocol if stable else "",
            members=[
                DescribedGroupMember(
                    m.member_id,
                    m.instance_id,
                    m.client_id,
                    m.client_host,
                    m.metadata(protocol) if stable else b"",
                    m.assignment,
                )
                for m in group.members
            ],
            authorized_operations=operations,
        )

    def _delete(self, call: BrokerCall) -> DeleteGroupsResponse:
        """Deletes groups that are empty (KIP-229), each with its own error."""
        request: DeleteGroupsRequest = call.request
        results = []
        for group_id in dict.fromkeys(request.groups_names):
            code = 0
            try:
                self.check_coordinator(call, group_id)
                self._forget(group_id)
            except Refused as refused:
                code = refused.code
            results.append(DeletableGroupResult(group_id, code))
        return DeleteGroupsResponse(results=results)

    def _forget(self, group_id: str) -> None:
        """Deletes one group. Raises `Refused` for one that has members or isn't there."""
        group = self.groups.get(group_id)
        if group is None:
            raise Refused(errors.GroupIdNotFoundError)
        if group.state != EMPTY:
            raise Refused(errors.NonEmptyGroupError)
        self.drop(group_id)

    def drop(self, group_id: str) -> None:
        """Forgets an empty group with its offsets."""
        self.groups.pop(group_id).stop()
        self._coordinators.pop(group_id, None)
        self.on_delete(group_id)
