"""`AsyncConsumer`: the calls of `Consumer` as coroutines, for asyncio."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable, Coroutine, Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self, TypeVar, Unpack

import pyarrow as pa

from kafka_actors.base.arguments import limit_of, seconds_of
from kafka_actors.base.fork_guard import another_loop
from kafka_actors.base.message import Message, messages_of
from kafka_actors.base.other_clients import not_an_iterator
from kafka_actors.base.timeouts import timeouts_by_name
from kafka_actors.config.typed_options import ConsumerOptions
from kafka_actors.errors import KafkaTimeoutError, UsageError
from kafka_actors.events import EventSink
from kafka_actors.net import ListedOffset
from kafka_actors.types import ConsumerGroupMetadata, OffsetAndMetadata, TopicPartition

from .consumer_session import ConsumerSession, Pattern, Topics
from .delivery import Cursor
from .operations import BaseConsumer
from .rebalance import ConsumerRebalanceListener, awaited
from .waiting import Block, Call, CallLimit, Done, LoopWakeup, OneTask, Step, Steps

T = TypeVar("T")


@timeouts_by_name
class AsyncConsumer(BaseConsumer):
    """`Consumer` with coroutines: the same options, the same calls, the same promises; see there.

        async with AsyncConsumer(topics=["orders"], group_id="g", bootstrap_servers="localhost:9092") as consumer:
            batch = await consumer.poll_batch(timeout_ms=1000)
            async for message in consumer: ...

    Records are decoded in a thread, so that the event loop isn't held up. The listener's methods may be
    coroutine functions. For one task at a time: another one that reads meanwhile gets a `UsageError`.
    """

    def __init__(
        self,
        topics: Topics = None,
        *,
        pattern: Pattern = None,
        listener: ConsumerRebalanceListener | None = None,
        events: EventSink | None = None,
        config: Mapping[str, Any] | None = None,
        **options: Unpack[ConsumerOptions],
    ) -> None:
        self._wake = LoopWakeup()
        self._one_task = OneTask()
        super().__init__(self._wake, topics, pattern, listener, events, config, options)
        self._decoder = ThreadPoolExecutor(1, thread_name_prefix="kafka-decode")

    async def __aenter__(self) -> Self:
        try:
            await self._run(self._session.connect())
        except BaseException:  # a cancellation, too: nobody would close it
            await self._drive(self._session.abandon_bootstrap())
            raise
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    # ------------------------------------------------------------ reading

    async def poll_batch(self, *, timeout_ms: float | None = 1000) -> pa.RecordBatch | None:
        """Returns the next records: see `Consumer.poll_batch`."""
        timeout_s = limit_of(timeout_ms)
        deadline = None if timeout_s is None else time.monotonic() + timeout_s
        session = self._open()
        session.check_wanted()
        with self._one_task:
            if not session.ready and not await self._drive(session.begun(timeout_s)):
                session.begin().log_delay()
                return None
            session.reader.settle()
            return await self._wait_for(session, session.reader.next_batch, deadline)

    if not TYPE_CHECKING:
        __anext__ = not_an_iterator("messages = aiter(consumer), then await anext(messages)")

    async def __aiter__(self) -> AsyncIterator[Message]:
        """Yields the records as messages: see `Consumer.__iter__`."""
        session = self._open()
        session.check_wanted()
        await self._drive(session.connect())
        while True:
            session.check_open()
            with self._one_task:
                session.reader.settle()
                cursor: Cursor | None = await self._wait_for(session, session.reader.next_cursor, None)
            if cursor is None:
                continue
            batch, row = cursor.batch, cursor.row
            for message in messages_of(batch, row):
                cursor.begun = row
                cursor.row = row = row + 1
                yield message
                if session.attention or cursor.row != row or cursor.batch is not batch:
                    break  # something changed, or the rest was handed out as a batch

    async def _wait_for(
        self, session: ConsumerSession, take: Callable[[], T | None], deadline: float | None
    ) -> T | None:
        began = time.monotonic()
        while True:
            self._wake.clear()
            if session.attention:
                await self._attend(session)
            taken = await self._decoded(session, take)
            if taken is not None and not session.put_back_for_rebalance():
                session.core.observer.polled(began, getattr(taken, "batch", taken))
                return taken
            if session.attention:
                continue
            left = None if deadline is None else deadline - time.monotonic()
            if left is not None and left <= 0:
                session.core.observer.polled(began, None)
                return None
            await self._wake.wait(left)
            session.check_open()

    async def _decoded(self, session: ConsumerSession, take: Callable[[], T | None]) -> T | None:
        """Takes records in the decoder's thread. No cancellation stops that: records that were taken for a cancelled call go
        back, or they would count as handed out and be committed, unseen."""
        refused = False

        def unless_refused() -> T | None:
            return None if refused else take()

        try:
            work = asyncio.wrap_future(self._decoder.submit(unless_refused))
        except RuntimeError:  # the system gives no thread; a later one would do what is queued all the same
            refused = True
            session.check_open()
            return take()
        try:
            return await asyncio.shield(work)
        except asyncio.CancelledError:
            while not work.done():
                try:
                    await asyncio.wait([work])
                except asyncio.CancelledError:
                    continue
            if not work.cancelled() and work.exception() is None:
                session.reader.put_back()
            raise

    async def _attend(self, session: ConsumerSession) -> None:
        for callback in session.tasks.attend():
            await awaited(callback())

    # ------------------------------------------------------------ subscription and assignment

    async def subscribe(
        self,
        topics: Topics = None,
        *,
        pattern: Pattern = None,
        listener: ConsumerRebalanceListener | None = None,
    ) -> None:
        """Reads whole topics as a member of the group: see `Consumer.subscribe`."""
        await self._run(self._operations.subscribe(topics, pattern, listener))

    async def assign(self, partitions: Iterable[TopicPartition]) -> None:
        """Reads these partitions, without the group: see `Consumer.assign`."""
        await self._run(self._operations.assign(partitions))

    async def unsubscribe(self) -> None:
        """Stops reading and leaves the group: see `Consumer.unsubscribe`."""
        await self._run(self._operations.unsubscribe())

    async def pause(self, *partitions: TopicPartition) -> None:
        """Stops handing out partitions: see `Consumer.pause`."""
        await self._run(self._operations.pause(partitions))

    async def resume(self, *partitions: TopicPartition) -> None:
        """Ends `pause`: see `Consumer.resume`."""
        await self._run(self._operations.resume(partitions))

    def paused(self) -> set[TopicPartition]:
        """Returns the paused partitions: see `Consumer.paused`."""
        return set(self._session.reader.paused) if self._session.started else set()

    # ------------------------------------------------------------ positions

    async def seek(self, partition: TopicPartition, offset: int) -> None:
        """Moves a position to an offset: see `Consumer.seek`."""
        await self._run(self._operations.seek(partition, offset))

    async def seek_to_beginning(self, *partitions: TopicPartition) -> None:
        """Moves positions to the beginning of their logs: see `Consumer.seek_to_beginning`."""
        await self._run(self._operations.seek_to_end_of_log(partitions, at_start=True))

    async def seek_to_end(self, *partitions: TopicPartition) -> None:
        """Moves positions to the end of their logs: see `Consumer.seek_to_end`."""
        await self._run(self._operations.seek_to_end_of_log(partitions, at_start=False))

    async def seek_to_committed(self, *partitions: TopicPartition, timeout_ms: float | None = None) -> None:
        """Moves positions back to the committed offsets: see `Consumer.seek_to_committed`."""
        await self._run(self._operations.seek_to_committed(partitions, timeout_ms))

    async def position(self, partition: TopicPartition, *, timeout_ms: float | None = None) -> int:
        """Returns the offset of the next record to be handed out: see `Consumer.position`."""
        return await self._run(self._operations.position(partition, timeout_ms))

    def lag(self, partition: TopicPartition) -> int | None:
        """Returns the distance from the end of the log: see `Consumer.lag`."""
        return self._operations.lag(partition)

    async def commit(
        self,
        offsets: Mapping[TopicPartition, OffsetAndMetadata | int] | None = None,
        *,
        timeout_ms: float | None = None,
    ) -> None:
        """Commits positions: see `Consumer.commit`."""
        await self._run(self._operations.commit(offsets, timeout_ms))

    async def committed(
        self, partitions: Iterable[TopicPartition], *, timeout_ms: float | None = None
    ) -> dict[TopicPartition, OffsetAndMetadata | None]:
        """Returns the committed offsets of the group: see `Consumer.committed`."""
        return await self._run(self._operations.committed(partitions, timeout_ms))

    async def group_metadata(self) -> ConsumerGroupMetadata:
        """Returns the membership in the group: see `Consumer.group_metadata`."""
        return await self._run(self._operations.group_metadata())

    # ------------------------------------------------------------ topics and logs

    async def offsets_for_times(
        self, timestamps: Mapping[TopicPartition, int], *, timeout_ms: float | None = None
    ) -> dict[TopicPartition, ListedOffset | None]:
        """Returns the first record at or after each time: see `Consumer.offsets_for_times`."""
        return await self._run(self._operations.offsets_for_times(timestamps, timeout_ms))

    async def beginning_offsets(
        self, partitions: Iterable[TopicPartition], *, timeout_ms: float | None = None
    ) -> dict[TopicPartition, int]:
        """Returns the first offset in each log: see `Consumer.beginning_offsets`."""
        return await self._run(self._operations.ends_of_logs(partitions, timeout_ms, at_start=True))

    async def end_offsets(
        self, partitions: Iterable[TopicPartition], *, timeout_ms: float | None = None
    ) -> dict[TopicPartition, int]:
        """Returns the offset behind the last record of each log: see `Consumer.end_offsets`."""
        return await self._run(self._operations.ends_of_logs(partitions, timeout_ms, at_start=False))

    async def partitions_for_topic(self, topic: str, *, timeout_ms: float | None = None) -> set[int] | None:
        """Returns the partition ids of a topic: see `Consumer.partitions_for_topic`."""
        return await self._run(self._operations.partitions_for_topic(topic, timeout_ms))

    async def topics(self, *, timeout_ms: float | None = None) -> set[str]:
        """Returns the topics that may be read: see `Consumer.topics`."""
        return await self._run(self._operations.topics(timeout_ms))

    # ------------------------------------------------------------ life

    async def close(self, *, timeout_ms: float = 30_000) -> None:
        """Commits, leaves the group and closes the connections: see `Consumer.close`."""
        try:
            await self._drive(self._session.close(seconds_of(timeout_ms)))
        finally:
            if self._session.closed:
                self._decoder.shutdown(wait=False)

    def _open(self) -> ConsumerSession:
        self._session.check_open()
        loop = asyncio.get_running_loop()
        if not self._session.started:
            self._wake.loop = loop
        elif self._wake.loop is not loop:
            raise UsageError(another_loop(self))
        return self._session

    # ------------------------------------------------------------ waiting

    async def _run(self, steps: Steps[T]) -> T:
        self._open()
        return await self._drive(steps)

    async def _drive(self, steps: Steps[T]) -> T:
        """Waits for each step, and returns the result of them all."""
        try:
            step = next(steps)
            while True:
                try:
                    result = await self._wait(step)
                except BaseException as error:
                    step = steps.throw(error)
                else:
                    step = steps.send(result)
        except StopIteration as end:
            value: T = end.value
            return value

    async def _wait(self, step: Step) -> Any:
        if isinstance(step, Call):
            return await self._call(*step)
        if isinstance(step, Done):
            future = asyncio.wrap_future(step.future)
            future.add_done_callback(_retrieve)
            return bool((await asyncio.wait({future}, timeout=step.timeout_s))[0])
        if isinstance(step, Block):
            return await asyncio.to_thread(step.call)
        return await awaited(step.call())

    async def _call(self, work: Coroutine[Any, Any, T], limit: CallLimit, grace_s: float = 0.0) -> T:
        """Runs a coroutine in the IO thread and awaits it."""
        try:
            async with asyncio.timeout(limit.left() + grace_s) as over:
                return await asyncio.wrap_future(self._session.io.submit(work))
        except TimeoutError:
            if not over.expired():
                raise
            raise KafkaTimeoutError(f"no answer within {limit.seconds:g} s") from None
        except (asyncio.CancelledError, RuntimeError):
            task = asyncio.current_task()
            if task is not None and not task.cancelling():
                self._session.check_open()  # another task has closed it
            raise


def _retrieve(future: asyncio.Future[None]) -> None:
    """Marks an exception as retrieved, so that asyncio doesn't log it: the task that waited may be gone, and the next call looks
    at the future itself."""
    if not future.cancelled():
        future.exception()
