"""`Producer`: sends records from any thread, by an event loop in a thread of its own."""

from __future__ import annotations

import logging
import threading
import time
import warnings
from collections.abc import Callable, Coroutine, Iterator, Mapping
from concurrent.futures import CancelledError, Future
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Self, TypeVar, Unpack

import pyarrow as pa

from kafka_actors.base.arguments import limit_of, seconds_of
from kafka_actors.base.io_thread import IoThread, ThreadWakeup, ended_within
from kafka_actors.base.tasks import warn_later
from kafka_actors.base.timeouts import timeouts_by_name
from kafka_actors.errors import KafkaActorsError, KafkaTimeoutError, UsageError
from kafka_actors.types import ConsumerGroupMetadata, OffsetAndMetadata, TopicPartition

from .futures import BatchFuture, RecordFuture, wait_all
from .send_steps import (
    BESIDE,
    GRACE_S,
    NOT_CLOSED,
    BaseProducer,
    Full,
    Headers,
    Steps,
    Wait,
    closed_before,
    not_acknowledged,
)
from .transactions import Transactions

if TYPE_CHECKING:
    from kafka_actors.config.typed_options import ProducerOptions

T = TypeVar("T")

logger = logging.getLogger(__name__)

_POLL_S = 0.05
"""Seconds after which a thread that waits for room looks by itself."""


