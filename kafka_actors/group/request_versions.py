"""Requests whose shape changed over the versions: sent as the broker at hand understands them.

Machines make the newest shape. Which version applies shows when the request is encoded, which fails, with
nothing sent, where a version lacks a field; then the next older shape is tried.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

from msgspec.structs import replace

from kafka_actors.errors import EncodeError
from kafka_actors.protocol import FindCoordinatorRequest, LeaveGroupRequest, OffsetFetchRequest
from kafka_actors.protocol.messages.offset_fetch import OffsetFetchRequestTopic


def shapes(request: Any) -> list[Any]:
    """Returns the request and its older shapes, newest first.

    A request about several groups has no older shape: those before are about one.
    """
    if isinstance(request, FindCoordinatorRequest) and len(request.coordinator_keys) == 1:
        return [request, FindCoordinatorRequest(key=request.coordinator_keys[0], key_type=request.key_type)]
    if isinstance(request, LeaveGroupRequest) and len(request.members) == 1:
        old = LeaveGroupRequest(group_id=request.group_id, member_id=request.members[0].member_id)
        return [request, old]
    if isinstance(request, OffsetFetchRequest) and len(request.groups) == 1:
        return [request, *_older_offset_fetch(request)]
    return [request]


def _older_offset_fetch(request: OffsetFetchRequest) -> list[OffsetFetchRequest]:
    group = request.groups[0]
    topics = None
    if group.topics is not None:
        topics = [
            OffsetFetchRequestTopic(name=t.name, partition_indexes=t.partition_indexes) for t in group.topics
        ]
    before_8 = OffsetFetchRequest(
        group_id=group.group_id, topics=topics, require_stable=request.require_stable
    )
    # A broker before 2.5 knows no pending transactions here; what it answers is stable or nothing.
    before_7 = [replace(before_8, require_stable=False)] if request.require_stable else []
    return [before_8, *before_7]


async def send_in_some_shape(send: Callable[[Any], Awaitable[Any]], request: Any) -> Any:
    """Returns the response to the newest shape that can be encoded. Raises what `send` raises for the last one tried."""
    *newer, oldest = shapes(request)
    for shape in newer:
        try:
            return await send(shape)
        except EncodeError:
            continue
    return await send(oldest)
