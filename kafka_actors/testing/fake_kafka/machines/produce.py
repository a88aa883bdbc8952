"""Produce and InitProducerId.

Source: `KafkaApis.handleProduceRequest`, `ReplicaManager.appendToLocalLog`; KIP-98, KIP-360, KIP-467, KIP-951.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from kafka_actors import errors
from kafka_actors.protocol import (
    ApiKey,
    InitProducerIdRequest,
    InitProducerIdResponse,
    ProduceRequest,
    ProduceResponse,
)
from kafka_actors.protocol.messages.produce import (
    BatchIndexAndErrorMessage,
    LeaderIdAndEpoch,
    NodeEndpoint,
    PartitionProduceData,
    PartitionProduceResponse,
    TopicProduceResponse,
)

from .calls import BrokerCall
from .cluster_state import ClusterState, FakePartition
from .error_answers import Refused
from .partition_log import InvalidRecords
from .record_batches import CorruptBatchError, OldFormatError, StoredBatch, parse_all

_ALL, _NONE = -1, 0
_WITHOUT_START = frozenset(
    error.code
    for error in (
        errors.UnknownTopicOrPartitionError,
        errors.NotLeaderOrFollowerError,
        errors.MessageTooLargeError,
        errors.CorruptMessageError,
        errors.InvalidRequiredAcksError,
        errors.UnknownTopicIdError,
        errors.UnsupportedCompressionTypeError,
    )
)
"""Errors with which Kafka does not tell where the log starts."""


class ProduceHandlers:
    """Appends to logs, and gives out producer ids."""

    def __init__(self, state: ClusterState) -> None:
        self._state = state
        self._producer_ids = 0
        self.handlers: dict[ApiKey, Callable[[BrokerCall], Any]] = {
            ApiKey.PRODUCE: self._produce,
            ApiKey.INIT_PRODUCER_ID: self._init_producer_id,
        }

    def _produce(self, call: BrokerCall) -> ProduceResponse | None:
        request: ProduceRequest = call.request
        responses, failed = [], False
        leaders: dict[int, NodeEndpoint] = {}
        for topic in request.topic_data:
            name = topic.name
            if call.version >= 13:
                known = self._state.topic_by_id(topic.topic_id)
                name = known.name if known is not None else ""
            found = [self._append(call, name, data, leaders) for data in topic.partition_data]
            failed |= any(partition.error_code for partition in found)
            responses.append(TopicProduceResponse(topic.name, topic.topic_id, found))
        if request.acks == _NONE:
            call.closes = failed
            call.respond(None)
            return None
        return ProduceResponse(responses=responses, node_endpoints=list(leaders.values()))

    def _append(
        self, call: BrokerCall, name: str, data: PartitionProduceData, leaders: dict[int, NodeEndpoint]
    ) -> PartitionProduceResponse:
        partition: FakePartition | None = None
        batch: StoredBatch | None = None
        try:
            if call.version >= 13 and not name:
                raise Refused(errors.UnknownTopicIdError)
            partition = self._state.partition(name, data.index)
            batch = single_batch(data.records, call.version)
            return self._write(call, name, partition, batch)
        except Refused as refused:
            start = -1
            if partition is not None and batch is not None and refused.code not in _WITHOUT_START:
                start = partition.log.start_offset
            current = LeaderIdAndEpoch()
            if (
                partition is not None
                and refused.code == errors.NotLeaderOrFollowerError.code
                and call.version >= 10
            ):
                current = LeaderIdAndEpoch(partition.leader, partition.leader_epoch)
                if (node := self._state.nodes.get(partition.leader)) is not None:
                    leaders[node.node_id] = NodeEndpoint(node.node_id, node.host, node.port, node.rack)
            singled = refused.indexes if isinstance(refused, InvalidRecords) else []
            return PartitionProduceResponse(
                index=data.index,
                error_code=refused.code,
                base_offset=-1,
                log_start_offset=start,
                record_errors=[BatchIndexAndErrorMessage(i, refused.text) for i in singled],
                error_message=refused.text if singled else None,
                current_leader=current,
            )

    def _write(
        self, call: BrokerCall, name: str, partition: FakePartition, batch: StoredBatch
    ) -> PartitionProduceResponse:
        if call.request.acks not in (-1, 0, 1):
            raise Refused(errors.InvalidRequiredAcksError)
        self._state.led_by(call.node_id, name, partition.index)
        topic = self._state.topics[name]
        needed = min(topic.min_insync_replicas, len(partition.replicas))
        if call.request.acks == _ALL and len(self._state.isr(partition)) < needed:
            raise Refused(errors.NotEnoughReplicasError)
        limits = topic.limits(self._state.release)
        done = partition.log.append(batch, partition.leader_epoch, limits, self._state.wall_ms)
        self._state.changed.add((name, partition.index))
        return PartitionProduceResponse(
            index=partition.index,
            base_offset=done.base_offset,
            log_append_time_ms=done.append_time,
            log_start_offset=partition.log.start_offset,
        )

    def _init_producer_id(self, call: BrokerCall) -> InitProducerIdResponse:
        request: InitProducerIdRequest = call.request
        if request.transactional_id is not None:  # there are no transactions
            return InitProducerIdResponse(error_code=errors.UnsupportedVersionError.code, producer_epoch=-1)
        if (request.producer_id == -1) != (request.producer_epoch == -1):
            return InitProducerIdResponse(error_code=errors.InvalidRequestError.code, producer_epoch=-1)
        self._producer_ids += 1
        return InitProducerIdResponse(producer_id=self._producer_ids - 1, producer_epoch=0)


def single_batch(data: bytes | memoryview | None, version: int) -> StoredBatch:
    """Returns the batch of a partition's data, of which there is exactly one. Raises `Refused`."""
    try:
        found = list(parse_all(data or b""))
    except CorruptBatchError as error:
        raise Refused(errors.CorruptMessageError, str(error)) from error
    except OldFormatError as error:
        raise Refused(errors.InvalidRecordError, str(error)) from error
    if len(found) != 1:
        raise Refused(errors.InvalidRecordError, "a partition's data is exactly one record batch")
    if found[0].is_zstd and version < 7:
        raise Refused(errors.UnsupportedCompressionTypeError)
    return found[0]
