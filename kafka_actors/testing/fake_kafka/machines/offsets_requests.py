"""Committed offsets: OffsetCommit, TxnOffsetCommit, OffsetFetch, OffsetDelete, and their expiry.

Theory of operation. Three questions are asked of each request, in this order: does the partition exist (told for each), is this broker
the group's coordinator, and may this member commit (told for all partitions alike). Only then `OffsetStore` changes, unless the commit is
larger than a batch of the offsets topic may be, as which a coordinator writes it. A commit without a generation is taken while the group is
empty. A transaction's commit is pending until its marker, and the transaction's coordinator is asked before the first one.

Expiry takes no timer: what was too old at the last check before now is forgotten when somebody looks. An offset's retention begins with its
commit; in a group that had members, when the last one has left, also for what is committed later.

Source: `OffsetMetadataManager`, `KafkaApis`; KIP-98, 211 (expiry), 447 (transactions), 496, 709, 848 (codes of version 9), 890, 1043.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any
from uuid import UUID

from msgspec.structs import astuple

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
    TxnOffsetCommitRequest,
    TxnOffsetCommitResponse,
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
from kafka_actors.protocol.messages.txn_offset_commit import (
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
    TxnOffsetCommitResponsePartition,
    TxnOffsetCommitResponseTopic,
)
from kafka_actors.protocol.schema import Response

from .calls import BrokerCall
from .classic_group import EMPTY, STABLE, ClassicGroup
from .cluster_state import NO_LEADER, ClusterState, FakeTopic
from .error_answers import Refused, error_response
from .group_offsets import MOST_BATCH_BYTES, CommittedOffset, OffsetStore, batch_bytes
from .group_requests import GroupHandlers
from .transaction_requests import TransactionHandlers

_NamedTopics = Iterable[tuple[OffsetCommitRequestTopic | TxnOffsetCommitRequestTopic, str]]
_NEW_COORDINATOR = (4, 0)
"""Before, a group was there as soon as a commit had named it, also one that was refused, and all versions had the same error codes."""


class OffsetHandlers:
    """The committed offsets of all groups."""

    def __init__(
        self,
        state: ClusterState,
        groups: GroupHandlers,
        offsets: OffsetStore,
        transactions: TransactionHandlers,
    ) -> None:
        self._state = state
        self._groups = groups
        self._offsets = offsets
        self._transactions = transactions
        self._began_ms = state.wall_ms
        groups.on_delete = offsets.remove_group
        self.handlers: dict[ApiKey, Callable[[BrokerCall], Any]] = {
            ApiKey.OFFSET_COMMIT: self._commit,
            ApiKey.TXN_OFFSET_COMMIT: self._commit_in_transaction,
            ApiKey.OFFSET_FETCH: self._fetch,
            ApiKey.OFFSET_DELETE: self._delete,
        }

    def topic_deleted(self, topic: FakeTopic) -> None:
        """Forgets the offsets of a topic; before 4.0, also each empty group that has no offsets then, whichever topic it is."""
        self._offsets.remove_topic(topic.name)
        if self._state.release < _NEW_COORDINATOR:
            for group_id in list(self._groups.groups):
                self._drop_if_unused(group_id)

    def committed(self, group_id: str) -> dict[tuple[str, int], CommittedOffset]:
        """All offsets of a group that have not expired."""
        self._expire()
        return self._offsets.of(group_id)

    # ---------------------------------------------------------------- OffsetCommit

    def _commit(self, call: BrokerCall) -> OffsetCommitResponse:
        request: OffsetCommitRequest = call.request
        topics = []
        to_commit = [(topic, self._topic_name(call.version, topic)) for topic in request.topics]
        code = self._code(call, to_commit, self._check_commit)
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

    def _topic_name(self, version: int, topic: OffsetCommitRequestTopic | OffsetFetchRequestTopics) -> str:
        if version < 10:
            return topic.name
        known = self._state.topic_by_id(topic.topic_id)
        return known.name if known is not None else ""

    def _exists(self, name: str, index: int) -> bool:
        topic = self._state.topics.get(name)
        return topic is not None and 0 <= index < len(topic.partitions)

    def _code(self, call: BrokerCall, topics: _NamedTopics, check: Callable[[BrokerCall], None]) -> int:
        """Returns the error code of all partitions that exist: 0 where their offsets may be written."""
        there = [
            (name, p)
            for topic, name in topics
            for p in topic.partitions
            if self._exists(name, p.partition_index)
        ]
        if not there:
            return 0
        longest = self._state.settings.offset_metadata_max_bytes
        texts = [(name, text) for name, p in there if len(text := p.committed_metadata or "") <= longest]
        try:
            check(call)
            release, by_id = self._state.release, call.version >= 10
            if batch_bytes(call.request.group_id, texts, release, topic_ids=by_id) > MOST_BATCH_BYTES:
                old = release < _NEW_COORDINATOR
                raise Refused(errors.InvalidCommitOffsetSizeError if old else errors.UnknownServerError)
        except Refused as refused:
            return refused.code
        return 0

    def _check_commit(self, call: BrokerCall) -> None:
        request: OffsetCommitRequest = call.request
        self._groups.check_coordinator(call, request.group_id)
        generation = request.generation_id_or_member_epoch
        group = self._groups.groups.get(request.group_id)
        if group is not None:
            group.check_commit(request.member_id, request.group_instance_id, generation)
        elif generation >= 0:
            newer = call.version >= 9 and self._state.release >= _NEW_COORDINATOR
            raise Refused(errors.GroupIdNotFoundError if newer else errors.IllegalGenerationError)
        elif self._state.release < _NEW_COORDINATOR:
            self._groups.create(request.group_id)

    def _store(self, request: OffsetCommitRequest, name: str, wanted: OffsetCommitRequestPartition) -> int:
        retention = request.retention_time_ms
        expires = self._state.wall_ms + retention if retention >= 0 else None
        offset = self._offset(wanted, expires)
        if offset is None:
            return errors.OffsetMetadataTooLargeError.code
        self._groups.create(request.group_id)
        self._offsets.put(request.group_id, (name, wanted.partition_index), offset)
        return 0

    def _offset(
        self,
        wanted: OffsetCommitRequestPartition | TxnOffsetCommitRequestPartition,
        expires_ms: int | None = None,
    ) -> CommittedOffset | None:
        """Returns the commit to keep; None where the metadata is too long."""
        metadata = wanted.committed_metadata or ""
        if len(metadata) > self._state.settings.offset_metadata_max_bytes:
            return None
        offset, epoch = wanted.committed_offset, wanted.committed_leader_epoch
        return CommittedOffset(offset, epoch, metadata, self._state.wall_ms, expires_ms)

    # ---------------------------------------------------------------- TxnOffsetCommit

    def _commit_in_transaction(self, call: BrokerCall) -> TxnOffsetCommitResponse:
        request: TxnOffsetCommitRequest = call.request
        code = self._code(call, [(topic, topic.name) for topic in request.topics], self._check_in_transaction)
        topics = [
            TxnOffsetCommitResponseTopic(
                topic.name,
                [
                    TxnOffsetCommitResponsePartition(
                        wanted.partition_index,
                        code or self._store_pending(request, topic.name, wanted)
                        if self._exists(topic.name, wanted.partition_index)
                        else errors.UnknownTopicOrPartitionError.code,
                    )
                    for wanted in topic.partitions
                ],
            )
            for topic in request.topics
        ]
        return TxnOffsetCommitResponse(topics=topics)

    def _check_in_transaction(self, call: BrokerCall) -> None:
        request: TxnOffsetCommitRequest = call.request
        if not request.group_id:
            raise Refused(errors.InvalidGroupIdError)
        self._groups.check_coordinator(call, request.group_id)
        place = self._transactions.offsets_place(request.group_id)
        producer = (request.producer_id, request.producer_epoch)
        old = self._state.release < _NEW_COORDINATOR
        if old:
            self._groups.create(request.group_id)
        else:
            self._offsets.check_epoch(place[1], *producer)
        if not self._offsets.has_open(place[1], producer[0], None if old else producer[1]):
            self._transactions.join(
                request.transactional_id, *producer, place, add=call.version >= 5, old=call.version < 4
            )
        group = self._groups.groups.get(request.group_id)
        if group is not None:
            group.check_transactional_commit(
                request.member_id, request.group_instance_id, request.generation_id
            )
        elif request.generation_id >= 0:
            raise Refused(errors.IllegalGenerationError)
        self._offsets.check_epoch(place[1], *producer)

    def _store_pending(
        self, request: TxnOffsetCommitRequest, name: str, wanted: TxnOffsetCommitRequestPartition
    ) -> int:
        offset = self._offset(wanted)
        if offset is None:
            return errors.OffsetMetadataTooLargeError.code
        self._groups.create(request.group_id)
        partition = self._transactions.offsets_place(request.group_id)[1]
        producer = (request.producer_id, request.producer_epoch)
        key = (name, wanted.partition_index)
        self._offsets.put_pending(partition, producer, request.group_id, key, offset)
        return 0

    # ---------------------------------------------------------------- OffsetFetch

    def _fetch(self, call: BrokerCall) -> Response:
        request: OffsetFetchRequest = call.request
        if call.version >= 8:
            return OffsetFetchResponse(groups=[self._checked_group(call, group) for group in request.groups])
        try:
            self._groups.check_coordinator(call, request.group_id)
        except Refused as refused:
            return error_response(request, call.version, refused.code)
        topics = (
            None
            if request.topics is None
            else [OffsetFetchRequestTopics(t.name, ZERO_UUID, t.partition_indexes) for t in request.topics]
        )
        found = self._group_offsets(call, OffsetFetchRequestGroup(request.group_id, topics=topics))
        return OffsetFetchResponse(
            topics=[
                OffsetFetchResponseTopic(
                    t.name,
                    [OffsetFetchResponsePartition(*astuple(p)) for p in t.partitions],
                )
                for t in found.topics
            ],
        )

    def _checked_group(self, call: BrokerCall, wanted: OffsetFetchRequestGroup) -> OffsetFetchResponseGroup:
        try:
            self._groups.check_coordinator(call, wanted.group_id)
        except Refused as refused:
            return OffsetFetchResponseGroup(wanted.group_id, [], refused.code)
        return self._group_offsets(call, wanted)

    def _group_offsets(self, call: BrokerCall, wanted: OffsetFetchRequestGroup) -> OffsetFetchResponseGroup:
        offsets = self.committed(wanted.group_id)
        requested: Iterable[tuple[str, UUID, list[int]]]
        if wanted.topics is None:
            names = dict.fromkeys(name for name, _ in offsets)
            requested = [(name, self._id_of(name), [i for n, i in offsets if n == name]) for name in names]
        else:
            requested = [
                (self._topic_name(call.version, t), t.topic_id, t.partition_indexes) for t in wanted.topics
            ]
        topics = [
            OffsetFetchResponseTopics(
                name,
                topic_id,
                [self._found(call, wanted.group_id, offsets, name, i) for i in indexes],
            )
            for name, topic_id, indexes in requested
        ]
        return OffsetFetchResponseGroup(wanted.group_id, topics)

    def _id_of(self, name: str) -> UUID:
        return self._state.topics[name].topic_id if name in self._state.topics else ZERO_UUID

    def _found(
        self,
        call: BrokerCall,
        group_id: str,
        offsets: dict[tuple[str, int], CommittedOffset],
        name: str,
        index: int,
    ) -> OffsetFetchResponsePartitions:
        if call.version >= 10 and not name:
            return OffsetFetchResponsePartitions(index, -1, error_code=errors.UnknownTopicIdError.code)
        if call.request.require_stable and self._offsets.is_pending(group_id, (name, index)):
            return OffsetFetchResponsePartitions(index, -1, error_code=errors.UnstableOffsetCommitError.code)
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
                    self._offsets.remove(request.group_id, (topic.name, index))
                results.append(OffsetDeleteResponsePartition(index, code))
            topics.append(OffsetDeleteResponseTopic(topic.name, results))
        deleted = any(result.error_code == 0 for topic in topics for result in topic.partitions)
        if deleted and self._state.release < _NEW_COORDINATOR:
            self._drop_if_unused(request.group_id)
        return OffsetDeleteResponse(topics=topics)

    def _drop_if_unused(self, group_id: str) -> None:
        """Forgets a group without members and offsets."""
        left = self._offsets.of(group_id) or self._offsets.has_pending(group_id)
        if not left and self._groups.groups[group_id].state == EMPTY:
            self._groups.drop(group_id)

    def _expire(self) -> None:
        """Forgets offsets that were too old when their coordinators looked last, and empty groups that have none left."""
        interval, now = self._state.settings.offsets_retention_check_interval_ms, self._state.wall_ms
        for group_id, group in list(self._groups.groups.items()):
            before = self._began_ms if group.checked_ms is None else group.checked_ms
            if now - before >= interval and self._state.offsets_topic.leader_of(group_id) != NO_LEADER:
                group.checked_ms = now - (now - before) % interval
                self._check(group_id, group, group.checked_ms)

    def _check(self, group_id: str, group: ClassicGroup, at_ms: int) -> None:
        """Forgets what was too old of one group at a time."""
        retention = self._state.settings.offsets_retention_minutes * 60_000
        for key, committed in self._offsets.of(group_id).items():
            since = self._since(group, key[0], committed)
            if since is None or self._offsets.is_pending(group_id, key):
                continue
            if at_ms >= (since + retention if committed.expires_ms is None else committed.expires_ms):
                self._offsets.remove(group_id, key)
        self._drop_if_unused(group_id)

    def _since(self, group: ClassicGroup, topic: str, committed: CommittedOffset) -> int | None:
        """When an offset's retention began; None while it does not expire (KIP-211)."""
        if group.members.protocol_type is None:
            return committed.committed_ms
        if group.state == EMPTY:
            return group.state_since_ms
        if (
            group.state == STABLE
            and group.members.protocol_type == "consumer"
            and not group.members.subscribe(topic)
        ):
            return committed.committed_ms
        return None
