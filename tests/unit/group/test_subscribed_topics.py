"""Metadata from which a leader assigns: it is waited for, and no change is missed meanwhile."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from types import SimpleNamespace
from typing import Any
from uuid import UUID

import pytest
from fakes.loop import in_loop, turns

import assignors
from kafka_actors.cluster import ClusterMetadata, ClusterSnapshot, SubscriptionState
from kafka_actors.group.machines.assignment import decode_assignment, encode_subscription
from kafka_actors.group.machines.member_events import Generation, Partitions
from kafka_actors.group.machines.ownership import Ownership
from kafka_actors.group.subscribed_topics import SubscribedTopics
from kafka_actors.protocol.messages.join_group import JoinGroupResponseMember
from kafka_actors.protocol.messages.metadata import (
    MetadataResponse,
    MetadataResponseBroker,
    MetadataResponsePartition,
    MetadataResponseTopic,
)
from kafka_actors.types import TopicPartition


def answer(missing: Mapping[str, int], topics: Mapping[str, int], life: bytes = b"") -> MetadataResponse:
    there = [
        MetadataResponseTopic(
            name=name,
            topic_id=UUID(bytes=(life or name.encode()) * 16),
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

    def learn(self, *, missing: Mapping[str, int] | None = None, life: bytes = b"", **topics: int) -> None:
        """Takes in the answer to a Metadata request that is sent now. `life`: a byte that topics have in their ids, instead of their names."""
        self.cluster.update_started()
        self.cluster.update_metadata(answer(missing or {}, topics, life))


class Leader:
    def __init__(self, *topics: str, assignor: Any = None, starts_over: bool = False) -> None:
        self.client = Client()
        self.reasons: list[str] = []
        self.assignor = assignor or assignors.get("cooperative-sticky")
        self.started_over: list[Any] = []
        self.recreated: list[Any] = []
        self.commits: Callable[[Partitions], Partitions] = lambda owned: owned
        machine = SimpleNamespace(start_over=lambda partitions, reason: self.started_over.append(partitions))
        driver: Any = SimpleNamespace(
            group_id="g", request_rejoin=self.reasons.append, wake=lambda: None, machine=machine
        )
        subscription = SubscriptionState()
        subscription.subscribe(list(topics))
        self.ownership = Ownership([self.assignor])
        self.topics = SubscribedTopics(
            driver,
            self.client,
            subscription,
            self.ownership,
            lambda: self.commits(self.ownership.owned() | self.ownership.releasing),
            self.recreated.append,
            lambda _: None,
            starts_over=starts_over,
        )
        metadata = encode_subscription(self.assignor, topics, frozenset(), -1, frozenset(), None)
        self.members = [JoinGroupResponseMember(member_id="m", metadata=metadata)]
        self.ownership.on_joined(Generation(1, "m"), True, tuple(self.members))

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
async def test_a_leader_that_gets_no_thread_assigns_all_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    def refused(*_: Any) -> None:
        raise RuntimeError("can't start new thread")

    leader = Leader("t")
    leader.client.learn(t=2)
    monkeypatch.setattr(asyncio.get_running_loop(), "run_in_executor", refused)
    assert await leader.assigned() == {("t", 0), ("t", 1)}


@pytest.mark.parametrize("then", ["follows", "joins", "lost"])
@in_loop
async def test_a_computation_that_ends_after_its_generation_has_nothing_watched(then: str) -> None:
    """The group would rebalance for topics of members of before."""
    leader = Leader("t")
    other = encode_subscription(leader.assignor, ["u"], frozenset(), -1, frozenset(), None)
    leader.members.append(JoinGroupResponseMember(member_id="o", metadata=other))
    leader.ownership.on_joined(Generation(1, "m"), True, tuple(leader.members))
    leader.client.learn(t=2, u=2)
    leader.topics.follow()
    computing = asyncio.ensure_future(leader.assigned())
    await turns(1)
    if then == "lost":
        leader.ownership.lose()
    else:
        leader.ownership.protocols()
    if then == "follows":
        leader.ownership.on_joined(Generation(2, "m"), False, ())
    await computing
    leader.client.learn(t=2, u=3)
    assert not leader.ownership.watching
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


@in_loop
async def test_topics_of_others_are_tracked_all_at_once() -> None:
    """One after the other each would have all that are tracked so far checked again: of 5,000 topics 16 seconds, without a heartbeat."""
    leader, added = Leader("t", "x", "y"), []

    def add_topic(*topics: str) -> Any:
        added.append(set(topics))
        return leader.client.cluster.request_update()

    leader.client.add_topic = add_topic  # type: ignore[attr-defined]
    leader.client.learn(t=1)
    assigned = asyncio.ensure_future(leader.assigned())
    await turns(5)
    assert added == [{"x", "y"}]
    leader.client.learn(t=1, x=1, y=1)
    assert await assigned == {("t", 0), ("x", 0), ("y", 0)}


@in_loop
async def test_racks_of_members_count_though_the_leader_names_none() -> None:
    """KIP-881: the brokers say where replicas are, so the leader's own rack plays no part."""
    leader = Leader("t", assignor=assignors.get("range"))
    leader.client.cluster.update_started()
    leader.client.cluster.update_metadata(
        MetadataResponse(
            brokers=[MetadataResponseBroker(node_id=n, host="h", port=n, rack=f"r{n}") for n in (1, 2)],
            topics=[
                MetadataResponseTopic(
                    name="t",
                    topic_id=UUID(bytes=b"t" * 16),
                    partitions=[
                        MetadataResponsePartition(partition_index=p, leader_id=2 - p, replica_nodes=[2 - p])
                        for p in (0, 1)
                    ],
                )
            ],
        )
    )
    leader.topics.follow()
    leader.members = [
        JoinGroupResponseMember(
            member_id=member,
            metadata=encode_subscription(leader.assignor, ["t"], frozenset(), -1, frozenset(), rack),
        )
        for member, rack in (("a", "r1"), ("b", "r2"))
    ]
    parts = await leader.topics.perform_assignment("range", leader.members)
    found = {member: set(decode_assignment(part)) for member, part in parts.items()}
    assert found == {"a": {("t", 1)}, "b": {("t", 0)}}


