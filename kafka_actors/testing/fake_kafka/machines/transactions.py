"""Transactions as their coordinator keeps them: the state machine of one transactional id.

Theory of operation. A transactional id has a producer id and an epoch, and at most one transaction at a time.
Arrives: a producer that begins (`init`), partitions (`add`, `verify`), the end (`end`), the end of patience
(`fence`), and that all markers are written (`complete`). Decided: whether the request's producer id and epoch
are the present ones, and what the next ones are.

    Empty ── add ──► Ongoing ── end, fence ──► PrepareCommit, PrepareAbort ── complete ──► CompleteCommit, CompleteAbort
                        ▲                                                                           │
                        └───────────────────────────────── add ─────────────────────────────────────┘

- `init` raises the epoch, which fences who had it before; a producer that names its own id and epoch
  (KIP-360) only gets the next one where nobody came in between. Where the producer before has left a
  transaction open, that is fenced and aborted first, and the request comes again. A producer that repeats
  `init`, because it heard no answer, gets the same epoch.
- While markers are written (Prepare…) all requests are refused with CONCURRENT_TRANSACTIONS, and clients come
  again.
- Under version 1 an end leaves the epoch as it is, so a late request of the transaction before can't be told
  from one of the present. Under version 2 (KIP-890) each end raises the epoch: a repeated end is known by the
  epoch before, and a late batch is fenced.
- When the epochs of a producer id are used up, a new id follows, with epoch 0. Who still has the last epoch
  of the old id is answered as the same producer. The highest epoch is never given to a client: a coordinator
  fences with it.

Times are milliseconds since the epoch, as in what DescribeTransactions tells.

Source: `TransactionCoordinator`, `TransactionMetadata`; KIP-98, KIP-360, KIP-890.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from kafka_actors import errors

from .error_answers import Refused

EMPTY, ONGOING = "Empty", "Ongoing"
PREPARE_COMMIT, PREPARE_ABORT = "PrepareCommit", "PrepareAbort"
COMPLETE_COMMIT, COMPLETE_ABORT = "CompleteCommit", "CompleteAbort"
STATES = frozenset(
    {
        EMPTY,
        ONGOING,
        PREPARE_COMMIT,
        PREPARE_ABORT,
        COMPLETE_COMMIT,
        COMPLETE_ABORT,
        "Dead",
        "PrepareEpochFence",
    }
)
"""Names of states that Kafka knows."""
MAX_EPOCH = 32_767
"""Epoch that no client ever has: the coordinator can fence the one before."""
_NONE = -1
Place = tuple[str, int]
"""Topic and partition."""


class Transaction:
    """All that a coordinator keeps of one transactional id. Times are in ms since the epoch."""

    def __init__(self, producer_id: int, timeout_ms: int, now_ms: int) -> None:
        self.producer_id = producer_id
        self.epoch = _NONE
        self.timeout_ms = timeout_ms
        self.state = EMPTY
        self.partitions: set[Place] = set()
        self.started_ms = -1
        self.updated_ms = now_ms
        self._previous_id = _NONE
        self._next_id = _NONE
        self._last_epoch = _NONE

    @property
    def ending(self) -> bool:
        """Whether its markers are being written."""
        return self.state in (PREPARE_COMMIT, PREPARE_ABORT)

    @property
    def timed_out_ms(self) -> int:
        """When an open transaction is to be aborted."""
        return self.started_ms + self.timeout_ms + 1

    @property
    def _exhausted(self) -> bool:
        return self.epoch >= MAX_EPOCH - 1

    # ---------------------------------------------------------------- a producer begins

    def init(
        self,
        expected: tuple[int, int] | None,
        timeout_ms: int,
        new_id: Callable[[], int],
        now_ms: int,
        *,
        version_2: bool,
    ) -> None:
        """Gives the next epoch, or a new producer id with epoch 0. Raises `Refused`.

        expected: the id and epoch that the producer has. An open transaction is fenced and prepared to be aborted, and the
        request refused with CONCURRENT_TRANSACTIONS, so that it comes again.
        """
        if expected is not None and not self._may_have(*expected):
            raise Refused(errors.ProducerFencedError)
        if self.ending:
            raise Refused(errors.ConcurrentTransactionsError)
        if self.state == ONGOING:
            self.fence(now_ms, version_2=version_2)
            raise Refused(errors.ConcurrentTransactionsError)
        if self._exhausted and (expected is None or expected[1] == self.epoch):
            last = self.epoch if expected is not None else _NONE
            self._previous_id, self.producer_id = self.producer_id, new_id()
            self.epoch, self._last_epoch = 0, last
        else:
            self.epoch, self._last_epoch = self._next_epoch(expected)
            self._previous_id = self.producer_id
        self._become(EMPTY, now_ms)
        self.timeout_ms = timeout_ms
        self.partitions = set()
        self.started_ms = -1

    def _may_have(self, producer_id: int, epoch: int) -> bool:
        """Whether a producer may be the present one: by its id, or by the id before with its last epoch."""
        return (
            self.epoch == _NONE
            or producer_id == self.producer_id
            or (producer_id == self._previous_id and epoch >= MAX_EPOCH - 1)
        )

    def _next_epoch(self, expected: tuple[int, int] | None) -> tuple[int, int]:
        """The next epoch and the one before it, by which a repeated request is known."""
        if self._exhausted:
            raise Refused(errors.UnknownServerError)
        if expected is None:
            return self.epoch + 1, _NONE
        if self.epoch == _NONE or expected[1] == self.epoch:
            return self.epoch + 1, self.epoch
        if expected[1] == self._last_epoch:
            return self.epoch, self._last_epoch
        raise Refused(errors.ProducerFencedError)

    # ---------------------------------------------------------------- partitions

    def add(self, producer_id: int, epoch: int, places: Iterable[Place], now_ms: int) -> None:
        """Takes partitions into the transaction, which begins with the first. Raises `Refused`."""
        self._check_producer(producer_id, epoch)
        added = set(places)
        if self.state == ONGOING and added <= self.partitions:
            return
        if self.state != ONGOING:
            self.started_ms = now_ms
        self._previous_id = self.producer_id
        self.partitions = self.partitions | added
        self._become(ONGOING, now_ms)

    def verify(self, producer_id: int, epoch: int, place: Place) -> None:
        """Raises `Refused` unless a partition is in the transaction (KIP-890, the first part)."""
        self._check_producer(producer_id, epoch)
        if place not in self.partitions:
            raise Refused(errors.TransactionAbortableError)

    def _check_producer(self, producer_id: int, epoch: int) -> None:
        """Raises `Refused` where a request is of another producer or epoch, or comes while markers are written."""
        if producer_id != self.producer_id:
            raise Refused(errors.InvalidProducerIdMappingError)
        if epoch != self.epoch:
            raise Refused(errors.ProducerFencedError)
        if self.ending:
            raise Refused(errors.ConcurrentTransactionsError)

    # ---------------------------------------------------------------- the end

    def end(
        self,
        producer_id: int,
        epoch: int,
        committed: bool,
        new_id: Callable[[], int],
        now_ms: int,
        *,
        version_2: bool,
    ) -> None:
        """Prepares a commit or an abort; nothing where it is a repeated request. Raises `Refused`."""
        if not version_2:
            self._end_1(producer_id, epoch, committed, now_ms)
            return
        complete = self.state in (COMPLETE_COMMIT, COMPLETE_ABORT)
        overflown = self._previous_id == producer_id and epoch == MAX_EPOCH - 1 and self.epoch == 0
        repeated = overflown or epoch + 1 == self.epoch
        if producer_id != self.producer_id and not overflown:
            raise Refused(errors.InvalidProducerIdMappingError)
        fits = epoch + 1 == self.epoch if self.ending else epoch == self.epoch or (complete and repeated)
        if not fits:
            raise Refused(errors.ProducerFencedError)
        if self.ending:
            self._check_same_end(committed)
            raise Refused(errors.ConcurrentTransactionsError)
        if complete and repeated:
            self._check_same_end(committed)
            return
        if committed and self.state != ONGOING:
            raise Refused(errors.InvalidTxnStateError)
        if self.state != ONGOING:  # an abort without partitions
            self.started_ms = now_ms
        self._prepare(committed, new_id() if self._exhausted else _NONE, now_ms, version_2=True)

    def _end_1(self, producer_id: int, epoch: int, committed: bool, now_ms: int) -> None:
        """Ends the transaction under version 1, where the epoch stays and a repeated request is known by the
        state alone.
        """
        if producer_id != self.producer_id:
            raise Refused(errors.InvalidProducerIdMappingError)
        if epoch != self.epoch:
            raise Refused(errors.ProducerFencedError)
        if self.state == EMPTY:
            raise Refused(errors.InvalidTxnStateError)
        if self.state == ONGOING:
            self._prepare(committed, _NONE, now_ms, version_2=False)
            return
        self._check_same_end(committed)
        if self.ending:
            raise Refused(errors.ConcurrentTransactionsError)

    def _check_same_end(self, committed: bool) -> None:
        if committed != (self.state in (PREPARE_COMMIT, COMPLETE_COMMIT)):
            raise Refused(errors.InvalidTxnStateError)

    def fence(self, now_ms: int, *, version_2: bool) -> None:
        """Prepares an abort under an epoch that no client has: its time is over, or another producer wants to begin."""
        if not version_2:  # with it each end raises the epoch
            self.epoch = min(self.epoch + 1, MAX_EPOCH)
        self._last_epoch = _NONE
        self._prepare(False, _NONE, now_ms, version_2=version_2)

    def _prepare(self, committed: bool, next_id: int, now_ms: int, *, version_2: bool) -> None:
        """Decides the end. From here on it can't be another one, whatever happens before the markers are written."""
        self._previous_id = self.producer_id
        if version_2:
            self._last_epoch = self.epoch
            self.epoch = min(self.epoch + 1, MAX_EPOCH)
        self._next_id = next_id
        self._become(PREPARE_COMMIT if committed else PREPARE_ABORT, now_ms)

    @property
    def answered(self) -> tuple[int, int]:
        """Producer id and epoch that a client goes on with after an end."""
        return (self.producer_id, self.epoch) if self._next_id == _NONE else (self._next_id, 0)

    def complete(self, now_ms: int) -> None:
        """All markers are written."""
        self._previous_id = self.producer_id
        self.producer_id, self.epoch = self.answered
        self._next_id = _NONE
        self.partitions = set()
        self._become(COMPLETE_COMMIT if self.state == PREPARE_COMMIT else COMPLETE_ABORT, now_ms)

    def _become(self, state: str, now_ms: int) -> None:
        self.state = state
        self.updated_ms = now_ms
