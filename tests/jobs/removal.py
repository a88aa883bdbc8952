"""Removal of members from a group by an administrator, as Java's `Admin.removeMembersFromConsumerGroup` does it."""

from __future__ import annotations

import asyncio

from kafka_actors.admin.requests import CallDeadline, Coordinators, ask_node
from kafka_actors.cluster.snapshot import BrokerMetadata
from kafka_actors.net import KafkaClient
from kafka_actors.protocol import LeaveGroupRequest, LeaveGroupResponse
from kafka_actors.protocol.messages.leave_group import MemberIdentity

__all__ = ["remove_member"]


def remove_member(servers: str, group: str, group_instance_id: str) -> None:
    """The broker lets a static member leave that knows nothing of it."""
    answer = asyncio.run(_removed(servers, group, group_instance_id))
    assert [answer.error_code, *(member.error_code for member in answer.members)] == [0, 0]


async def _removed(servers: str, group: str, group_instance_id: str) -> LeaveGroupResponse:
    async with KafkaClient(bootstrap_servers=servers) as client:

        async def ask(
            node: BrokerMetadata, groups: list[str], limit_ms: float
        ) -> dict[str, LeaveGroupResponse]:
            member = MemberIdentity(group_instance_id=group_instance_id, reason="removed in a test")
            request = LeaveGroupRequest(group_id=group, members=[member])
            return {group: await ask_node(client, node.node_id, request, limit_ms)}

        answer = (await Coordinators(client).ask([group], ask, CallDeadline(client)))[group]
        if isinstance(answer, Exception):
            raise answer
        return answer
