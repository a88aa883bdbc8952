"""`TransactionManager`: one producer's transactions, from InitProducerId to the answer of EndTxn.

Theory of operation. Arrives: the user's verbs (`initialize`, or `adopt` where another process got the id; `begin`, `add_offsets`, `commit`, `abort`), partitions that batches are
about to be sent to (`admits`), batches that failed (`batch_failed`), whether any batch is unsettled or on the wire (`busy`), answers, and
time. Decided: the next request, one at a time, and the producer id and epoch to write with (`TakeIdentity`).

UNINITIALIZED ── initialize ──► INITIALIZING ──► READY ── begin ──► IN_TRANSACTION ── commit ──► COMMITTING ──► READY
                                                                          └────────── abort ───► ABORTING ────► READY

What errors do stands in `transaction_errors`. Rules of its own:

- EndTxn is sent only when no batch of the transaction is unsettled and no request with one is on the wire: brokers without KIP-890's
  check would take a late one into the next transaction.
- An EndTxn without an answer is sent again as it was, until it is answered: the coordinator answers a repeat as the first. An error
  after one without an answer leaves open whether it was committed (`outcome_unknown`), unless the group's stable offsets show it: their
  metadata names the transaction. InitProducerId only tells that a transaction is over.
- Transactions that take longer than `timeout_ms` are aborted by their coordinator. Below version 2 that fences the producer. With it
  EndTxn finds the transaction aborted (INVALID_TXN_STATE), and an abort of the client's returns the next epoch (KAFKA-19367).
- Versions. `transaction_version` 2 (KIP-890): partitions join a transaction when they are written to, offsets when they are
  committed, and each EndTxn returns the id and epoch of the next transaction. Below 2: AddPartitionsToTxn and AddOffsetsToTxn come
  first; the epoch stays, and after an abort with batches whose fate isn't known, InitProducerId with the present id and epoch
  raises it (KIP-360): with another one's epoch in force that is refused, so a fenced producer stays fenced.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from math import inf
from typing import Any, Never

from kafka_actors.base.backoff import RetryTimer
from kafka_actors.base.machine import Ready
from kafka_actors.errors import (
    ConcurrentTransactionsError,
    InvalidTxnStateError,
    KafkaActorsError,
    UsageError,
)
from kafka_actors.types import ConsumerGroupMetadata, OffsetAndMetadata, TopicPartition

from . import transaction_requests as requests
from .batch import NO_PRODUCER
from .transaction_errors import (
    AFTER,
    NOT_ENDED,
    REFUSED_MEMBERSHIP,
    TransactionApi,
    TransactionErrorAction,
    TransactionState,
    explained,
    out_of_turn,
    too_long_error,
    transaction_action,
)
from .transaction_requests import (
    OffsetsInTransaction,
    TakeIdentity,
    TransactionAction,
    TransactionRequest,
    TransactionScope,
    ends,
)

_API = TransactionApi
_S = TransactionState


class TransactionManager:
    """The transactions of one producer. `timeout_ms`: `transaction_timeout_ms`; `backoff`: between tries of a request; `offsets_s`:
    seconds for which offsets are sent again that are refused, before the transaction has to be aborted."""

    def __init__(
        self, transactional_id: str, timeout_ms: int, backoff: RetryTimer, *, offsets_s: float = inf
    ) -> None:
        self._id = transactional_id
        self._timeout_ms = timeout_ms
        self._backoff = backoff
        self.state = TransactionState.UNINITIALIZED
        self.error: KafkaActorsError | None = None
        """The error that the transaction, or the producer, ended with; None in the other states."""
        self.last_error: Exception | None = None
        """The error with which the last request ended that is sent again; None after one that ended well."""
        self.busy = False
        """Whether any batch is unsettled, or on the wire."""
        self.version = 0
        """The transaction version of the cluster in the present transaction."""
        self._coordinators: dict[str | None, int] = {}  # group → broker; None: of the transactional id
        self._identity = (NO_PRODUCER, NO_PRODUCER)
        self._actions: list[TransactionAction] = []
        self._in_flight: TransactionRequest | None = None
        self._not_before = 0.0
        self._new: dict[TopicPartition, None] = {}
        self._added: set[TopicPartition] = set()
        self._groups_added: set[str] = set()
        self._offsets: deque[OffsetsInTransaction] = deque()
        self._asked = False  # a request went out that may have begun the transaction at its coordinator
        self._begun = False  # one was acknowledged
        self._raise_epoch = False
        self._end_unanswered = False
        self.outcome_unknown = False
        """Whether the error leaves open if the last transaction was committed."""
        self._taken_offsets: list[OffsetsInTransaction] = []  # those that a group's coordinator has
        self._doubt: Exception | None = None  # the error that left it open, while offsets are asked for
        self.committed = False
        """Whether the last transaction was committed, even if the producer ended after that."""
        self._number = 0  # of the transaction
        self._offsets_s = offsets_s
        self._refused_since: float | None = None  # when offsets were refused first

    # ------------------------------------------------------------ verbs

    def initialize(self) -> None:
        """Gets the producer id: ends what an older producer of this transactional id left open, and fences that."""
        self._check("init_transactions", _S.UNINITIALIZED)
        self.state, self.error = _S.INITIALIZING, None

    def take_over(self, transactional_id: str) -> None:
        """Becomes the producer of another transactional id, or of its own once more, outside of a transaction: as `initialize`."""
        if self.state is not _S.UNINITIALIZED:
            self._check("take_over", _S.READY)
        self._id = transactional_id
        self._coordinators.pop(None, None)
        self.state, self.error = _S.INITIALIZING, None

    def adopt(self, producer_id: int, epoch: int) -> None:
        """Takes over an id and epoch that somebody else got for this transactional id, in place of `initialize`."""
        self._check("adopt", _S.UNINITIALIZED)
        self._identify(producer_id, epoch)
        self.state = _S.READY

    @property
    def told(self) -> bool:
        """Whether the sender has been told of the newest id and epoch."""
        return not self._actions

    def begin(self, version: int) -> None:
        """Begins a transaction under this transaction version of the cluster."""
        self._check("begin_transaction", _S.READY)
        self.state, self.version = _S.IN_TRANSACTION, version
        self._new.clear()
        self._added.clear()
        self._groups_added.clear()
        self._taken_offsets.clear()
        self._asked = self._begun = self._raise_epoch = self._end_unanswered = self.committed = False
        self._number += 1
        self._refused_since = None

    def add_offsets(
        self,
        offsets: Mapping[TopicPartition, OffsetAndMetadata],
        group: ConsumerGroupMetadata,
        *,
        again: bool = False,
    ) -> OffsetsInTransaction:
        """Has offsets committed with the transaction. Wait until the result is `done`, or the state another one.

        `again`: where the group's coordinator refuses the membership (`REFUSED_MEMBERSHIP`) it has taken nothing, and the result
        is `refused` in place of an abort: the offsets may be given once more, under a newer one."""
        self._check("send_offsets_to_transaction", _S.IN_TRANSACTION)
        name = f"{self._identity[0]}/{self._identity[1]}/{self._number}"
        wanted = OffsetsInTransaction(
            requests.in_transaction(offsets, name), group, name, done=not offsets, again=again
        )
        if offsets:
            self._offsets.append(wanted)
        return wanted

    def commit(self) -> None:
        """Commits as soon as all is written."""
        self._check("commit_transaction", _S.IN_TRANSACTION)
        self.state = _S.COMMITTING

    def abort(self) -> None:
        """Aborts as soon as nothing is on the wire any more."""
        if self.state is not _S.ABORTABLE_ERROR:
            self._check("abort_transaction", _S.IN_TRANSACTION)
        self.state, self.error = _S.ABORTING, None
        self._new.clear()
        self._offsets.clear()

    def _check(self, verb: str, needed: TransactionState) -> None:
        """Raises the error that ended the transaction or the producer, and `UsageError` in any state but the one needed."""
        if self.error is not None and self.state in (_S.ABORTABLE_ERROR, _S.FATAL_ERROR):
            raise self.error.with_traceback(None)
        if self.state is not needed:
            raise out_of_turn(verb, self.state, needed)

    @property
    def has_offsets(self) -> bool:
        """Whether the last transaction has a group's offsets, which tell whether it was committed."""
        return bool(self._taken_offsets)

    # ------------------------------------------------------------ batches

    def admits(self, partition: TopicPartition) -> bool:
        """Whether batches may be sent to a partition now; if it isn't in the transaction, it is added."""
        if partition in self._added:
            return True
        if self.version >= 2:
            self._added.add(partition)
            self._asked = True
            return True
        self._new[partition] = None
        return False

    def batch_repeated(self) -> None:
        """Notes that a batch was written at a later try than the first: a copy of it may still be on its way."""
        self._raise_epoch = True

    def batch_failed(self, error: KafkaActorsError, *, sent: bool) -> None:
        """Notes that a batch failed for good; `sent`: a request with it went out, so that its sequence may be used up."""
        self._raise_epoch = self._raise_epoch or sent
        if self.state in (_S.IN_TRANSACTION, _S.COMMITTING):
            self._fail(error, transaction_action(_API.PRODUCE, error))

    # ------------------------------------------------------------ requests

    def poll(self, now: float) -> Ready[TransactionAction, Never]:
        """Sends the next request, if one is due and none is on its way."""
        if self._in_flight is None and now < self._not_before:
            return Ready(self._taken(), next_wake=self._not_before)
        if self._in_flight is None and (request := self._next()) is not None:
            if request.node is None:
                request = requests.find_coordinator(request, self._id)
            self._in_flight = request
            self._actions.append(request)
        return Ready(self._taken())

    def _taken(self) -> tuple[TransactionAction, ...]:
        actions, self._actions = tuple(self._actions), []
        return actions

    def _next(self) -> TransactionRequest | None:
        state = self.state
        if self._doubt is not None:
            asked = self._taken_offsets[0]
            return requests.fetch_offsets(asked, self._coordinators.get(asked.group.group_id))
        if state is _S.INITIALIZING:
            return requests.init_producer_id(TransactionScope(self._id), self._timeout_ms, self._coordinator)
        if state in (_S.IN_TRANSACTION, _S.COMMITTING):
            if self._new:
                self._asked = True
                return requests.add_partitions(self._scope, self._new, self._coordinator)
            if self._offsets:
                self._asked = True
                return self._next_offsets(self._offsets[0])
        if state not in (_S.COMMITTING, _S.ABORTING) or self.busy:
            return None
        if self._asked:
            return requests.end(self._scope, self._coordinator, committed=state is _S.COMMITTING)
        if self._raise_epoch:
            return requests.init_producer_id(self._scope, self._timeout_ms, self._coordinator)
        self.state = _S.READY
        return None

    @property
    def _coordinator(self) -> int | None:
        return self._coordinators.get(None)

    @property
    def _scope(self) -> TransactionScope:
        return TransactionScope(self._id, *self._identity, self.version)

    def _next_offsets(self, wanted: OffsetsInTransaction) -> TransactionRequest:
        group_id = wanted.group.group_id
        if self.version < 2 and group_id not in self._groups_added:
            return requests.add_offsets(self._scope, group_id, self._coordinator)
        return requests.commit_offsets(self._scope, wanted, self._coordinators.get(group_id))

    # ------------------------------------------------------------ answers

    def on_response(self, request: TransactionRequest, outcome: Any, now: float) -> None:
        """Takes the response to the request that is on its way, or the exception that ended it."""
        assert request is self._in_flight
        self._in_flight = None
        error = outcome if isinstance(outcome, Exception) else requests.answered_error(request, outcome)
        if error is None:
            self._backoff.succeeded()
            if request.api is not _API.FIND_COORDINATOR:  # which is asked because of that error
                self.last_error = None
            self._apply(request, outcome)
            return
        if request.api is _API.END and self._nothing_to_abort(error):
            self._asked = False
            return
        if request.api is _API.OFFSET_COMMIT and self.version < 2 and outcome is error:
            # A copy without an answer would go into a later transaction of this epoch.
            self._raise_epoch = True
        if request.api is _API.OFFSET_COMMIT and self._asks_again(error):
            return
        action = transaction_action(request.api, error)
        if request.api is _API.END and request.body.committed:
            if self.version >= 2 and isinstance(error, InvalidTxnStateError):
                error, action = too_long_error(self._timeout_ms), TransactionErrorAction.ABORT
                self._end_unanswered = False  # a commit that was carried out would be answered as one
            elif not isinstance(error, NOT_ENDED):
                self._end_unanswered = True
        if action is TransactionErrorAction.REDISCOVER:
            self._coordinators.pop(requests.group_of(request), None)
        if action in (TransactionErrorAction.RETRY, TransactionErrorAction.REDISCOVER):
            if self._refused_for_long(request, now):
                self._fail(error, TransactionErrorAction.ABORT)
                return
            concurrent = isinstance(error, ConcurrentTransactionsError)
            self.last_error = error
            self._not_before = now + (requests.CONCURRENT_S if concurrent else self._backoff.failed(now))
        elif ends(request) or self.state is not _S.ABORTING or action is TransactionErrorAction.FATAL:
            self._fail(error, action)

    def _refused_for_long(self, request: TransactionRequest, now: float) -> bool:
        """Whether offsets are refused for so long that those who read the transaction's records shouldn't wait for them any more."""
        if self.state not in (_S.IN_TRANSACTION, _S.COMMITTING) or not requests.for_offsets(request):
            return False
        if self._refused_since is None:
            self._refused_since = now
        return now - self._refused_since >= self._offsets_s

    def _asks_again(self, error: Exception) -> bool:
        """Has offsets sent again with shorter metadata, where that was too large. Gives those back whose membership was refused, where
        whoever gave them wants to give them again."""
        if self._offsets and requests.shortened(self._offsets[0], error):
            return True
        given = self._offsets[0] if self._offsets else None
        if given is None or not given.again or given.taken or not isinstance(error, REFUSED_MEMBERSHIP):
            return False
        self._offsets.popleft().refused = error
        return True

    def _nothing_to_abort(self, error: Exception) -> bool:
        """Whether an error in answer to EndTxn says that the coordinator has no transaction, and that may be: no request that would
        have begun it was acknowledged. (Under version 2 aborting nothing is no error.)"""
        if self.state is not _S.ABORTING or self._begun or self.version >= 2:
            return False
        return isinstance(error, InvalidTxnStateError)

    def _apply(self, request: TransactionRequest, response: Any) -> None:
        match request.api:
            case _API.FIND_COORDINATOR:
                of_group = request.body.key_type == requests.GROUP_KEY
                key = request.body.coordinator_keys[0] if of_group else None
                self._coordinators[key] = requests.coordinator_of(response)
            case _API.INIT_PRODUCER_ID:
                self._identify(response.producer_id, response.producer_epoch)
                self._raise_epoch = False
                self.state = _S.READY
            case _API.ADD_PARTITIONS:
                self._begun = True
                for topic in request.body.v3_and_below_topics:
                    for partition in topic.partitions:
                        self._new.pop(TopicPartition(topic.name, partition), None)
                        self._added.add(TopicPartition(topic.name, partition))
            case _API.ADD_OFFSETS:
                self._begun = True
                self._groups_added.add(request.body.group_id)
            case _API.OFFSET_COMMIT:
                self._begun, self._refused_since = True, None
                if self._offsets and self._offsets[0].take(request.body):  # not aborted meanwhile
                    self._taken_offsets.append(self._offsets.popleft())
            case _API.OFFSET_FETCH:
                self._resolve(requests.committed_by(self._taken_offsets[0], response))
            case _API.END:
                self._asked = self._end_unanswered = False
                self.committed = request.body.committed
                if self.version >= 2:
                    self._raise_epoch = False
                    self._identify(response.producer_id, response.producer_epoch)

    def _identify(self, producer_id: int, epoch: int) -> None:
        """Takes over an id and epoch. Both are new where the epochs of the id before are used up."""
        self._identity = producer_id, epoch
        self._actions.append(TakeIdentity(producer_id, epoch))

    def _fail(self, error: Exception, action: TransactionErrorAction) -> None:
        after = AFTER[action].get(self.state)
        if after is None or (self.state is after and self.error is not None):
            return  # the first error counts
        if after is _S.FATAL_ERROR and self._end_unanswered and self._doubt is None:
            self._doubt = error
            if self._taken_offsets:
                return  # the group's offsets are asked first
        if self._doubt is not None:
            self._resolve(None)
        else:
            self._end_with(error, action, after)

    def _resolve(self, committed: bool | None) -> None:
        """Ends the producer after an error that left a commit open; `committed` is whether it was, None where nothing tells."""
        error, self._doubt = self._doubt, None
        assert error is not None  # as long as it is asked about
        self.committed, self.outcome_unknown = bool(committed), committed is None
        self._end_with(error, TransactionErrorAction.FATAL, _S.FATAL_ERROR)

    def _end_with(self, error: Exception, action: TransactionErrorAction, after: TransactionState) -> None:
        error = explained(error, action, self._id, self._timeout_ms)
        self.state = after
        self.error = error if isinstance(error, KafkaActorsError) else UsageError(str(error))
        self.error.fatal = self.error.fatal or after is _S.FATAL_ERROR
        self._new.clear()
        self._offsets.clear()
