"""When to ask for metadata: by age, on demand, and after a failure with a growing pause. Times are seconds."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from kafka_actors.base.backoff import exponential_backoff


class RefreshMetadata(NamedTuple):
    """An action of other machines: ask for newer metadata, because a partition has no leader, or another one than is known."""


class RefreshTimer:
    """Knows when metadata is due.

    A demand made while a request is already out is not met by its answer, which may be older than the demand:
    `started` notes which demands a request will meet (Java: `Metadata.requestVersion`).
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
        self._failures = 0
        self._backoff = retry_backoff
        self._last_try: float | None = None
        self._last_success: float | None = None

    @property
    def demanded(self) -> bool:
        """Whether someone wants metadata newer than the present."""
        return self._demanded > self._met

    @property
    def failures(self) -> int:
        """Tries that failed since the last success."""
        return self._failures

    def demand(self) -> int:
        """Wants an update. Returns the number of the demand, which `met` answers with when it is met."""
        if self._demanded == self._sent:
            self._demanded += 1
        return self._demanded

    def started(self) -> None:
        """A request is about to be sent: it meets all demands made so far."""
        self._sent = self._demanded

    def succeeded(self, now: float, *, incomplete: bool = False) -> int:
        """An answer came. Returns the highest demand that is met.

        `incomplete`: it has temporary errors, so another is wanted, after the backoff.
        """
        if self._sent == self._met:
            self._sent = self._demanded  # nobody announced a request: it counts as sent just now
        self._met = self._sent
        self._last_try = self._last_success = now
        self._grow(incomplete)
        if incomplete:
            self.demand()
        return self._met

    def failed(self, now: float) -> int:
        """A request failed. Returns the highest demand that it should have met; the need remains."""
        highest = self._sent if self._sent > self._met else self._demanded
        self._sent = self._met = highest
        self._last_try = now
        self._grow(True)
        self.demand()
        return highest

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
