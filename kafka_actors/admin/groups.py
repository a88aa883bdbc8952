"""Requests about groups: all brokers list theirs; coordinators describe, commit for and delete the groups that they have."""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Iterable, Mapping
from functools import partial
from typing import TypeVar

from kafka_actors.cluster.snapshot import BrokerMetadata
from kafka_actors.errors import (
    GroupIdNotFoundError,
    KafkaActorsError,
    NonEmptyGroupError,
    UnknownMemberIdError,
    UnsupportedVersionError,
    error_for_code,
    raise_for_code,
)
from kafka_actors.group import fetch_offsets_of_groups
from kafka_actors.group.commit_metadata import COMMIT_BYTES, at_once, pack
from kafka_actors.group.machines.topic_ids import as_committed, of_this_cluster
from kafka_actors.net import KafkaClient
from kafka_actors.protocol import (
    ConsumerGroupDescribeRequest,
    DeleteGroupsRequest,
    DescribeGroupsRequest,
    ListGroupsRequest,
    OffsetCommitRequest,
    OffsetFetchRequest,
    OffsetFetchResponse,
)
from kafka_actors.protocol.messages.offset_commit import (
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetCommitResponse,
)
from kafka_actors.types import OffsetAndMetadata, TopicPartition

from .machines.answers import classic_group, consumer_group, group_listing, unknown_group
from .requests import CallDeadline, Coordinators, ask_node, fresh_snapshot, persist, raise_first
from .results import GroupDescription, GroupListing

__all__ = ["GroupRequests"]

T = TypeVar("T")
Committed = dict[TopicPartition, OffsetAndMetadata]


