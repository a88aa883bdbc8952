"""`RequestQueue`: the requests of one connection and their responses, in order, each within its time."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeVar, cast

from kafka_actors.config import ClientConfig
from kafka_actors.errors import DisconnectedError, KafkaActorsError, KafkaTimeoutError, NodeNotReadyError
from kafka_actors.protocol import decode_header, decode_message, frame
from kafka_actors.protocol.schema import Request, Response

from .machines.in_flight import InFlightTable
from .metrics import NetworkMetrics

R = TypeVar("R", bound=Response)

_NEVER = float("inf")


@dataclass(slots=True)
class _QueuedRequest:
    """A request and the caller that waits for its response. Until it is written, a failure of it means that the broker has
    certainly not carried it out."""

    request: Request[Any]
    version: int
    deadline: float
    waiter: asyncio.Future[Response]

    @property
    def api(self) -> str:
        return type(self.request).__name__.removesuffix("Request")

    def fail(self, error: Exception) -> None:
        if not self.waiter.done():
            self.waiter.set_exception(error)


class RequestQueue:
    """Pipelines requests, up to `max_in_flight_requests_per_connection`; the rest wait in order.

    `write` sends a frame, `close` ends the connection with a reason (None: it was idle). A request that isn't answered within
    its time closes it, because nothing behind that request can be answered either. `renew` is called once when a request is
    due at or after `renew_at` and none is in flight: none is sent from then on until `resume`. `address` is the broker's, for
    errors; `clock` counts seconds, monotonic.
    """

    def __init__(
        self,
        address: str,
        config: ClientConfig,
        clock: Callable[[], float],
        metrics: NetworkMetrics | None,
        *,
        write: Callable[[bytes], object],
        close: Callable[[Exception | None], object],
        renew: Callable[[], object],
    ) -> None:
        self.in_flight: InFlightTable[_QueuedRequest] = InFlightTable(
            config.max_in_flight_requests_per_connection, clock()
        )
        """The requests that were written and not answered yet."""
        self.answered = False
        """Whether the broker has answered any request."""
        self.renew_at = _NEVER
        """When the session is to be authenticated anew, by the clock."""
        self._address = address
        self._client_id = config.client_id
        self._max_idle = config.connections_max_idle_ms / 1000
        self._clock = clock
        self._metrics = metrics
        self._write = write
        self._close = close
        self._renew = renew
        self._loop = asyncio.get_running_loop()
        self._queue: deque[_QueuedRequest] = deque()
        self._due = _NEVER  # no queued request has an earlier deadline
        self._timer: asyncio.TimerHandle | None = None
        self._renewing = False
        self._closed = False

    def __len__(self) -> int:
        """The number of requests that wait for their responses or for their turn."""
        return len(self.in_flight) + len(self._queue)

    def throttle_delay(self) -> float:
        """Seconds for which the broker wants no requests (KIP-219)."""
        return self.in_flight.throttled(self._clock())

    # ------------------------------------------------------------ sending

    async def send(self, request: Request[R], version: int, timeout: float) -> R:  # noqa: ASYNC109  covers its turn too
        """Sends a request in a version and returns its response, within `timeout` seconds. Raises as `Connection.send`."""
        deadline = self._clock() + timeout
        queued = _QueuedRequest(request, version, deadline, self._loop.create_future())
        self._queue.append(queued)
        self._due = min(self._due, deadline)
        self._send_due()
        return cast(R, await queued.waiter)

    def resume(self) -> None:
        """Sends requests again: the session was renewed, or the connection has been opened."""
        self._renewing = False
        if not self._closed:
            self._send_due()

    def _send_due(self) -> None:
        """Writes the requests that may be written now, and sets the timer for the next event."""
        now = self._clock()
        while self._queue and not self.in_flight.full and not self.in_flight.throttled(now):
            if now >= self.renew_at:
                self._renew_if_quiet()
                break
            queued = self._queue.popleft()
            if queued.deadline <= now:  # written, it would be overdue at once, and close the connection
                self._expire(queued)
            elif not queued.waiter.done():  # else its caller was cancelled
                self._send(queued, now)
        self._set_timer(now)

    def _renew_if_quiet(self) -> None:
        """The broker takes an authentication even when the session is over, if nothing else comes first."""
        if not self._renewing and not self.in_flight:
            self._renewing = True
            self._renew()

    def _send(self, queued: _QueuedRequest, now: float) -> None:
        request = queued.request
        correlation_id = self.in_flight.next_id()
        try:
            data = frame(request.api_key, queued.version, correlation_id, self._client_id, request)
        except KafkaActorsError as error:
            queued.waiter.set_exception(error)
            return
        self.in_flight.add(correlation_id, queued.api, queued, now, queued.deadline - now)
        self._write(data)
        if self._metrics is not None:
            self._metrics.sent(len(data))

    # ------------------------------------------------------------ receiving

    def on_response(self, data: bytes) -> None:
        """Takes a response. Raises `CorrelationIdError` and `DecodeError`, after which the connection is of no use."""
        now = self._clock()
        entry = self.in_flight.answered(int.from_bytes(data[:4], "big", signed=True), now)
        queued = entry.waiter
        request = queued.request
        self.answered = True
        if self._metrics is not None:
            self._metrics.received(4 + len(data), now - entry.sent)
        try:
            _, body = decode_header(request.api_key, queued.version, "response", data)
            response = decode_message(request.response, queued.version, body)
        except KafkaActorsError as error:
            queued.fail(error)
            raise
        self.in_flight.throttle(now, getattr(response, "throttle_time_ms", 0) / 1000)
        if not queued.waiter.done():
            queued.waiter.set_result(response)
        self._send_due()

    # ------------------------------------------------------------ time

    def _set_timer(self, now: float) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if not self._closed:
            self._timer = self._loop.call_later(max(self._next_event(now) - now, 0.0), self._on_time)

    def _next_event(self, now: float) -> float:
        """The time of the next event: a deadline, the end of throttling, or closing for idleness."""
        due = [self._due] if self._queue else []
        if (first := self.in_flight.next_deadline()) is not None:
            due.append(first)
        # While a session is renewed, the responses that it waits for and its own end call `_send_due`: no timer is needed.
        renewing = now >= self.renew_at and (self._renewing or len(self.in_flight) > 0)
        if self._queue and not self.in_flight.full and not renewing:
            due.append(now + self.in_flight.throttled(now))
        return min(due, default=self._idle_at())

    def _idle_at(self) -> float:
        return self.in_flight.idle_since + self._max_idle

    def _on_time(self) -> None:
        now = self._clock()
        late = self.in_flight.overdue(now)
        if late is not None:
            waited = f"no answer to {late.api} for {now - late.sent:.1f} s"
            late.waiter.fail(KafkaTimeoutError(f"{self._address}: {waited}"))
            self._close(DisconnectedError(f"{self._address}: closed, because there was {waited}"))
            return
        for queued in [queued for queued in self._queue if queued.deadline <= now]:
            self._queue.remove(queued)
            self._expire(queued)
        self._due = min((queued.deadline for queued in self._queue), default=_NEVER)
        if not len(self) and now >= self._idle_at():
            self._close(None)
            return
        self._send_due()

    def _expire(self, queued: _QueuedRequest) -> None:
        throttled = self.throttle_delay()
        why = f"throttled by a quota for {throttled:.1f} s more, and not free" if throttled else "too busy"
        queued.fail(NodeNotReadyError(f"{self._address}: {why} to send {queued.api}"))

    # ------------------------------------------------------------ closing

    def fail(self, error: Exception) -> None:
        """Ends it: requests that were never written fail with `NodeNotReadyError`, the others with `error`'s text, as a
        `KafkaTimeoutError` where it is one and as a `DisconnectedError` elsewhere."""
        self._closed = True
        if self._timer is not None:
            self._timer.cancel()
        kind = type(error) if isinstance(error, (DisconnectedError, KafkaTimeoutError)) else DisconnectedError
        for entry in self.in_flight.take_all():
            entry.waiter.fail(kind(str(error)))
        while self._queue:
            self._queue.popleft().fail(NodeNotReadyError(str(error)))
