"""What `Consumer` and `AsyncConsumer` have in common: options, the IO thread, and what the user's side has to do
between two polls."""

from __future__ import annotations

import logging
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import Future
from typing import Any

import assignors
from kafka_actors.base.arguments import offset_of, offsets_of, partitions_of
from kafka_actors.base.fork_guard import ForkGuard
from kafka_actors.base.io_thread import IoThread
from kafka_actors.cluster import SubscriptionMode, SubscriptionState
from kafka_actors.config import ConsumerConfig, build, resolved
from kafka_actors.errors import ConfigError, IllegalGenerationError, UsageError, kind_of
from kafka_actors.events import Event, EventSink, log_event
from kafka_actors.fetch import Fetcher
from kafka_actors.group.commit_metadata import pack
from kafka_actors.telemetry.events import counting
from kafka_actors.telemetry.recorder import GroupRecorder, metered
from kafka_actors.types import OffsetAndMetadata, TopicPartition

from .bootstrap import Bootstrap
from .consumer_io import ConsumerIO
from .delivery import Delivery
from .rebalance import (
    ConsumerRebalanceListener,
    Offsets,
    Partitions,
    RebalanceKind,
    RebalanceNotice,
    callback_of,
)

log = logging.getLogger(__name__)

GRACE_S = 5.0
"""How much later a call gives up whose work in the IO thread has a timeout of its own, and the better error."""

Topics = Iterable[str] | str | None
Pattern = str | re.Pattern[str] | None
Callback = Callable[[], object]


