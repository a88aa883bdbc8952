"""Requests about offsets: the ends of logs and times in them, the lag of groups, and resets."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from kafka_actors.errors import (
    GroupIdNotFoundError,
    KafkaActorsError,
    KafkaError,
    NonEmptyGroupError,
    UnknownTopicOrPartitionError,
    UsageError,
)
from kafka_actors.net import KafkaClient, ListedOffset, OffsetLookups
from kafka_actors.net.offsets import Answers, IsolationLevel, LeaderCall, by_topic
from kafka_actors.protocol import DeleteRecordsRequest
from kafka_actors.protocol.messages.delete_records import DeleteRecordsPartition, DeleteRecordsTopic
from kafka_actors.types import EARLIEST, LATEST, OffsetAndMetadata, TopicPartition

from .groups import GroupRequests
from .machines.advice import advised
from .machines.offsets import OffsetTarget, lag_rows, plan_reset
from .requests import CallDeadline, raise_first
from .results import GroupDescription, OffsetReset, PartitionLag
from .topics import TopicRequests

__all__ = ["OffsetRequests", "Scope"]

Scope = Mapping[str, Iterable[int] | None] | None
"""Scope of a reset: topics, each with some of its partitions or None for all; None for all that the group has committed for."""

RESETTABLE = ("Empty", "Dead")


class OffsetRequests:
    """Requests behind the calls of `AsyncAdmin` about offsets; the calls there say what each does."""

    def __init__(self, client: KafkaClient, groups: GroupRequests, topics: TopicRequests) -> None:
        self._client = client
        self._lookups = OffsetLookups(client)
        self._groups = groups
        self._topics = topics

    async def listed(
        self,
        wanted: Mapping[TopicPartition, int],
        isolation_level: IsolationLevel,
        deadline: CallDeadline,
    ) -> dict[TopicPartition, ListedOffset]:
        leaders = await self._leaders({tp.topic for tp in wanted}, deadline)
        raise_first(_unknown(tp) for tp in sorted(wanted) if tp not in leaders)
        return await self._ask(wanted, deadline, isolation_level)

    async def _ask(
        self,
        wanted: Mapping[TopicPartition, int],
        deadline: CallDeadline,
        isolation_level: IsolationLevel = "read_uncommitted",
    ) -> dict[TopicPartition, ListedOffset]:
        answers = await self._lookups.list_offsets(
            wanted, isolation_level=isolation_level, timeout_ms=deadline.left_ms()
        )
        raise_first(answer for answer in answers.values() if isinstance(answer, KafkaActorsError))
        return {tp: a for tp, a in answers.items() if not isinstance(a, KafkaActorsError)}

    async def _leaders(
        self, topics: Iterable[str], deadline: CallDeadline
    ) -> dict[TopicPartition, int | None]:
        """Leader of each partition that exists; None where it has none."""
        described = await self._topics.describe(topics, deadline)
        raise_first(
            answer
            for answer in described.values()
            if isinstance(answer, KafkaActorsError) and not isinstance(answer, UnknownTopicOrPartitionError)
        )
        return {
            TopicPartition(topic.name, p.partition): p.leader
            for topic in described.values()
            if not isinstance(topic, KafkaActorsError)
            for p in topic.partitions
        }

    # ------------------------------------------------------------ deletion

    async def delete_records(
        self, bounds: Mapping[TopicPartition, int], deadline: CallDeadline
    ) -> dict[TopicPartition, int | KafkaActorsError]:
        """First offset of each log after the deletion, or the error of its leader."""
        leaders = await self._leaders({tp.topic for tp in bounds}, deadline)
        raise_first(_unknown(tp) for tp in sorted(bounds) if tp not in leaders)

        async def ask(leader: int, tps: list[TopicPartition], limit_ms: float) -> Answers[int]:
            topics = [
                DeleteRecordsTopic(
                    topic, [DeleteRecordsPartition(tp.partition, bounds[tp]) for tp in members]
                )
                for topic, members in by_topic(tps).items()
            ]
            request = DeleteRecordsRequest(topics, int(limit_ms))
            response = await self._client.send(leader, request, timeout_ms=limit_ms)
            return {
                TopicPartition(t.name, p.partition_index): (p.error_code, p.low_watermark)
                for t in response.topics
                for p in t.partitions
            }

        call = LeaderCall(self._client, bounds, "DeleteRecords", ask, deadline.left_ms())
        answers = await call.run()
        return {tp: advised(a) if isinstance(a, KafkaError) else a for tp, a in answers.items()}

    # ------------------------------------------------------------ lag

    async def lag(
        self, group: GroupDescription, isolation_level: IsolationLevel, deadline: CallDeadline
    ) -> list[PartitionLag]:
        committed = await self._groups.committed(group.group_id, deadline)
        tps = {*committed, *(tp for member in group.members for tp in member.assignment)}
        leaders = await self._leaders({tp.topic for tp in tps}, deadline)
        # A deleted topic or an offline partition leaves its end unknown, and the others are shown.
        requested = {tp: LATEST for tp in tps if leaders.get(tp) is not None}
        ends = await self._lookups.list_offsets(
            requested, isolation_level=isolation_level, timeout_ms=deadline.left_ms()
        )
        known = {tp: end.offset for tp, end in ends.items() if isinstance(end, ListedOffset)}
        return lag_rows(group, committed, known)

    # ------------------------------------------------------------ resets

    async def reset(
        self, group_id: str, target: OffsetTarget, scope: Scope, execute: bool, deadline: CallDeadline
    ) -> list[OffsetReset]:
        await self._check_inactive(group_id, deadline)
        committed = await self._groups.committed(group_id, deadline)
        tps = await self._in_scope(group_id, target, scope, committed, deadline)
        starts = await self._ask(dict.fromkeys(tps, EARLIEST), deadline)
        ends = await self._ask(dict.fromkeys(tps, LATEST), deadline)
        by_time: dict[TopicPartition, ListedOffset] = {}
        if target.kind == "timestamp":
            by_time = await self._ask(dict.fromkeys(tps, target.value), deadline)
        plan = plan_reset(
            group_id,
            target,
            tps,
            committed=committed,
            starts={tp: start.offset for tp, start in starts.items()},
            ends={tp: end.offset for tp, end in ends.items()},
            by_time={tp: found.offset for tp, found in by_time.items() if found.offset >= 0},
        )
        if execute:
            offsets = {TopicPartition(r.topic, r.partition): OffsetAndMetadata(r.new_offset) for r in plan}
            await self._groups.commit(group_id, offsets, deadline)
        return plan

    async def _check_inactive(self, group_id: str, deadline: CallDeadline) -> None:
        """Raises `NonEmptyGroupError` for a group with members. One that joins later is safe too: the broker refuses the commit."""
        [group] = (await self._groups.describe([group_id], deadline)).values()
        if isinstance(group, GroupIdNotFoundError):
            return  # a reset may begin a group
        if isinstance(group, KafkaActorsError):
            raise group
        if group.state not in RESETTABLE or group.members:
            many = "1 member" if len(group.members) == 1 else f"{len(group.members)} members"
            raise NonEmptyGroupError(
                f"group {group_id!r} is {group.state} with {many}: offsets can be reset while it has none"
            )

    async def _in_scope(
        self,
        group_id: str,
        target: OffsetTarget,
        scope: Scope,
        committed: Mapping[TopicPartition, OffsetAndMetadata],
        deadline: CallDeadline,
    ) -> list[TopicPartition]:
        if target.kind == "explicit":
            chosen = set(target.offsets)
        elif scope is None:
            chosen = set(committed)
            if not chosen:
                raise UsageError(f"group {group_id!r} has committed nothing: name the topics to reset")
        else:
            chosen = set()
        leaders = await self._leaders({*(scope or ()), *(tp.topic for tp in chosen)}, deadline)
        for topic, partitions in (scope or {}).items() if target.kind != "explicit" else ():
            existing = {tp for tp in leaders if tp.topic == topic}
            if not existing:
                raise UnknownTopicOrPartitionError(topic=topic)
            named = existing if partitions is None else {TopicPartition(topic, p) for p in partitions}
            chosen |= named
        raise_first(_unknown(tp) for tp in sorted(chosen) if tp not in leaders)
        return sorted(chosen)


def _unknown(tp: TopicPartition) -> UnknownTopicOrPartitionError:
    return UnknownTopicOrPartitionError(topic=tp.topic, partition=tp.partition)
