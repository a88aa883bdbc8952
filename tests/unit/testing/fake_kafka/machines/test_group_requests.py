"""Coordinators, and groups' administration."""

from __future__ import annotations

from typing import Any

from fakes.fake_members import RawMember, stable_group
from fakes.fake_wire import Wire

from kafka_actors import errors
from kafka_actors.protocol import (
    DeleteGroupsRequest,
    DescribeGroupsRequest,
    FindCoordinatorRequest,
    HeartbeatRequest,
    JoinGroupRequest,
    LeaveGroupRequest,
    ListGroupsRequest,
    SyncGroupRequest,
)
from kafka_actors.protocol.messages.join_group import JoinGroupRequestProtocol


def test_coordinators_are_found_in_all_versions() -> None:
    wire = Wire(3)
    coordinator = wire.state.offsets_topic.leader_of("g")
    old = wire.ask(FindCoordinatorRequest(key="g"), 2)
    assert (old.error_code, old.node_id, old.port) == (0, coordinator, 9000 + coordinator)
    (new,) = wire.ask(FindCoordinatorRequest(coordinator_keys=["g"]), 4).coordinators
    assert (new.key, new.node_id) == ("g", coordinator)
    wire.state.transactions_topic.move("x", 2)
    transactions = wire.ask(FindCoordinatorRequest(key_type=1, coordinator_keys=["x"]), 4)
    assert transactions.coordinators[0].node_id == 2
    shares = wire.ask(FindCoordinatorRequest(key_type=2, coordinator_keys=["x"]), 4)
    assert shares.coordinators[0].error_code == errors.InvalidRequestError.code
    wire.state.offsets_topic.move("g", -1)
    assert wire.ask(FindCoordinatorRequest(key="g"), 2).error_code == errors.CoordinatorNotAvailableError.code


def test_another_broker_than_the_coordinator_says_so() -> None:
    wire = Wire(2)
    wire.state.offsets_topic.move("g", 2)
    join = JoinGroupRequest(
        "g", 10_000, 10_000, protocol_type="consumer", protocols=[JoinGroupRequestProtocol("range", b"")]
    )
    requests: list[tuple[Any, int]] = [
        (join, 5),
        (SyncGroupRequest("g", 1, "m"), 3),
        (HeartbeatRequest("g", 1, "m"), 3),
        (LeaveGroupRequest("g", "m"), 2),
    ]
    for request, version in requests:
        assert wire.ask(request, version).error_code == errors.NotCoordinatorError.code
    assert wire.ask(DescribeGroupsRequest(["g"]), 4).groups[0].error_code == 16
    assert wire.ask(DeleteGroupsRequest(["g"]), 2).results[0].error_code == 16


def test_what_no_group_knows() -> None:
    wire = Wire()
    assert wire.ask(HeartbeatRequest("g", 1, "m"), 4).error_code == 25
    assert wire.ask(HeartbeatRequest("", 1, "m"), 4).error_code == errors.InvalidGroupIdError.code
    assert wire.ask(SyncGroupRequest("g", 1, "m"), 4).error_code == 25
    assert wire.ask(LeaveGroupRequest("g", "m"), 2).error_code == 25
    assert wire.ask(SyncGroupRequest("g", 1, "m"), 5).error_code == 23, "version 5 has to name the protocol"
    short = JoinGroupRequest("g", 10, 10, protocol_type="consumer")
    assert wire.ask(short, 5).error_code == errors.InvalidSessionTimeoutError.code
    stranger = JoinGroupRequest("g", 10_000, 10, member_id="m", protocol_type="consumer")
    assert wire.ask(stranger, 5).error_code == 25


def test_groups_are_listed_by_state_and_described() -> None:
    wire = Wire()
    one, two = stable_group(wire, RawMember(wire, "one"), RawMember(wire, "two", instance="i"))
    (listed,) = wire.ask(ListGroupsRequest(["Stable"], ["classic"]), 5).groups
    assert (listed.group_id, listed.protocol_type, listed.group_state, listed.group_type) == (
        "g",
        "consumer",
        "Stable",
        "classic",
    )
    assert wire.ask(ListGroupsRequest(["empty"]), 4).groups == []
    assert wire.ask(ListGroupsRequest([], ["consumer"]), 5).groups == []
    (group,) = wire.ask(DescribeGroupsRequest(["g"], True), 5).groups
    assert (group.group_state, group.protocol_data, group.authorized_operations) == ("Stable", "range", 3400)
    assert {(m.client_id, m.group_instance_id, m.member_assignment) for m in group.members} == {
        ("one", None, b"one"),
        ("two", "i", b"two"),
    }
    assert all(m.member_metadata for m in group.members)
    two.leave()
    (group,) = wire.ask(DescribeGroupsRequest(["g"]), 5).groups
    assert (group.group_state, group.protocol_data, len(group.members)) == ("PreparingRebalance", "", 1)
    assert one.heartbeat() == 27


def test_a_group_that_is_not_there_is_dead_and_from_version_6_on_an_error() -> None:
    wire = Wire()
    assert wire.ask(DescribeGroupsRequest(["none"]), 5).groups[0].group_state == "Dead"
    (group,) = wire.ask(DescribeGroupsRequest(["none"]), 6).groups
    assert group.error_code == errors.GroupIdNotFoundError.code


def test_only_empty_groups_are_deleted() -> None:
    wire = Wire()
    (one,) = stable_group(wire, RawMember(wire, "one"))

    def delete(group: str = "g") -> int:
        code: int = wire.ask(DeleteGroupsRequest([group]), 2).results[0].error_code
        return code

    assert delete() == errors.NonEmptyGroupError.code
    one.leave()
    assert delete() == 0
    assert delete() == errors.GroupIdNotFoundError.code
