"""The connection side of fetching: one socket, one fetch session and one thread for one worker and one broker.

The thread blocks in the kernel while it receives, and a response is received straight into the memory that it is decoded from; so it
costs the event loops and the user's code next to nothing. The thread hands a response over itself, as a rule once the next request
is under way: each hop to another thread costs a record that comes alone a wait for a core and for the interpreter.

Small responses that only go on from the one before are left to a `FetchLoop`: see `steady_fetch`.
"""

from __future__ import annotations

import asyncio
import logging
import queue
import threading
import time
from collections.abc import Callable, Collection
from functools import partial
from typing import TYPE_CHECKING, NamedTuple

from msgspec.structs import replace

from kafka_actors.base.addresses import format_address
from kafka_actors.config import ConsumerConfig
from kafka_actors.errors import AuthenticationError, DisconnectedError, KafkaActorsError
from kafka_actors.protocol import ApiKey, FetchRequest, FetchResponse, decode_header, decode_message, frame
from kafka_actors.records import next_offset

from .machines.fetch_session import FetchSession, SequenceGap
from .messages import Answer, Answered, Outcome, PartitionFetch, Pull, Queued, Records
from .shared_records import KeptRecords, SharedRecords, kept_of
from .steady_fetch import (
    SMALL_BYTES,
    End,
    FetchLoop,
    SteadyFetch,
    may_go_on,
    template_of,
    to_name,
    worth_after,
)

if TYPE_CHECKING:
    from .local_sources import BlockingChannel, Connect

logger = logging.getLogger(__name__)

JOIN_S = 1.0
IDLE_S = 1.0  # without a pull; then memory that responses were received into is given back to the system
CORRELATION_IDS = 1 << 31  # from 0 on
BUSY_WAIT_MS = 100
"""Longest wait of the broker while another worker fetches a partition for this one, too."""


class _PullJob(NamedTuple):
    pull: Pull
    answered: Answered
    queued: Queued | None = None


