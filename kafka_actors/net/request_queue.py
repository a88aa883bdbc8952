"""`RequestQueue`: requests of one socket and their responses, in order, each in its time."""

from __future__ import annotations

import asyncio
import logging
from abc import abstractmethod
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Self, TypeVar, cast

from kafka_actors.cluster.listeners import call_each
from kafka_actors.config import ClientConfig
from kafka_actors.errors import (
    DisconnectedError,
    KafkaActorsError,
    KafkaTimeoutError,
    NodeNotReadyError,
    UsageError,
)
from kafka_actors.protocol import decode_header, decode_message, frame
from kafka_actors.protocol.schema import Request, Response

from .frame_protocol import FrameProtocol
from .machines.api_versions import ApiVersionTable
from .machines.in_flight import InFlightTable
from .metrics import metrics_of

log = logging.getLogger(__name__)

R = TypeVar("R", bound=Response)


@dataclass(slots=True)
class _Sending:
    """A request on its way. Until it is written, its failure says that it was certainly not carried out."""

    request: Request[Any]
    version: int
    deadline: float
    waiter: asyncio.Future[Response]


class RequestQueue(FrameProtocol):
    """Requests are pipelined, up to `max_in_flight_requests_per_connection`; the rest wait in order.

    A request that isn't answered in its time closes the connection, because nothing behind it can be answered
    either; so do a wrong correlation id and bytes that don't parse. Closing answers each waiter once: those
    whose request was never written with `NodeNotReadyError`, the others with what happened.
    """

    def __init__(self, host: str, port: int, config: ClientConfig, clock: Callable[[], float]) -> None:
        super().__init__(host, port, config, clock)
        self.versions = ApiVersionTable({})
        self._table: InFlightTable[_Sending] = InFlightTable(
            config.max_in_flight_requests_per_connection, clock()
        )
        self._queue: deque[_Sending] = deque()
        self._timer: asyncio.TimerHandle | None = None
        self._established = False
        self._answered = False
        self._renew_at = float("inf")
        self._renewal: asyncio.Task[None] | None = None
        self._close_callbacks: list[Callable[[Any], object]] = []
        self._metrics = metrics_of(config)

    @abstractmethod
    def _start_renewal(self) -> None:
        """The session is over, or soon: authenticate anew before the next request."""

    @property
    def in_flight(self) -> int:
        """How many requests wait for their answers or for their turn."""
        return len(self._table) + len(self._queue)

    def throttle_delay(self) -> float:
        """Seconds for which the broker wants no requests (KIP-219)."""
        return self._table.throttled(self._clock())

    def version(
        self, request: type[Request[Any]], *, min_version: int | None = None, max_version: int | None = None
    ) -> int:
        """The version of a request that both sides speak. Raises `UnsupportedVersionError`."""
        return self.versions.pick(request, lowest=min_version, highest=max_version)

    # ------------------------------------------------------------ sending

    async def send(
        self,
        request: Request[R],
        *,
        timeout_ms: float | None = None,
        min_version: int | None = None,
        max_version: int | None = None,
    ) -> R:
        """Sends a request in the newest version that both sides speak (within bounds) and returns its response.

        `timeout_ms` (default `request_timeout_ms`) covers waiting for a place in the window as well. Error codes
        in the response are the caller's to read.

        Raises, with the request certainly not sent: `UnsupportedVersionError`, `EncodeError` (both leave the
        connection alive), `NodeNotReadyError`, `UsageError`. With its outcome unknown: `DisconnectedError`,
        `KafkaTimeoutError`, `CorrelationIdError`. With the response unreadable: `DecodeError`.
        """
        self._check_usable()
        version = self.version(type(request), min_version=min_version, max_version=max_version)
        limit = self._config.request_timeout_ms if timeout_ms is None else timeout_ms
        sending = _Sending(request, version, self._clock() + limit / 1000, self._loop.create_future())
        self._queue.append(sending)
        self._pump()
        return cast(R, await sending.waiter)

    def _check_usable(self) -> None:
        self._check_process()
        if asyncio.get_running_loop() is not self._loop:
            raise UsageError(f"{self!r} belongs to another event loop")
        if self._closed:
            raise NodeNotReadyError(
                f"{self.address}: the connection is closed: {self.error or 'by this side'}"
            )

    def _pump(self) -> None:
        """Writes what may be written now, and sets the timer for what comes next."""
        now = self._clock()
        while self._queue and not self._table.full and not self._table.throttled(now):
            if now >= self._renew_at:
                self._start_renewal()
                break
            sending = self._queue.popleft()
            if not sending.waiter.done():  # else its caller was cancelled
                self._write(sending, now)
        self._set_timer(now)

    def _write(self, sending: _Sending, now: float) -> None:
        request, transport = sending.request, self._transport
        assert transport is not None  # open() returns only connections that have one
        correlation_id = self._table.next_id()
        try:
            data = frame(request.api_key, sending.version, correlation_id, self._config.client_id, request)
        except KafkaActorsError as error:
            sending.waiter.set_exception(error)
            return
        self._table.add(correlation_id, _api(request), sending, now, sending.deadline - now)
        transport.write(data)
        if self._metrics is not None:
            self._metrics.sent(len(data))

    # ------------------------------------------------------------ receiving

    def _on_response(self, data: bytes) -> None:
        now = self._clock()
        entry = self._table.answered(int.from_bytes(data[:4], "big", signed=True), now)
        sending = entry.waiter
        request = sending.request
        self._answered = True
        if self._metrics is not None:
            self._metrics.received(4 + len(data), now - entry.sent)
        try:
            _, body = decode_header(request.api_key, sending.version, "response", data)
            response = decode_message(request.response, sending.version, body)
        except KafkaActorsError as error:
            _fail(sending.waiter, error)
            raise
        self._table.throttle(now, getattr(response, "throttle_time_ms", 0) / 1000)
        if not sending.waiter.done():
            sending.waiter.set_result(response)
        self._pump()

    # ------------------------------------------------------------ time

    def _set_timer(self, now: float) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if not self._closed:
            self._timer = self._loop.call_later(max(self._next_event(now) - now, 0.0), self._on_time)

    def _next_event(self, now: float) -> float:
        """When something is due: a deadline, the end of throttling, or closing for idleness."""
        due = [s.deadline for s in self._queue]
        if (first := self._table.next_deadline()) is not None:
            due.append(first)
        # What a renewal waits for, and its own end, pump without a timer.
        renewing = now >= self._renew_at and (self._renewal is not None or len(self._table) > 0)
        if self._queue and not self._table.full and not renewing:
            due.append(now + self._table.throttled(now))
        return min(due, default=self._table.idle_since + self._config.connections_max_idle_ms / 1000)

    def _on_time(self) -> None:
        now = self._clock()
        late = self._table.overdue(now)
        if late is not None:
            waited = f"no answer to {late.api} for {now - late.sent:.1f} s"
            _fail(late.waiter.waiter, KafkaTimeoutError(f"{self.address}: {waited}"))
            self.close(DisconnectedError(f"{self.address}: closed, because there was {waited}"))
            return
        for sending in [s for s in self._queue if s.deadline <= now]:
            self._queue.remove(sending)
            _fail(
                sending.waiter, NodeNotReadyError(f"{self.address}: too busy to send {_api(sending.request)}")
            )
        idle = self._table.idle_since + self._config.connections_max_idle_ms / 1000
        if not self.in_flight and now >= idle:
            self.close()
            return
        self._pump()

    # ------------------------------------------------------------ closing

    def close(self, error: Exception | None = None) -> None:
        """Closes it; `error` says why. Each waiter is answered, once. Closing again changes nothing."""
        if self._closed:
            return
        self._closed = True
        self.error = error
        if self._timer is not None:
            self._timer.cancel()
        if self._transport is not None:
            self._transport.abort()
        self._lost.set()
        if self._metrics is not None and self._established:
            self._metrics.disconnected()
        why = str(error) if error is not None else f"{self.address}: the connection was closed"
        kind = type(error) if isinstance(error, (DisconnectedError, KafkaTimeoutError)) else DisconnectedError
        for entry in self._table.drain():
            _fail(entry.waiter.waiter, kind(why))
        while self._queue:
            _fail(self._queue.popleft().waiter, NodeNotReadyError(why))
        log.debug("connection to %s closed: %s", self.address, why)
        call_each(self._close_callbacks, self)

    def abort(self) -> None:
        """Closes it; by the name that `Cluster` asks for."""
        self.close()

    def add_close_callback(self, callback: Callable[[Self], object]) -> None:
        """Call `callback(self)` when it closes; at once if it is closed. What it raises is logged."""
        if self._closed:
            call_each([callback], self)
        else:
            self._close_callbacks.append(callback)


def _fail(waiter: asyncio.Future[Any], error: Exception) -> None:
    if not waiter.done():
        waiter.set_exception(error)


def _api(request: Request[Any]) -> str:
    return type(request).__name__.removesuffix("Request")
