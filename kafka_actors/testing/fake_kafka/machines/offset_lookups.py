"""ListOffsets, OffsetForLeaderEpoch and DescribeProducers: questions about one partition's log that change
nothing.

Theory of operation. Arrives: a request with partitions and, for each, a timestamp or an epoch. Decided: for
each partition an offset, or an error of its own.

- Only the leader answers, under the leader epoch that the client names (KIP-320). A debugging consumer may
  ask any replica (replica id -2), and DescribeProducers is answered by all of them.
- Negative timestamps are names: the end, the start, the record with the largest timestamp, the start of what
  is kept locally, the end of what is in the second tier. There is no second tier here, so its end doesn't
  exist, and what is local is the log. Each name is understood from the version on that brought it in
  (`_SINCE`).
- For readers of committed transactions the last stable offset is the end: what lies beyond it isn't found by
  time either.
- "Nothing found" is no error: offset and timestamp are -1.
- OffsetForLeaderEpoch answers with the largest epoch up to the one asked about, and the offset at which that
  ended. By that a consumer learns where its log and the leader's have parted (KIP-101, KIP-320).
- A partition that is named twice in ListOffsets is answered once, with INVALID_REQUEST.

Source: `KafkaApis.handleListOffsetRequest`, `ReplicaManager.fetchOffset`,
`UnifiedLog.fetchOffsetByTimestamp`; KIP-79, KIP-101, KIP-320, KIP-405, KIP-664, KIP-734.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Any

from kafka_actors import errors
from kafka_actors.protocol import (
    ApiKey,
    DescribeProducersRequest,
    DescribeProducersResponse,
    ListOffsetsRequest,
    ListOffsetsResponse,
    OffsetForLeaderEpochRequest,
    OffsetForLeaderEpochResponse,
)
from kafka_actors.protocol.messages.describe_producers import (
    PartitionResponse,
    ProducerState,
    TopicResponse,
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
from .cluster_state import ClusterState, FakePartition, check_epoch, check_topic_name
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
            ApiKey.DESCRIBE_PRODUCERS: self._describe_producers,
        }

    def _partition(self, call: BrokerCall, name: str, index: int, epoch: int) -> FakePartition:
        """Returns the partition where this broker may answer for it: as its leader, or as a replica that a
        debugging consumer asks. Raises `Refused`.
        """
        partition = self._state.partition(name, index)
        if call.request.replica_id == _DEBUGGING_REPLICA and call.node_id in partition.replicas:
            check_epoch(partition, epoch)
            return partition
        return self._state.led_by(call.node_id, name, index, epoch)

    def _list_offsets(self, call: BrokerCall) -> ListOffsetsResponse:
        """Answers for each partition that is named, once."""
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
        """Answers for one partition.

        Names of later versions (`_SINCE`) are refused, and before version 4 no epoch is told.
        """
        index = wanted.partition_index
        try:
            if twice:
                raise Refused(errors.InvalidRequestError)
            if wanted.timestamp < 0 and call.version < _SINCE.get(wanted.timestamp, 1_000):
                raise Refused(errors.UnsupportedVersionError)
            partition = self._partition(call, name, index, wanted.current_leader_epoch)
            found = self._found(partition, wanted.timestamp, committed=call.request.isolation_level == 1)
        except Refused as refused:
            return ListOffsetsPartitionResponse(index, refused.code)
        if found is None:
            return ListOffsetsPartitionResponse(index)
        epoch = found.leader_epoch if call.version >= 4 else -1
        return ListOffsetsPartitionResponse(index, 0, found.timestamp, found.offset, epoch)

    def _found(self, partition: FakePartition, timestamp: int, *, committed: bool) -> FoundOffset | None:
        """Finds an offset in a log; None where no record fits.

        A found record counts only below the end that the reader may see.
        """
        log = partition.log
        end = log.stable_offset if committed else log.end_offset
        match timestamp:
            case -1:
                return FoundOffset(end, -1, partition.leader_epoch)
            case -2 | -4:
                return FoundOffset(log.start_offset, -1, log.earliest_epoch)
            case -3:
                found = log.offset_of_max_timestamp()
            case -5:
                return FoundOffset(-1, -1, -1)
            case _:
                found = log.offset_for_timestamp(timestamp)
        return found if found is not None and found.offset < end else None

    def _end_offsets(self, call: BrokerCall) -> OffsetForLeaderEpochResponse:
        """Answers where epochs end (KIP-320), for each partition."""
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
        """Answers for one partition with the largest epoch up to the one in question, and the offset behind its
        last record.
        """
        try:
            partition = self._partition(call, name, wanted.partition, wanted.current_leader_epoch)
        except Refused as refused:
            return EpochEndOffset(refused.code, wanted.partition)
        epoch, end = partition.log.end_of_epoch(wanted.leader_epoch)
        return EpochEndOffset(0, wanted.partition, epoch, end)

    # ---------------------------------------------------------------- producers

    def _describe_producers(self, call: BrokerCall) -> DescribeProducersResponse:
        """Describes who writes to partitions (KIP-664), each with its own error."""
        request: DescribeProducersRequest = call.request
        return DescribeProducersResponse(
            topics=[
                TopicResponse(
                    topic.name, [self._producers(call, topic.name, i) for i in topic.partition_indexes]
                )
                for topic in request.topics
            ]
        )

    def _producers(self, call: BrokerCall, name: str, index: int) -> PartitionResponse:
        """Describes the producers that one log remembers: sequence, timestamp, and where an open transaction
        began, -1 without one. Any replica tells it.
        """
        try:
            check_topic_name(name)
            partition = self._state.partition(name, index)
            if call.node_id not in partition.replicas:
                raise Refused(errors.NotLeaderOrFollowerError)
        except Refused as refused:
            return PartitionResponse(index, refused.code)
        known = partition.log.producers.items(self._state.wall_ms)
        return PartitionResponse(
            index,
            active_producers=[
                ProducerState(
                    producer_id,
                    producer.epoch,
                    producer.batches[-1].last_sequence if producer.batches else -1,
                    producer.timestamp,
                    producer.coordinator_epoch,
                    -1 if producer.first_offset is None else producer.first_offset,
                )
                for producer_id, producer in known
            ],
        )