@pytest.mark.parametrize("error", [3, 29])
@in_loop
async def test_a_topic_that_is_known_to_be_missing_is_not_waited_for(error: int) -> None:
    leader = Leader("t", "u")
    leader.client.learn(t=1, missing={"u": error})
    leader.topics.follow()
    assert await leader.assigned() == {("t", 0)}


@pytest.mark.parametrize("starts_over", [True, False])
@in_loop
async def test_who_reads_by_the_ids_of_topics_loses_nothing_where_one_is_made_anew(starts_over: bool) -> None:
    """A job's workers have heard of it before, or will: what they have done in the new one would be done again."""
    leader = Leader("t", starts_over=starts_over)
    leader.client.learn(t=2)
    leader.topics.follow()
    leader.ownership._owned = owned = frozenset([TopicPartition("t", 0), TopicPartition("t", 1)])
    leader.client.learn(t=2, life=b"1")
    leader.client.learn(t=2, life=b"2")
    assert leader.recreated == [owned], "commits of the topic of before are dropped in any case"
    assert leader.started_over == ([owned] if starts_over else [])


@in_loop
async def test_a_topic_that_is_made_anew_is_noticed_where_a_partition_of_it_is_committed_that_another_member_owns() -> (
    None
):
    leader, other = Leader("t"), TopicPartition("u", 0)
    leader.commits = lambda owned: owned | {other}
    leader.client.learn(t=1, u=1)
    leader.topics.follow()
    leader.ownership._owned = frozenset([TopicPartition("t", 0)])
    leader.client.learn(t=1, u=1)
    leader.client.learn(t=1, u=1, life=b"2")
    assert leader.recreated == [{TopicPartition("t", 0), other}]
