"""`RefreshTimer`: when a client asks for metadata. Times are seconds.

Theory of operation. Metadata is due when it is `max_age` old, when somebody demands it (a leader moved, a topic is unknown), or
after a failed try; between two tries there is a pause, which grows with each failure in a row. Demands are numbered: `demand`
returns the number, `succeeded` and `failed` the highest one that is met. A demand that is made while a request is out is not met
by its answer, which may be older than the demand, so `started` notes which demands a request will meet. Java:
`Metadata.requestVersion`, `Metadata.timeToNextUpdate`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from kafka_actors.base.backoff import exponential_backoff


class RefreshMetadata(NamedTuple):
    """An action of other machines: ask for newer metadata, because a partition has no leader, or another one than is known."""


class RefreshTimer:
    """Counts demands and tries, and says in how many seconds the next request is due.

    `retry_backoff` and `retry_backoff_max` bound the pause after a failure, `max_age` is when metadata is asked for anyway;
    `rand` gives 0..1 for jitter.
    """

    def __init__(
        self, *, retry_backoff: float, retry_backoff_max: float, max_age: float, rand: Callable[[], float]
    ) -> None:
        self._retry_backoff = retry_backoff
        self._retry_backoff_max = retry_backoff_max
        self._max_age = max_age
        self._rand = rand
        self._demanded = 0
        self._sent = 0
        self._met = 0
        self._out = False
        self._failures = 0
        self._backoff = retry_backoff
        self._last_try: float | None = None
        self._last_success: float | None = None

    @property
    def demanded(self) -> bool:
        """Whether metadata newer than the present is demanded."""
        return self._demanded > self._met

    @property
    def failures(self) -> int:
        """Tries that failed since the last success."""
        return self._failures

    def demand(self) -> int:
        """Demands an update. Returns the demand's number: `succeeded` or `failed` return at least that when it is met."""
        if self._demanded == self._sent:
            self._demanded += 1
        return self._demanded

    def started(self) -> None:
        """Notes that a request is about to be sent, which meets all demands made so far."""
        self._sent = self._demanded
        self._out = True

    def succeeded(self, now: float, *, incomplete: bool = False) -> int:
        """Notes an answer. Returns the highest demand that is met.

        `incomplete`: it has temporary errors, so another one is demanded, after the backoff.
        """
        self._met = self._ended()
        self._last_try = self._last_success = now
        self._grow(incomplete)
        if incomplete:
            self.demand()
        return self._met

    def failed(self, now: float) -> int:
        """Notes a failed request. Returns the highest demand that it should have met; a new demand takes its place."""
        self._met = highest = self._ended()
        self._last_try = now
        self._grow(True)
        self.demand()
        return highest

    def _ended(self) -> int:
        """Notes the end of a request. Returns the highest demand that it was to meet: all, where `started` didn't announce it."""
        if not self._out:
            self._sent = self._demanded
        self._out = False
        return self._sent

    def _grow(self, failed: bool) -> None:
        self._failures = self._failures + 1 if failed else 0
        initial, longest = self._retry_backoff, self._retry_backoff_max
        rand = self._rand if failed else None
        self._backoff = exponential_backoff(max(self._failures, 1), initial, longest, rand)

    def backoff(self) -> float:
        """The pause between a failed try and the next one."""
        return self._backoff

    def ttl(self, now: float) -> float:
        """Seconds until metadata should be asked for; 0 when it is due."""
        due = 0.0
        if not self.demanded and self._last_success is not None:
            due = self._last_success + self._max_age - now
        if self._last_try is None:
            return max(due, 0.0)
        return max(due, self._last_try + self._backoff - now, 0.0)
