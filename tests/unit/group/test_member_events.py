"""Bodies of a member's requests: its identity and times, as Kafka wants them."""

import pytest

from kafka_actors.group.machines.embedded_protocol import GroupConfig
from kafka_actors.group.machines.error_actions import GroupApi
from kafka_actors.group.machines.member_events import (
    MAX_REASON,
    Generation,
    GroupChannel,
    GroupRequest,
    heartbeat_request,
    join_request,
    leave_request,
    sync_request,
)
from kafka_actors.protocol.messages.sync_group import SyncGroupRequestAssignment

CONFIG = GroupConfig("g", "i", session_timeout=4.5, rebalance_timeout=60.0)
GENERATION = Generation(7, "m", "sticky")


def test_a_member_joins_with_its_protocols_in_order_and_times_in_milliseconds():
    request = join_request(CONFIG, Generation(member_id="m"), [("sticky", b"1"), ("range", b"2")], "started")
    assert (request.group_id, request.member_id, request.group_instance_id) == ("g", "m", "i")
    assert (request.session_timeout_ms, request.rebalance_timeout_ms) == (4500, 60_000)
    assert [(p.name, p.metadata) for p in request.protocols] == [("sticky", b"1"), ("range", b"2")]
    assert (request.protocol_type, request.reason) == ("consumer", "started")


def test_a_reason_is_cut_and_an_empty_one_is_none():
    assert join_request(CONFIG, GENERATION, [], "").reason is None
    assert join_request(CONFIG, GENERATION, [], "x" * 300).reason == "x" * MAX_REASON
    (member,) = leave_request(CONFIG, GENERATION, "y" * 300).members
    assert (member.member_id, member.group_instance_id, member.reason) == ("m", "i", "y" * MAX_REASON)


def test_what_concerns_a_generation_names_it():
    heartbeat = heartbeat_request(CONFIG, GENERATION)
    assert (heartbeat.generation_id, heartbeat.member_id, heartbeat.group_instance_id) == (7, "m", "i")
    everybody = (SyncGroupRequestAssignment(member_id="m", assignment=b"a"),)
    sync = sync_request(CONFIG, GENERATION, everybody)
    assert (sync.generation_id, sync.member_id, sync.group_instance_id) == (7, "m", "i")
    assert (sync.protocol_name, sync.assignments) == ("sticky", [everybody[0]])


@pytest.mark.parametrize(
    ("api", "channel"),
    [
        (GroupApi.JOIN, GroupChannel.MAIN),
        (GroupApi.SYNC, GroupChannel.MAIN),
        (GroupApi.HEARTBEAT, GroupChannel.OFFSETS),
        (GroupApi.COMMIT, GroupChannel.OFFSETS),
        (GroupApi.OFFSET_FETCH, GroupChannel.OFFSET_FETCH),
    ],
)
def test_what_waits_long_has_a_connection_of_its_own(api, channel):
    assert GroupRequest(api, None, 1.0, 0.0, GENERATION).channel is channel
