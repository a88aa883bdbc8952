"""`Transactions`: the verbs of a transactional producer in its event loop, and the requests of its `TransactionManager`.

While no transaction is open, `RecordIntake` refuses records; ending one shuts it in the same step as all open batches are closed, so
that each record is in the transaction in which it was taken, whatever thread sends.

A verb waits for its end up to a limit. When that is over it raises `KafkaTimeoutError`, the work goes on, and calling the same verb
again waits on. Nobody calls it again for a `with` block: its transaction is *left*. If its commit fails after all, it is aborted here,
and the next block begins once that one has ended.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Iterable, Mapping

from kafka_actors.base.arguments import offsets_of
from kafka_actors.base.backoff import RetryTimer
from kafka_actors.base.tasks import warned_when_slow
from kafka_actors.config import ProducerConfig
from kafka_actors.errors import (
    KafkaActorsError,
    KafkaTimeoutError,
    TransactionAbortedError,
    TransactionOutcomeUnknownError,
    UsageError,
    kind_of,
)
from kafka_actors.group.commit_metadata import offsets_read
from kafka_actors.net import KafkaClient
from kafka_actors.types import ConsumerGroupMetadata, OffsetAndMetadata, TopicPartition

from .machines.sender import Sender, SettledBatch
from .machines.transaction_errors import TransactionApi, TransactionState
from .machines.transaction_requests import TakeIdentity, TransactionRequest, TransactionScope
from .machines.transactions import TransactionManager
from .record_intake import RecordIntake
from .transaction_calls import outcome_of, stable_offsets

logger = logging.getLogger(__name__)

_S = TransactionState

OUTSIDE = (
    "records are sent in transactions: call begin_transaction(), or send within `with producer.transaction()`"
)
ENDING = "the transaction is being ended: send in the next one"
_FAILED = (_S.ABORTABLE_ERROR, _S.FATAL_ERROR)


class Transactions:
    """Transactions of one producer. `deliver(request)` starts the coroutine `ask`; `nudge` has the producer's loop turn; `dead` returns
    the error that ended the producer."""

    def __init__(
        self,
        config: ProducerConfig,
        client: KafkaClient,
        intake: RecordIntake,
        rand: Callable[[], float],
        *,
        nudge: Callable[[], None],
        dead: Callable[[], KafkaActorsError | None],
    ) -> None:
        assert config.transactional_id is not None
        self.transactional_id = config.transactional_id
        backoff = RetryTimer(config.retry_backoff_ms / 1000, config.retry_backoff_max_ms / 1000, rand)
        self.machine = TransactionManager(
            config.transactional_id,
            config.transaction_timeout_ms,
            backoff,
            offsets_s=config.delivery_timeout_ms / 1000,
        )
        self._client = client
        self._rand = rand
        self._intake = intake
        self._nudge = nudge
        self._dead = dead
        self._waiting: list[asyncio.Future[None]] = []
        self._verb: str | None = None
        """The verb whose end nobody has heard of yet: its time was over before."""
        self._left = False
        self._left_error: KafkaActorsError | None = None
        """The error with which a commit failed that was left."""
        self._lost: deque[KafkaActorsError] = deque()
        intake.refusal = OUTSIDE

    # ------------------------------------------------------------ verbs

    async def initialize(self, limit_s: float) -> None:
        """Gets a producer id and fences older producers with this transactional id. Once is enough."""
        if self.machine.state is _S.READY and self._verb is None:
            raise UsageError("init_transactions: was called already")
        self._begin_verb("init_transactions", self.machine.initialize)
        await self._end_verb("init_transactions", _S.INITIALIZING, limit_s)

    async def take_over(self, transactional_id: str, limit_s: float) -> None:
        """Becomes the producer of another transactional id, over the same connections; fences older producers with that."""
        self._begin_verb("take_over", lambda: self.machine.take_over(transactional_id))
        self.transactional_id = transactional_id
        await self._end_verb("take_over", _S.INITIALIZING, limit_s)

    async def stable_offsets(
        self, group_id: str, partitions: Iterable[TopicPartition]
    ) -> dict[TopicPartition, OffsetAndMetadata]:
        """Returns the offsets that a group has committed, once no transaction moves them. Raises as `stable_offsets`."""
        return await stable_offsets(self._client, group_id, partitions, self._rand)

    async def adopt(self, producer_id: int, epoch: int, limit_s: float) -> None:
        """Takes over an id and epoch that another process got, before anything is sent."""
        if self.machine.state is _S.UNINITIALIZED:
            self.machine.adopt(producer_id, epoch)
        await self._until("adopt", lambda: True, limit_s)

    async def begin(self, limit_s: float, *, initialize: bool = False) -> None:
        """Begins a transaction. `initialize`, for a `with` block: initializes before, where nobody has, and waits for the end of a
        transaction that was left."""
        if initialize:
            now = asyncio.get_running_loop().time
            deadline = now() + limit_s
            await self._end_left(limit_s)
            if self.machine.state in (_S.UNINITIALIZED, _S.INITIALIZING) or self._verb == "init_transactions":
                await self.initialize(max(0.0, deadline - now()))
        self._check_verb("begin_transaction")
        self.machine.begin(self._client.transaction_version())
        self._left, self._left_error = False, None
        self._intake.refusal = None

    async def send_offsets(
        self,
        offsets: Mapping[TopicPartition, OffsetAndMetadata | int],
        group: ConsumerGroupMetadata,
        limit_s: float,
        *,
        again: bool = False,
    ) -> None:
        """Has offsets committed with the transaction. `again`: a membership that the group's coordinator refuses is raised and
        leaves the transaction as it is; else it has to be aborted."""
        self._check_verb("send_offsets_to_transaction")
        if not isinstance(group, ConsumerGroupMetadata):
            raise UsageError(
                f"send_offsets_to_transaction: the group is {kind_of(group)}: give consumer.group_metadata()"
            )
        wanted = self.machine.add_offsets(offsets_read(offsets_of(offsets), group), group, again=again)
        await self._until(
            "send_offsets_to_transaction",
            lambda: wanted.done or wanted.refused is not None or self.machine.state is not _S.IN_TRANSACTION,
            limit_s,
        )
        if wanted.refused is not None:
            raise wanted.refused
        if not wanted.done:
            self._raise_error()
            raise UsageError("send_offsets_to_transaction: the transaction was ended meanwhile")

    async def commit(self, limit_s: float) -> None:
        """Commits the transaction, once all its records are acknowledged."""
        self._begin_verb("commit_transaction", self.machine.commit)
        await self._until("commit_transaction", lambda: self.machine.state is not _S.COMMITTING, limit_s)
        self._ended()
        if not self.machine.committed:  # else an error that came after it is the next transaction's
            self._raise_error()

    async def abort(self, limit_s: float) -> None:
        """Aborts the transaction. Records that are not acknowledged are given up."""
        self._begin_verb("abort_transaction", self.machine.abort)
        await self._end_verb("abort_transaction", _S.ABORTING, limit_s)

    async def give_back(self) -> None:
        """Aborts a transaction that was begun for a `with` block which an interrupt kept from being entered."""
        if self.machine.state is _S.IN_TRANSACTION and self._verb is None:
            self._begin_verb("abort_transaction", self.machine.abort)
            self._nudge()

    def leave(self) -> bool:
        """Gives up waiting for a commit, for a `with` block whose time is over or that is cancelled. Without offsets in it only
        `commit_transaction` could tell what became of it, and has to be called. Returns whether the transaction is to be aborted
        instead. For any thread."""
        if self._verb == "commit_transaction" and self.machine.has_offsets:  # it may have ended meanwhile
            self._left = True
            self._nudge()
        return self.open

    async def _end_left(self, limit_s: float) -> None:
        """Waits for the end of a transaction that was left, or of its abort."""
        if self._verb == "abort_transaction" or (self._verb == "commit_transaction" and self._left):
            await self._until(self._verb, lambda: not self._ending, limit_s)
            self._ended()
            if self.machine.state in _FAILED:
                self._raise_error()

    @property
    def _ending(self) -> bool:
        state = self.machine.state
        return state in (_S.COMMITTING, _S.ABORTING) or (self._left and state is _S.ABORTABLE_ERROR)

    def _abort_left(self) -> None:
        """Aborts a transaction that was left, and whose commit failed."""
        if self._left and self.machine.state is _S.ABORTABLE_ERROR:
            self._left_error = self.machine.error
            logger.warning("a transaction whose commit was not waited for is aborted: %s", self._left_error)
            self.machine.abort()
            self._verb = "abort_transaction"

    async def finish(self, limit_s: float) -> None:
        """Aborts an open transaction, and waits for the end of one that is being ended, for a producer that is closed. Raises the error
        of a commit that fails meanwhile, or failed when nobody waited for it any more, once it is aborted."""
        if self._dead() is not None:
            return
        committing = self._verb == "commit_transaction" and self.machine.state in (
            _S.COMMITTING,
            _S.ABORTABLE_ERROR,
        )
        if self.open and not committing:
            self._verb = None
            self._begin_verb("abort_transaction", self.machine.abort)
        self._left = True
        try:
            await self._turned("close", lambda: not self._ending, limit_s)  # `close` says itself what for
        except KafkaTimeoutError as error:
            if committing and self._left_error is None:
                raise TransactionOutcomeUnknownError("the producer is closed while it commits") from error
            logger.warning("the last transaction could not be aborted: its timeout will do it: %s", error)
        if committing and not self.machine.committed:
            if self._left_error is not None:
                raise self._left_error.with_traceback(None)
            self._raise_error()

    def _begin_verb(self, name: str, begin: Callable[[], None]) -> None:
        if self._verb == name:
            return  # it waits on
        if name == "abort_transaction" and self.machine.state is _S.ABORTABLE_ERROR:
            self._verb = None  # a commit whose time was over, and which failed
        self._check_verb(name)
        begin()
        self._verb = name
        self._intake.shut(ENDING)

    def _check_verb(self, name: str) -> None:
        self._take_lost()
        if (dead := self._dead()) is not None:
            raise dead.with_traceback(None)
        if self._verb is not None:
            raise UsageError(f"{name}: {self._verb} has not ended yet: call that again, it waits on")

    async def _end_verb(self, name: str, during: TransactionState, limit_s: float) -> None:
        await self._until(name, lambda: self.machine.state is not during, limit_s)
        self._ended()
        self._raise_error()

    def _ended(self) -> None:
        self._verb = None
        if self.machine.state not in _FAILED:
            self._intake.refusal = OUTSIDE

    async def _until(self, name: str, over: Callable[[], bool], limit_s: float) -> None:
        """Waits until a verb is over, as `_turned`. If that takes long it logs what for."""

        def waits_for() -> str:
            return f"{name} waits on, for up to {limit_s:g} s{self.because}"

        with warned_when_slow(logger, waits_for):
            await self._turned(name, over, limit_s)

    async def _turned(self, name: str, over: Callable[[], bool], limit_s: float) -> None:
        """Waits until a verb is over, and the sender told of its new epoch: what is sent next has to be under that."""
        self._nudge()
        try:
            async with asyncio.timeout(limit_s):
                while not (over() and self.machine.told):
                    if (dead := self._dead()) is not None:
                        raise dead.with_traceback(None)
                    waiter = asyncio.get_running_loop().create_future()
                    self._waiting.append(waiter)
                    await waiter
        except TimeoutError:
            if over() and self.machine.told:  # in the same moment
                return
            raise KafkaTimeoutError(
                f"{name}: not done within {limit_s:g} s{self.because}; it goes on: call it again to wait for its end"
            ) from self.machine.last_error

    @property
    def because(self) -> str:
        """The last error, as the end of a sentence; empty without one."""
        if (error := self.machine.last_error) is not None:
            return f"; the last error was: {str(error) or type(error).__name__}"
        return "; some of its records are not acknowledged yet" if self.machine.busy else ""

    def _raise_error(self) -> None:
        error = self.machine.error
        if error is None:
            return
        if self.machine.outcome_unknown:
            raise TransactionOutcomeUnknownError(
                "an earlier try to commit was not answered, and whether it was carried out can't be asked any more: "
                f"{error}"
            ) from error
        raise error.with_traceback(None)

    def raise_failure(self) -> None:
        """Raises the error with which the transaction has to be aborted, or the producer ended. For any thread."""
        if self.open:
            for error in tuple(self._lost):  # the first; the loop's thread may take it meanwhile
                raise error.with_traceback(None)
        if self.machine.state in _FAILED:
            self._raise_error()

    @property
    def open(self) -> bool:
        """Whether there is a transaction that can be aborted. For any thread."""
        return self.machine.state in (_S.IN_TRANSACTION, _S.ABORTABLE_ERROR)

    # ------------------------------------------------------------ turns

    @property
    def giving_up(self) -> KafkaActorsError | None:
        """The error of all batches that are not settled; None while they are to be sent."""
        state, error = self.machine.state, self.machine.error
        if state in _FAILED:
            return TransactionAbortedError(f"its transaction failed: {error}")
        return TransactionAbortedError("its transaction was aborted") if state is _S.ABORTING else None

    def lost(self, error: KafkaActorsError) -> None:
        """Has the transaction aborted, if one is open: a record of it could not be taken. For any thread; its next call finds it done."""
        self._lost.append(error)
        self._nudge()

    def _take_lost(self) -> None:
        while self._lost:
            self.machine.batch_failed(self._lost.popleft(), sent=False)

    def settled(self, settled: Iterable[SettledBatch]) -> None:
        """Takes the outcomes of batches."""
        for batch, error in ((s.batch, s.error) for s in settled):
            if error is not None:
                self.machine.batch_failed(error, sent=batch.attempts > 0)
            elif batch.unanswered or batch.maybe_whole:
                self.machine.batch_repeated()

    def turn(
        self, now: float, sender: Sender, start: Callable[[TransactionRequest], None]
    ) -> tuple[float | None, bool]:
        """Takes the machine's decisions. Returns when to do it again, and whether the sender may have something to do now."""
        machine = self.machine
        before = machine.state
        self._take_lost()
        machine.busy = bool(self._intake.unsettled or sender.partitions)
        self._abort_left()
        ready = machine.poll(now)
        for action in ready.actions:
            if isinstance(action, TakeIdentity):
                sender.renew(action.producer_id, action.producer_epoch)
            else:
                start(action)
        if machine.state in _FAILED and self._intake.refusal is not machine.error:
            self._intake.shut(machine.error or ENDING)
        self.wake()
        return ready.next_wake, machine.state is not before

    def wake(self) -> None:
        """Has all verbs that wait look whether they are done."""
        waiting, self._waiting = self._waiting, []
        for waiter in waiting:
            if not waiter.done():
                waiter.set_result(None)

    async def ask(self, request: TransactionRequest, now: Callable[[], float]) -> None:
        """Sends a request and takes its answer."""
        outcome = await outcome_of(self._client, request)
        self.machine.on_response(request, outcome, now())
        self._nudge()

    @property
    def produce_versions(self) -> tuple[int | None, int | None]:
        """The lowest and highest version of Produce in this transaction."""
        scope = TransactionScope(self.transactional_id, version=self.machine.version)
        return scope.versions(TransactionApi.PRODUCE)
