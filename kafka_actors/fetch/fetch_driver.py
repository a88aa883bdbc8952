"""The shell of the fetch machine: sends its pulls and takes their answers, looks offsets up, and polls again in time.

It keeps to the contract of machines (`base.machine`), but has a driver of its own in place of `MachineDriver`: the thread that
received a response polls the machine and sends the next pull itself, under the machine's lock, and only what has to be in the
event loop is handed over to it. A way through the loop for each response would cost two switches of threads.

Answers that a `FetchLoop` queues are taken by whoever needs the machine next (`take_answers`): the user's thread, a turn, or, while nobody
reads, the timer of the machine's next wake-up.
"""

from __future__ import annotations

import asyncio
import logging
import threading
from collections import deque
from collections.abc import Callable, Coroutine, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, Protocol

from kafka_actors.cluster.machines.refresh import RefreshMetadata
from kafka_actors.cluster.snapshot import ClusterSnapshot
from kafka_actors.config import ConsumerConfig
from kafka_actors.errors import AuthenticationError, ClientError, KafkaActorsError, NodeNotReadyError
from kafka_actors.events import Event, EventSink
from kafka_actors.telemetry.attributes import Attributes, of_operation, of_server, with_error
from kafka_actors.telemetry.instruments import FETCH_BYTES, FETCH_FAILURES, GROUP, OPERATION_DURATION
from kafka_actors.telemetry.recorder import Recorder
from kafka_actors.types import TopicPartition

from .lookups import LookupClient, by_leader, carry_out
from .machines.fetch_machine import FetchAction, FetchMachine
from .machines.positions import EpochValidation
from .machines.pull_stream import EndPull, PullToSend
from .machines.resets import OffsetLookup
from .messages import Answered, AnswerQueue, FetchReply, Outcome, Pull, Queued

logger = logging.getLogger(__name__)


class RecordSource(Protocol):
    """The connection side for one broker. Each pull is answered once, in any thread: by a response or by an error. Some answer it by several
    responses, of which the last one says so (`FetchReply.more`), and those between come through a queue.

    A source that died answers with `DisconnectedError`; its next pull has sequence 0. Pulls come from the loop's
    thread, and from those in which the source answers.
    """

    def fetch(self, pull: Pull, answered: Answered, queued: Queued) -> None: ...


class _Sent:
    """A pull that was sent, and its last outcome once that is known."""

    __slots__ = ("outcome", "pull")

    def __init__(self, pull: PullToSend) -> None:
        self.pull = pull
        self.outcome: Outcome | None = None


