"""A group's commits on one broker as they are on the wire, with their metadata: confluent-kafka reads it beyond its end."""

from __future__ import annotations

import asyncio
from functools import partial
from typing import Any

from waiting import slow_s

from kafka_actors.config import ConsumerConfig, build
from kafka_actors.group import fetch_offsets_of_groups
from kafka_actors.group.coordinator_channels import send_in_some_shape
from kafka_actors.net import KafkaClient
from kafka_actors.protocol import FindCoordinatorRequest, OffsetCommitRequest
from kafka_actors.protocol.messages.offset_commit import (
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from kafka_actors.types import TopicPartition


def committed_by(servers: str, group: str, topic: str, partitions: int) -> dict[int, tuple[int, str]]:
    """Offset and metadata of each partition that has any."""

    async def fetch(client: KafkaClient, node: int) -> dict[int, tuple[int, str]]:
        wanted = [TopicPartition(topic, p) for p in range(partitions)]
        found = (await fetch_offsets_of_groups(partial(client.send, node), {group: wanted}))[group]
        assert found.error is None, found.error
        return {tp.partition: at[:2] for tp, at in found.offsets.items() if at is not None}

    return asyncio.run(_with_client(servers, fetch))


def commit(servers: str, group: str, topic: str, partitions: int, offset: int, metadata: str) -> None:
    """Commits for a group without members: as another client, or what reaches the coordinator late."""
    made = [
        OffsetCommitRequestPartition(partition_index=p, committed_offset=offset, committed_metadata=metadata)
        for p in range(partitions)
    ]
    request = OffsetCommitRequest(
        group_id=group, topics=[OffsetCommitRequestTopic(name=topic, partitions=made)]
    )

    async def send(client: KafkaClient, node: int) -> None:
        async with asyncio.timeout(slow_s(30)):
            while True:
                # The broker makes the topic of commits when it is first asked for a coordinator.
                await send_in_some_shape(
                    partial(client.send, node), FindCoordinatorRequest(coordinator_keys=[group])
                )
                response = await client.send(node, request)
                if not any(p.error_code for t in response.topics for p in t.partitions):
                    return
                await asyncio.sleep(0.1)

    asyncio.run(_with_client(servers, send))


async def _with_client(servers: str, work: Any) -> Any:
    client = KafkaClient(build(ConsumerConfig, bootstrap_servers=servers))
    await client.bootstrap()
    try:
        node = client.least_loaded_node()
        assert node is not None
        return await work(client, node)
    finally:
        await client.close()