class BrokerFetcher:
    """Carries out the pulls of one worker at one broker, in order.

    `connect` makes the connection: `net.FetchSocket`. While no pull waits, no Fetch is sent: the pulls outstanding are the credit.
    After a failure every pull is refused with `DisconnectedError` until one with sequence 0 begins anew; it opens the connection again,
    to the next address of the broker's name where that failed before. `shared`: the records of partitions that other workers of this
    node read, too; `lend(size, now)` lends memory for a copy of them, where the worker reads in place.
    """

    def __init__(
        self,
        broker: int,
        host: str,
        port: int,
        config: ConsumerConfig,
        *,
        connect: Connect,
        shared: SharedRecords | None = None,
        lend: Callable[[int, float], memoryview] | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.broker = broker
        self.address = (host, port)
        self._config = config
        self._connect = connect
        self._shared = shared
        self._lend = lend
        self._clock = clock
        self._lock = threading.Lock()
        self._jobs: queue.SimpleQueue[_PullJob | None] = queue.SimpleQueue()
        self._thread: threading.Thread | None = None
        self._channel: BlockingChannel | None = None
        self._failures = 0  # to open a connection, in a row
        self._session = FetchSession(broker=broker)
        self._best = 0  # highest version of Fetch that both sides speak
        self._correlation_id = 0
        self._used = 0.0
        self._stream = 0  # number of the newest stream of pulls
        self._from_memory = False  # the last answer came out of `shared`
        self._small = 0  # responses of SMALL_BYTES at most, in a row
        self._received: tuple[_PullJob, Answer] | None = None  # and not handed over yet
        self._steady = SteadyFetch()
        self._closed = False

    def fetch(
        self,
        pull: Pull,
        answered: Answered,
        queued: Queued | None = None,
    ) -> None:
        """Has a pull carried out. Calls `answered` in this fetcher's thread, in the order of the pulls; at once where it is
        closed, or the system gives it no thread. `queued` takes a queue with answers between the first one and the last; without it a pull has
        one answer."""
        with self._lock:
            refused = "is closed" if self._closed else self._start()
            if not refused:
                self._steady.waits(pull)
                self._jobs.put(_PullJob(pull, answered, queued))
        if refused:
            answered(DisconnectedError(f"the connection to broker {self.broker} {refused}"))

    def _start(self) -> str:
        """Starts the thread unless there is one. Returns what keeps it from that, empty if nothing does."""
        if self._thread is None:
            thread = threading.Thread(target=self._run, name=f"fetch-{self.broker}", daemon=True)
            try:
                thread.start()
            except RuntimeError as error:
                return f"has no thread: {error}"
            self._thread = thread
        return ""

    def pull(self, pull: Pull) -> asyncio.Future[Answer]:
        """Has a pull carried out, and returns its answer as a future of the running loop."""
        future: asyncio.Future[Answer] = asyncio.get_running_loop().create_future()

        def answered(outcome: Outcome) -> None:
            try:
                future.get_loop().call_soon_threadsafe(_settle, future, outcome)
            except RuntimeError:
                logger.debug("the loop that asked for a pull is closed")

        self.fetch(pull, answered)
        return future

    def shut(self) -> None:
        """Closes the connection, from any thread; pulls under way fail with `DisconnectedError`."""
        with self._lock:
            self._closed = True
            self._jobs.put(None)  # behind every pull
        if (channel := self._channel) is not None:
            channel.close()
        if self._shared is not None:
            self._shared.end(self)

    async def close(self) -> None:
        """Closes the connection as `shut` does, and waits up to `JOIN_S` for the thread to end."""
        self.shut()
        if (thread := self._thread) is not None and thread.is_alive():
            # It may be connecting, which nothing interrupts; the thread is a daemon and ends by itself.
            await asyncio.to_thread(thread.join, JOIN_S)

    # ------------------------------------------------------------ in the thread

    def _run(self) -> None:
        while (job := self._next_job()) is not None:
            self._carry_out(job)
            del job
        self._hand_over()
        self._break()

    def _next_job(self) -> _PullJob | None:
        """Waits for a pull, but hands over a response first if none waits, and gives memory back if none comes for long."""
        if self._received is not None:
            try:
                return self._jobs.get_nowait()
            except queue.Empty:
                self._hand_over()
        try:
            return self._jobs.get(timeout=IDLE_S)
        except queue.Empty:
            if self._channel is not None:
                self._channel.trim()
        return self._jobs.get()

    def _hand_over(self) -> None:
        """Hands over the response that was received last. No reference to it stays: once released, its memory is used again."""
        received, self._received = self._received, None
        if received is not None:
            _answer(*received)

    def _carry_out(self, job: _PullJob) -> None:
        failure: Exception
        pull = job.pull
        self._steady.begins(pull)
        if self._is_repetition(pull):
            self._hand_over()
            repeated = f"stream {pull.stream} of pulls has begun: this call was repeated"
            _answer(job, DisconnectedError(repeated))
            return
        try:
            answer = self._steadily(job, self._fetch(pull))
        except AuthenticationError as error:
            failure = error
        except (KafkaActorsError, OSError, SequenceGap) as error:
            failure = DisconnectedError(f"broker {self.broker} at {format_address(*self.address)}: {error}")
        except Exception as error:  # the worker must not wait for an answer in vain
            logger.exception("the fetch thread of broker %d failed", self.broker)
            failure = error
        else:
            self._received = job, answer
            return
        self._hand_over()
        self._break()
        _answer(job, failure)

    def _is_repetition(self, pull: Pull) -> bool:
        """Returns whether this first pull of a stream arrives again. What it would begin anew, nobody waits for."""
        if pull.sequence != 0 or pull.stream == 0:
            return False
        before, self._stream = self._stream, max(self._stream, pull.stream)
        return pull.stream <= before

    def _fetch(self, pull: Pull) -> Answer:
        channel = self._ready(pull)
        self._session.apply(pull)
        if self._shared is not None:
            if wants := self._session.shared():
                return self._fetch_shared(self._shared, channel, pull, wants)
            self._shared.drop_old()
        return self._fetch_from(channel, pull, pull.max_wait_ms)

    def _fetch_from(
        self, channel: BlockingChannel, pull: Pull, wait_ms: int, without: Collection[tuple[str, int]] = ()
    ) -> Answer:
        self._keep_pace(pull.pace_ms / 1000)
        return self._exchange(channel, wait_ms, without)

    def _fetch_shared(
        self, shared: SharedRecords, channel: BlockingChannel, pull: Pull, wants: list[PartitionFetch]
    ) -> Answer:
        """Returns what another worker has fetched, or fetches; where others fetch all that is wanted, waits for them as a broker would."""
        until = self._clock() + pull.max_wait_ms / 1000
        self._hand_over()
        while True:
            left_s = max(0.0, until - self._clock())
            kept, busy, changes = shared.claim(self, wants, pull.max_bytes, left_s)
            if kept and (len(kept) == len(self._session) or not self._from_memory):
                self._from_memory = True
                return self._session.serve(each.fetched for each in kept), self._copied(kept)
            self._from_memory = False
            if kept:  # now it is the turn of those that nobody else fetches
                return self._fetch_from(channel, pull, 0, {each.want.key for each in kept})
            if len(busy) < len(self._session):
                break
            if left_s <= 0 or self._closed:
                return self._session.serve(()), []
            shared.wait(changes, left_s)
        brought: list[KeptRecords] = []
        try:
            wait_ms = int(left_s * 1000)
            answer = self._fetch_from(channel, pull, min(wait_ms, BUSY_WAIT_MS) if busy else wait_ms, busy)
            brought = kept_of(wants, answer, self._used)
        finally:
            shared.end(self, brought)
        return answer

    def _copied(self, kept: list[KeptRecords]) -> list[Records]:
        """Copies records into the memory that the worker reads, where it reads in place."""
        size = sum(each.fetched.size for each in kept)
        if self._lend is None:
            return [each.records for each in kept]
        try:
            memory = self._lend(size, self._clock())
        except MemoryError as error:
            raise DisconnectedError(f"no memory for {size} bytes of records") from error
        views: list[Records] = []
        for each in kept:
            view, memory = memory[: each.fetched.size], memory[each.fetched.size :]
            view[:] = each.records
            views.append(view)
        return views

    def _keep_pace(self, pace_s: float) -> None:
        """Waits after a small response, where each costs the one who carries it much: records that come meanwhile come together."""
        left = self._used + pace_s - self._clock()
        if self._small and left > 0:
            self._hand_over()
            time.sleep(left)

    def _exchange(
        self, channel: BlockingChannel, wait_ms: int, without: Collection[tuple[str, int]]
    ) -> Answer:
        request, version = self._session.request(self._best, wait_ms=wait_ms, without=without)
        self._correlation_id = (self._correlation_id + 1) % CORRELATION_IDS
        request_bytes = self._frame(request, version)
        limit_ms = self._config.request_timeout_ms + wait_ms
        began = self._clock()
        channel.send(request_bytes, timeout_ms=limit_ms)
        self._hand_over()  # the response before, while the broker works on this request
        return self._digest(channel.receive(timeout_ms=limit_ms), version, began)

    def _frame(self, request: FetchRequest, version: int) -> bytes:
        return frame(ApiKey.FETCH, version, self._correlation_id, self._config.client_id, request)

    def _digest(self, data: memoryview, version: int, began: float) -> Answer:
        self._used = self._clock()
        self._small = self._small + 1 if data.nbytes <= SMALL_BYTES else 0
        header, body = decode_header(ApiKey.FETCH, version, "response", data)
        if header.correlation_id != self._correlation_id:
            raise DisconnectedError(f"answer {header.correlation_id} to request {self._correlation_id}")
        response = decode_message(FetchResponse, version, body)
        return self._session.digest(
            response, next_offset=next_offset, size=data.nbytes, seconds=self._used - began
        )

    def _steadily(self, job: _PullJob, answer: Answer) -> Answer:
        """Goes on from a small answer by a `FetchLoop`, where that can be; returns the last answer to the pull."""
        pull, channel = job.pull, self._channel
        if job.queued is None or not may_go_on(pull, answer[0]):
            return answer
        if self._small < worth_after(len(self._session)):
            return answer
        if FetchLoop is None or channel is None or not channel.is_plain:
            return answer
        if not (partitions := self._session.steady()):
            return answer
        request, version = self._session.request(self._best, wait_ms=pull.max_wait_ms)
        self._correlation_id = (self._correlation_id + 1) % CORRELATION_IDS
        encode = partial(self._frame, version=version)
        loop = FetchLoop(partitions, *template_of(request, encode), self.broker, pull.sequence)
        job.queued(loop)
        self._hand_over()
        _answer(job, (replace(answer[0], more=True), answer[1]))
        limit_ms = self._config.request_timeout_ms + pull.max_wait_ms
        credit = pull.max_bytes - answer[0].size
        end, length, rest = self._steady.run(
            loop, channel, encode(replace(request, max_bytes=credit)), credit, pull.max_bytes // 2, limit_ms
        )
        self._small, self._used = 0, self._clock()
        began = self._used - loop.waited_s
        self._correlation_id = (self._correlation_id + loop.requests - 1) % CORRELATION_IDS
        self._session.went_on(loop.exchanges, to_name(loop, partitions, request))
        if end == End.TERMS:
            return self._session.serve(()), []
        if end == End.LARGE:
            return self._digest(channel.receive_rest(length, timeout_ms=limit_ms), version, began)
        return self._digest(memoryview(rest), version, began)

    def _ready(self, pull: Pull) -> BlockingChannel:
        """Returns the open connection. One that was idle for `connections_max_idle_ms` is replaced: the broker, or a
        firewall between, may have dropped it without notice."""
        if self._channel is not None:
            if self._clock() - self._used <= self._config.connections_max_idle_ms / 1000:
                return self._channel
            self._break()
            self._session.reset()
            return self._open()
        if pull.sequence != 0:
            raise DisconnectedError("the stream of pulls was cut")
        self._session = FetchSession(
            broker=self.broker,
            min_bytes=self._config.fetch_min_bytes,
            isolation_level=int(self._config.isolation_level == "read_committed"),
            rack=self._config.client_rack,
        )
        return self._open()

    def _open(self) -> BlockingChannel:
        self._hand_over()
        channel = self._channel = self._connect(*self.address, self._config)
        if self._closed:
            raise DisconnectedError("closed")
        self._failures += 1
        channel.open(first_address=self._failures - 1)
        self._failures = 0
        self._best = channel.versions.pick(FetchRequest)
        self._used = self._clock()
        return channel

    def _break(self) -> None:
        channel, self._channel = self._channel, None
        if channel is not None:
            channel.close()


def _answer(job: _PullJob, outcome: Outcome) -> None:
    try:
        job.answered(outcome)
    except Exception:  # the thread has other pulls to carry out
        logger.exception("the answer to a pull could not be taken")


def _settle(future: asyncio.Future[Answer], outcome: Outcome) -> None:
    if future.done():
        return
    if isinstance(outcome, Exception):
        future.set_exception(outcome)
    else:
        future.set_result(outcome)
