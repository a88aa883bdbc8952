"""`Consumer`: reads Kafka in one process, without Ray: batches, or messages one at a time."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Coroutine, Iterable, Iterator, Mapping
from concurrent.futures import CancelledError
from types import TracebackType
from typing import Any, Self, TypeVar, Unpack

import pyarrow as pa

from kafka_actors.base.arguments import limit_of, listed, partition_of, partitions_of, seconds_of, times_of
from kafka_actors.base.io_thread import ended_within
from kafka_actors.base.timeouts import timeouts_by_name
from kafka_actors.errors import KafkaTimeoutError
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
from .rebalance import ConsumerRebalanceListener
from .wakeup import ThreadWakeup

log = logging.getLogger(__name__)

T = TypeVar("T")


@timeouts_by_name
class Consumer(BaseConsumer):
    """A member of a consumer group, or a reader of chosen partitions. For one thread at a time.

        with Consumer(topics=["orders"], group_id="g", bootstrap_servers="localhost:9092") as consumer:
            batch = consumer.poll_batch(timeout_ms=1000)   # pyarrow.RecordBatch of one partition, or None
            for message in consumer: ...                   # one message at a time, a view on the same batches

    Options are Kafka's, as keyword arguments with underscores or in `config={...}` with dots or underscores;
    see `ConsumerConfig`. A wrong one is a `ConfigError` before anything connects. `events` is called, in another
    thread, with each event (`kafka_actors.events`); by default events are logged. The first call that needs a broker
    begins to connect, which goes on when the call's time is over: then `poll_batch` returns None, any other call raises
    `NoBrokersAvailable`, and the next one waits on. If no broker answers for `request_timeout_ms`, `poll_batch` raises it,
    too, and the next call begins anew.

    Records count as done when the next ones are asked for: auto-commit and `close` commit only what came before
    the batch or message in hand; `commit` commits all that was handed out. Heartbeats and fetching go on in a
    thread of their own; without a call for `max_poll_interval_ms` the consumer leaves its group until the next.
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
        self._wake = ThreadWakeup()
        self._session = ConsumerSession(topics, pattern, listener, events, self._wake, config, options)

    def __enter__(self) -> Self:
        try:
            self._started()
        except BaseException:  # of an interrupt, too: nobody will close it
            self._give_up_beginning()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    # ------------------------------------------------------------ reading

    def poll_batch(self, *, timeout_ms: float | None = 1000) -> pa.RecordBatch | None:
        """The next records, all of one partition, with the columns of `records.SCHEMA`; None if none came in time.

        `timeout_ms` None waits without end, 0 not at all. Partitions take turns. Raises the typed error of a
        partition that can't be read as asked (see `on_data_loss`, `on_bad_batch`), each time until it is dealt
        with by `seek`, `pause` or `unsubscribe`; and what ended the membership in the group.
        """
        timeout_s = limit_of(timeout_ms)
        deadline = None if timeout_s is None else time.monotonic() + timeout_s
        session = self._open()
        session.check_wanted()
        if not session.ready and not self._begun(session, timeout_s):
            session.begin().tell()
            return None
        session.reader.settle()
        try:
            return self._next_batch(session, deadline)
        except BaseException:  # an interrupt: what was taken has not reached the user
            session.reader.put_back()
            raise

    def _next_batch(self, session: ConsumerSession, deadline: float | None) -> pa.RecordBatch | None:
        began = time.monotonic()
        while True:
            self._wake.clear()
            if session.attention:
                self._attend(session)
            batch = session.reader.next_batch()
            if batch is not None:
                session.core.observer.polled(began, batch)
                return batch
            if session.attention:
                continue
            left = None if deadline is None else deadline - time.monotonic()
            if left is not None and left <= 0:
                session.core.observer.polled(began, None)
                return None
            self._wake.wait(left)

    def __iter__(self) -> Iterator[Message]:
        """The records as messages, without end; each counts as done when the next is asked for."""
        session = self._reading()
        while True:
            cursor = self._next_cursor(session)
            batch, row = cursor.batch, cursor.row
            for message in messages_of(batch, row):
                cursor.begun = row
                cursor.row = row = row + 1
                yield message
                if session.attention or cursor.row != row or cursor.batch is not batch:
                    break  # something changed, or the rest was handed out as a batch

    def _next_cursor(self, session: ConsumerSession) -> Cursor:
        session.check_open()
        session.reader.settle()
        began = time.monotonic()
        while True:
            self._wake.clear()
            if session.attention:
                self._attend(session)
            cursor = session.reader.next_cursor()
            if cursor is not None:
                session.core.observer.polled(began, cursor.batch)
                return cursor
            if not session.attention:
                self._wake.wait(None)
                session.check_open()

    def _attend(self, session: ConsumerSession) -> None:
        for callback in session.attend():
            callback()

    # ------------------------------------------------------------ what to read

    def subscribe(
        self,
        topics: Topics = None,
        *,
        pattern: Pattern = None,
        listener: ConsumerRebalanceListener | None = None,
    ) -> None:
        """Reads whole topics, by name or by a pattern for whole names, as a member of the group.

        Replaces what was subscribed to before; no topics at all is `unsubscribe`. Raises `ConfigError` for a bad name
        or pattern or a missing `group_id`, `UsageError` if partitions are assigned by hand.
        """
        session = self._open()
        session.check_group()
        check_listener(listener)
        if pattern is None and (topics := listed(topics)) == []:
            return self.unsubscribe()
        self._give_up_beginning()
        session.change_subscription(topics, pattern)
        session.listener = listener or session.listener
        if session.started:
            self._call(session.core.subscribed())

    def assign(self, partitions: Iterable[TopicPartition]) -> None:
        """Reads these partitions, without the group assigning; those held already keep their positions.

        With a `group_id` they start at its committed offsets, and those that go are committed as `close` does. None at all
        is `unsubscribe`. Raises `UsageError` while
        subscribed to topics.
        """
        session = self._open()
        chosen = partitions_of(partitions)
        if not chosen:
            return self.unsubscribe()
        self._give_up_beginning()
        session.subscription.assign_from_user(chosen)
        if session.started:
            offsets = session.drop(session.assignment() - frozenset(chosen))
            self._call(session.core.assigned(session.subscription.assigned, offsets))

    def unsubscribe(self) -> None:
        """Reads nothing any more, and leaves the group; commits as `close` does."""
        session = self._open()
        self._give_up_beginning()
        if session.started:
            for callback in session.farewell():
                callback()
            offsets = session.drop(session.assignment())
            self._call(session.core.unsubscribed(offsets))
        session.subscription.unsubscribe()

    def pause(self, *partitions: TopicPartition) -> None:
        """Hands out nothing of these partitions (default: all) until `resume`; the consumer keeps them."""
        session = self._started()
        session.pause(session.some(partitions))

    def resume(self, *partitions: TopicPartition) -> None:
        """Ends `pause` (default: of all)."""
        session = self._started()
        session.resume(session.some(partitions))

    def paused(self) -> set[TopicPartition]:
        """The paused partitions."""
        return set(self._started().reader.paused)

    # ------------------------------------------------------------ positions

    def seek(self, partition: TopicPartition, offset: int) -> None:
        """The next record of the partition is the first at or behind `offset`. Raises `UsageError` if unassigned."""
        self._started().seek(partition_of(partition), offset)

    def seek_to_beginning(self, *partitions: TopicPartition) -> None:
        """The next record is the first there is (default: of all partitions)."""
        session = self._started()
        session.seek_to_ends(session.some(partitions), beginning=True)

    def seek_to_end(self, *partitions: TopicPartition) -> None:
        """The next record is the first one written from now on (default: in all partitions)."""
        session = self._started()
        session.seek_to_ends(session.some(partitions), beginning=False)

    def position(self, partition: TopicPartition, *, timeout_ms: float | None = None) -> int:
        """The offset of the next record to be handed out.

        Waits until it is known. Raises `UsageError` if unassigned, `KafkaTimeoutError`, and the error of a
        partition without a valid position.
        """
        limit = CallLimit(timeout_ms)
        session = self._started(limit)
        tp = partition_of(partition)
        known = session.reader.position(tp)
        if known is None:
            self._call(session.core.position(tp, limit.left()), limit, GRACE_S)
            known = session.reader.position(tp)
        if known is None:
            raise KafkaTimeoutError(f"the position of {tp.topic}-{tp.partition} was lost again")
        return known.offset

    def lag(self, partition: TopicPartition) -> int | None:
        """Offsets between the position and the end of the log as last seen; None until that is known."""
        return self._started().lag(partition_of(partition))

    def commit(
        self,
        offsets: Mapping[TopicPartition, OffsetAndMetadata | int] | None = None,
        *,
        timeout_ms: float | None = None,
    ) -> None:
        """Commits the positions behind everything handed out, the batch or message in hand included; or `offsets`.

        Returns when the group's coordinator has confirmed them. Raises what it refused them with, and
        `IllegalGenerationError` where a partition was lost since the last poll.
        """
        limit = CallLimit(timeout_ms)
        session = self._started(limit)
        wanted = session.to_commit(offsets)
        if wanted:
            with committing(session.config.group_id):
                self._call(session.core.commit(wanted, limit.left()), limit, GRACE_S)
        if offsets is None:
            session.reader.finish()

    def committed(
        self, partitions: Iterable[TopicPartition], *, timeout_ms: float | None = None
    ) -> dict[TopicPartition, OffsetAndMetadata | None]:
        """What the group has committed for these partitions; None where nothing."""
        self._open().check_group()
        wanted = partitions_of(partitions)
        return self._ask(timeout_ms, lambda core, _: core.committed(wanted))

    # ------------------------------------------------------------ what there is

    def offsets_for_times(
        self, timestamps: Mapping[TopicPartition, int], *, timeout_ms: float | None = None
    ) -> dict[TopicPartition, ListedOffset | None]:
        """The first record at or after a time (milliseconds since 1970), by partition; None where there is none."""
        found = self._list(times_of(timestamps), timeout_ms)
        return {tp: listed if listed.offset >= 0 else None for tp, listed in found.items()}

    def beginning_offsets(
        self, partitions: Iterable[TopicPartition], *, timeout_ms: float | None = None
    ) -> dict[TopicPartition, int]:
        """The first offset in the log of each partition."""
        found = self._list(dict.fromkeys(partitions_of(partitions), EARLIEST), timeout_ms)
        return {tp: listed.offset for tp, listed in found.items()}

    def end_offsets(
        self, partitions: Iterable[TopicPartition], *, timeout_ms: float | None = None
    ) -> dict[TopicPartition, int]:
        """The offset behind the last record; under read_committed the last stable offset."""
        found = self._list(dict.fromkeys(partitions_of(partitions), LATEST), timeout_ms)
        return {tp: listed.offset for tp, listed in found.items()}

    def partitions_for_topic(self, topic: str, *, timeout_ms: float | None = None) -> set[int] | None:
        """The partition ids of a topic; None if there is no such topic."""
        return self._ask(timeout_ms, lambda core, _: core.topics.partitions_for(topic))

    def topics(self, *, timeout_ms: float | None = None) -> set[str]:
        """The topics that may be read."""
        return self._ask(timeout_ms, lambda core, _: core.topics.names())

    def _list(
        self, wanted: Mapping[TopicPartition, int], timeout_ms: float | None
    ) -> dict[TopicPartition, ListedOffset]:
        return self._ask(timeout_ms, lambda core, left: core.list_offsets(wanted, left), GRACE_S)

    def _ask(
        self,
        timeout_ms: float | None,
        question: Callable[[ConsumerIO, float], Coroutine[Any, Any, T]],
        grace_s: float = 0.0,
    ) -> T:
        """Connects if need be and asks, with the seconds that are left, all within the limit."""
        limit = CallLimit(timeout_ms)
        core = self._started(limit).core
        return self._call(question(core, limit.left()), limit, grace_s)

    # ------------------------------------------------------------ life

    def close(self, *, timeout_ms: float = 30_000) -> None:
        """Commits what is done (unless `enable_auto_commit` is off), leaves the group, closes the connections.

        A static member (`group_instance_id`) doesn't leave: its partitions wait for it to come back until its session
        is over.

        Returns within about `timeout_ms`, whatever the brokers do. Closing again changes nothing.
        """
        session, timeout_s = self._session, seconds_of(timeout_ms)
        if session.closed:
            return
        session.check_process()
        if not session.started:
            session.closed = True
            return
        try:
            for callback in session.farewell():
                callback()
        finally:
            try:
                self._leave(session, timeout_s)
            finally:
                session.end()

    def _leave(self, session: ConsumerSession, timeout_s: float) -> None:
        leaving = session.leave(timeout_s)
        try:
            leaving.result(timeout_s + GRACE_S)
        except TimeoutError:
            leaving.cancel()
            log.warning("the consumer could not be closed in %g s: it is given up", timeout_s)

    def _open(self) -> ConsumerSession:
        self._session.check_open()
        return self._session

    def _started(self, limit: CallLimit | None = None) -> ConsumerSession:
        """Connected. Raises what kept it from that within the limit; then the next call waits on."""
        session = self._open()
        if not session.ready and not self._begun(session, None if limit is None else limit.left()):
            raise session.begin().why_not()
        return session

    def _begun(self, session: ConsumerSession, timeout_s: float | None) -> bool:
        """Whether the beginning is done in time. Where it fails it is undone, and the next call begins anew."""
        beginning = session.begin().done
        if not ended_within(beginning, timeout_s):
            return False
        try:
            beginning.result()
        except CancelledError:
            session.check_open()  # another thread has closed it
            raise
        except Exception:
            self._give_up_beginning()
            raise
        session.ready = True
        return True

    def _give_up_beginning(self) -> None:
        """What is begun for a subscription that is to change, or what failed, is no beginning."""
        session = self._session
        if session.started and not session.ready and not session.closed:
            try:
                self._leave(session, 0)
            finally:
                session.undo()

    def _reading(self) -> ConsumerSession:
        self._open().check_wanted()
        return self._started()

    def _call(self, work: Coroutine[Any, Any, T], limit: CallLimit | None = None, grace_s: float = 0.0) -> T:
        """Runs a coroutine in the IO thread and waits for it."""
        limit = limit or CallLimit(None)
        future = self._session.io.submit(work)
        try:
            if not ended_within(future, limit.left() + grace_s):
                raise KafkaTimeoutError(f"no answer within {limit.seconds:g} s")
            return future.result()
        except CancelledError:
            self._session.check_open()  # another thread has closed it
            raise
        finally:
            future.cancel()
