"""Requests in the shape that a version has."""

from __future__ import annotations

import asyncio

import pytest

from kafka_actors.coordinator.machines.offsets import offset_fetch_request, read_offset_fetch
from kafka_actors.coordinator.wire import send_in_some_shape, shapes
from kafka_actors.errors import EncodeError
from kafka_actors.protocol import (
    FindCoordinatorRequest,
    HeartbeatRequest,
    LeaveGroupRequest,
    OffsetFetchResponse,
    encode,
)
from kafka_actors.protocol.messages.leave_group import MemberIdentity
from kafka_actors.protocol.messages.offset_fetch import OffsetFetchResponsePartition, OffsetFetchResponseTopic
from kafka_actors.protocol.types import TopicPartition

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
        OffsetFetchResponse(topics=[OffsetFetchResponseTopic(name="t", partitions=partitions)])
    )
    assert read.offsets == {tp: (5, "", 2), gone: None}
    assert {tp: e.code for tp, e in read.errors.items()} == {bad: 88}
    assert read_offset_fetch(OffsetFetchResponse(error_code=16)).error.code == 16
