"""Requests in the shape that a version has."""

from __future__ import annotations

import asyncio

import pytest

from kafka_actors.errors import EncodeError
from kafka_actors.group import fetch_offsets_of_groups
from kafka_actors.group.coordinator_channels import send_in_some_shape, shapes
from kafka_actors.group.machines.offset_fetch import offset_fetch_request, read_offset_fetch
from kafka_actors.protocol import (
    FindCoordinatorRequest,
    HeartbeatRequest,
    LeaveGroupRequest,
    OffsetFetchResponse,
    encode,
)
from kafka_actors.protocol.messages.leave_group import MemberIdentity
from kafka_actors.protocol.messages.offset_fetch import (
    OffsetFetchResponseGroup,
    OffsetFetchResponsePartition,
    OffsetFetchResponsePartitions,
    OffsetFetchResponseTopic,
    OffsetFetchResponseTopics,
)
from kafka_actors.types import TopicPartition

REQUESTS = [
    FindCoordinatorRequest(coordinator_keys=["g"]),
    LeaveGroupRequest(group_id="g", members=[MemberIdentity(member_id="m", reason="bye")]),
    offset_fetch_request("g", [TopicPartition("t", 1)], require_stable=True),
    offset_fetch_request("g", [TopicPartition("t", 1)], require_stable=False),
    HeartbeatRequest(group_id="g"),
]


@pytest.mark.parametrize("request_", REQUESTS, ids=lambda r: type(r).__name__)
def test_every_version_can_carry_some_shape_and_the_newest_carries_the_newest(request_):
    assert encode(request_, type(request_).latest)

    async def ask(version: int) -> bytes:
        async def send(shape):
            return encode(shape, version)

        return await send_in_some_shape(send, request_)

    for version in range(type(request_).min_version, type(request_).latest + 1):
        assert asyncio.run(ask(version))


def test_what_no_shape_can_carry_raises():
    static = LeaveGroupRequest(group_id="g" * 70_000, members=[MemberIdentity(member_id="m")])

    async def send(shape):
        return encode(shape, 2)

    with pytest.raises(EncodeError):
        asyncio.run(send_in_some_shape(send, static))
    assert len(shapes(static)) == 2


def test_offset_fetch_answers_of_old_versions_are_read_as_well():
    tp, gone, bad = (TopicPartition("t", p) for p in (0, 1, 2))
    partitions = [
        OffsetFetchResponsePartition(
            partition_index=0, committed_offset=5, committed_leader_epoch=2, metadata=None
        ),
        OffsetFetchResponsePartition(partition_index=1, committed_offset=-1),
        OffsetFetchResponsePartition(partition_index=2, committed_offset=-1, error_code=88),
    ]
    read = read_offset_fetch(
        OffsetFetchResponse(topics=[OffsetFetchResponseTopic(name="t", partitions=partitions)]), "g"
    )
    assert read.offsets == {tp: (5, "", 2), gone: None}
    assert {tp: e.code for tp, e in read.errors.items()} == {bad: 88}
    assert read_offset_fetch(OffsetFetchResponse(error_code=16), "g").error.code == 16


OLD = [
    OffsetFetchResponseTopic(
        name="t", partitions=[OffsetFetchResponsePartition(partition_index=1, committed_offset=7)]
    )
]
NEW = OffsetFetchResponseGroup(
    "one",
    topics=[
        OffsetFetchResponseTopics(
            name="t", partitions=[OffsetFetchResponsePartitions(partition_index=1, committed_offset=7)]
        )
    ],
)
GROUPS = {"one": [TopicPartition("t", 1)], "two": None}


@pytest.mark.parametrize(("version", "requests"), [(9, 1), (8, 1), (7, 2), (2, 2)])
def test_offsets_of_many_groups_are_asked_for_at_once_where_the_broker_can(version, requests):
    sent = []

    async def send(request):
        encode(request, version)
        sent.append(request)
        if version < 8:
            code = 30 if request.group_id == "two" else 0
            return OffsetFetchResponse(topics=[] if code else OLD, error_code=code)
        return OffsetFetchResponse(groups=[NEW, OffsetFetchResponseGroup("two", error_code=30)])

    found = asyncio.run(fetch_offsets_of_groups(send, GROUPS))
    assert len(sent) == requests
    assert found["one"].offsets == {TopicPartition("t", 1): (7, "", -1)}
    assert found["two"].error.code == 30
    asked = [g for r in sent for g in (r.groups or [r])]
    assert [g.group_id for g in asked] == ["one", "two"]
    assert [t.partition_indexes for t in asked[0].topics] == [[1]]
    assert asked[1].topics is None  # all


def test_offsets_of_no_group_need_no_request():
    async def send(request):
        raise AssertionError(request)

    assert asyncio.run(fetch_offsets_of_groups(send, {})) == {}


def test_what_is_about_several_groups_has_no_older_shape():
    """An older shape is about one group: the others would be left out without a word."""
    assert len(shapes(FindCoordinatorRequest(coordinator_keys=["a", "b"]))) == 1
    both = [MemberIdentity(member_id="m"), MemberIdentity(member_id="n")]
    assert len(shapes(LeaveGroupRequest(group_id="g", members=both))) == 1
