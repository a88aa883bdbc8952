"""Produce: batches of one request, each appended to its partition's log or refused.

Theory of operation. Arrives: a request with one batch for each of some partitions. Decided: for each
partition the offset that its batch has got, or an error; for the request, whether there is a response at all.
In this order:

1. What a producer without a transactional id writes can't be transactional: the request is refused as a
   whole.
2. The partition exists, by the name or id that the request has. Its data is exactly one batch of format v2,
   with a compression that the request's version allows.
3. A transactional batch of a producer without an open transaction here is verified: the leader asks the
   transaction's coordinator whether the partition is in it, or, from version 12 on, has it added (KIP-890).
   Errors of that question that clients would not retry are told as ones that they do (`_TOLD`).
4. This broker leads the partition, and for acks=all enough replicas are alive.
5. The log has its own rules: sizes, checksums, timestamps, sequences (`PartitionLog.append`,
   `ProducerStates`).

An error says as much as Kafka's: where the log starts, unless the error is of a kind that comes before the
log is looked at (`_WITHOUT_START`) or of verification; which records of a batch were at fault; and from
version 10 on who leads the partition now, with its address, so that a client needs no Metadata (KIP-951).

With acks=0 there is no response, and an error closes the connection: that is all that such a producer can
learn. Bytes count towards the client's quota before anything is decided, also those of a batch that is then
refused.

Source: `KafkaApis.handleProduceRequest`, `ReplicaManager.handleProduceAppend` and `appendToLocalLog`; KIP-98,
KIP-467, KIP-890, KIP-951.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from kafka_actors import errors
from kafka_actors.protocol import (
    ApiKey,
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
from .error_answers import Refused, error_response
from .partition_log import InvalidRecords
from .record_batches import CorruptBatchError, OldFormatError, StoredBatch, parse_all
from .transaction_requests import TransactionHandlers

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
_BOUNDS_MIN_ISR = (3, 7)
"""Release from which on `min.insync.replicas` counts for no more than a partition's replicas."""
_KNOWS_ABORTABLE, _ADDS = 11, 12
"""Versions from which on clients know TRANSACTION_ABORTABLE, and have partitions added to transactions by writing to them."""
_TOLD: dict[type[errors.KafkaError], type[errors.KafkaError]] = {
    errors.ConcurrentTransactionsError: errors.NotEnoughReplicasError
}
"""The coordinator's errors that clients would not retry, and what they are told instead."""


class ProduceHandlers:
    """Appends to logs."""

    def __init__(self, state: ClusterState, transactions: TransactionHandlers) -> None:
        self._state = state
        self._transactions = transactions
        self.handlers: dict[ApiKey, Callable[[BrokerCall], Any]] = {ApiKey.PRODUCE: self._produce}

    def _produce(self, call: BrokerCall) -> ProduceResponse | None:
        """Appends each partition's batch.

        The quota counts first, by the bytes that came, whatever becomes of them.
        """
        request: ProduceRequest = call.request
        size = sum(len(data.records or b"") for topic in request.topic_data for data in topic.partition_data)
        call.throttle_ms = self._state.quotas.written(call.node_id, call.client_id, size, self._state.now)
        if request.transactional_id is None and any(
            _is_transactional(data) for topic in request.topic_data for data in topic.partition_data
        ):
            code = errors.TransactionalIdAuthorizationFailedError.code
            response: Any = error_response(request, call.version, code)
            return self._answered(call, response, failed=True)
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
        response = ProduceResponse(responses=responses, node_endpoints=list(leaders.values()))
        return self._answered(call, response, failed=failed)

    def _answered(
        self, call: BrokerCall, response: ProduceResponse, *, failed: bool
    ) -> ProduceResponse | None:
        """Returns the response, or, where the producer wants none (acks=0), closes the connection if anything
        failed.
        """
        if call.request.acks != _NONE:
            return response
        call.closes = failed
        call.respond(None)
        return None

    def _append(
        self, call: BrokerCall, name: str, data: PartitionProduceData, leaders: dict[int, NodeEndpoint]
    ) -> PartitionProduceResponse:
        """Appends one batch, and makes the partition's part of the response, with as much about an error as
        Kafka tells.
        """
        partition: FakePartition | None = None
        batch: StoredBatch | None = None
        try:
            if call.version >= 13 and not name:
                raise Refused(errors.UnknownTopicIdError)
            partition = self._state.partition(name, data.index)
            batch = single_batch(data.records, call.version)
            self._verify(call, name, partition, batch)
            return self._write(call, name, partition, batch)
        except Refused as refused:
            start = -1
            if (
                not isinstance(refused, NotVerified)
                and partition is not None
                and batch is not None
                and refused.code not in _WITHOUT_START
            ):
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

    def _verify(self, call: BrokerCall, name: str, partition: FakePartition, batch: StoredBatch) -> None:
        """Has the coordinator asked before the first batch of a transaction. Raises `Refused`."""
        if not batch.is_transactional or batch.producer_id < 0:
            return
        self._state.led_by(call.node_id, name, partition.index)
        producer = (batch.producer_id, batch.producer_epoch)
        from_0 = call.version >= _ADDS
        try:
            old = self._state.release < (4, 0)
            if not old:
                partition.log.producers.check_epoch(*producer)
            if not partition.log.producers.to_verify(
                *producer, batch.base_sequence, from_0=from_0, of_any_epoch=old
            ):
                return
            self._transactions.join(
                call.request.transactional_id,
                *producer,
                (name, partition.index),
                add=call.version >= _ADDS,
                old=call.version < _KNOWS_ABORTABLE,
            )
        except Refused as refused:
            raise NotVerified(_TOLD.get(refused.error, refused.error)) from None

    def _write(
        self, call: BrokerCall, name: str, partition: FakePartition, batch: StoredBatch
    ) -> PartitionProduceResponse:
        """Appends a verified batch as the leader.

        `changed` has long polls look at the partition again. Raises `Refused`.
        """
        if call.request.acks not in (-1, 0, 1):
            raise Refused(errors.InvalidRequiredAcksError)
        self._state.led_by(call.node_id, name, partition.index)
        topic = self._state.topics[name]
        needed = topic.min_insync_replicas
        if self._state.release >= _BOUNDS_MIN_ISR:
            needed = min(needed, len(partition.replicas))
        if call.request.acks == _ALL and len(self._state.isr(partition)) < needed:
            raise Refused(errors.NotEnoughReplicasError)
        limits = topic.limits(self._state.release)
        now = self._state.wall_ms
        done = partition.log.append(batch, partition.leader_epoch, limits, now)
        self._state.changed.add((name, partition.index))
        return PartitionProduceResponse(
            index=partition.index,
            base_offset=done.base_offset,
            log_append_time_ms=done.append_time,
            log_start_offset=partition.log.start_offset,
        )


class NotVerified(Refused):
    """The coordinator does not know a transaction, or not with this partition."""


def _is_transactional(data: PartitionProduceData) -> bool:
    try:
        first = next(iter(parse_all(data.records or b"")), None)
    except (CorruptBatchError, OldFormatError):
        return False
    return first is not None and first.is_transactional


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
