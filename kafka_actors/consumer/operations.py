"""`ConsumerOperations`: the calls of a consumer, written once for `Consumer` and `AsyncConsumer`.

A call is a generator that yields a step wherever it has to wait (`waiting`), or a plain function if it never waits. Polling isn't
here: it is the hot path, and each surface has its own loop.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Coroutine, Iterable, Mapping
from typing import TYPE_CHECKING, Any

from kafka_actors.base import other_clients
from kafka_actors.base.arguments import listed, offset_of, offsets_of, partition_of, partitions_of, times_of
from kafka_actors.base.fork_guard import NotPicklable
from kafka_actors.errors import ConfigError, IllegalGenerationError, KafkaTimeoutError, UsageError
from kafka_actors.events import EventSink
from kafka_actors.group.commit_metadata import ReaderMetadata, ReadOffset, pack
from kafka_actors.net import ListedOffset
from kafka_actors.telemetry.spans import committing
from kafka_actors.types import EARLIEST, LATEST, ConsumerGroupMetadata, OffsetAndMetadata, TopicPartition

from .consumer_io import ConsumerIO
from .consumer_session import GRACE_S, ConsumerSession, Pattern, Topics, check_listener
from .rebalance import ConsumerRebalanceListener, Offsets
from .waiting import Call, CallLimit, Notify, Steps

Ask = Callable[[ConsumerIO, float], Coroutine[Any, Any, Any]]


class ConsumerOperations:
    """Calls on one session, which the surface has checked to be open."""

    def __init__(self, session: ConsumerSession) -> None:
        self._session = session

    # ------------------------------------------------------------ subscription and assignment

    def subscribe(
        self, topics: Topics, pattern: Pattern, listener: ConsumerRebalanceListener | None
    ) -> Steps[None]:
        """Subscribes; no topics at all unsubscribes."""
        session = self._session
        session.check_group()
        check_listener(listener)
        if pattern is None and (topics := listed(topics)) == []:
            yield from self.unsubscribe()
            return
        yield from session.abandon_bootstrap()
        session.change_subscription(topics, pattern)
        session.listener = listener or session.listener
        if session.started:
            yield Call(session.core.subscribed(), CallLimit())

    def assign(self, partitions: Iterable[TopicPartition]) -> Steps[None]:
        """Assigns by hand; no partitions at all unsubscribes."""
        session = self._session
        chosen = partitions_of(partitions)
        if not chosen:
            yield from self.unsubscribe()
            return
        yield from session.abandon_bootstrap()
        session.subscription.assign_from_user(chosen)
        if session.started:
            offsets = session.tasks.drop(session.assignment() - frozenset(chosen))
            yield Call(session.core.assigned(session.subscription.assigned, offsets), CallLimit())

    def unsubscribe(self) -> Steps[None]:
        """Stops reading, commits and leaves the group."""
        session = self._session
        yield from session.abandon_bootstrap()
        if session.started:
            for callback in session.tasks.farewell():
                yield Notify(callback)
            offsets = session.tasks.drop(session.assignment())
            yield Call(session.core.unsubscribed(offsets), CallLimit())
        session.subscription.unsubscribe()
        session.attention = (
            True  # a loop over messages, or a poll whose listener has called this, would wait for ever
        )
        session.wake()

    def pause(self, partitions: Iterable[TopicPartition]) -> Steps[None]:
        """Stops handing out partitions, by default all."""
        session = self._session
        yield from session.connect()
        chosen = session.some(partitions)
        session.fetcher.pause(chosen)
        session.reader.pause(chosen)
        session.attention = True

    def resume(self, partitions: Iterable[TopicPartition]) -> Steps[None]:
        """Ends `pause`, by default of all."""
        session = self._session
        yield from session.connect()
        chosen = session.some(partitions)
        session.fetcher.resume(chosen)
        session.reader.resume(chosen)
        session.wake()

    def paused(self) -> Steps[set[TopicPartition]]:
        """Returns the paused partitions."""
        yield from self._session.connect()
        return set(self._session.reader.paused)

    # ------------------------------------------------------------ positions

    def seek(self, partition: TopicPartition, offset: int) -> Steps[None]:
        """Moves a position to an offset."""
        session = self._session
        yield from session.connect()
        tp = partition_of(partition)
        session.fetcher.seek(tp, offset_of(offset, tp, "seek"))
        session.reader.sought([tp])
        session.attention = True  # a loop over messages still has records of the old position

    def seek_to_committed(
        self, partitions: Iterable[TopicPartition], timeout_ms: float | None
    ) -> Steps[None]:
        """Moves positions back to the committed offsets, by default all; without one, to where the partition was begun."""
        session = self._session
        session.check_group()
        yield from session.connect(CallLimit(timeout_ms))
        chosen = session.some(partitions)
        committed = yield from self.committed(chosen, timeout_ms)
        for tp in chosen & session.assignment():  # others were lost meanwhile
            at = committed[tp]
            begun = session.reader.begun.get(tp) if at is None else at.offset
            if begun is not None:
                yield from self.seek(tp, begun)

    def seek_to_end_of_log(self, partitions: Iterable[TopicPartition], *, at_start: bool) -> Steps[None]:
        """Moves positions to the beginning or the end of their logs, by default all."""
        session = self._session
        yield from session.connect()
        chosen = session.some(partitions)
        move = session.fetcher.seek_to_beginning if at_start else session.fetcher.seek_to_end
        for tp in chosen:
            move(tp)
        session.reader.sought(chosen)
        session.attention = True

    def position(self, partition: TopicPartition, timeout_ms: float | None) -> Steps[int]:
        """Returns the offset of the next record to hand out, once it is known."""
        session, limit = self._session, CallLimit(timeout_ms)
        yield from session.connect(limit)
        tp = partition_of(partition)
        try:
            known = session.reader.position(tp)
        except UsageError:
            self._check_lost([tp])  # that says more: it was assigned when its records were handed out
            raise
        if known is None:
            yield Call(session.core.position(tp, limit.left()), limit, GRACE_S)
            known = session.reader.position(tp)
        if known is None:
            raise KafkaTimeoutError(f"the position of {tp.topic}-{tp.partition} was lost again")
        return known.offset

    def connected_lag(self, partition: TopicPartition) -> Steps[int | None]:
        """Returns `lag`, after connecting if need be."""
        yield from self._session.connect()
        return self.lag(partition)

    def lag(self, partition: TopicPartition) -> int | None:
        """Returns the distance of the position from the end of the log as last seen; None until that is known."""
        session, tp = self._session, partition_of(partition)
        if not session.started:
            raise UsageError("the lag is not known before the consumer has read: call poll_batch() first")
        end, position = session.fetcher.end(tp), session.reader.position(tp)
        return None if end is None or position is None else max(0, end - position.offset)

    # ------------------------------------------------------------ commits

    def commit(
        self, offsets: Mapping[TopicPartition, OffsetAndMetadata | int] | None, timeout_ms: float | None
    ) -> Steps[None]:
        """Commits these offsets, or the positions behind all records that were handed out."""
        session, limit = self._session, CallLimit(timeout_ms)
        yield from session.connect(limit)
        wanted = self._to_commit(offsets)
        if wanted:
            with committing(session.config.group_id):
                yield Call(session.core.commit(wanted, limit.left()), limit, GRACE_S)
        if offsets is None:
            session.reader.finish()

    def _to_commit(self, offsets: Mapping[TopicPartition, OffsetAndMetadata | int] | None) -> Offsets:
        session = self._session
        session.check_group()
        if offsets is None:
            self._check_lost()
            return session.reader.positions(session.assignment())
        return {
            tp: offset._replace(metadata=pack(offset.metadata, session.reader.topic_id(tp)))
            for tp, offset in offsets_of(offsets).items()
        }

    def group_metadata(self) -> Steps[ConsumerGroupMetadata]:
        """Returns the membership, for offsets that a transaction commits."""
        session = self._session
        session.check_group()
        if session.config.enable_auto_commit:
            raise UsageError(
                "group_metadata: enable_auto_commit is on, and would commit offsets beside the transaction: set it False"
            )
        yield from session.connect()
        found = session.core.group_metadata(session.config.group_id or "")
        self._check_lost()  # after that: with the next generation, offsets of what was lost in between would be taken
        return ReaderMetadata.of(found, self._read())

    def _read(self) -> dict[TopicPartition, ReadOffset]:
        """Returns the positions, with the ids of topics as they were read and as they are now."""
        reader, snapshot = self._session.reader, self._session.core.client.snapshot
        return {
            tp: ReadOffset(
                at.offset,
                at.leader_epoch,
                reader.topic_id(tp),
                snapshot.topic_id(tp.topic),
                snapshot.cluster_id,
            )
            for tp, at in reader.positions(self._session.assignment()).items()
        }

    def _check_lost(self, partitions: Iterable[TopicPartition] | None = None) -> None:
        """Raises `IllegalGenerationError` where one of these partitions, by default any, was lost with records handed out, and the
        user hasn't heard of it yet: a commit of the other partitions would look like one of all."""
        lost = self._session.core.rebalances.lost & self._session.reader.handed
        if partitions is not None:
            lost &= frozenset(partitions)
        if lost:
            tp = min(lost)
            raise IllegalGenerationError(
                "it was lost since the last poll, so what was read of it can't be committed: others may read it "
                "again. Poll to go on with what is assigned then",
                topic=tp.topic,
                partition=tp.partition,
            )

    def committed(
        self, partitions: Iterable[TopicPartition], timeout_ms: float | None
    ) -> Steps[dict[TopicPartition, OffsetAndMetadata | None]]:
        """Returns the offsets that the group has committed; None where nothing."""
        self._session.check_group()
        wanted = partitions_of(partitions)
        found: dict[TopicPartition, OffsetAndMetadata | None]
        found = yield from self._ask(timeout_ms, lambda core, left_s: core.committed(wanted, left_s), GRACE_S)
        return found

    # ------------------------------------------------------------ topics and logs

    def offsets_for_times(
        self, timestamps: Mapping[TopicPartition, int], timeout_ms: float | None
    ) -> Steps[dict[TopicPartition, ListedOffset | None]]:
        """Returns the first record at or after each time; None where there is none."""
        found = yield from self._list(times_of(timestamps), timeout_ms)
        return {tp: listed if listed.offset >= 0 else None for tp, listed in found.items()}

    def ends_of_logs(
        self, partitions: Iterable[TopicPartition], timeout_ms: float | None, *, at_start: bool
    ) -> Steps[dict[TopicPartition, int]]:
        """Returns the first offset of each log, or the one behind the last record."""
        timestamp = EARLIEST if at_start else LATEST
        found = yield from self._list(dict.fromkeys(partitions_of(partitions), timestamp), timeout_ms)
        return {tp: listed.offset for tp, listed in found.items()}

    def partitions_for_topic(self, topic: str, timeout_ms: float | None) -> Steps[set[int] | None]:
        """Returns the partition ids of a topic; None if there is no such topic."""
        found: set[int] | None
        found = yield from self._ask(timeout_ms, lambda core, _: core.topics.partitions_for(topic))
        return found

    def topics(self, timeout_ms: float | None) -> Steps[set[str]]:
        """Returns the topics that may be read."""
        found: set[str] = yield from self._ask(timeout_ms, lambda core, _: core.topics.names())
        return found

    def _list(
        self, wanted: Mapping[TopicPartition, int], timeout_ms: float | None
    ) -> Steps[dict[TopicPartition, ListedOffset]]:
        found: dict[TopicPartition, ListedOffset]
        found = yield from self._ask(timeout_ms, lambda core, left: core.list_offsets(wanted, left), GRACE_S)
        return found

    def _ask(self, timeout_ms: float | None, ask: Ask, grace_s: float = 0.0) -> Steps[Any]:
        """Connects if need be and asks, with the seconds that are left, all within the limit."""
        limit = CallLimit(timeout_ms)
        yield from self._session.connect(limit)
        return (yield Call(ask(self._session.core, limit.left()), limit, grace_s))