class FetchDriver:
    """Carries out the actions of a `FetchMachine`, in the loop that `start` is called in and in the threads that sources answer in.

    `lock` guards the machine, and is its owner's. `sources`, `request_metadata` and `events` are called in the loop's
    thread; `on_records` in any, when there may be records to take.
    """

    def __init__(
        self,
        machine: FetchMachine,
        lock: threading.RLock,
        config: ConsumerConfig,
        *,
        sources: Callable[[int], RecordSource | None],
        lookups: LookupClient,
        request_metadata: Callable[[], None],
        events: EventSink,
        on_records: Callable[[], None],
        meter: FetchTelemetry,
        clock: Callable[[], float],
        wall_clock: Callable[[], float],
    ) -> None:
        self._machine = machine
        self._lock = lock
        self._isolation_level = config.isolation_level
        self._sources = sources
        self._lookups = lookups
        self._request_metadata = request_metadata
        self._events = events
        self._on_records = on_records
        self._meter = meter
        self._clock = clock
        self._wall_clock = wall_clock
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread = 0
        self._due = False
        self._timer: asyncio.TimerHandle | None = None
        self._timer_at = 0.0
        self._known: dict[int, RecordSource] = {}  # results of `sources`, dropped when one fails
        self._unanswered: dict[int, deque[_Sent]] = {}  # by the token of the stream, in order
        self._queues: dict[_Sent, AnswerQueue] = {}  # with answers to pulls that will have more
        self._tasks: set[asyncio.Task[None]] = set()
        self._unpublished = 0  # batches of events on their way to the loop
        self._closed = False

    def start(self) -> None:
        """Begins to drive the machine, in the running loop."""
        self._loop = asyncio.get_running_loop()
        self._thread = threading.get_ident()
        self.soon()

    async def close(self) -> None:
        """Stops driving the machine; sources stay their owner's."""
        with self._lock:
            self._closed = True
            self._unanswered.clear()
            self._queues.clear()
        if self._timer is not None:
            self._timer.cancel()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    @property
    def events_pending(self) -> bool:
        """Whether events are on their way to `events`. Call it with the lock held."""
        return self._unpublished > 0

    def soon(self) -> None:
        """Has the machine polled in the loop soon, once for any number of calls. For any thread."""
        loop = self._loop
        if loop is None or self._due or self._closed:
            return
        self._due = True
        if threading.get_ident() == self._thread:
            loop.call_soon(self._turn)
        else:
            loop.call_soon_threadsafe(self._turn)

    def _turn(self) -> None:
        """Polls the machine and sends its pulls, in the loop's thread or in that of a source that answers. Other actions, and
        pulls without a known source, are handed to the loop."""
        if threading.get_ident() == self._thread:
            self._due = False
        with self._lock:
            if self._closed or self._loop is None:
                return
            self.take_answers()
            ready = self._machine.poll(self._clock())
            self._unpublished += bool(ready.events)
            left = [action for action in ready.actions if not self._done_here(action)]
            something = self._machine.has_something
        if something:
            self._on_records()
        if left or ready.events:
            self.in_loop(self._carry_out, left, ready.events, ready.next_wake)
        elif self._earlier(ready.next_wake):
            self.in_loop(self._set_timer, ready.next_wake)

    def _carry_out(
        self, actions: list[FetchAction], events: tuple[Event, ...], next_wake: float | None
    ) -> None:
        """Carries out, in the loop, the actions that a turn has left to it."""
        if self._closed:
            return
        if events:
            self._publish(events)
        lookups: list[OffsetLookup] = []
        validations: list[EpochValidation] = []
        for action in actions:
            match action:
                case PullToSend():
                    with self._lock:
                        self._send(action)
                case OffsetLookup():
                    lookups.append(action)
                case EpochValidation():
                    validations.append(action)
                case RefreshMetadata():
                    self._request_metadata()
        # Each leader's apart: a broker that doesn't answer holds up its own partitions alone.
        for group in by_leader(lookups):
            self._spawn(self._look_up(group))
        for together in by_leader(validations):
            self._spawn(self._validate(together))
        self._set_timer(next_wake)

    def _publish(self, events: tuple[Event, ...]) -> None:
        try:
            for event in events:
                self._events(event)
        finally:
            with self._lock:
                self._unpublished -= 1
        self._on_records()

    def in_loop(self, call: Callable[..., None], *arguments: Any) -> None:
        """Calls a function in the loop, at once if that is the caller's thread."""
        if threading.get_ident() == self._thread:
            call(*arguments)
            return
        try:
            assert self._loop is not None  # set by `start`, before there is anything to do
            self._loop.call_soon_threadsafe(call, *arguments)
        except RuntimeError:
            logger.debug("the loop of a fetcher ended before it was closed")

    def _earlier(self, wakeup: float | None) -> bool:
        """Whether the timer has to be set; one that fires too early polls, and is set again."""
        timer = self._timer
        return wakeup is not None and (timer is None or wakeup < self._timer_at)

    def _set_timer(self, wakeup: float | None) -> None:
        if self._closed or self._loop is None or wakeup is None or not self._earlier(wakeup):
            return
        if self._timer is not None:
            self._timer.cancel()
        self._timer_at = wakeup
        self._timer = self._loop.call_later(max(0.0, wakeup - self._clock()), self._on_time)

    def _on_time(self) -> None:
        self._timer = None
        self._turn()

    # ------------------------------------------------------------ pulls

    def take_answers(self) -> None:
        """Passes the answers that wait in queues to the machine. Call it with the lock held, before the machine is asked for anything."""
        try:
            for sent, queue in self._queues.items():
                for answer in queue.drain():
                    self._answered(sent.pull, answer)
        except Exception:  # as below; but whoever comes with the last answer to a pull has to go on, or that pull would never end
            logger.exception("answers could not be taken: their records are fetched again")
            self._machine.rewind()
            self.soon()
        except BaseException:  # an interrupt in the user's thread: what was drained would be lost
            self.soon()
            self._machine.rewind()
            raise

    @contextmanager
    def present(self) -> Iterator[FetchMachine]:
        """Gives the machine as it is with all answers that have come, for as long as the lock is held."""
        with self._lock:
            self.take_answers()
            yield self._machine

    def _done_here(self, action: FetchAction) -> bool:
        """Carries out an action that needs no loop. Returns whether it did. Call it with the lock held."""
        if type(action) is EndPull:
            for sent, queue in self._queues.items():
                if sent.pull.token == action.token:
                    queue.interrupt()
            return True
        return type(action) is PullToSend and self._send(action)

    def _send(self, pull: PullToSend) -> bool:
        """Sends a pull. False if only the loop can find the broker's source. Call it with the lock held, which keeps the pulls of a
        stream in order."""
        if threading.get_ident() != self._thread:
            source = self._known.get(pull.broker)
            if source is None:
                return False
        else:
            source = self._sources(pull.broker)
            if source is None:
                nowhere = NodeNotReadyError(f"no connection to broker {pull.broker}")
                self._failed(pull, nowhere, sent=False)
                return True
            self._known[pull.broker] = source
        sent = _Sent(pull)
        self._unanswered.setdefault(pull.token, deque()).append(sent)
        source.fetch(
            pull.pull, lambda outcome: self._arrive(sent, outcome), lambda queue: self._follow(sent, queue)
        )
        return True

    def _follow(self, sent: _Sent, queue: AnswerQueue) -> None:
        """Takes a queue with answers to a pull, between the first one and the last."""
        queue.wake = self._on_records
        with self._lock:
            if not self._closed:
                self._queues[sent] = queue

    def _arrive(self, sent: _Sent, outcome: Outcome) -> None:
        """Takes outcomes in the order of their pulls, in whichever order they arrive."""
        replied = False
        with self._lock:
            self.take_answers()
            if not isinstance(outcome, Exception) and outcome[0].more:
                replied = self._answered(sent.pull, outcome)
            else:
                self._queues.pop(sent, None)
                sent.outcome = outcome
            token = sent.pull.token
            waiting = self._unanswered.get(token)
            while waiting and (first := waiting[0].outcome) is not None:
                replied |= self._answered(waiting.popleft().pull, first)
            if not waiting:
                self._unanswered.pop(token, None)
        if replied:
            self._turn()

    def _answered(self, pull: PullToSend, outcome: Outcome) -> bool:
        """Passes an outcome to the machine. Returns whether it is a reply. Call it with the lock held."""
        if isinstance(outcome, Exception):
            if not isinstance(outcome, (KafkaActorsError, OSError)):
                logger.error("a pull from broker %d failed unexpectedly", pull.broker, exc_info=outcome)
            self._failed(pull, outcome)
            return False
        reply, records = outcome
        self._machine.on_reply(pull, reply, records, self._clock())
        self._meter.fetched(pull.broker, reply)
        return True

    def _failed(self, pull: PullToSend, error: Exception, *, sent: bool = True) -> None:
        logger.info("broker %d: %s", pull.broker, error)
        self._known.pop(pull.broker, None)
        self._meter.failed(pull.broker, error)
        with self._lock:
            self._machine.on_pull_failed(
                pull,
                error if isinstance(error, AuthenticationError) else ClientError(str(error)),
                self._clock(),
                sent=sent,
            )
        self.soon()

    def _spawn(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.ensure_future(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _look_up(self, lookups: list[OffsetLookup]) -> None:
        try:
            found = await carry_out(lookups, self._lookups, self._isolation_level, self._wall_clock)
        except KafkaActorsError as error:
            found = dict.fromkeys(lookups, error)
        with self._lock:
            for lookup in lookups:
                self._machine.on_offset(lookup, found[lookup], self._clock())
        self.soon()

    async def _validate(self, validations: list[EpochValidation]) -> None:
        epochs = {each.tp: (each.leader_epoch, each.known_epoch) for each in validations}
        answers: Mapping[TopicPartition, Any]
        try:
            answers = await self._lookups.offsets_for_leader_epoch(epochs)
        except KafkaActorsError as error:
            answers = dict.fromkeys(epochs, error)
        with self._lock:
            for each in validations:
                answer = answers[each.tp]
                found = (
                    answer
                    if isinstance(answer, KafkaActorsError)
                    else (answer.leader_epoch, answer.end_offset)
                )
                self._machine.on_epoch_end(each.tp, each.version, found, self._clock())
        self.soon()


class FetchTelemetry:
    """Records the metrics of one fetcher. Brokers that it doesn't know yet are measured without their address."""

    def __init__(self, recorder: Recorder, group_id: str | None) -> None:
        self._recorder = recorder
        self._group = ((GROUP, group_id or ""),)
        self._operation = of_operation("fetch", group_id)
        self._servers: dict[int, Attributes] = {}
        self._responses: dict[Attributes, tuple[Callable[[float], None], Callable[[float], None]]] = {}
        """Functions that count the bytes and the seconds of responses, by address."""

    def follow(self, snapshot: ClusterSnapshot) -> None:
        """Takes over the addresses of the brokers."""
        self._servers = {broker: of_server(b.host, b.port) for broker, b in snapshot.brokers.items()}

    def fetched(self, broker: int, reply: FetchReply) -> None:
        """Counts a response. Records that another worker has fetched took no time, and came over no network."""
        if not reply.seconds:
            return
        server = self._servers.get(broker, ())
        responses = self._responses.get(server)
        if responses is None:
            into = self._recorder.into
            responses = self._responses[server] = (
                into(FETCH_BYTES, (*self._group, *server)),
                into(OPERATION_DURATION, (*self._operation, *server)),
            )
        count_bytes, record_seconds = responses
        count_bytes(reply.size)
        record_seconds(reply.seconds)

    def failed(self, broker: int, error: Exception) -> None:
        """Counts a pull that was not answered."""
        of_failure = with_error((*self._group, *self._servers.get(broker, ())), error)
        self._recorder.add(FETCH_FAILURES, 1, of_failure)
