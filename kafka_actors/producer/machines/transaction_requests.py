"""The requests of transactions, made for one producer id and epoch, and the error in an answer to one.

Theory of operation. `TransactionManager` decides what is asked next; this module says how it is asked, and
reads the answers. Nothing here has state or time.

- `TransactionScope` is what all requests of a transaction have in common. Its version says which newest
  versions of a request may be used: newer ones tell a broker that this client does as transaction version 2
  wants (KIP-890), where a write adds its partition to the transaction and EndTxn returns the next epoch. So
  the versions are bounded from above below version 2, and from below at 2.
- Two coordinators take part: that of the transactional id, and for offsets that of the group (`group_of`). A
  request whose `node` is None goes to any broker; `find_coordinator` makes the request that has to come
  before it.
- `commit_offsets` names the group's generation and member, by which the coordinator refuses the offsets of a
  consumer that the group has left behind (KIP-447). More offsets than it writes at once go in several requests.
  `fetch_offsets` asks afterwards whether a transaction of unknown outcome has moved the group's offsets
  (`committed_by`), and waits for transactions that are still open (`require_stable`).
- A response may have several errors, one for each partition. `answered_error` returns the one that says most,
  by what it does to the transaction; OPERATION_NOT_ATTEMPTED, which brokers give the partitions beside a bad
  one, says least.

Source: `TransactionManager.java`, `AddPartitionsToTxnRequest` and its siblings; KIP-98, KIP-360, KIP-447,
KIP-890.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from msgspec import Struct, field

from kafka_actors.errors import (
    KafkaError,
    OffsetMetadataTooLargeError,
    OperationNotAttemptedError,
    error_for_code,
)
from kafka_actors.group.commit_metadata import COMMIT_BYTES, CommitMetadata, at_once, pack, unpack
from kafka_actors.group.machines.offset_fetch import offset_fetch_request, read_offset_fetch
from kafka_actors.protocol import (
    AddOffsetsToTxnRequest,
    AddPartitionsToTxnRequest,
    EndTxnRequest,
    FindCoordinatorRequest,
    FindCoordinatorResponse,
    InitProducerIdRequest,
    OffsetFetchResponse,
    TxnOffsetCommitRequest,
)
from kafka_actors.protocol.messages.add_partitions_to_txn import AddPartitionsToTxnTopic
from kafka_actors.protocol.messages.txn_offset_commit import (
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
)
from kafka_actors.types import ConsumerGroupMetadata, OffsetAndMetadata, TopicPartition

from .batch import NO_PRODUCER
from .transaction_errors import TransactionApi, TransactionErrorAction, transaction_action

CONCURRENT_S = 0.02
"""Seconds until the next try where markers of the transaction before are still being written, Java's; they take moments."""
GROUP_KEY, TRANSACTION_KEY = 0, 1
"""Types of keys in FindCoordinator."""
RAISES_EPOCHS_SINCE = 3
"""The first version of InitProducerId that raises an epoch (KIP-360, Kafka 2.5). Older brokers are refused before a transaction needs it."""
BEFORE_VERSION_2 = {TransactionApi.END: 4, TransactionApi.OFFSET_COMMIT: 4, TransactionApi.PRODUCE: 11}
"""Highest versions of requests below transaction version 2."""

_API = TransactionApi


class TransactionScope(Struct, frozen=True):
    """The producer of a transaction, and the transaction version of the cluster."""

    transactional_id: str
    producer_id: int = NO_PRODUCER
    producer_epoch: int = NO_PRODUCER
    version: int = 0

    def versions(self, api: TransactionApi) -> tuple[int | None, int | None]:
        """Returns the lowest and the highest version of a request that may be used."""
        highest = BEFORE_VERSION_2[api]
        return (None, highest) if self.version < 2 else (highest + 1, None)

    def asks(self, api: TransactionApi, body: object, node: int | None) -> TransactionRequest:
        """Returns a request in the versions that may be used."""
        low, high = self.versions(api)
        return TransactionRequest(api, body, node, min_version=low, max_version=high)


class TransactionRequest(Struct, frozen=True, eq=False):
    """One request. `node` is the broker to ask, None for any; versions are between `min_version` and `max_version`."""

    api: TransactionApi
    body: Any
    node: int | None = None
    min_version: int | None = None
    max_version: int | None = None


class TakeIdentity(Struct, frozen=True):
    """Write with this producer id and epoch from now on, sequences from 0."""

    producer_id: int
    producer_epoch: int


TransactionAction = TransactionRequest | TakeIdentity


class OffsetsInTransaction(Struct, eq=False):
    """Offsets that a transaction is to commit for a group. `transaction` is its name in their metadata, empty where they go without;
    `done` once the group's coordinator has `taken` them all. `again`: they may be given once more after one was `refused` because of the
    membership."""

    offsets: Mapping[TopicPartition, OffsetAndMetadata]
    group: ConsumerGroupMetadata
    transaction: str = ""
    done: bool = False
    again: bool = False
    refused: Exception | None = None
    taken: set[TopicPartition] = field(default_factory=set)

    def take(self, request: TxnOffsetCommitRequest) -> bool:
        """Notes that the coordinator has taken the offsets of a request. Returns whether it has all."""
        self.taken |= {
            TopicPartition(t.name, p.partition_index) for t in request.topics for p in t.partitions
        }
        self.done = self.taken >= self.offsets.keys()
        return self.done


