"""Metadata from which a leader assigns: it is waited for, and no change is missed meanwhile."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from types import SimpleNamespace
from typing import Any
from uuid import UUID

import pytest
from fakes.loop import in_loop, turns

import assignors
from kafka_actors.cluster import ClusterMetadata, ClusterSnapshot, SubscriptionState
from kafka_actors.config import ConsumerConfig, build
from kafka_actors.group.machines.assignment import decode_assignment, encode_subscription
from kafka_actors.group.machines.ownership import Ownership
from kafka_actors.group.subscribed_topics import SubscribedTopics
from kafka_actors.protocol.messages.join_group import JoinGroupResponseMember
from kafka_actors.protocol.messages.metadata import (
    MetadataResponse,
    MetadataResponseBroker,
    MetadataResponsePartition,
    MetadataResponseTopic,
)


def answer(missing: Mapping[str, int], topics: Mapping[str, int]) -> MetadataResponse:
    there = [
        MetadataResponseTopic(
            name=name,
            topic_id=UUID(bytes=name.encode() * 16),
            partitions=[MetadataResponsePartition(partition_index=p, leader_id=1) for p in range(count)],
        )
        for name, count in topics.items()
    ]
    refused = [MetadataResponseTopic(name=name, error_code=code) for name, code in missing.items()]
    return MetadataResponse(
        brokers=[MetadataResponseBroker(node_id=1, host="h", port=1)], topics=[*there, *refused]
    )


class Client:
    """A client that tracks the topics `t` and `u` and whose metadata is what `learn` was called with."""

    def __init__(self) -> None:
        self.cluster = ClusterMetadata(bootstrap_servers=["h:1"])

    @property
    def snapshot(self) -> ClusterSnapshot:
        return self.cluster.snapshot()

    def tracks(self, topic: str) -> bool:
        return topic in ("t", "u")

    def learn(self, *, missing: Mapping[str, int] | None = None, **topics: int) -> None:
        """Takes in the answer to a Metadata request that is sent now."""
        self.cluster.update_started()
        self.cluster.update_metadata(answer(missing or {}, topics))


class Leader:
    def __init__(self, *topics: str, assignor: Any = None) -> None:
        self.client = Client()
        self.reasons: list[str] = []
        self.assignor = assignor or assignors.get("cooperative-sticky")
        driver: Any = SimpleNamespace(group_id="g", request_rejoin=self.reasons.append, wake=lambda: None)
        subscription = SubscriptionState()
        subscription.subscribe(list(topics))
        self.ownership = Ownership([self.assignor])
        config = build(ConsumerConfig, {"group_id": "g"})
        self.topics = SubscribedTopics(
            driver, self.client, subscription, self.ownership, config, lambda _: None, lambda _: None
        )
        metadata = encode_subscription(self.assignor, topics, frozenset(), -1, frozenset(), None)
        self.members = [JoinGroupResponseMember(member_id="m", metadata=metadata)]

    async def assigned(self) -> set[tuple[str, int]]:
        parts = await self.topics.perform_assignment(self.assignor.name, self.members)
        return set(decode_assignment(parts["m"]))


@in_loop
async def test_a_partition_that_appears_while_the_assignor_computes_is_assigned_by_another_rebalance() -> (
    None
):
    leader = Leader("t")
    loop = asyncio.get_running_loop()
    assign = leader.assignor.assign

    class Slow:
        name, protocol = leader.assignor.name, leader.assignor.protocol

        def assign(self, *args: Any, **named: Any) -> Any:
            learned = asyncio.run_coroutine_threadsafe(self.learn(), loop)  # the answer comes in just now
            learned.result()
            return assign(*args, **named)

        async def learn(self) -> None:
            leader.client.learn(t=2)

    leader.client.learn(t=1)
    leader.topics.follow()
    leader.ownership.assignors = [Slow()]  # type: ignore[list-item]
    assert await leader.assigned() == {("t", 0)}
    assert leader.reasons == ["partitions of subscribed topics have changed"]


@in_loop
async def test_what_did_not_change_needs_no_other_rebalance() -> None:
    leader = Leader("t")
    leader.client.learn(t=2)
    leader.topics.follow()
    assert await leader.assigned() == {("t", 0), ("t", 1)}
    assert leader.reasons == []


@in_loop
async def test_metadata_that_is_on_its_way_is_waited_for() -> None:
    """A topic that was just subscribed to is tracked, but its partitions aren't known yet."""
    leader = Leader("t", "u")
    leader.client.learn(t=1)
    leader.topics.follow()
    assigned = asyncio.ensure_future(leader.assigned())
    await turns(5)
    assert not assigned.done()
    leader.client.learn(t=1, u=1)
    assert await assigned == {("t", 0), ("u", 0)}
    assert leader.reasons == []


@pytest.mark.parametrize("error", [3, 29])
@in_loop
async def test_a_topic_that_is_known_to_be_missing_is_not_waited_for(error: int) -> None:
    leader = Leader("t", "u")
    leader.client.learn(t=1, missing={"u": error})
    leader.topics.follow()
    assert await leader.assigned() == {("t", 0)}