class BaseConsumer(NotPicklable):
    """The parts of a consumer's surface that never wait."""

    def __init__(
        self,
        on_wake: Callable[[], None],
        topics: Topics,
        pattern: Pattern,
        listener: ConsumerRebalanceListener | None,
        events: EventSink | None,
        config: Mapping[str, Any] | None,
        options: Mapping[str, Any],
    ) -> None:
        if isinstance(topics, Mapping):  # options come first elsewhere: Consumer({"group.id": …})
            if config is not None:
                raise ConfigError("config", "is given twice: as the first argument and by name")
            topics, config = None, topics
        self._session = ConsumerSession(topics, pattern, listener, events, on_wake, config, options)
        self._operations = ConsumerOperations(self._session)

    def __del__(self) -> None:
        session = getattr(self, "_session", None)  # none where an option was wrong
        if session is not None and session.started and not session.closed:
            warnings.warn(f"{self!r} was never closed: it stays in its group", ResourceWarning, stacklevel=2)

    def __repr__(self) -> str:
        config = self._session.config
        servers = ",".join(config.bootstrap_servers)
        return f"<{type(self).__name__} group={config.group_id!r} of {servers}>"

    if not TYPE_CHECKING:
        __getattr__ = other_clients.says_ours(other_clients.CONSUMER)

    def subscription(self) -> set[str]:
        """The topics subscribed to by name."""
        return set(self._session.subscription.topics)

    def assignment(self) -> set[TopicPartition]:
        """The partitions read now, from the group or by hand."""
        return set(self._session.assignment())