def group_of(request: TransactionRequest) -> str | None:
    """Returns the group whose coordinator a request is for; None where it is for that of the transactional id."""
    if request.api is _API.OFFSET_FETCH:
        name: str = request.body.groups[0].group_id
        return name
    return request.body.group_id if request.api is _API.OFFSET_COMMIT else None


def for_offsets(request: TransactionRequest) -> bool:
    """Whether a request is on the way to a group's coordinator with a transaction's offsets."""
    if request.api is _API.FIND_COORDINATOR:
        return bool(request.body.key_type == GROUP_KEY)
    return request.api in (_API.ADD_OFFSETS, _API.OFFSET_COMMIT)


def ends(request: TransactionRequest) -> bool:
    """Whether errors of a request concern an abort; those of others that were on their way when it began don't matter any more."""
    asked = (_API.END, _API.INIT_PRODUCER_ID, _API.FIND_COORDINATOR, _API.OFFSET_FETCH)
    return request.api in asked and not for_offsets(request)


def coordinator_of(response: FindCoordinatorResponse) -> int:
    """Returns the node that an answer without an error names, before version 4 in the response itself."""
    node: int = (response.coordinators[0] if response.coordinators else response).node_id
    return node


def find_coordinator(request: TransactionRequest, transactional_id: str) -> TransactionRequest:
    """Returns the request that finds the broker for another one."""
    group = group_of(request)
    body = FindCoordinatorRequest(
        key_type=TRANSACTION_KEY if group is None else GROUP_KEY,
        coordinator_keys=[transactional_id if group is None else group],
    )
    return TransactionRequest(_API.FIND_COORDINATOR, body)


def init_producer_id(scope: TransactionScope, timeout_ms: int, node: int | None) -> TransactionRequest:
    """Returns the request for a producer id, or for the next epoch of the present one (KIP-360)."""
    body = InitProducerIdRequest(
        transactional_id=scope.transactional_id,
        transaction_timeout_ms=timeout_ms,
        producer_id=scope.producer_id,
        producer_epoch=scope.producer_epoch,
    )
    return TransactionRequest(_API.INIT_PRODUCER_ID, body, node, min_version=RAISES_EPOCHS_SINCE)


def add_partitions(
    scope: TransactionScope, partitions: Iterable[TopicPartition], node: int | None
) -> TransactionRequest:
    """Returns the request that adds partitions to the transaction. Newer versions than 3 are for brokers."""
    topics: dict[str, list[int]] = {}
    for topic, partition in partitions:
        topics.setdefault(topic, []).append(partition)
    body = AddPartitionsToTxnRequest(
        v3_and_below_transactional_id=scope.transactional_id,
        v3_and_below_producer_id=scope.producer_id,
        v3_and_below_producer_epoch=scope.producer_epoch,
        v3_and_below_topics=[AddPartitionsToTxnTopic(name=t, partitions=p) for t, p in topics.items()],
    )
    return TransactionRequest(_API.ADD_PARTITIONS, body, node, max_version=3)


def add_offsets(scope: TransactionScope, group_id: str, node: int | None) -> TransactionRequest:
    """Returns the request that adds a group's offsets to the transaction."""
    body = AddOffsetsToTxnRequest(
        transactional_id=scope.transactional_id,
        producer_id=scope.producer_id,
        producer_epoch=scope.producer_epoch,
        group_id=group_id,
    )
    return TransactionRequest(_API.ADD_OFFSETS, body, node)


def commit_offsets(
    scope: TransactionScope, wanted: OffsetsInTransaction, node: int | None
) -> TransactionRequest:
    """Returns the request that has a group's offsets committed with the transaction, or as many as its coordinator writes at once."""
    topics: dict[str, list[TxnOffsetCommitRequestPartition]] = {}
    left = {tp: offset for tp, offset in wanted.offsets.items() if tp not in wanted.taken}
    for tp in at_once(left, COMMIT_BYTES):
        (topic, partition), (offset, metadata, leader_epoch) = tp, left[tp]
        entry = TxnOffsetCommitRequestPartition(
            partition_index=partition,
            committed_offset=offset,
            committed_leader_epoch=leader_epoch,
            committed_metadata=metadata,
        )
        topics.setdefault(topic, []).append(entry)
    body = TxnOffsetCommitRequest(
        transactional_id=scope.transactional_id,
        group_id=wanted.group.group_id,
        producer_id=scope.producer_id,
        producer_epoch=scope.producer_epoch,
        generation_id=wanted.group.generation_id,
        member_id=wanted.group.member_id,
        group_instance_id=wanted.group.group_instance_id,
        topics=[TxnOffsetCommitRequestTopic(name=t, partitions=p) for t, p in topics.items()],
    )
    return scope.asks(_API.OFFSET_COMMIT, body, node)


