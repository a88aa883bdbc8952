"""`AsyncConsumer`: the twin of `Consumer` for asyncio."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import AsyncIterator, Callable, Coroutine, Iterable, Mapping
from concurrent.futures import CancelledError, ThreadPoolExecutor
from types import TracebackType
from typing import Any, Self, TypeVar, Unpack

import pyarrow as pa

from kafka_actors.base.arguments import limit_of, listed, partition_of, partitions_of, seconds_of, times_of
from kafka_actors.base.fork_guard import another_loop
from kafka_actors.base.timeouts import timeouts_by_name
from kafka_actors.errors import KafkaTimeoutError, UsageError
from kafka_actors.events import EventSink
from kafka_actors.net import ListedOffset
from kafka_actors.telemetry.spans import committing
from kafka_actors.types import EARLIEST, LATEST, OffsetAndMetadata, TopicPartition

from .base_consumer import BaseConsumer
from .call_deadline import CallLimit
from .consumer_io import ConsumerIO
from .consumer_session import GRACE_S, ConsumerSession, Pattern, Topics, check_listener
from .cursor import Cursor
from .message import Message, messages_of
from .options import ConsumerOptions
from .rebalance import ConsumerRebalanceListener, awaited
from .wakeup import LoopWakeup

log = logging.getLogger(__name__)

T = TypeVar("T")


@timeouts_by_name
class AsyncConsumer(BaseConsumer):
    """`Consumer` with coroutines: the same options, the same calls, the same promises; see there.

        async with AsyncConsumer(topics=["orders"], group_id="g", bootstrap_servers="localhost:9092") as consumer:
            batch = await consumer.poll_batch(timeout_ms=1000)
            async for message in consumer: ...

    Records are decoded in a thread, so that the event loop isn't held up. The listener's methods may be
    coroutine functions. For one task at a time.
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
        self._session = ConsumerSession(topics, pattern, listener, events, self._wake, config, options)
        self._decoder = ThreadPoolExecutor(1, thread_name_prefix="kafka-decode")

    async def __aenter__(self) -> Self:
        try:
            await self._started()
        except BaseException:  # of a cancellation, too: nobody will close it
            await self._give_up_beginning()
            raise
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    # ------------------------------------------------------------ reading

    async def poll_batch(self, *, timeout_ms: float | None = 1000) -> pa.RecordBatch | None:
        """As `Consumer.poll_batch`."""
        timeout_s = limit_of(timeout_ms)
        deadline = None if timeout_s is None else time.monotonic() + timeout_s
        session = self._open()
        session.check_wanted()
        if not session.ready and not await self._begun(session, timeout_s):
            session.begin().tell()
            return None
        session.reader.settle()
        return await self._wait_for(session, session.reader.next_batch, deadline)

    async def __aiter__(self) -> AsyncIterator[Message]:
        """As `Consumer.__iter__`."""
        session = await self._reading()
        while True:
            session.check_open()
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
            if taken is not None:
                session.core.observer.polled(began, getattr(taken, "batch", taken))
                return taken
            left = None if deadline is None else deadline - time.monotonic()
            if left is not None and left <= 0:
                session.core.observer.polled(began, None)
                return None
            if not session.attention:
                await self._wake.wait(left)
                session.check_open()

    async def _decoded(self, session: ConsumerSession, take: Callable[[], T | None]) -> T | None:
        """Takes in the decoder's thread, which no cancellation stops: what it took for a cancelled call goes back,
        or it would count as handed out and be committed, unseen."""
        work = asyncio.wrap_future(self._decoder.submit(take))
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
        for callback in session.attend():
            await awaited(callback())

    # ------------------------------------------------------------ what to read

    async def subscribe(
        self,
        topics: Topics = None,
        *,
        pattern: Pattern = None,
        listener: ConsumerRebalanceListener | None = None,
    ) -> None:
        """As `Consumer.subscribe`."""
        session = self._open()
        session.check_group()
        check_listener(listener)
        if pattern is None and (topics := listed(topics)) == []:
            return await self.unsubscribe()
        await self._give_up_beginning()
        session.change_subscription(topics, pattern)
        session.listener = listener or session.listener
        if session.started:
            await self._call(session.core.subscribed())

    async def assign(self, partitions: Iterable[TopicPartition]) -> None:
        """As `Consumer.assign`."""
        session = self._open()
        chosen = partitions_of(partitions)
        if not chosen:
            return await self.unsubscribe()
        await self._give_up_beginning()
        session.subscription.assign_from_user(chosen)
        if session.started:
            offsets = session.drop(session.assignment() - frozenset(chosen))
            await self._call(session.core.assigned(session.subscription.assigned, offsets))

    async def unsubscribe(self) -> None:
        """As `Consumer.unsubscribe`."""
        session = self._open()
        await self._give_up_beginning()
        if session.started:
            for callback in session.farewell():
                await awaited(callback())
            offsets = session.drop(session.assignment())
            await self._call(session.core.unsubscribed(offsets))
        session.subscription.unsubscribe()

    async def pause(self, *partitions: TopicPartition) -> None:
        """As `Consumer.pause`."""
        session = await self._started()
        session.pause(session.some(partitions))

    async def resume(self, *partitions: TopicPartition) -> None:
        """As `Consumer.resume`."""
        session = await self._started()
        session.resume(session.some(partitions))

    def paused(self) -> set[TopicPartition]:
        """As `Consumer.paused`."""
        return set(self._session.reader.paused) if self._session.started else set()

    # ------------------------------------------------------------ positions

    async def seek(self, partition: TopicPartition, offset: int) -> None:
        """As `Consumer.seek`."""
        (await self._started()).seek(partition_of(partition), offset)

    async def seek_to_beginning(self, *partitions: TopicPartition) -> None:
        """As `Consumer.seek_to_beginning`."""
        session = await self._started()
        session.seek_to_ends(session.some(partitions), beginning=True)

    async def seek_to_end(self, *partitions: TopicPartition) -> None:
        """As `Consumer.seek_to_end`."""
        session = await self._started()
        session.seek_to_ends(session.some(partitions), beginning=False)

    async def position(self, partition: TopicPartition, *, timeout_ms: float | None = None) -> int:
        """As `Consumer.position`."""
        limit = CallLimit(timeout_ms)
        session = await self._started(limit)
        tp = partition_of(partition)
        known = session.reader.position(tp)
        if known is None:
            await self._call(session.core.position(tp, limit.left()), limit, GRACE_S)
            known = session.reader.position(tp)
        if known is None:
            raise KafkaTimeoutError(f"the position of {tp.topic}-{tp.partition} was lost again")
        return known.offset

    def lag(self, partition: TopicPartition) -> int | None:
        """As `Consumer.lag`."""
        tp = partition_of(partition)
        return self._session.lag(tp)

    async def commit(
        self,
        offsets: Mapping[TopicPartition, OffsetAndMetadata | int] | None = None,
        *,
        timeout_ms: float | None = None,
    ) -> None:
        """As `Consumer.commit`."""
        limit = CallLimit(timeout_ms)
        session = await self._started(limit)
        wanted = session.to_commit(offsets)
        if wanted:
            with committing(session.config.group_id):
                await self._call(session.core.commit(wanted, limit.left()), limit, GRACE_S)
        if offsets is None:
            session.reader.finish()

    async def committed(
        self, partitions: Iterable[TopicPartition], *, timeout_ms: float | None = None
    ) -> dict[TopicPartition, OffsetAndMetadata | None]:
        """As `Consumer.committed`."""
        self._open().check_group()
        wanted = partitions_of(partitions)
        return await self._ask(timeout_ms, lambda core, _: core.committed(wanted))

    # ------------------------------------------------------------ what there is

    async def offsets_for_times(
        self, timestamps: Mapping[TopicPartition, int], *, timeout_ms: float | None = None
    ) -> dict[TopicPartition, ListedOffset | None]:
        """As `Consumer.offsets_for_times`."""
        found = await self._list(times_of(timestamps), timeout_ms)
        return {tp: listed if listed.offset >= 0 else None for tp, listed in found.items()}

    async def beginning_offsets(
        self, partitions: Iterable[TopicPartition], *, timeout_ms: float | None = None
    ) -> dict[TopicPartition, int]:
        """As `Consumer.beginning_offsets`."""
        found = await self._list(dict.fromkeys(partitions_of(partitions), EARLIEST), timeout_ms)
        return {tp: listed.offset for tp, listed in found.items()}

    async def end_offsets(
        self, partitions: Iterable[TopicPartition], *, timeout_ms: float | None = None
    ) -> dict[TopicPartition, int]:
        """As `Consumer.end_offsets`."""
        found = await self._list(dict.fromkeys(partitions_of(partitions), LATEST), timeout_ms)
        return {tp: listed.offset for tp, listed in found.items()}

    async def partitions_for_topic(self, topic: str, *, timeout_ms: float | None = None) -> set[int] | None:
        """As `Consumer.partitions_for_topic`."""
        return await self._ask(timeout_ms, lambda core, _: core.topics.partitions_for(topic))

    async def topics(self, *, timeout_ms: float | None = None) -> set[str]:
        """As `Consumer.topics`."""
        return await self._ask(timeout_ms, lambda core, _: core.topics.names())

    async def _list(
        self, wanted: Mapping[TopicPartition, int], timeout_ms: float | None
    ) -> dict[TopicPartition, ListedOffset]:
        return await self._ask(timeout_ms, lambda core, left: core.list_offsets(wanted, left), GRACE_S)

    async def _ask(
        self,
        timeout_ms: float | None,
        question: Callable[[ConsumerIO, float], Coroutine[Any, Any, T]],
        grace_s: float = 0.0,
    ) -> T:
        """Connects if need be and asks, with the seconds that are left, all within the limit."""
        limit = CallLimit(timeout_ms)
        core = (await self._started(limit)).core
        return await self._call(question(core, limit.left()), limit, grace_s)

    # ------------------------------------------------------------ life

    async def close(self, *, timeout_ms: float = 30_000) -> None:
        """As `Consumer.close`."""
        session, timeout_s = self._session, seconds_of(timeout_ms)
        if session.closed:
            return
        session.check_process()
        try:
            if session.started:
                try:
                    for callback in session.farewell():
                        await awaited(callback())
                finally:
                    await self._leave(session, timeout_s)
        finally:
            await asyncio.to_thread(session.end)
            self._decoder.shutdown(wait=False)

    async def _leave(self, session: ConsumerSession, timeout_s: float) -> None:
        try:
            async with asyncio.timeout(timeout_s + GRACE_S):
                await asyncio.wrap_future(session.leave(timeout_s))
        except TimeoutError:
            log.warning("the consumer could not be closed in %g s: it is given up", timeout_s)

    async def _reading(self) -> ConsumerSession:
        self._open().check_wanted()
        return await self._started()

    def _open(self) -> ConsumerSession:
        self._session.check_open()
        if self._session.started and self._wake.loop is not asyncio.get_running_loop():
            raise UsageError(another_loop(self))
        return self._session

    async def _started(self, limit: CallLimit | None = None) -> ConsumerSession:
        """As `Consumer._started`."""
        session = self._open()
        if not session.ready and not await self._begun(session, None if limit is None else limit.left()):
            raise session.begin().why_not()
        return session

    async def _begun(self, session: ConsumerSession, timeout_s: float | None) -> bool:
        """As `Consumer._begun`. Goes on where the caller is cancelled."""
        self._wake.loop = asyncio.get_running_loop()
        beginning = session.begin().done
        awaited = asyncio.wrap_future(beginning)
        awaited.add_done_callback(_heard)
        if not (await asyncio.wait({awaited}, timeout=timeout_s))[0]:
            return False
        try:
            beginning.result()
        except CancelledError:
            session.check_open()  # another task has closed it
            raise
        except Exception:
            await self._give_up_beginning()
            raise
        session.ready = True
        return True

    async def _give_up_beginning(self) -> None:
        """As `Consumer._give_up_beginning`."""
        session = self._session
        if session.started and not session.ready and not session.closed:
            try:
                await self._leave(session, 0)
            finally:
                await asyncio.to_thread(session.undo)

    async def _call(
        self, work: Coroutine[Any, Any, T], limit: CallLimit | None = None, grace_s: float = 0.0
    ) -> T:
        """Runs a coroutine in the IO thread and awaits it."""
        limit = limit or CallLimit(None)
        try:
            async with asyncio.timeout(limit.left() + grace_s) as over:
                return await asyncio.wrap_future(self._session.io.submit(work))
        except TimeoutError:
            if not over.expired():
                raise
            raise KafkaTimeoutError(f"no answer within {limit.seconds:g} s") from None
        except asyncio.CancelledError:
            task = asyncio.current_task()
            if task is not None and not task.cancelling():
                self._session.check_open()  # another task has closed it
            raise


def _heard(beginning: asyncio.Future[None]) -> None:
    """Whoever waited may be gone, and the next call asks again: asyncio needn't warn of that."""
    if not beginning.cancelled():
        beginning.exception()
