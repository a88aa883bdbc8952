"""`Consumer`: reads Kafka in one process, without Ray, by the batch or message by message."""

from __future__ import annotations

import time
from collections.abc import Coroutine, Iterable, Iterator, Mapping
from concurrent.futures import CancelledError
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self, TypeVar, Unpack

import pyarrow as pa

from kafka_actors.base.arguments import limit_of, seconds_of
from kafka_actors.base.io_thread import ThreadWakeup, ended_within
from kafka_actors.base.message import Message, messages_of
from kafka_actors.base.other_clients import not_an_iterator
from kafka_actors.base.timeouts import timeouts_by_name
from kafka_actors.config.typed_options import ConsumerOptions
from kafka_actors.errors import KafkaTimeoutError
from kafka_actors.events import EventSink
from kafka_actors.net import ListedOffset
from kafka_actors.types import ConsumerGroupMetadata, OffsetAndMetadata, TopicPartition

from .consumer_session import ConsumerSession, Pattern, Topics
from .delivery import Cursor
from .operations import BaseConsumer
from .rebalance import ConsumerRebalanceListener
from .waiting import Call, CallLimit, Done, OneReader, Step, Steps

T = TypeVar("T")


@timeouts_by_name
class Consumer(BaseConsumer):
    """A member of a consumer group, or a reader of chosen partitions. For one thread at a time.

        with Consumer(topics=["orders"], group_id="g", bootstrap_servers="localhost:9092") as consumer:
            batch = consumer.poll_batch(timeout_ms=1000)   # pyarrow.RecordBatch of one partition, or None
            for message in consumer: ...                   # one message at a time, a view on the same batches

    Options are Kafka's, as keyword arguments with underscores or in `config={...}` with dots or underscores;
    see `ConsumerConfig`. A dict in place of `topics` is `config`. A wrong one is a `ConfigError` before anything connects. `events` is called, in another
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
        self._one_reader = OneReader()
        super().__init__(self._wake, topics, pattern, listener, events, config, options)

    def __enter__(self) -> Self:
        try:
            self._run(self._session.connect())
        except BaseException:  # an interrupt, too: nobody would close it
            self._drive(self._session.abandon_bootstrap())
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    # ------------------------------------------------------------ reading

    def poll_batch(self, *, timeout_ms: float | None = 1000) -> pa.RecordBatch | None:
        """Returns the next records, all of one partition, with the columns of `records.SCHEMA`; None if none came in time.

        `timeout_ms` None waits without end, 0 not at all. Partitions take turns. Raises the typed error of a
        partition that can't be read (see `on_data_loss`, `on_bad_batch`), each time until it is dealt
        with by `seek`, `pause` or `unsubscribe`; the error that ended the membership in the group; and `UsageError` while
        another thread reads.
        """
        timeout_s = limit_of(timeout_ms)
        deadline = None if timeout_s is None else time.monotonic() + timeout_s
        session = self._open()
        session.check_wanted()
        taking = False
        try:
            with self._one_reader:
                if not session.ready and not self._drive(session.begun(timeout_s)):
                    session.begin().log_delay()
                    return None
                session.reader.settle()
                taking = True
                return self._next_batch(session, deadline)
        except BaseException:  # an interrupt: the records that were taken have not reached the user
            if taking:
                session.reader.put_back()
            raise

    def _next_batch(self, session: ConsumerSession, deadline: float | None) -> pa.RecordBatch | None:
        began = time.monotonic()
        while True:
            self._wake.clear()
            if session.attention:
                self._attend(session)
            batch = session.reader.next_batch()
            if batch is not None and not session.put_back_for_rebalance():
                session.core.observer.polled(began, batch)
                return batch
            if session.attention:
                continue
            left = None if deadline is None else deadline - time.monotonic()
            if left is not None and left <= 0:
                session.core.observer.polled(began, None)
                return None
            self._wake.wait(left)

    if not TYPE_CHECKING:
        __next__ = not_an_iterator("messages = iter(consumer), then next(messages)")

    def __iter__(self) -> Iterator[Message]:
        """Yields the records as messages, without end; each counts as done when the next is asked for."""
        session = self._open()
        session.check_wanted()
        self._drive(session.connect())
        while True:
            with self._one_reader:
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
            if cursor is not None and not session.put_back_for_rebalance():
                session.core.observer.polled(began, cursor.batch)
                return cursor
            if not session.attention:
                self._wake.wait(None)
                session.check_open()

    def _attend(self, session: ConsumerSession) -> None:
        for callback in session.tasks.attend():
            callback()

    # ------------------------------------------------------------ subscription and assignment

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
        self._run(self._operations.subscribe(topics, pattern, listener))

    def assign(self, partitions: Iterable[TopicPartition]) -> None:
        """Reads these partitions, without the group assigning; those that are assigned already keep their positions.

        With a `group_id` they start at its committed offsets, and those that go are committed as `close` does. No partitions at
        all is `unsubscribe`. Raises `UsageError` while subscribed to topics.
        """
        self._run(self._operations.assign(partitions))

    def unsubscribe(self) -> None:
        """Stops reading and leaves the group; commits as `close` does."""
        self._run(self._operations.unsubscribe())

    def pause(self, *partitions: TopicPartition) -> None:
        """Stops handing out these partitions (default: all) until `resume`; the consumer keeps them."""
        self._run(self._operations.pause(partitions))

    def resume(self, *partitions: TopicPartition) -> None:
        """Ends `pause` (default: of all)."""
        self._run(self._operations.resume(partitions))

    def paused(self) -> set[TopicPartition]:
        """The paused partitions."""
        return self._run(self._operations.paused())

    # ------------------------------------------------------------ positions

    def seek(self, partition: TopicPartition, offset: int) -> None:
        """Moves the position: the next record is the first at or behind `offset`. Raises `UsageError` if unassigned."""
        self._run(self._operations.seek(partition, offset))

    def seek_to_beginning(self, *partitions: TopicPartition) -> None:
        """Moves positions to the beginning of the log (default: of all partitions)."""
        self._run(self._operations.seek_to_end_of_log(partitions, at_start=True))

    def seek_to_end(self, *partitions: TopicPartition) -> None:
        """Moves positions to the end of the log (default: of all partitions): the next record is one written from now on."""
        self._run(self._operations.seek_to_end_of_log(partitions, at_start=False))

    def seek_to_committed(self, *partitions: TopicPartition, timeout_ms: float | None = None) -> None:
        """Moves positions back to what the group has committed (default: of all partitions), as after an aborted transaction, whose
        records are to be read again. A partition of which nothing is committed goes back to where this consumer began it."""
        self._run(self._operations.seek_to_committed(partitions, timeout_ms))

    def position(self, partition: TopicPartition, *, timeout_ms: float | None = None) -> int:
        """Returns the offset of the next record to be handed out.

        Waits until it is known. Raises `UsageError` if unassigned, `KafkaTimeoutError`, and the error of a
        partition without a valid position.
        """
        return self._run(self._operations.position(partition, timeout_ms))

    def lag(self, partition: TopicPartition) -> int | None:
        """Returns the offsets between the position and the end of the log as last seen; None until that is known."""
        return self._run(self._operations.connected_lag(partition))

    def commit(
        self,
        offsets: Mapping[TopicPartition, OffsetAndMetadata | int] | None = None,
        *,
        timeout_ms: float | None = None,
    ) -> None:
        """Commits the positions behind everything handed out, the batch or message in hand included; or `offsets`.

        Returns when the group's coordinator has confirmed them. Raises the error with which it refused them, and
        `IllegalGenerationError` where a partition was lost since the last poll.
        """
        self._run(self._operations.commit(offsets, timeout_ms))

    def committed(
        self, partitions: Iterable[TopicPartition], *, timeout_ms: float | None = None
    ) -> dict[TopicPartition, OffsetAndMetadata | None]:
        """Returns the offsets that the group has committed for these partitions; None where nothing."""
        return self._run(self._operations.committed(partitions, timeout_ms))

    def group_metadata(self) -> ConsumerGroupMetadata:
        """Returns this consumer as a member of its group, for `Producer.send_offsets_to_transaction`: call it for each transaction.

        Raises `UsageError` with `enable_auto_commit`; `IllegalGenerationError` where it isn't a member now, or a
        partition was lost since the last poll.
        """
        return self._run(self._operations.group_metadata())

    # ------------------------------------------------------------ topics and logs

    def offsets_for_times(
        self, timestamps: Mapping[TopicPartition, int], *, timeout_ms: float | None = None
    ) -> dict[TopicPartition, ListedOffset | None]:
        """Returns the first record at or after a time (milliseconds since 1970), by partition; None where there is none."""
        return self._run(self._operations.offsets_for_times(timestamps, timeout_ms))

    def beginning_offsets(
        self, partitions: Iterable[TopicPartition], *, timeout_ms: float | None = None
    ) -> dict[TopicPartition, int]:
        """Returns the first offset in the log of each partition."""
        return self._run(self._operations.ends_of_logs(partitions, timeout_ms, at_start=True))

    def end_offsets(
        self, partitions: Iterable[TopicPartition], *, timeout_ms: float | None = None
    ) -> dict[TopicPartition, int]:
        """Returns the offset behind the last record of each partition; under read_committed the last stable offset."""
        return self._run(self._operations.ends_of_logs(partitions, timeout_ms, at_start=False))

    def partitions_for_topic(self, topic: str, *, timeout_ms: float | None = None) -> set[int] | None:
        """Returns the partition ids of a topic; None if there is no such topic."""
        return self._run(self._operations.partitions_for_topic(topic, timeout_ms))

    def topics(self, *, timeout_ms: float | None = None) -> set[str]:
        """Returns the topics that may be read."""
        return self._run(self._operations.topics(timeout_ms))

    # ------------------------------------------------------------ life

    def close(self, *, timeout_ms: float = 30_000) -> None:
        """Commits the offsets of finished records (unless `enable_auto_commit` is off), leaves the group, closes the connections.

        A static member (`group_instance_id`, but for "auto") doesn't leave: its partitions wait for it to come back until its session
        is over.

        Returns within about `timeout_ms`, whatever the brokers do. Closing again changes nothing.
        """
        self._drive(self._session.close(seconds_of(timeout_ms)))

    def _open(self) -> ConsumerSession:
        self._session.check_open()
        return self._session

    # ------------------------------------------------------------ waiting

    def _run(self, steps: Steps[T]) -> T:
        self._open()
        return self._drive(steps)

    def _drive(self, steps: Steps[T]) -> T:
        """Waits for each step, and returns the result of them all."""
        try:
            step = next(steps)
            while True:
                try:
                    result = self._wait(step)
                except BaseException as error:
                    step = steps.throw(error)
                else:
                    step = steps.send(result)
        except StopIteration as end:
            value: T = end.value
            return value

    def _wait(self, step: Step) -> Any:
        if isinstance(step, Call):
            return self._call(*step)
        if isinstance(step, Done):
            return ended_within(step.future, step.timeout_s)
        return step.call()

    def _call(self, work: Coroutine[Any, Any, T], limit: CallLimit, grace_s: float = 0.0) -> T:
        """Runs a coroutine in the IO thread and waits for it."""
        try:
            future = self._session.io.submit(work)
            try:
                if not ended_within(future, limit.left() + grace_s):
                    raise KafkaTimeoutError(f"no answer within {limit.seconds:g} s")
                return future.result()
            finally:
                future.cancel()
        except (CancelledError, RuntimeError):
            self._session.check_open()  # another thread has closed it
            raise
