"""Committed offsets: OffsetCommit, OffsetFetch, OffsetDelete, and their expiry.

Source: `OffsetMetadataManager`, `KafkaApis`; KIP-211 (expiry), KIP-496, KIP-709, KIP-848 (codes of version 9), KIP-1043 (ids, version 10).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any
from uuid import UUID

from msgspec import Struct

from kafka_actors import errors
from kafka_actors.protocol import (
    ZERO_UUID,
    ApiKey,
    OffsetCommitRequest,
    OffsetCommitResponse,
    OffsetDeleteRequest,
    OffsetDeleteResponse,
    OffsetFetchRequest,
    OffsetFetchResponse,
)
from kafka_actors.protocol.messages.offset_commit import (
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetCommitResponsePartition,
    OffsetCommitResponseTopic,
)
from kafka_actors.protocol.messages.offset_delete import (
    OffsetDeleteResponsePartition,
    OffsetDeleteResponseTopic,
)
from kafka_actors.protocol.messages.offset_fetch import (
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopics,
    OffsetFetchResponseGroup,
    OffsetFetchResponsePartition,
    OffsetFetchResponsePartitions,
    OffsetFetchResponseTopic,
    OffsetFetchResponseTopics,
)

from .calls import BrokerCall
from .classic_group import EMPTY, STABLE, ClassicGroup
from .cluster_state import ClusterState, FakeTopic
from .error_answers import Refused
from .group_requests import GroupHandlers


class CommittedOffset(Struct, frozen=True):
    """An offset of a group; times in ms since the epoch, `expires_ms` only where OffsetCommit 2 to 4 named a retention."""

    offset: int
    leader_epoch: int
    metadata: str
    committed_ms: int
    expires_ms: int | None = None


class OffsetHandlers:
    """The committed offsets of all groups."""

    def __init__(self, state: ClusterState, groups: GroupHandlers) -> None:
        self._state = state
        self._groups = groups
        self._offsets: dict[str, dict[tuple[str, int], CommittedOffset]] = {}
        self._checked = state.wall_ms
        groups.on_delete = lambda group_id: self._offsets.pop(group_id, None)
        self.handlers: dict[ApiKey, Callable[[BrokerCall], Any]] = {
            ApiKey.OFFSET_COMMIT: self._commit,
            ApiKey.OFFSET_FETCH: self._fetch,
            ApiKey.OFFSET_DELETE: self._delete,
        }

    def committed(self, group_id: str) -> dict[tuple[str, int], CommittedOffset]:
        """All offsets of a group that have not expired."""
        self._expire()
        return dict(self._offsets.get(group_id, {}))

    def forget_topic(self, topic: FakeTopic) -> None:
        """Forgets the offsets of a topic that was deleted."""
        for offsets in self._offsets.values():
            for key in [key for key in offsets if key[0] == topic.name]:
                del offsets[key]

    # ---------------------------------------------------------------- OffsetCommit

    def _commit(self, call: BrokerCall) -> OffsetCommitResponse:
        request: OffsetCommitRequest = call.request
        topics = []
        to_commit = [(topic, self._topic_name(call.version, topic)) for topic in request.topics]
        code = 0
        if any(self._exists(name, p.partition_index) for t, name in to_commit for p in t.partitions):
            code = self._group_code(call, request)
        for topic, name in to_commit:
            results = []
            for wanted in topic.partitions:
                if not name and call.version >= 10:
                    result = errors.UnknownTopicIdError.code
                elif not self._exists(name, wanted.partition_index):
                    result = errors.UnknownTopicOrPartitionError.code
                else:
                    result = code or self._store(request, name, wanted)
                results.append(OffsetCommitResponsePartition(wanted.partition_index, result))
            topics.append(OffsetCommitResponseTopic(topic.name, topic.topic_id, results))
        return OffsetCommitResponse(topics=topics)

    def _topic_name(self, version: int, topic: OffsetCommitRequestTopic) -> str:
        if version < 10:
            return topic.name
        known = self._state.topic_by_id(topic.topic_id)
        return known.name if known is not None else ""

    def _exists(self, name: str, index: int) -> bool:
        topic = self._state.topics.get(name)
        return topic is not None and 0 <= index < len(topic.partitions)

    def _group_code(self, call: BrokerCall, request: OffsetCommitRequest) -> int:
        try:
            self._groups.check_coordinator(call, request.group_id)
            generation = request.generation_id_or_member_epoch
            group = self._groups.groups.get(request.group_id)
            if group is None:
                if generation >= 0:
                    newer = call.version >= 9
                    raise Refused(errors.GroupIdNotFoundError if newer else errors.IllegalGenerationError)
                return 0
            group.check_commit(request.member_id, request.group_instance_id, generation)
        except Refused as refused:
            return refused.code
        return 0

    def _store(self, request: OffsetCommitRequest, name: str, wanted: OffsetCommitRequestPartition) -> int:
        metadata = wanted.committed_metadata or ""
        if len(metadata) > self._state.settings.offset_metadata_max_bytes:
            return errors.OffsetMetadataTooLargeError.code
        self._groups.create(request.group_id)
        now = self._state.wall_ms
        retention = request.retention_time_ms
        self._offsets.setdefault(request.group_id, {})[name, wanted.partition_index] = CommittedOffset(
            wanted.committed_offset,
            wanted.committed_leader_epoch,
            metadata,
            now,
            now + retention if retention >= 0 else None,
        )
        return 0

    # ---------------------------------------------------------------- OffsetFetch

    def _fetch(self, call: BrokerCall) -> OffsetFetchResponse:
        request: OffsetFetchRequest = call.request
        if call.version >= 8:
            return OffsetFetchResponse(groups=[self._group_offsets(call, group) for group in request.groups])
        topics = (
            None
            if request.topics is None
            else [OffsetFetchRequestTopics(t.name, ZERO_UUID, t.partition_indexes) for t in request.topics]
        )
        found = self._group_offsets(call, OffsetFetchRequestGroup(request.group_id, topics=topics))
        if call.version < 2 and found.error_code:  # there is no place for it but at the partitions
            return OffsetFetchResponse(
                topics=[
                    OffsetFetchResponseTopic(
                        t.name,
                        [
                            OffsetFetchResponsePartition(i, -1, error_code=found.error_code)
                            for i in t.partition_indexes
                        ],
                    )
                    for t in request.topics or ()
                ]
            )
        return OffsetFetchResponse(
            error_code=found.error_code,
            topics=[
                OffsetFetchResponseTopic(
                    t.name,
                    [
                        OffsetFetchResponsePartition(
                            p.partition_index,
                            p.committed_offset,
                            p.committed_leader_epoch,
                            p.metadata,
                            p.error_code,
                        )
                        for p in t.partitions
                    ],
                )
                for t in found.topics
            ],
        )

    def _group_offsets(self, call: BrokerCall, wanted: OffsetFetchRequestGroup) -> OffsetFetchResponseGroup:
        try:
            self._groups.check_coordinator(call, wanted.group_id)
        except Refused as refused:
            return OffsetFetchResponseGroup(wanted.group_id, [], refused.code)
        offsets = self.committed(wanted.group_id)
        asked: Iterable[tuple[str, UUID, list[int]]]
        if wanted.topics is None:
            names = dict.fromkeys(name for name, _ in offsets)
            asked = [(name, self._id_of(name), [i for n, i in offsets if n == name]) for name in names]
        else:
            asked = [
                (self._asked_name(call.version, t), t.topic_id, t.partition_indexes) for t in wanted.topics
            ]
        topics = [
            OffsetFetchResponseTopics(
                name,
                topic_id,
                [self._found(offsets, name, i, by_id=call.version >= 10) for i in indexes],
            )
            for name, topic_id, indexes in asked
        ]
        return OffsetFetchResponseGroup(wanted.group_id, topics)

    def _id_of(self, name: str) -> UUID:
        return self._state.topics[name].topic_id if name in self._state.topics else ZERO_UUID

    def _asked_name(self, version: int, topic: OffsetFetchRequestTopics) -> str:
        if version < 10:
            return topic.name
        known = self._state.topic_by_id(topic.topic_id)
        return known.name if known is not None else ""

    def _found(
        self, offsets: dict[tuple[str, int], CommittedOffset], name: str, index: int, *, by_id: bool
    ) -> OffsetFetchResponsePartitions:
        if by_id and not name:
            return OffsetFetchResponsePartitions(index, -1, error_code=errors.UnknownTopicIdError.code)
        found = offsets.get((name, index))
        if found is None:
            return OffsetFetchResponsePartitions(index, -1)
        return OffsetFetchResponsePartitions(index, found.offset, found.leader_epoch, found.metadata)

    # ---------------------------------------------------------------- OffsetDelete, expiry

    def _delete(self, call: BrokerCall) -> OffsetDeleteResponse:
        request: OffsetDeleteRequest = call.request
        try:
            self._groups.check_coordinator(call, request.group_id)
            group = self._groups.groups.get(request.group_id)
            if group is None:
                raise Refused(errors.GroupIdNotFoundError)
            if group.state != EMPTY and group.members.protocol_type != "consumer":
                raise Refused(errors.NonEmptyGroupError)
        except Refused as refused:
            return OffsetDeleteResponse(error_code=refused.code)
        offsets = self._offsets.get(request.group_id, {})
        topics = []
        for topic in request.topics:
            results = []
            for partition in topic.partitions:
                index, code = partition.partition_index, 0
                if not self._exists(topic.name, index):
                    code = errors.UnknownTopicOrPartitionError.code
                elif group.members.subscribe(topic.name):
                    code = errors.GroupSubscribedToTopicError.code
                else:
                    offsets.pop((topic.name, index), None)
                results.append(OffsetDeleteResponsePartition(index, code))
            topics.append(OffsetDeleteResponseTopic(topic.name, results))
        return OffsetDeleteResponse(topics=topics)

    def _expire(self) -> None:
        """Forgets offsets that were too old at the last check, and empty groups that have none left."""
        settings = self._state.settings
        interval = settings.offsets_retention_check_interval_ms
        now = self._state.wall_ms
        if now - self._checked < interval:
            return
        self._checked += (now - self._checked) // interval * interval
        retention = settings.offsets_retention_minutes * 60_000
        for group_id in list(self._groups.groups):
            group = self._groups.groups[group_id]
            offsets = self._offsets.get(group_id, {})
            for key, committed in list(offsets.items()):
                since = self._since(group, key[0], committed)
                if since is None:
                    continue
                limit = committed.expires_ms if committed.expires_ms is not None else since + retention
                if self._checked >= limit:
                    del offsets[key]
            if not offsets and group.state == EMPTY:
                self._groups.drop(group_id)

    def _since(self, group: ClassicGroup, topic: str, committed: CommittedOffset) -> int | None:
        """When an offset's retention began; None while it does not expire (KIP-211)."""
        if group.members.protocol_type is None:
            return committed.committed_ms
        if group.state == EMPTY:
            return max(group.state_since_ms, committed.committed_ms)
        if (
            group.state == STABLE
            and group.members.protocol_type == "consumer"
            and not group.members.subscribe(topic)
        ):
            return committed.committed_ms
        return None