class GroupRequests:
    """Requests behind the calls of `AsyncAdmin` about groups; the calls there say what each does."""

    def __init__(self, client: KafkaClient) -> None:
        self._client = client
        self._coordinators = Coordinators(client)

    async def listed(
        self, states: Collection[str], types: Collection[str], deadline: CallDeadline
    ) -> list[GroupListing]:
        snapshot = await persist(self._client, partial(fresh_snapshot, self._client), deadline)
        lists = await asyncio.gather(
            *(self._listed_by(node, bool(states), deadline) for node in snapshot.brokers)
        )
        wanted_states, wanted_types = _lowered(states), _lowered(types)
        found = {group.group_id: group for groups in lists for group in groups}
        return [
            group
            for _, group in sorted(found.items())
            if (not wanted_states or group.state.lower() in wanted_states)
            and (not wanted_types or group.type.lower() in wanted_types)
        ]

    async def _listed_by(self, node_id: int, with_states: bool, deadline: CallDeadline) -> list[GroupListing]:
        async def attempt(limit_ms: float) -> list[GroupListing]:
            response = await self._client.send(
                node_id,
                ListGroupsRequest(),
                timeout_ms=min(limit_ms, self._client.config.request_timeout_ms),
                min_version=4 if with_states else None,
            )
            raise_for_code(response.error_code, request="ListGroups", broker=node_id)
            return [group_listing(group) for group in response.groups]

        return await persist(self._client, attempt, deadline)

    async def describe(
        self, group_ids: Iterable[str], deadline: CallDeadline
    ) -> dict[str, GroupDescription | KafkaActorsError]:
        return await self._coordinators.ask(group_ids, self._describe, deadline)

    async def members_of(self, group_id: str, deadline: CallDeadline) -> int:
        """Number of members of a group; 0 for a group that doesn't exist yet. Raises the error of the description."""
        [group] = (await self.describe([group_id], deadline)).values()
        if isinstance(group, GroupIdNotFoundError):
            return 0
        if isinstance(group, KafkaActorsError):
            raise group
        return len(group.members)

    async def _describe(
        self, node: BrokerMetadata, group_ids: list[str], limit_ms: float
    ) -> dict[str, GroupDescription | KafkaActorsError]:
        """Asks about all as groups of the newer protocol (KIP-848) first, then about the others as classic groups."""
        described: dict[str, GroupDescription | KafkaActorsError] = {}
        try:
            newer = ConsumerGroupDescribeRequest(group_ids=group_ids)
            for group in (await ask_node(self._client, node.node_id, newer, limit_ms)).groups:
                described[group.group_id] = consumer_group(group, node)
        except UnsupportedVersionError:
            pass  # before KIP-848: all are classic
        others = (GroupIdNotFoundError, UnsupportedVersionError)
        left = [g for g in group_ids if g not in described or isinstance(described[g], others)]
        if left:
            classic = DescribeGroupsRequest(groups=left)
            for each in (await ask_node(self._client, node.node_id, classic, limit_ms)).groups:
                described[each.group_id] = classic_group(each, node)
        return described

    async def committed(
        self,
        group_id: str,
        deadline: CallDeadline,
        topic_ids: Mapping[str, bytes] | None = None,
        *,
        stable: Iterable[TopicPartition] | None = None,
    ) -> Committed:
        """Offsets that a group has committed; with `topic_ids` without those of topics that had another id at the commit.

        stable: partitions from whose offsets is read; only these are asked for. Where a transaction is about to move one, its end is
        waited for (KIP-447), up to `deadline`: else its records were read twice.
        """
        asked = None if stable is None else list(stable)

        async def ask(
            node: BrokerMetadata, group_ids: list[str], limit_ms: float
        ) -> dict[str, Committed | KafkaActorsError]:
            async def send(request: OffsetFetchRequest) -> OffsetFetchResponse:
                return await ask_node(self._client, node.node_id, request, limit_ms)

            found = await fetch_offsets_of_groups(send, {group_id: asked}, require_stable=asked is not None)
            read = found[group_id]
            if read.error is not None:
                # Version 9 of the request on answers so; before, a group that doesn't exist has no offsets.
                return {group_id: {} if isinstance(read.error, GroupIdNotFoundError) else read.error}
            raise_first(read.errors.values())
            seen = as_committed(
                of_this_cluster(read.offsets, self._client.snapshot.cluster_id), topic_ids or {}
            )
            return {group_id: {tp: found for tp, found in seen.items() if found is not None}}

        return _only(await self._coordinators.ask([group_id], ask, deadline))

    async def commit(
        self,
        group_id: str,
        offsets: Mapping[TopicPartition, OffsetAndMetadata],
        deadline: CallDeadline,
        topic_ids: Mapping[str, bytes] | None = None,
    ) -> None:
        """Commits offsets for a group, in as many requests as its coordinator needs to write them: one, but for thousands of partitions.
        `topic_ids`: ids of topics for which alone the offsets hold."""
        ids, cluster_id = topic_ids or {}, self._client.snapshot.cluster_id
        left = {
            tp: offset._replace(metadata=pack(offset.metadata, ids.get(tp.topic), cluster_id))
            for tp, offset in sorted(offsets.items())
        }
        while left:
            part = {tp: left.pop(tp) for tp in at_once(left, COMMIT_BYTES)}
            await self._commit_at_once(group_id, part, deadline)

    async def _commit_at_once(
        self, group_id: str, offsets: Mapping[TopicPartition, OffsetAndMetadata], deadline: CallDeadline
    ) -> None:
        topics: dict[str, OffsetCommitRequestTopic] = {}
        for tp, (offset, metadata, leader_epoch) in offsets.items():
            topic = topics.setdefault(tp.topic, OffsetCommitRequestTopic(name=tp.topic, partitions=[]))
            topic.partitions.append(
                OffsetCommitRequestPartition(tp.partition, offset, leader_epoch, metadata)
            )
        request = OffsetCommitRequest(group_id=group_id, topics=list(topics.values()))

        async def ask(
            node: BrokerMetadata, group_ids: list[str], limit_ms: float
        ) -> dict[str, KafkaActorsError | None]:
            response = await ask_node(self._client, node.node_id, request, limit_ms)
            raise_first(_refused(group_id, response))
            return {group_id: None}

        _only(await self._coordinators.ask([group_id], ask, deadline))

    async def delete(
        self, group_ids: Iterable[str], deadline: CallDeadline
    ) -> dict[str, KafkaActorsError | None]:
        async def ask(
            node: BrokerMetadata, its_groups: list[str], limit_ms: float
        ) -> dict[str, KafkaActorsError | None]:
            request = DeleteGroupsRequest(groups_names=its_groups)
            response = await ask_node(self._client, node.node_id, request, limit_ms)
            return {r.group_id: _not_deleted(r.group_id, r.error_code) for r in response.results}

        return await self._coordinators.ask(group_ids, ask, deadline)


def _not_deleted(group_id: str, code: int) -> KafkaActorsError | None:
    if code == GroupIdNotFoundError.code:
        return unknown_group(group_id)
    if code == NonEmptyGroupError.code:
        return NonEmptyGroupError(f"group {group_id!r} has members: stop them first", request="DeleteGroups")
    return error_for_code(code, request="DeleteGroups", group=group_id)


def _refused(group_id: str, response: OffsetCommitResponse) -> list[KafkaActorsError]:
    """Errors of the partitions of a commit. While a group has members, brokers answer a commit from outside of it with
    UNKNOWN_MEMBER_ID: that becomes `NonEmptyGroupError`."""
    errors: list[KafkaActorsError] = []
    for topic in response.topics:
        for p in topic.partitions:
            if p.error_code == UnknownMemberIdError.code:
                return [
                    NonEmptyGroupError(
                        f"group {group_id!r} has members: stop them first", request="OffsetCommit"
                    )
                ]
            error = error_for_code(
                p.error_code,
                request="OffsetCommit",
                topic=topic.name,
                partition=p.partition_index,
                group=group_id,
            )
            if error is not None:
                errors.append(error)
    return errors


def _lowered(names: Collection[str]) -> set[str]:
    return {name.lower() for name in names}


def _only(answers: Mapping[str, T | KafkaActorsError]) -> T:
    [answer] = answers.values()
    if isinstance(answer, KafkaActorsError):
        raise answer
    return answer