@timeouts_by_name
class Producer(BaseProducer):
    """Sends records to Kafka. For any thread, and several at once.

        with Producer(bootstrap_servers="localhost:9092") as producer:
            producer.send_batch(batch, topic="orders")       # a pyarrow.RecordBatch or Table
            producer.send("orders", b"value", key=b"key")    # one record

    Options are Kafka's, as keyword arguments with underscores or in `config={...}`, which may be the first argument, with
    dots or underscores; see `ProducerConfig`. A wrong one is a `ConfigError` before anything connects. The first record
    connects; where no broker answers within `max_block_ms` or `request_timeout_ms` it raises `NoBrokersAvailable`, and the
    next one tries again.

    Sending returns a future as soon as the records are in memory; it waits for room (`buffer_memory`) and for metadata
    up to `max_block_ms`. Each future gets the place in the log or the error. Errors of futures that nobody asked for a
    result are raised by the next `flush`, and by `close`. By default each record is written exactly once and in order
    within its partition, whatever is retried (`enable_idempotence`, KIP-98, KIP-360).
    """

    def __init__(self, config: Mapping[str, Any] | None = None, **options: Unpack[ProducerOptions]) -> None:
        self._io: IoThread | None = None
        self._start_future: Future[None] | None = None
        self._starting = threading.Lock()
        self._room = ThreadWakeup()
        super().__init__(config=config, **options)

    def _make(self) -> None:
        super()._make()
        self._core.on_room = self._room

    def __enter__(self) -> Self:
        try:
            self._started()
        except BaseException:  # an interrupt, too: nobody would close it
            self._abandon_start(self._start_future)
            raise
        return self

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        try:
            self.close()
        except KafkaActorsError as failure:
            if error is None:
                raise
            logger.error(BESIDE, failure)

    def __del__(self) -> None:
        if getattr(self, "_io", None) is not None and not self._closed:
            warnings.warn(f"{self!r} was never closed: records may be lost", ResourceWarning, stacklevel=2)

    # ------------------------------------------------------------ sending

    def send_batch(self, batch: pa.RecordBatch | pa.Table, topic: str | None = None) -> BatchFuture:
        """Sends each row as a record: columns `key` and `value` (binary or text; a null value is a tombstone), and
        if wanted `topic`, `partition`, `headers` (list of key and value) and `timestamp`, as in Spark's Kafka sink.

        `topic` is for all rows and takes precedence over the column. Where no partition is given the key decides, as
        in Java; rows without a key fill one partition's batch after another. `offset` and `timestampType` are ignored,
        so that a batch that was read can be sent.

        The future is that of all rows. Raises `UsageError` for columns that can't be sent, and `MessageTooLargeError`: then
        no row of that Arrow batch is sent. Raises `KafkaTimeoutError` after `max_block_ms`: then the rows before that are
        being sent. An error other than `UsageError` and `ConfigError` leaves a transaction only to abort (KAFKA-9279).
        """
        began = self._started()
        try:
            return self._walk(self._sending.batch(batch, topic), began)
        except KafkaActorsError as error:
            self._lost(error)
            raise

    def send(
        self,
        topic: str,
        value: bytes | str | None = None,
        key: bytes | str | None = None,
        headers: Headers | None = None,
        partition: int | None = None,
        timestamp_ms: int | None = None,
    ) -> RecordFuture:
        """Sends one record. `value` None is a tombstone; text is sent as UTF-8; `headers` are (name, value) pairs;
        `timestamp_ms` is in milliseconds since 1970, now by default. Raises as `send_batch`."""
        began = self._started()
        steps = self._sending.record(topic, value, key, headers, partition, timestamp_ms)
        try:
            return self._walk(steps, began)
        except KafkaActorsError as error:
            self._lost(error)
            raise

    def partitions_for(self, topic: str) -> set[int]:
        """Returns the partition ids of a topic, as Java's `partitionsFor`. Raises as `send_batch`, and
        `TopicAuthorizationFailedError`."""
        began = self._started()
        return self._walk(self._sending.partitions(topic), began)

    def _walk(self, steps: Steps[T], began: float | None) -> T:
        try:
            wait = next(steps)
        except StopIteration as done:
            value: T = done.value
            return value
        deadline = (began or time.monotonic()) + seconds_of(self.config.max_block_ms)
        try:
            while True:
                self._wait(wait, deadline)
                wait = next(steps)
                if isinstance(wait, Full):  # each wait for room has its own time: records were sent meanwhile
                    deadline = time.monotonic() + seconds_of(self.config.max_block_ms)
        except StopIteration as done:
            value = done.value
            return value
        finally:
            steps.close()

    def _wait(self, wait: Wait, deadline: float) -> None:
        self._check_may_wait(f"send to {wait.topic}")
        if not isinstance(wait, Full):
            limit_s = max(deadline - time.monotonic(), 0.0) + GRACE_S
            learning = self._core.learn(wait.topic, deadline, wait.partition)
            return self._call(learning, f"the partitions of {wait.topic}", limit_s)
        self._core.intake.close_all()  # batches that only linger must not keep others out
        while self._core.intake.full:
            if self._closed:
                raise self._is_closed()
            if (left := deadline - time.monotonic()) <= 0:
                raise self._no_room(wait.topic)
            self._room.clear()
            if self._core.intake.full:
                self._room.wait(min(left, _POLL_S))
        self._room()  # for another thread that waits

    # ------------------------------------------------------------ transactions

    def init_transactions(self, *, timeout_ms: float | None = None) -> None:
        """Becomes the producer of its `transactional_id`, once, before the first transaction: aborts one that an older producer
        left open, and fences that, so that it can't write any more.

        This and the following calls wait up to `timeout_ms` (`max_block_ms`) and raise `KafkaTimeoutError` then; the
        work goes on, and the same call again waits for its end. They raise `ProducerFencedError` where another producer
        has begun with the same id, and `UsageError` out of turn.
        """
        self._transact("init_transactions", lambda t, limit_s: t.initialize(limit_s), timeout_ms)

    def begin_transaction(self) -> None:
        """Begins a transaction: what is sent from now on is read with `read_committed` only once it is committed."""
        self._transact("begin_transaction", lambda t, limit_s: t.begin(limit_s))

    def send_offsets_to_transaction(
        self,
        offsets: Mapping[TopicPartition, OffsetAndMetadata | int],
        group: ConsumerGroupMetadata,
        *,
        timeout_ms: float | None = None,
    ) -> None:
        """Commits a consumer's offsets with the transaction; `group` is `consumer.group_metadata()`.

        Raises the error with which the group's coordinator refuses them: `IllegalGenerationError` or
        `UnknownMemberIdError` for a consumer that is no longer a member. Abort then.
        """
        self._transact(
            "send_offsets_to_transaction",
            lambda t, limit_s: t.send_offsets(offsets, group, limit_s),
            timeout_ms,
        )

    def commit_transaction(self, *, timeout_ms: float | None = None) -> None:
        """Waits until all records of the transaction are written, and commits it.

        Raises the first error of a record, or of the commit: then abort. Raises `TransactionOutcomeUnknownError` where
        a broker didn't answer, and what became of the transaction can't be asked any more.
        """
        self._check_open()
        self._core.intake.close_all()  # packed in this thread
        self._transact("commit_transaction", lambda t, limit_s: t.commit(limit_s), timeout_ms)

    def abort_transaction(self, *, timeout_ms: float | None = None) -> None:
        """Aborts the transaction: nobody who reads with `read_committed` sees its records. Futures of records that are
        not acknowledged get a `TransactionAbortedError`. An error here is final: close the producer."""
        self._transact("abort_transaction", lambda t, limit_s: t.abort(limit_s), timeout_ms)

    @contextmanager
    def transaction(self) -> Iterator[None]:
        """A transaction for a `with` block: begins it, after `init_transactions` where nobody has called that; commits it at the end;
        aborts it when the block or the commit raises.

        What the block raised goes on, except that an error of Kafka's gives way to one that ends the producer, such as
        `ProducerFencedError`.
        """
        try:
            self._transact("begin_transaction", lambda t, limit_s: t.begin(limit_s, initialize=True))
        except KeyboardInterrupt:
            if self._ready:
                self._call(self._transactions("begin_transaction").give_back(), "begin_transaction", GRACE_S)
            raise
        try:
            yield
            self.commit_transaction()
        except BaseException as error:
            try:
                if self._transactions("abort_transaction").leave():
                    self.abort_transaction()
            except KafkaActorsError as failure:
                if isinstance(error, KafkaActorsError):
                    raise failure from error
                logger.error(BESIDE, failure)
            raise

    def _transact(
        self,
        verb: str,
        work: Callable[[Transactions, float], Coroutine[Any, Any, None]],
        timeout_ms: float | None = None,
    ) -> None:
        limit_s = self._block_s(timeout_ms)
        self._transactions(verb)
        self._check_may_wait(verb)
        began = self._started(limit_s)
        if began is not None:
            limit_s = max(0.0, limit_s - (time.monotonic() - began))
        self._call(work(self._transactions(verb), limit_s), verb, limit_s + GRACE_S)

    # ------------------------------------------------------------ life

    def flush(self, *, timeout_ms: float | None = None) -> None:
        """Sends all records at once, without lingering, and waits for their outcomes.

        Raises `UndeliveredError` about failed records whose futures nobody asked for a result; `KafkaTimeoutError` where
        `timeout_ms` passed, and nothing is given up then. Without it each record's `delivery_timeout_ms` is the end.
        """
        limit_s = limit_of(timeout_ms)
        self._check_open()
        self._check_may_wait("flush")
        if self._io is not None:
            self._flush(limit_s)
        self._raise_unseen()
        self._raise_failed_transaction()

    def _flush(self, limit_s: float | None) -> None:
        deadline = None if limit_s is None else time.monotonic() + limit_s
        self._core.intake.close_all()
        if left := wait_all(list(self._core.intake.unsettled), deadline):
            raise not_acknowledged(left)

    def close(self, *, timeout_ms: float | None = None) -> None:
        """Sends all records, waits for their outcomes, and closes the connections.

        Records that aren't acknowledged within `timeout_ms` are given up, and their futures say so; without a limit each
        record's `delivery_timeout_ms` is the end. Raises `UndeliveredError` as `flush` does, with everything closed.
        Closing again changes nothing. An open transaction is aborted.
        """
        if self._closed:
            return
        limit_s = limit_of(timeout_ms)
        self._check_process()
        self._check_may_wait("close")
        with self._starting:
            self._closed = True
            if self._io is None:
                return
        if self._start_future is not None:
            self._start_future.cancel()  # if it isn't done
        warning = self._io.submit(warn_later(logger, self._core.unfinished))
        try:
            try:
                self._finish(limit_s)
            except KafkaTimeoutError:
                pass  # the records that are left get their error below
            finally:
                warning.cancel()
                _wait_closed(self._io.submit(self._core.close(closed_before())))
        finally:
            self._io.stop()
        self._raise_unseen()

    def _finish(self, limit_s: float | None) -> None:
        """Waits until all records have their outcome, or the transaction is ended."""
        if self._core.transactions is None:
            return self._flush(limit_s)
        seconds = self._block_s(None) if limit_s is None else limit_s
        self._call(self._core.transactions.finish(seconds), "close", seconds + GRACE_S)

    def _check_may_wait(self, what: str) -> None:
        """Raises `UsageError` in a future's callback, where a wait would hold up all outcomes."""
        if self._io is not None and self._io.inside:
            raise UsageError(
                f"{what} has to wait, which a callback of a future can't: all outcomes come through its thread. "
                "Call it in another thread"
            )

    def _started(self, limit_s: float | None = None) -> float | None:
        """Waits up to `limit_s` (`max_block_ms`) until connected. Returns when the wait began, None if there was none. Connecting goes
        on in the IO thread where a call's time is over before, and the next call waits on."""
        self._check_open()
        if self._ready:
            return None
        began = time.monotonic()
        starting = self._begin()
        if not ended_within(starting, self._block_s(None) if limit_s is None else limit_s):
            raise self._core.client.not_connected(time.monotonic() - began)
        try:
            starting.result()
        except CancelledError:
            self._check_open()  # another thread has closed it
            raise
        except Exception:
            self._abandon_start(starting)
            raise
        self._ready = True
        return began

    def _begin(self) -> Future[None]:
        with self._starting:
            self._check_open()
            if self._start_future is None:
                self._io = IoThread("kafka-producer")
                self._start_future = self._io.submit(self._core.begin())
            return self._start_future

    def _abandon_start(self, starting: Future[None] | None) -> None:
        """Undoes a start that failed; the next call starts anew."""
        with self._starting:
            if starting is None or starting is not self._start_future or self._io is None or self._closed:
                return
            io, self._io, self._start_future, self._ready = self._io, None, None, False
            starting.cancel()
            _wait_closed(io.submit(self._core.client.close()))
            io.stop()
            self._make()

    def _call(self, work: Coroutine[Any, Any, T], what: str, timeout_s: float) -> T:
        assert self._io is not None  # after _started()
        try:
            future = self._io.submit(work)
            try:
                if not ended_within(future, timeout_s):
                    raise KafkaTimeoutError(f"{what}: no answer within {timeout_s:g} s")
                return future.result()
            finally:
                future.cancel()  # where it isn't done, nobody hears of its end
        except (CancelledError, RuntimeError):
            self._check_open()  # another thread has closed it
            raise


def _wait_closed(closing: Future[None]) -> None:
    """Waits up to `GRACE_S` for connections to close."""
    if ended_within(closing, GRACE_S):
        closing.result()
    else:
        closing.cancel()
        logger.warning(NOT_CLOSED, GRACE_S)
