"""`ConsumerSession`: one consumer from its construction to its close, for `Consumer` and `AsyncConsumer` alike.

It has the options, the subscription, the IO thread with everything that talks to brokers (`ConsumerIO`), and the user's side of
reading (`Delivery`, `PollTasks`). Connecting begins with the first call that needs a broker, and goes on in the IO thread when the
time of that call is over; if it fails it is undone, and the next call begins anew.
"""

from __future__ import annotations

import logging
import re
import threading
import time
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import CancelledError, Future
from typing import Any

import assignors
from kafka_actors.base.arguments import partitions_of
from kafka_actors.base.fork_guard import ForkGuard
from kafka_actors.base.io_thread import IoThread
from kafka_actors.base.tasks import SILENT_S
from kafka_actors.cluster import SubscriptionMode, SubscriptionState
from kafka_actors.config import ConsumerConfig, build, resolved
from kafka_actors.errors import ConfigError, KafkaActorsError, KafkaTimeoutError, UsageError, kind_of
from kafka_actors.events import Event, EventSink, log_event
from kafka_actors.fetch import Fetcher
from kafka_actors.telemetry.recorder import GroupRecorder, counting, metered
from kafka_actors.types import TopicPartition

from .consumer_io import BEHIND_CONNECTING, ConsumerIO
from .delivery import Delivery
from .rebalance import ConsumerRebalanceListener, Partitions, PollTasks
from .waiting import Block, CallLimit, Done, Notify, Steps

log = logging.getLogger(__name__)

GRACE_S = 5.0
"""Seconds beyond the time limit of work in the IO thread: the work's own error says more."""

Topics = Iterable[str] | str | None
Pattern = str | re.Pattern[str] | None


class Bootstrap:
    """The beginning of a consumer, which goes on in the IO thread while calls come and go; `done` ends with it."""

    def __init__(self, core: ConsumerIO, done: Future[None]) -> None:
        self.done = done
        self._core = core
        self._began = time.monotonic()
        self._logged = False

    def why_not(self) -> KafkaActorsError:
        """Returns the error that keeps it from being done, for a call whose time is over."""
        waited = time.monotonic() - self._began
        if not self._core.client.snapshot.brokers:
            return self._core.client.not_connected(waited)
        return KafkaTimeoutError(f"no answer within {waited:.3g} s: {BEHIND_CONNECTING}")

    def log_delay(self) -> None:
        """Logs, once, why polls return nothing though a broker was reached. That none was, the client logs by itself."""
        slow = time.monotonic() - self._began >= SILENT_S
        if slow and not self._logged and self._core.client.snapshot.brokers:
            self._logged = True
            log.warning("nothing can be read yet, trying on: %s", self.why_not())


