"""`AsyncProducer`: the calls of `Producer` as coroutines, in the user's event loop."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Coroutine, Mapping
from contextlib import asynccontextmanager
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self, TypeVar, Unpack

import pyarrow as pa

from kafka_actors.base.arguments import limit_of, seconds_of
from kafka_actors.base.fork_guard import another_loop
from kafka_actors.base.tasks import warned_when_slow
from kafka_actors.base.timeouts import timeouts_by_name
from kafka_actors.errors import KafkaActorsError, KafkaTimeoutError, UsageError
from kafka_actors.types import ConsumerGroupMetadata, OffsetAndMetadata, TopicPartition

from .futures import BatchFuture, RecordFuture
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


@timeouts_by_name
class AsyncProducer(BaseProducer):
    """`Producer` with coroutines; the same options, results and errors; see there. For the loop it is first used in.

    async with AsyncProducer(bootstrap_servers="localhost:9092") as producer:
        sent = await producer.send("orders", b"value")   # in memory
        where = await sent                               # in the log
    """

    _name = "AsyncProducer"

    def __init__(self, config: Mapping[str, Any] | None = None, **options: Unpack[ProducerOptions]) -> None:
        super().__init__(config=config, **options)
        self._start_task: asyncio.Task[None] | None = None
        self._room: asyncio.Event | None = None

    async def __aenter__(self) -> Self:
        try:
            await self._started()
        except BaseException:  # a cancellation, too: nobody would close it
            await self._abandon_start(self._start_task)
            raise
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            await self.close()
        except KafkaActorsError as failure:
            if error is None:
                raise
            logger.error(BESIDE, failure)

    def __del__(self) -> None:
        core = getattr(self, "_core", None)  # none where an option was wrong
        if core is not None and not self._closed:
            core.intake.tell_unsent()

    # ------------------------------------------------------------ sending

    async def send_batch(self, batch: pa.RecordBatch | pa.Table, topic: str | None = None) -> BatchFuture:
        """Sends each row as a record: see `Producer.send_batch`."""
        began = await self._started()
        try:
            return await self._walk(self._sending.batch(batch, topic), began)
        except KafkaActorsError as error:
            self._lost(error)
            raise

    async def send(
        self,
        topic: str,
        value: bytes | str | None = None,
        key: bytes | str | None = None,
        headers: Headers | None = None,
        partition: int | None = None,
        timestamp_ms: int | None = None,
    ) -> RecordFuture:
        """Sends one record: see `Producer.send`."""
        began = await self._started()
        steps = self._sending.record(topic, value, key, headers, partition, timestamp_ms)
        try:
            return await self._walk(steps, began)
        except KafkaActorsError as error:
            self._lost(error)
            raise

    async def partitions_for(self, topic: str) -> set[int]:
        """Returns the partition ids of a topic: see `Producer.partitions_for`."""
        began = await self._started()
        return await self._walk(self._sending.partitions(topic), began)

    async def _walk(self, steps: Steps[T], began: float | None) -> T:
        try:
            while True:
                wait = next(steps)
                await self._wait(wait, began)
        except StopIteration as done:
            value: T = done.value
            return value
        finally:
            steps.close()

    async def _wait(self, wait: Wait, began: float | None) -> None:
        loop = asyncio.get_running_loop()
        seconds = seconds_of(self.config.max_block_ms)
        if not isinstance(wait, Full):
            deadline = (began or self._core.client.now()) + seconds
            await self._core.learn(wait.topic, deadline, wait.partition)
            return
        self._core.intake.close_all()
        assert self._room is not None
        try:
            async with asyncio.timeout_at(loop.time() + seconds):
                while self._core.intake.full:
                    self._room.clear()
                    await self._room.wait()
                    if self._closed:
                        raise self._is_closed()
        except TimeoutError:
            raise self._no_room(wait.topic) from None

    # ------------------------------------------------------------ transactions

    async def init_transactions(self, *, timeout_ms: float | None = None) -> None:
        """Becomes the producer of its `transactional_id`: see `Producer.init_transactions`."""
        transactions, limit_s = await self._transactional("init_transactions", timeout_ms)
        await transactions.initialize(limit_s)

    async def begin_transaction(self) -> None:
        """Begins a transaction: see `Producer.begin_transaction`."""
        transactions, limit_s = await self._transactional("begin_transaction")
        await transactions.begin(limit_s)

    async def send_offsets_to_transaction(
        self,
        offsets: Mapping[TopicPartition, OffsetAndMetadata | int],
        group: ConsumerGroupMetadata,
        *,
        timeout_ms: float | None = None,
    ) -> None:
        """Commits a consumer's offsets with the transaction: see `Producer.send_offsets_to_transaction`."""
        transactions, limit_s = await self._transactional("send_offsets_to_transaction", timeout_ms)
        await transactions.send_offsets(offsets, group, limit_s)

    async def commit_transaction(self, *, timeout_ms: float | None = None) -> None:
        """Commits the transaction: see `Producer.commit_transaction`."""
        transactions, limit_s = await self._transactional("commit_transaction", timeout_ms)
        await transactions.commit(limit_s)

    async def abort_transaction(self, *, timeout_ms: float | None = None) -> None:
        """Aborts the transaction: see `Producer.abort_transaction`."""
        transactions, limit_s = await self._transactional("abort_transaction", timeout_ms)
        await transactions.abort(limit_s)

    @asynccontextmanager
    async def transaction(self) -> AsyncIterator[None]:
        """A transaction for an `async with` block: see `Producer.transaction`."""
        transactions, limit_s = await self._transactional("begin_transaction")
        await transactions.begin(limit_s, initialize=True)
        try:
            yield
            await self.commit_transaction()
        except BaseException as error:
            try:
                if transactions.leave():
                    await self.abort_transaction()
            except KafkaActorsError as failure:
                if isinstance(error, KafkaActorsError):
                    raise failure from error
                logger.error(BESIDE, failure)
            raise

    async def _transactional(self, verb: str, timeout_ms: float | None = None) -> tuple[Transactions, float]:
        """Waits until connected. Returns the transactions, and how many seconds of the limit are left."""
        limit_s = self._block_s(timeout_ms)
        self._transactions(verb)
        began = await self._started(limit_s)
        if began is not None:
            limit_s = max(0.0, limit_s - (self._core.client.now() - began))
        return self._transactions(verb), limit_s

    # ------------------------------------------------------------ life

    async def flush(self, *, timeout_ms: float | None = None) -> None:
        """Sends all records and waits for their outcomes: see `Producer.flush`."""
        limit_s = limit_of(timeout_ms)
        self._check_open()
        self._check_loop()
        await self._flush(limit_s)
        self._raise_unseen()
        self._raise_failed_transaction()

    async def _flush(self, limit_s: float | None) -> None:
        self._core.intake.close_all()
        results = list(self._core.intake.unsettled)
        if not results:
            return
        done = asyncio.get_running_loop().create_future()
        left = len(results)

        def one() -> None:
            nonlocal left
            left -= 1
            if not left and not done.done():
                done.set_result(None)

        for result in results:
            result.when_done(one)
        try:
            async with asyncio.timeout(limit_s):
                await done
        except TimeoutError:
            raise not_acknowledged(left) from None

    async def close(self, *, timeout_ms: float | None = None) -> None:
        """Sends all records and closes the connections: see `Producer.close`."""
        if self._closed:
            return
        limit_s = limit_of(timeout_ms)
        self._check_process()
        self._check_loop()
        self._closed = True
        if self._start_task is None:
            return
        self._start_task.cancel()  # if it isn't done
        try:
            with warned_when_slow(logger, self._core.unfinished):
                if self._core.transactions is None:
                    await self._flush(limit_s)
                else:
                    await self._core.transactions.finish(self._block_s(timeout_ms))
        except KafkaTimeoutError:
            pass  # the records that are left get their error below
        finally:
            await _wait_closed(self._core.close(closed_before()))
        self._raise_unseen()

    def _check_loop(self) -> None:
        """Raises `UsageError` in another event loop than its own, where no outcome would ever come."""
        if self._start_task is not None and self._start_task.get_loop() is not asyncio.get_running_loop():
            raise UsageError(another_loop(self))

    async def _started(self, limit_s: float | None = None) -> float | None:
        """Waits until connected: see `Producer._started`."""
        self._check_open()
        if self._start_task is None:
            self._room = asyncio.Event()
            self._core.on_room = self._room.set
            self._start_task = asyncio.create_task(self._core.begin())
        self._check_loop()
        if self._ready:
            return None
        starting, client, began = self._start_task, self._core.client, self._core.client.now()
        await asyncio.wait({starting}, timeout=self._block_s(None) if limit_s is None else limit_s)
        if not starting.done():
            raise client.not_connected(client.now() - began)
        if starting.cancelled():
            self._check_open()
        if starting.exception() is not None:
            await self._abandon_start(starting)
        starting.result()
        self._ready = True
        return began

    async def _abandon_start(self, starting: asyncio.Task[None] | None) -> None:
        """Undoes a start that failed; the next call starts anew."""
        if starting is None or starting is not self._start_task or self._closed:
            return
        starting.cancel()
        failed, self._start_task, self._ready = self._core, None, False
        self._make()
        await _wait_closed(failed.client.close())


async def _wait_closed(closing: Coroutine[Any, Any, None]) -> None:
    """Waits up to `GRACE_S` for connections to close."""
    try:
        async with asyncio.timeout(GRACE_S) as over:
            await closing
    except TimeoutError:
        if not over.expired():
            raise
        logger.warning(NOT_CLOSED, GRACE_S)