class ConsumerSession(ForkGuard):
    """One consumer, from its construction to its close. `on_wake` is called in the IO thread whenever the user's
    side may have something to do; `attention` says that it has to call `attend`."""

    _called = "consumer"

    def __init__(
        self,
        topics: Topics,
        pattern: Pattern,
        listener: ConsumerRebalanceListener | None,
        events: EventSink | None,
        on_wake: Callable[[], None],
        config: Mapping[str, Any] | None,
        options: Mapping[str, Any],
    ) -> None:
        super().__init__()
        check_listener(listener)
        if events is not None and not callable(events):
            raise ConfigError("events", f"is {events!r}, {kind_of(events)}: accepts a function of one event")
        self.config: ConsumerConfig = resolved(build(ConsumerConfig, config, **options))
        _check_assignors(self.config)
        self.subscription = SubscriptionState(exclude_internal_topics=self.config.exclude_internal_topics)
        self.listener = listener
        self.attention = False
        self.closed = False
        self.ready = False  # whether the beginning is done
        sink = log_event if events is None else _unharmed(events)
        self._events = counting(GroupRecorder(metered(), self.config.group_id), self.config.group_id, sink)
        self._on_wake = on_wake
        self._io: IoThread | None = None
        self._core: ConsumerIO | None = None
        self._reader: Delivery | None = None
        self._beginning: Bootstrap | None = None
        self._auto_committed: Offsets = {}
        if topics is not None or pattern is not None:
            self.check_group()
            self.change_subscription(topics, pattern)

    # ------------------------------------------------------------ parts

    @property
    def started(self) -> bool:
        return self._core is not None

    @property
    def io(self) -> IoThread:
        assert self._io is not None  # every way here goes through `begin`
        return self._io

    @property
    def core(self) -> ConsumerIO:
        assert self._core is not None  # as above
        return self._core

    @property
    def reader(self) -> Delivery:
        assert self._reader is not None  # as above
        return self._reader

    @property
    def fetcher(self) -> Fetcher:
        return self.core.fetcher

    def begin(self) -> Bootstrap:
        """Begins to connect, and to read what is wanted: goes on in the IO thread while calls come and go. Again: the
        same, until `undo`."""
        if self._beginning is not None:
            return self._beginning
        io = IoThread(f"kafka-consumer-{self.config.group_id or 'no-group'}")

        async def make() -> ConsumerIO:
            return ConsumerIO(
                self.config,
                self.subscription,
                events=self._events,
                on_attention=self._on_attention,
                on_ready=self._on_wake,
            )

        self._io = io
        try:
            self._core = io.run(make())
        except BaseException:
            self.undo()
            raise
        self._reader = Delivery(self._core.fetcher, self._core.observer)
        self._beginning = Bootstrap(self._core, io.submit(self._core.begin()))
        return self._beginning

    def undo(self) -> None:
        """After a beginning that failed: the next call begins anew."""
        self._stop()
        self._io = self._core = self._reader = self._beginning = None
        self.ready = False

    def leave(self, timeout_s: float) -> Future[None]:
        """Commits what is done, leaves the group and closes the connections, in the IO thread."""
        if self._beginning is not None:
            self._beginning.done.cancel()  # where it isn't done
        return self.io.submit(self.core.close(self.last_offsets(self.assignment()), timeout_s))

    def end(self) -> None:
        """Ends the IO thread; the consumer can't be used any more."""
        self.closed = True
        self.attention = True
        self._stop()
        self._on_wake()

    def _stop(self) -> None:
        if self._reader is not None:
            self._reader.close()
        if self._io is not None and not self._io.stop(GRACE_S):
            log.warning("the consumer's IO thread did not end in %g s: it is left behind", GRACE_S)

    def _on_attention(self) -> None:
        self.attention = True
        self._on_wake()

    # ------------------------------------------------------------ checks

    def check_process(self) -> None:
        """Raises `UsageError` in a child that was forked when it was in use: none of its threads are there."""
        if self._io is not None:
            self._check_process()

    def check_open(self) -> None:
        """Raises `UsageError` for a closed consumer, in a forked child, or for a call from the IO thread itself."""
        self.check_process()
        if self.closed:
            raise UsageError("this consumer is closed")
        if self._io is not None and self._io.inside:
            raise UsageError("a consumer can't be called from its own events callback")

    def check_group(self) -> None:
        """Raises `ConfigError` where a call needs a group and there is none."""
        if self.config.group_id is None:
            raise ConfigError(
                "group_id",
                "is needed to subscribe, to commit and for what is committed; assign() and seek() do without",
            )

    def check_wanted(self) -> None:
        """Raises `UsageError` where there is nothing to read: it would be waited for in vain."""
        if self.subscription.mode is SubscriptionMode.NONE:
            raise UsageError(
                "nothing is to be read: give topics= or pattern=, or call subscribe() or assign() first"
            )

    def change_subscription(self, topics: Topics, pattern: Pattern) -> None:
        """Subscribes. Raises `ConfigError` or `UsageError` before anything changes."""
        names = [topics] if isinstance(topics, str) else topics
        self.subscription.subscribe(topics=names, pattern=pattern)

    def assignment(self) -> Partitions:
        """What is assigned now."""
        return self.fetcher.partitions if self.started else frozenset()

    def some(self, partitions: Iterable[TopicPartition]) -> Partitions:
        """The partitions given, or all that are assigned. Raises `UsageError` for one that isn't."""
        assigned = self.assignment()
        chosen = frozenset(partitions_of(partitions)) or assigned
        missing = sorted(chosen - assigned)
        if missing:
            raise UsageError(f"{missing[0].topic}-{missing[0].partition} is not assigned")
        return chosen

    # ------------------------------------------------------------ between two polls

    def attend(self) -> Iterator[Callback]:
        """Does what is due, and yields the listener's methods that have to be called meanwhile.

        Raises what ended the consumer's work; `UsageError` where another thread closed it meanwhile.
        """
        self.check_open()
        self.attention = False
        core = self.core
        if core.error is not None:
            self.attention = True
            raise core.error.with_traceback(None)  # again and again: it must not grow
        self.io.post(core.progress)
        while (notice := core.rebalances.next()) is not None:
            yield from self._take_in(notice)
        if core.commit_due:
            core.commit_due = False
            self._auto_commit()

    def _take_in(self, notice: RebalanceNotice) -> Iterator[Callback]:
        if notice.what is RebalanceKind.LOST:
            # What was taken of them is void by now; what was taken since then, when they came back, is not.
            self.reader.resume(notice.partitions)
            self.reader.handed -= notice.partitions
            self._forget_committed(notice.partitions)
        offsets: Offsets = {}
        try:
            callback = callback_of(self.listener, notice)
            if callback is not None and notice.partitions:
                partitions = sorted(notice.partitions)
                yield lambda: callback(partitions)
        finally:
            # An exception of the listener reaches the user, but the group doesn't wait for it.
            if notice.what is RebalanceKind.REVOKED:
                offsets = self.last_offsets(notice.partitions)
                self._gone(notice.partitions)
            notice.done(offsets)

    def _gone(self, partitions: Partitions) -> None:
        # At once, though the group's side does it too, once their offsets are committed: without its cursor a partition
        # seems to be read to the end of its chunk, and a commit meanwhile would say so.
        self.fetcher.revoke(partitions)
        self.reader.revoked(partitions)
        self._forget_committed(partitions)

    def _forget_committed(self, partitions: Partitions) -> None:
        for tp in partitions:
            self._auto_committed.pop(tp, None)

    def _auto_commit(self) -> None:
        offsets = self.last_offsets(self.assignment())
        new = {tp: offset for tp, offset in offsets.items() if self._auto_committed.get(tp) != offset}
        if new:
            self._auto_committed.update(new)
            self.io.submit(self.core.commit_quietly(new)).add_done_callback(
                lambda sent: self._auto_commit_answered(
                    new, not sent.cancelled() and sent.exception() is None and sent.result()
                )
            )

    def _auto_commit_answered(self, offsets: Offsets, taken: bool) -> None:
        """Called in the IO thread. What failed is tried again with the next one, also where nothing new was read."""
        if not taken:
            for tp in offsets:
                self._auto_committed.pop(tp, None)

    def last_offsets(self, partitions: Partitions) -> Offsets:
        """What `close` commits of them: nothing that is still in hand."""
        return self.reader.safe_positions(partitions) if self.core.auto_commits else {}

    def farewell(self) -> Iterator[Callback]:
        """Before leaving: tells the listener what it has not heard yet, and that it gives up everything it knows of."""
        untold = Partitions()
        while (notice := self.core.rebalances.next()) is not None:
            if notice.what is RebalanceKind.ASSIGNED:
                untold |= notice.partitions
            else:
                notice.partitions -= untold
                yield from self._take_in(notice)
        partitions = sorted(self.assignment() - untold)
        listener = self.listener
        if partitions and listener is not None and self.subscription.uses_group:
            yield lambda: listener.on_partitions_revoked(partitions)

    # ------------------------------------------------------------ what the user changes

    def seek(self, tp: TopicPartition, offset: int) -> None:
        """The next record of the partition is the first at or behind `offset`."""
        self.fetcher.seek(tp, offset_of(offset, tp, "seek"))
        self.reader.sought([tp])
        self.attention = True  # a loop over messages has more of what it was at

    def seek_to_ends(self, partitions: Partitions, beginning: bool) -> None:
        """The next record is the first of the log, or the first one written from now on."""
        for tp in partitions:
            if beginning:
                self.fetcher.seek_to_beginning(tp)
            else:
                self.fetcher.seek_to_end(tp)
        self.reader.sought(partitions)
        self.attention = True

    def drop(self, partitions: Partitions) -> Offsets:
        """Nothing more of them is handed out: they are not to be read any more. Returns what is to be committed of them."""
        offsets = self.last_offsets(partitions)
        self._gone(partitions)
        self.attention = True
        return offsets

    def to_commit(self, offsets: Mapping[TopicPartition, OffsetAndMetadata | int] | None) -> Offsets:
        """What `commit` commits: the offsets given, or everything handed out."""
        self.check_group()
        if offsets is None:
            self._check_lost()
            return self.reader.positions(self.assignment())
        return {
            tp: given._replace(metadata=pack(given.metadata, self.reader.topic_id(tp)))
            for tp, given in offsets_of(offsets).items()
        }

    def _check_lost(self) -> None:
        """Raises `IllegalGenerationError` where something was handed out that nothing can be committed of any more,
        and the user hasn't heard of it yet: a commit that covers the rest only would look like one of all."""
        lost = self.core.rebalances.lost & self.reader.handed
        if lost:
            tp = min(lost)
            raise IllegalGenerationError(
                "it was lost since the last poll, so what was read of it can't be committed: others may read it "
                "again. Poll to go on with what is assigned then",
                topic=tp.topic,
                partition=tp.partition,
            )

    def lag(self, tp: TopicPartition) -> int | None:
        """Offsets between the position and the end of the log as last seen; None until that is known."""
        if not self.started:
            raise UsageError("the lag is not known before the consumer has read: call poll_batch() first")
        end, position = self.fetcher.end(tp), self.reader.position(tp)
        return None if end is None or position is None else max(0, end - position.offset)

    def pause(self, partitions: Partitions) -> None:
        self.fetcher.pause(partitions)
        self.reader.pause(partitions)
        self.attention = True

    def resume(self, partitions: Partitions) -> None:
        self.fetcher.resume(partitions)
        self.reader.resume(partitions)
        self._on_wake()


def _unharmed(events: EventSink) -> EventSink:
    """What the user's function raises is logged: fetching and the membership, which tell it something, must go on."""

    def take(event: Event) -> None:
        try:
            events(event)
        except Exception:
            log.exception("events raised for %s", type(event).__name__)

    return take


def _check_assignors(config: ConsumerConfig) -> None:
    for assignor in config.partition_assignment_strategy:
        try:
            assignors.get(assignor)
        except (TypeError, ValueError) as error:
            raise ConfigError("partition_assignment_strategy", str(error)) from None


def check_listener(listener: object) -> None:
    """Raises `ConfigError` for what can't be told of rebalances."""
    if listener is not None and not isinstance(listener, ConsumerRebalanceListener):
        raise ConfigError(
            "listener", f"is {listener!r}, {kind_of(listener)}: accepts a ConsumerRebalanceListener"
        )
