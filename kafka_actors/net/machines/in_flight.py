"""`InFlightTable`: the requests of one connection that wait for their responses, and their deadlines. Times are seconds.

Theory of operation. A broker answers the requests of a connection in the order in which they came, so a response is always that of
the oldest request; a correlation id that is another one means that the two sides disagree, and the connection is of no use. No more
than `window` requests are in flight. A response may ask for a pause (`throttle_time_ms`, KIP-219): the broker reads nothing from the
connection meanwhile, so requests wait here. Java: `InFlightRequests`, `NetworkClient`.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Generic, TypeVar

from kafka_actors.base.timeouts import throttle_s
from kafka_actors.errors import CorrelationIdError

W = TypeVar("W")

_IDS = 1 << 31


@dataclass(slots=True)
class InFlight(Generic[W]):
    """A request that was sent. `waiter` is the shell's own object for it."""

    correlation_id: int
    api: str
    sent: float
    deadline: float
    waiter: W


class InFlightTable(Generic[W]):
    """The requests in flight, oldest first, at most `window` of them.

    `idle_since` is the time at which the connection last had anything in flight.
    """

    def __init__(self, window: int, now: float) -> None:
        self.window = window
        self.idle_since = now
        self._next_id = 0
        self._entries: deque[InFlight[W]] = deque()
        self._throttled_until = 0.0

    def __len__(self) -> int:
        return len(self._entries)

    @property
    def full(self) -> bool:
        """Whether the next request has to wait."""
        return len(self._entries) >= self.window

    def next_id(self) -> int:
        """A correlation id that nothing in flight has."""
        self._next_id = (self._next_id + 1) % _IDS
        return self._next_id

    def add(self, correlation_id: int, api: str, waiter: W, now: float, timeout: float) -> InFlight[W]:
        """Notes that a request was sent."""
        entry = InFlight(correlation_id, api, now, now + timeout, waiter)
        self._entries.append(entry)
        self.idle_since = now
        return entry

    def answered(self, correlation_id: int, now: float) -> InFlight[W]:
        """Takes out the oldest request. Raises `CorrelationIdError` if the response isn't that request's."""
        if not self._entries:
            raise CorrelationIdError(
                f"an answer with correlation id {correlation_id}, and no request in flight"
            )
        oldest = self._entries[0]
        if oldest.correlation_id != correlation_id:
            raise CorrelationIdError(
                f"an answer with correlation id {correlation_id}; the oldest request in flight is "
                f"{oldest.api} with {oldest.correlation_id}"
            )
        self.idle_since = now
        return self._entries.popleft()

    def overdue(self, now: float) -> InFlight[W] | None:
        """The request whose deadline is over the longest, None where no deadline is over."""
        late = min(self._entries, key=lambda e: e.deadline, default=None)
        return late if late is not None and late.deadline <= now else None

    def next_deadline(self) -> float | None:
        """The earliest deadline, None where nothing is in flight."""
        return min((e.deadline for e in self._entries), default=None)

    def throttle(self, now: float, seconds: float) -> None:
        """Notes that the broker wants no requests for that long (KIP-219); at most `MAX_THROTTLE_S` count."""
        self._throttled_until = max(self._throttled_until, now + throttle_s(seconds))

    def throttled(self, now: float) -> float:
        """Seconds until the next request may be sent."""
        return max(self._throttled_until - now, 0.0)

    def take_all(self) -> Iterator[InFlight[W]]:
        """Takes out all requests, oldest first."""
        while self._entries:
            yield self._entries.popleft()