class ConsumerSession(ForkGuard):
    """The state of one consumer. `on_wake` is called in the IO thread whenever the user's side may have something to
    do; `attention` says that it has to call `tasks.attend`."""

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
        self.tasks = PollTasks(self)
        self.attention = False
        self.closed = False
        self.ready = False  # whether the beginning is done
        sink = log_event if events is None else _guarded(events)
        self._events = counting(GroupRecorder(metered(), self.config.group_id), self.config.group_id, sink)
        self._on_wake = on_wake
        self._begins = threading.Lock()
        self._io: IoThread | None = None
        self._core: ConsumerIO | None = None
        self._reader: Delivery | None = None
        self._bootstrap: Bootstrap | None = None
        if topics is not None or pattern is not None:
            self.check_group()
            self.change_subscription(topics, pattern)

    # ------------------------------------------------------------ parts

    @property
    def started(self) -> bool:
        """Whether connecting has begun."""
        return self._core is not None

    @property
    def io(self) -> IoThread:
        """The thread in which everything runs that waits for brokers."""
        assert self._io is not None  # every way here goes through `begin`
        return self._io

    @property
    def core(self) -> ConsumerIO:
        """The part of the consumer that lives in the IO thread."""
        assert self._core is not None  # as above
        return self._core

    @property
    def reader(self) -> Delivery:
        """The records for the user, and their offsets."""
        assert self._reader is not None  # as above
        return self._reader

    @property
    def fetcher(self) -> Fetcher:
        """The source of records."""
        return self.core.fetcher

    # ------------------------------------------------------------ life

    def begin(self) -> Bootstrap:
        """Begins to connect and to read, in the IO thread, unless it has begun already, perhaps by another thread."""
        if self._bootstrap is None:
            with self._begins:
                if self._bootstrap is None:
                    self._bootstrap = self._begin()
        return self._bootstrap

    def _begin(self) -> Bootstrap:
        self.check_open()
        self._io = io = IoThread(f"kafka-consumer-{self.config.group_id or 'no-group'}")

        async def make() -> ConsumerIO:
            return ConsumerIO(
                self.config,
                self.subscription,
                events=self._events,
                on_attention=self._on_attention,
                on_ready=self._on_wake,
            )

        try:
            self._core = core = io.run(make())
        except BaseException:
            self.undo()
            raise
        self._reader = Delivery(core.fetcher, core.observer)
        return Bootstrap(core, io.submit(core.begin()))

    def connect(self, limit: CallLimit | None = None) -> Steps[None]:
        """Waits until the consumer has begun. Raises the reason if it hasn't within the limit; then the next call waits on."""
        if not self.ready and not (yield from self.begun(None if limit is None else limit.left())):
            raise self.begin().why_not()

    def begun(self, timeout_s: float | None) -> Steps[bool]:
        """Waits up to `timeout_s` for the beginning, and returns whether it is done. A failed one is undone."""
        connecting = self.begin().done
        if not (yield Done(connecting, timeout_s)):
            return False
        try:
            connecting.result()
        except CancelledError:
            self.check_open()  # another thread or task has closed it
            raise
        except Exception:
            yield from self.abandon_bootstrap()
            raise
        self.ready = True
        return True

    def abandon_bootstrap(self) -> Steps[None]:
        """Undoes a beginning that isn't done: it failed, or was for a subscription that is to change."""
        if self.started and not self.ready and not self.closed:
            try:
                yield from self._leave(0)
            finally:
                yield Block(self.undo)

    def undo(self) -> None:
        """Ends the IO thread; the next call begins anew."""
        self._stop()
        self._io = self._core = self._reader = self._bootstrap = None
        self.ready = False

    def close(self, timeout_s: float) -> Steps[None]:
        """Calls the listener, commits, leaves the group and ends the IO thread."""
        if self.closed:
            return
        self.check_process()
        try:
            if self.started:
                try:
                    for callback in self.tasks.farewell():
                        yield Notify(callback)
                finally:
                    yield from self._leave(timeout_s)
        finally:
            yield Block(self.end)

    def _leave(self, timeout_s: float) -> Steps[None]:
        leaving = self.leave(timeout_s)
        try:
            if (yield Done(leaving, timeout_s + GRACE_S)):
                leaving.result()
                return
        except TimeoutError:
            pass
        finally:
            leaving.cancel()
        log.warning("the consumer could not be closed in %g s: it is given up", timeout_s)

    def leave(self, timeout_s: float) -> Future[None]:
        """Commits the offsets of finished records, leaves the group and closes the connections, in the IO thread."""
        if self._bootstrap is not None:
            self._bootstrap.done.cancel()  # if it isn't done
        return self.io.submit(self.core.close(self.tasks.last_offsets(self.assignment()), timeout_s))

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

    def put_back_for_rebalance(self) -> bool:
        """Puts the records that were taken last back where a rebalance came meanwhile, and returns whether one did: they may be the first of a
        partition whose assignment the listener has to hear of before."""
        if self.core.rebalances.pending:
            self.reader.put_back()
            self.attention = True
            return True
        return False

    def wake(self) -> None:
        """Wakes a poll that waits."""
        self._on_wake()

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
                "is needed to subscribe, to commit and for committed offsets; assign() and seek() do without",
            )

    def check_wanted(self) -> None:
        """Raises `UsageError` where there is nothing to read: a poll would wait in vain."""
        if self.subscription.mode is SubscriptionMode.NONE:
            raise UsageError(
                "nothing is to be read: give topics= or pattern=, or call subscribe() or assign() first"
            )

    def change_subscription(self, topics: Topics, pattern: Pattern) -> None:
        """Subscribes. Raises `ConfigError` or `UsageError` before anything changes."""
        names = [topics] if isinstance(topics, str) else topics
        self.subscription.subscribe(topics=names, pattern=pattern)

    def assignment(self) -> Partitions:
        """Returns the assigned partitions."""
        return self.fetcher.partitions if self.started else frozenset()

    def some(self, partitions: Iterable[TopicPartition]) -> Partitions:
        """Returns these partitions, or all that are assigned if there are none. Raises `UsageError` for an unassigned one."""
        assigned = self.assignment()
        chosen = frozenset(partitions_of(partitions)) or assigned
        missing = sorted(chosen - assigned)
        if missing:
            raise UsageError(f"{missing[0].topic}-{missing[0].partition} is not assigned")
        return chosen


def _guarded(events: EventSink) -> EventSink:
    """Returns a sink that logs the errors of the user's function: fetching and the membership, which call it, must go on."""

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
    """Raises `ConfigError` for an object that isn't a `ConsumerRebalanceListener`."""
    if listener is not None and not isinstance(listener, ConsumerRebalanceListener):
        raise ConfigError(
            "listener", f"is {listener!r}, {kind_of(listener)}: accepts a ConsumerRebalanceListener"
        )