def fetch_offsets(wanted: OffsetsInTransaction, node: int | None) -> TransactionRequest:
    """Returns the request for the offsets that a group has committed of these partitions, once no transaction moves them."""
    body = offset_fetch_request(wanted.group.group_id, wanted.offsets, require_stable=True)
    return TransactionRequest(_API.OFFSET_FETCH, body, node)


def in_transaction(
    offsets: Mapping[TopicPartition, OffsetAndMetadata], transaction: str
) -> dict[TopicPartition, OffsetAndMetadata]:
    """Returns offsets whose metadata names the transaction that commits them."""
    return {
        tp: offset._replace(metadata=_in_transaction(unpack(offset.metadata), transaction))
        for tp, offset in offsets.items()
    }


def _in_transaction(own: CommitMetadata, transaction: str) -> str:
    return pack(own.text, own.topic_id, own.cluster_id, transaction=transaction, done=own.done)


def shortened(wanted: OffsetsInTransaction, error: Exception) -> bool:
    """Leaves the users' own texts alone in the metadata of offsets, where a broker takes no longer ones. Returns False where that was done
    before, and where records that are done beyond an offset would be forgotten: they would be written twice."""
    own = {tp: unpack(offset.metadata) for tp, offset in wanted.offsets.items()}
    if not isinstance(error, OffsetMetadataTooLargeError) or any(part.done for part in own.values()):
        return False
    if not wanted.transaction:
        return False
    wanted.offsets = {tp: o._replace(metadata=own[tp].text) for tp, o in wanted.offsets.items()}
    wanted.transaction = ""
    return True


def committed_by(wanted: OffsetsInTransaction, response: OffsetFetchResponse) -> bool | None:
    """Whether a group's committed offsets show that the transaction which was to commit these was committed: one that names it says
    so, and one that is behind its own says that it wasn't. None where others have committed since: they went on from either."""
    found = read_offset_fetch(response, wanted.group.group_id).offsets
    for tp, offset in wanted.offsets.items():
        now = found.get(tp)
        if now is None or now.offset < offset.offset:
            return False
        if (now.offset, now.metadata) == (offset.offset, offset.metadata) and _names(
            offset, wanted.transaction
        ):
            return True
    return None


def _names(offset: OffsetAndMetadata, transaction: str) -> bool:
    """Whether there was room for the transaction in the metadata."""
    return bool(transaction) and f'"{transaction}"' in offset.metadata


def end(scope: TransactionScope, node: int | None, *, committed: bool) -> TransactionRequest:
    """Returns the request that ends the transaction."""
    body = EndTxnRequest(
        transactional_id=scope.transactional_id,
        producer_id=scope.producer_id,
        producer_epoch=scope.producer_epoch,
        committed=committed,
    )
    return scope.asks(_API.END, body, node)


def answered_error(request: TransactionRequest, response: Any) -> KafkaError | None:
    """Returns the error in a response, None if there is none. Of several it is the one that says most: one that no retry mends, if
    any, and never that an operation wasn't attempted because of another."""
    name = request.api.value
    if request.api is _API.FIND_COORDINATOR:
        answer = response.coordinators[0] if response.coordinators else response
        group = request.body.coordinator_keys[0] if request.body.key_type == GROUP_KEY else None
        return error_for_code(answer.error_code, answer.error_message or None, request=name, group=group)
    if request.api is _API.ADD_PARTITIONS:
        codes = [
            (topic.name, p.partition_index, p.partition_error_code)
            for topic in response.results_by_topic_v3_and_below
            for p in topic.results_by_partition
        ]
    elif request.api is _API.OFFSET_FETCH:
        found = read_offset_fetch(response, request.body.groups[0].group_id)
        return found.error or next(iter(found.errors.values()), None)
    elif request.api is _API.OFFSET_COMMIT:
        codes = [(t.name, p.partition_index, p.error_code) for t in response.topics for p in t.partitions]
    else:
        group = request.body.group_id if request.api is _API.ADD_OFFSETS else None
        return error_for_code(response.error_code, request=name, group=group)
    group = request.body.group_id if request.api is _API.OFFSET_COMMIT else None
    errors = [
        error
        for topic, partition, code in codes
        if (error := error_for_code(code, request=name, topic=topic, partition=partition, group=group))
    ]
    return max(errors, key=lambda error: _weight(request.api, error), default=None)


_WEIGHTS = {
    TransactionErrorAction.RETRY: 1,
    TransactionErrorAction.REDISCOVER: 2,
    TransactionErrorAction.ABORT: 3,
    TransactionErrorAction.FATAL: 4,
}


def _weight(api: TransactionApi, error: KafkaError) -> int:
    return 0 if isinstance(error, OperationNotAttemptedError) else _WEIGHTS[transaction_action(api, error)]
