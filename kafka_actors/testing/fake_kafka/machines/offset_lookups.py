"""ListOffsets and OffsetForLeaderEpoch.

Source: `ReplicaManager.fetchOffset`, `Partition.fetchOffsetForTimestamp`, `UnifiedLog.fetchOffsetByTimestamp`; KIP-79, KIP-320, KIP-734,
KIP-405 (local and tiered offsets).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Any

from kafka_actors import errors
from kafka_actors.protocol import (
    ApiKey,
    ListOffsetsRequest,
    ListOffsetsResponse,
    OffsetForLeaderEpochRequest,
    OffsetForLeaderEpochResponse,
)
from kafka_actors.protocol.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsPartitionResponse,
    ListOffsetsTopicResponse,
)
from kafka_actors.protocol.messages.offset_for_leader_epoch import (
    EpochEndOffset,
    OffsetForLeaderPartition,
    OffsetForLeaderTopicResult,
)

from .calls import BrokerCall
from .cluster_state import ClusterState, FakePartition, check_epoch
from .error_answers import Refused
from .partition_log import FoundOffset

LATEST, EARLIEST, MAX_TIMESTAMP, EARLIEST_LOCAL, LATEST_TIERED = -1, -2, -3, -4, -5
_SINCE = {LATEST: 0, EARLIEST: 0, MAX_TIMESTAMP: 7, EARLIEST_LOCAL: 8, LATEST_TIERED: 9}
_DEBUGGING_REPLICA = -2


class LookupHandlers:
    """Answers which offsets partitions have."""

    def __init__(self, state: ClusterState) -> None:
        self._state = state
        self.handlers: dict[ApiKey, Callable[[BrokerCall], Any]] = {
            ApiKey.LIST_OFFSETS: self._list_offsets,
            ApiKey.OFFSET_FOR_LEADER_EPOCH: self._end_offsets,
        }

    def _partition(self, call: BrokerCall, name: str, index: int, epoch: int) -> FakePartition:
        partition = self._state.partition(name, index)
        if call.request.replica_id == _DEBUGGING_REPLICA and call.node_id in partition.replicas:
            check_epoch(partition, epoch)
            return partition
        return self._state.led_by(call.node_id, name, index, epoch)

    def _list_offsets(self, call: BrokerCall) -> ListOffsetsResponse:
        request: ListOffsetsRequest = call.request
        counts = Counter((t.name, p.partition_index) for t in request.topics for p in t.partitions)
        topics = []
        for topic in request.topics:
            seen = {p.partition_index: p for p in topic.partitions}
            found = [
                self._offset(call, topic.name, p, counts[topic.name, p.partition_index] > 1)
                for p in seen.values()
            ]
            topics.append(ListOffsetsTopicResponse(topic.name, found))
        return ListOffsetsResponse(topics=topics)

    def _offset(
        self, call: BrokerCall, name: str, wanted: ListOffsetsPartition, twice: bool
    ) -> ListOffsetsPartitionResponse:
        index = wanted.partition_index
        try:
            if twice:
                raise Refused(errors.InvalidRequestError)
            if wanted.timestamp < 0 and call.version < _SINCE.get(wanted.timestamp, 1_000):
                raise Refused(errors.UnsupportedVersionError)
            partition = self._partition(call, name, index, wanted.current_leader_epoch)
            found = self._found(partition, wanted.timestamp)
        except Refused as refused:
            return ListOffsetsPartitionResponse(index, refused.code)
        if found is None:
            return ListOffsetsPartitionResponse(index)
        epoch = found.leader_epoch if call.version >= 4 else -1
        return ListOffsetsPartitionResponse(index, 0, found.timestamp, found.offset, epoch)

    def _found(self, partition: FakePartition, timestamp: int) -> FoundOffset | None:
        log = partition.log
        match timestamp:
            case -1:
                return FoundOffset(log.end_offset, -1, partition.leader_epoch)
            case -2 | -4:
                return FoundOffset(log.start_offset, -1, log.earliest_epoch)
            case -3:
                return log.offset_of_max_timestamp()
            case -5:
                return FoundOffset(-1, -1, -1)
        return log.offset_for_timestamp(timestamp)

    def _end_offsets(self, call: BrokerCall) -> OffsetForLeaderEpochResponse:
        request: OffsetForLeaderEpochRequest = call.request
        return OffsetForLeaderEpochResponse(
            topics=[
                OffsetForLeaderTopicResult(
                    topic.topic, [self._end_offset(call, topic.topic, p) for p in topic.partitions]
                )
                for topic in request.topics
            ]
        )

    def _end_offset(self, call: BrokerCall, name: str, wanted: OffsetForLeaderPartition) -> EpochEndOffset:
        try:
            partition = self._partition(call, name, wanted.partition, wanted.current_leader_epoch)
        except Refused as refused:
            return EpochEndOffset(refused.code, wanted.partition)
        epoch, end = partition.log.end_of_epoch(wanted.leader_epoch)
        return EpochEndOffset(0, wanted.partition, epoch, end)
