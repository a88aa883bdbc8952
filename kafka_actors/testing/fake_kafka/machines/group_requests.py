"""Requests of the classic group protocol: finding the coordinator, membership, and groups' administration.

Source: `GroupCoordinatorService`, `KafkaApis`; KIP-345, KIP-394, KIP-518, KIP-699.
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
from .cluster_state import ClusterState
from .error_answers import Refused
from .group_members import join_error

GROUP_OPERATIONS = 3400
"""All operations on a group, as a bit field: brokers without an authorizer allow them."""
_GROUP = 0


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
        if self._state.coordinator(group_id) != call.node_id:
            raise Refused(errors.NotCoordinatorError)

    def coordinators_moved(self) -> None:
        """Has groups begin anew whose coordinator is another broker now."""
        for group_id, group in self.groups.items():
            coordinator = self._state.coordinator(group_id)
            if self._coordinators.get(group_id) != coordinator:
                self._coordinators[group_id] = coordinator
                group.reload()

    def restarted(self, node_id: int) -> None:
        """Has the groups begin anew whose coordinator was restarted."""
        for group_id, coordinator in self._coordinators.items():
            if coordinator == node_id:
                self.groups[group_id].reload()

    def create(self, group_id: str) -> ClassicGroup:
        """Returns a group; a new one where there is none."""
        if group_id not in self.groups:
            self.groups[group_id] = ClassicGroup(self._state)
            self._coordinators[group_id] = self._state.coordinator(group_id)
        return self.groups[group_id]

    def _find_coordinator(self, call: BrokerCall) -> FindCoordinatorResponse:
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
        node = self._state.nodes.get(self._state.coordinator(key))
        error: type[errors.KafkaError] | None = None
        if key_type != _GROUP:  # there are neither transactions nor share groups
            error = errors.InvalidRequestError if key_type > 1 else errors.UnsupportedVersionError
        elif node is None:
            error = errors.CoordinatorNotAvailableError
        if error is not None or node is None:
            return Coordinator(key, -1, "", -1, error.code if error else 0)
        return Coordinator(key, node.node_id, node.host, node.port)

    # ---------------------------------------------------------------- members

    def _join(self, call: BrokerCall) -> JoinGroupResponse | None:
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
        request: SyncGroupRequest = call.request
        try:
            if call.version >= 5 and (request.protocol_type is None or request.protocol_name is None):
                raise Refused(errors.InconsistentGroupProtocolError)
            self._group(call, request.group_id).sync(call)
        except Refused as refused:
            return SyncGroupResponse(error_code=refused.code)
        return None

    def _heartbeat(self, call: BrokerCall) -> HeartbeatResponse:
        request: HeartbeatRequest = call.request
        try:
            group = self._group(call, request.group_id)
            code = group.heartbeat(request.member_id, request.group_instance_id, request.generation_id)
        except Refused as refused:
            code = refused.code
        return HeartbeatResponse(error_code=code)

    def _leave(self, call: BrokerCall) -> LeaveGroupResponse:
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
        request: ListGroupsRequest = call.request
        states = {state.lower() for state in request.states_filter}
        types = {kind.lower() for kind in request.types_filter}
        listed = [
            ListedGroup(group_id, group.members.protocol_type or "", group.state, "classic")
            for group_id, group in self.groups.items()
            if self._state.coordinator(group_id) == call.node_id
            and (not states or group.state.lower() in states)
            and (not types or "classic" in types)
        ]
        return ListGroupsResponse(groups=listed)

    def _describe(self, call: BrokerCall) -> DescribeGroupsResponse:
        request: DescribeGroupsRequest = call.request
        found = [self._described(call, group_id) for group_id in request.groups]
        return DescribeGroupsResponse(groups=found)

    def _described(self, call: BrokerCall, group_id: str) -> DescribedGroup:
        try:
            self.check_coordinator(call, group_id)
        except Refused as refused:
            return DescribedGroup(error_code=refused.code, group_id=group_id)
        operations = GROUP_OPERATIONS if call.request.include_authorized_operations else -0x80000000
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
