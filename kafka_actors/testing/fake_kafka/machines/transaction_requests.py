"""Requests to the coordinators of transactions, and the markers that they write.

Theory of operation. Each request changes one `Transaction`, at the broker that leads the transactional id's partition of
`__transaction_state`. When its end is prepared, the markers are written at once in all its partitions that have a leader; where one
has none, the transaction goes on ending until it has (`go_on`), and clients see CONCURRENT_TRANSACTIONS meanwhile. A group's partition
of the offsets topic gets its marker in `OffsetStore`. Transactions that are open for too long are aborted at the next look of their
coordinator, under an epoch that fences their producer: brokers look at intervals from their start on, so a transaction outlives an
outage. Transactional ids that nobody used for long are forgotten when somebody asks.

Leaders ask as well (`join`), before the first batch of a transaction: whether its partition was added, or, under version 2 of the
protocol, to add it. Clients of older versions get the codes that they know in place of newer ones (`_older`).

Source: `KafkaApis`, `TransactionCoordinator`, `TransactionStateManager`, `AddPartitionsToTxnManager`; KIP-98, KIP-360, KIP-664, KIP-890.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import partial
from typing import Any

from kafka_actors import errors
from kafka_actors.protocol import (
    AddOffsetsToTxnRequest,
    AddOffsetsToTxnResponse,
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
    ApiKey,
    DescribeTransactionsRequest,
    DescribeTransactionsResponse,
    EndTxnRequest,
    EndTxnResponse,
    InitProducerIdRequest,
    InitProducerIdResponse,
    ListTransactionsRequest,
    ListTransactionsResponse,
)
from kafka_actors.protocol.messages.add_partitions_to_txn import (
    AddPartitionsToTxnPartitionResult,
    AddPartitionsToTxnResult,
    AddPartitionsToTxnTopicResult,
    AddPartitionsToTxnTransaction,
)
from kafka_actors.protocol.messages.describe_transactions import TopicData, TransactionState
from kafka_actors.protocol.messages.list_transactions import TransactionState as ListedState

from .calls import BrokerCall
from .cluster_state import NO_LEADER, ClusterState
from .error_answers import Refused
from .group_offsets import OffsetStore
from .timers import BrokerTimer, cancel
from .transactions import ONGOING, PREPARE_COMMIT, STATES, Place, Transaction

_FENCED, _OLD_EPOCH = errors.ProducerFencedError.code, errors.InvalidProducerEpochError.code


class TransactionHandlers:
    """The transactions of all coordinators, and the requests about them. level: the cluster's `transaction.version`. It decides how
    coordinators fence, and what clients choose; requests of the newer versions are carried out as version 2 at any level."""

    def __init__(self, state: ClusterState, offsets: OffsetStore, level: int) -> None:
        self._state = state
        self._offsets = offsets
        self.level = level
        self.transactions: dict[str, Transaction] = {}
        self._ending: set[str] = set()
        self._looks: dict[str, BrokerTimer] = {}
        self._seen = 0
        self.handlers: dict[ApiKey, Callable[[BrokerCall], Any]] = {
            ApiKey.INIT_PRODUCER_ID: self._init_producer_id,
            ApiKey.ADD_PARTITIONS_TO_TXN: self._add_partitions,
            ApiKey.ADD_OFFSETS_TO_TXN: self._add_offsets,
            ApiKey.END_TXN: self._end,
            ApiKey.LIST_TRANSACTIONS: self._list,
            ApiKey.DESCRIBE_TRANSACTIONS: self._describe,
        }

    @property
    def version_2(self) -> bool:
        """Whether the cluster has finalized version 2 of the protocol of transactions, which clients may use."""
        return self.level >= 2

    def state_of(self, transactional_id: str) -> str:
        """Name of a transaction's state; Dead where there is none."""
        txn = self._kept(transactional_id)
        return txn.state if txn is not None else "Dead"

    def _of(self, call: BrokerCall, transactional_id: str) -> Transaction | None:
        if self._state.transactions_topic.leader_of(transactional_id) != call.node_id:
            raise Refused(errors.NotCoordinatorError)
        return self._kept(transactional_id)

    def _kept(self, transactional_id: str) -> Transaction | None:
        """A transaction that is known, and has not been idle for so long that it is forgotten."""
        txn = self.transactions.get(transactional_id)
        if txn is None or txn.state == ONGOING or txn.ending:
            return txn
        if self._state.wall_ms < txn.updated_ms + self._state.settings.transactional_id_expiration_ms:
            return txn
        del self.transactions[transactional_id]
        return None

    def _known(self, call: BrokerCall, transactional_id: str) -> Transaction:
        if not transactional_id:
            raise Refused(errors.InvalidRequestError)
        txn = self._of(call, transactional_id)
        if txn is None:
            raise Refused(errors.InvalidProducerIdMappingError)
        return txn

    # ---------------------------------------------------------------- InitProducerId

    def _init_producer_id(self, call: BrokerCall) -> InitProducerIdResponse:
        request: InitProducerIdRequest = call.request
        try:
            if (request.producer_id == -1) != (request.producer_epoch == -1):
                raise Refused(errors.InvalidRequestError)
            if request.transactional_id is None:
                return InitProducerIdResponse(producer_id=self._state.new_producer_id(), producer_epoch=0)
            txn = self._init(call, request, request.transactional_id)
        except Refused as refused:
            code = _older(refused.code, call.version, since=4)
            return InitProducerIdResponse(error_code=code, producer_epoch=-1)
        return InitProducerIdResponse(producer_id=txn.producer_id, producer_epoch=txn.epoch)

    def _init(self, call: BrokerCall, request: InitProducerIdRequest, transactional_id: str) -> Transaction:
        timeout_ms = request.transaction_timeout_ms
        if not transactional_id:
            raise Refused(errors.InvalidRequestError)
        if not 0 < timeout_ms <= self._state.settings.transaction_max_timeout_ms:
            raise Refused(errors.InvalidTransactionTimeoutError)
        txn = self._of(call, transactional_id)
        now = self._state.wall_ms
        if txn is None:
            txn = Transaction(self._state.new_producer_id(), timeout_ms, now)
            self.transactions[transactional_id] = txn
        expected = None if request.producer_id == -1 else (request.producer_id, request.producer_epoch)
        try:
            txn.init(expected, timeout_ms, self._state.new_producer_id, now, version_2=self.version_2)
        finally:
            self._write_markers(transactional_id, txn)
        return txn

    # ---------------------------------------------------------------- partitions

    def _add_partitions(self, call: BrokerCall) -> AddPartitionsToTxnResponse:
        request: AddPartitionsToTxnRequest = call.request
        if call.version >= 4:
            results = [
                AddPartitionsToTxnResult(txn.transactional_id, self._added(call, txn))
                for txn in request.transactions
            ]
            return AddPartitionsToTxnResponse(results_by_transaction=results)
        txn = AddPartitionsToTxnTransaction(
            request.v3_and_below_transactional_id,
            request.v3_and_below_producer_id,
            request.v3_and_below_producer_epoch,
            topics=request.v3_and_below_topics,
        )
        return AddPartitionsToTxnResponse(results_by_topic_v3_and_below=self._added(call, txn))

    def _added(
        self, call: BrokerCall, wanted: AddPartitionsToTxnTransaction
    ) -> list[AddPartitionsToTxnTopicResult]:
        places = [(topic.name, index) for topic in wanted.topics for index in topic.partitions]
        missing = {place for place in places if not self._exists(place)}
        codes: dict[Place, int] = {}
        if missing:
            lost, others = errors.UnknownTopicOrPartitionError.code, errors.OperationNotAttemptedError.code
            codes = {place: lost if place in missing else others for place in places}
        elif wanted.verify_only:
            for place in places:
                codes[place] = self._code(call, wanted, partial(_verify, place))
        else:
            code = self._code(
                call, wanted, lambda txn, id_epoch: self._add(wanted.transactional_id, txn, *id_epoch, places)
            )
            codes = dict.fromkeys(places, _older(code, call.version, since=2))
        return [
            AddPartitionsToTxnTopicResult(
                topic.name,
                [AddPartitionsToTxnPartitionResult(i, codes[topic.name, i]) for i in topic.partitions],
            )
            for topic in wanted.topics
        ]

    def _code(
        self,
        call: BrokerCall,
        wanted: AddPartitionsToTxnTransaction | AddOffsetsToTxnRequest,
        change: Callable[[Transaction, tuple[int, int]], object],
    ) -> int:
        try:
            txn = self._known(call, wanted.transactional_id)
            change(txn, (wanted.producer_id, wanted.producer_epoch))
        except Refused as refused:
            return refused.code
        return 0

    def _exists(self, place: Place) -> bool:
        name, index = place
        topic = self._state.topics.get(name)
        return topic is not None and 0 <= index < len(topic.partitions)

    def _add_offsets(self, call: BrokerCall) -> AddOffsetsToTxnResponse:
        request: AddOffsetsToTxnRequest = call.request
        place = self.offsets_place(request.group_id)
        code = self._code(
            call, request, lambda txn, id_epoch: self._add(request.transactional_id, txn, *id_epoch, [place])
        )
        return AddOffsetsToTxnResponse(error_code=_older(code, call.version, since=2))

    def offsets_place(self, group_id: str) -> Place:
        """The partition of the offsets topic that has a group's offsets."""
        topic = self._state.offsets_topic
        return topic.name, topic.partition_of(group_id)

    def _add(
        self, transactional_id: str, txn: Transaction, producer_id: int, epoch: int, places: list[Place]
    ) -> None:
        began = txn.state != ONGOING
        txn.add(producer_id, epoch, places, self._state.wall_ms)
        if began:
            self._watch(transactional_id, txn)

    def join(
        self,
        transactional_id: str | None,
        producer_id: int,
        epoch: int,
        place: Place,
        *,
        add: bool,
        old: bool,
    ) -> None:
        """Asks the coordinator, as a partition's leader does before the first write of a transaction. Raises `Refused`.

        add: the partition is added where it is not in the transaction (version 2 of the protocol). old: the client does not know
        TRANSACTION_ABORTABLE.
        """
        if self._state.release < (3, 6):  # brokers did not ask
            return
        try:
            if not transactional_id:
                raise Refused(errors.InvalidRequestError)
            txn = self._kept(transactional_id)
            if txn is None:
                raise Refused(errors.InvalidProducerIdMappingError)
            if add:
                self._add(transactional_id, txn, producer_id, epoch, [place])
            else:
                txn.verify(producer_id, epoch, place)
        except Refused as refused:
            if refused.code == _FENCED:
                raise Refused(errors.InvalidProducerEpochError) from None
            if refused.code == errors.TransactionAbortableError.code and old:
                raise Refused(errors.InvalidTxnStateError) from None
            raise

    # ---------------------------------------------------------------- the end

    def _end(self, call: BrokerCall) -> EndTxnResponse:
        request: EndTxnRequest = call.request
        try:
            txn = self._known(call, request.transactional_id)
            txn.end(
                request.producer_id,
                request.producer_epoch,
                request.committed,
                self._state.new_producer_id,
                self._state.wall_ms,
                version_2=call.version >= 5,
            )
        except Refused as refused:
            return EndTxnResponse(error_code=_older(refused.code, call.version, since=2))
        answered = txn.answered
        self._write_markers(request.transactional_id, txn)
        return EndTxnResponse(producer_id=answered[0], producer_epoch=answered[1])

    def _watch(self, transactional_id: str, txn: Transaction) -> None:
        """Has the transaction looked at when its time is over, by its coordinator: at intervals from the broker's start on."""
        cancel(self._looks.pop(transactional_id, None))
        node = self._state.nodes.get(self._state.transactions_topic.leader_of(transactional_id))
        if node is None:
            return
        turn = self._state.settings.transaction_abort_timed_out_transaction_cleanup_interval_ms
        now = self._state.wall_ms
        turns = max(-(-(max(txn.timed_out_ms, now) - node.started_ms) // turn), 1)
        wait = node.started_ms + turns * turn - now
        self._looks[transactional_id] = self._state.after(wait, lambda: self._look(transactional_id, txn))

    def _look(self, transactional_id: str, txn: Transaction) -> None:
        if txn.state == ONGOING:
            txn.fence(self._state.wall_ms, version_2=self.version_2)
            self._write_markers(transactional_id, txn)

    def go_on(self) -> None:
        """Writes the markers that wait for a leader; has open transactions looked at by those that coordinate them now."""
        if self._seen != self._state.transactions_topic.changes:
            self._seen = self._state.transactions_topic.changes
            for transactional_id in [i for i, txn in self.transactions.items() if txn.state == ONGOING]:
                self._watch(transactional_id, self.transactions[transactional_id])
        for transactional_id in list(self._ending):
            self._write_markers(transactional_id, self.transactions[transactional_id])

    def _write_markers(self, transactional_id: str, txn: Transaction) -> None:
        self._ending.discard(transactional_id)
        if not txn.ending:
            return
        epoch = self._state.transactions_topic.epoch_of(transactional_id)
        for place in sorted(txn.partitions):
            if self._write_marker(txn, place, epoch):
                txn.partitions.discard(place)
        if txn.partitions:
            self._ending.add(transactional_id)
        else:
            txn.complete(self._state.wall_ms)

    def _write_marker(self, txn: Transaction, place: Place, coordinator_epoch: int) -> bool:
        name, index = place
        committed = txn.state == PREPARE_COMMIT
        if name == self._state.offsets_topic.name:
            self._offsets.end(index, txn.producer_id, txn.epoch, committed)
            return True
        if not self._exists(place):  # it was deleted
            return True
        partition = self._state.partition(name, index)
        if partition.leader == NO_LEADER:
            return False
        partition.log.end_transaction(
            txn.producer_id,
            txn.epoch,
            committed=committed,
            coordinator_epoch=coordinator_epoch,
            leader_epoch=partition.leader_epoch,
            now_ms=self._state.wall_ms,
        )
        self._state.changed.add(place)
        return True

    # ---------------------------------------------------------------- administration

    def _list(self, call: BrokerCall) -> ListTransactionsResponse:
        request: ListTransactionsRequest = call.request
        try:
            pattern = re.compile(request.transactional_id_pattern or ".*", re.DOTALL)
        except re.error:
            return ListTransactionsResponse(error_code=errors.InvalidRegularExpressionError.code)
        now = self._state.wall_ms
        found = [
            ListedState(transactional_id, txn.producer_id, txn.state)
            for transactional_id, txn in self.transactions.items()
            if self._state.transactions_topic.leader_of(transactional_id) == call.node_id
            and (not request.producer_id_filters or txn.producer_id in request.producer_id_filters)
            and (not request.state_filters or txn.state in request.state_filters)
            and not 0 <= now - txn.started_ms <= request.duration_filter
            and pattern.fullmatch(transactional_id)
        ]
        unknown = [state for state in dict.fromkeys(request.state_filters) if state not in STATES]
        return ListTransactionsResponse(unknown_state_filters=unknown, transaction_states=found)

    def _describe(self, call: BrokerCall) -> DescribeTransactionsResponse:
        request: DescribeTransactionsRequest = call.request
        return DescribeTransactionsResponse(
            transaction_states=[self._described(call, i) for i in request.transactional_ids]
        )

    def _described(self, call: BrokerCall, transactional_id: str) -> TransactionState:
        try:
            if not transactional_id:
                raise Refused(errors.InvalidRequestError)
            txn = self._of(call, transactional_id)
            if txn is None:
                raise Refused(errors.TransactionalIdNotFoundError)
        except Refused as refused:
            return TransactionState(refused.code, transactional_id)
        topics: dict[str, list[int]] = {}
        for name, index in sorted(txn.partitions):
            topics.setdefault(name, []).append(index)
        return TransactionState(
            0,
            transactional_id,
            txn.state,
            txn.timeout_ms,
            txn.started_ms,
            txn.producer_id,
            txn.epoch,
            [TopicData(name, indexes) for name, indexes in topics.items()],
        )


def _verify(place: Place, txn: Transaction, producer: tuple[int, int]) -> None:
    txn.verify(*producer, place)


def _older(code: int, version: int, *, since: int) -> int:
    """The code that a client of an older version knows: PRODUCER_FENCED came later."""
    return _OLD_EPOCH if code == _FENCED and version < since else code
