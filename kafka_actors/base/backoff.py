"""Exponential backoff with jitter (KIP-580) between retries, and request timeouts that grow."""

from __future__ import annotations

from collections.abc import Callable

from msgspec import Struct

from kafka_actors.errors import ConfigError

JITTER = 0.2
"""Jitter of Java's client and of librdkafka: ±20 %, so that clients don't retry in step."""

CALL_BACKOFF_S = 0.1
"""Seconds before a user's function that failed is called again; they double with each failure up to `CALL_BACKOFF_MAX_S`."""
CALL_BACKOFF_MAX_S = 2.0

_MAX_DOUBLINGS = 40
MAX_MULTIPLIER = 100.0


def exponential_backoff(
    failures: int,
    initial: float,
    maximum: float,
    rand: Callable[[], float] | None = None,
    *,
    multiplier: float = 2.0,
    jitter: float = JITTER,
) -> float:
    """Returns the pause after `failures` failures in a row, in the unit of `initial`; 0 for no failure.

    It is `initial` after the first and grows by `multiplier` up to `maximum`, which also limits `initial` (KIP-580). `rand` gives
    0..1 for the jitter, by default ±20 %, which comes on top of the maximum; without `rand` there is none.
    """
    if failures <= 0:
        return 0.0
    pause = min(initial * multiplier ** min(failures - 1, _MAX_DOUBLINGS), maximum)
    return pause if rand is None else pause * (1 - jitter + 2 * jitter * rand())


class Backoff(Struct, frozen=True):
    """Waits before a call of the user's function that failed is made again, for `Job(retry_backoff=…)`.

        ka.Backoff(initial_ms=1_000, max_ms=30_000)        # 1, 2, 4, 8, 16, 30, 30 … seconds

    The wait is `initial_ms` after the first failure and `multiplier` times as long after each further one, up to `max_ms`. `jitter`: the share
    by which each is longer or shorter at random, 0.2 for ±20 %. Raises `ConfigError`.
    """

    initial_ms: float = CALL_BACKOFF_S * 1000
    max_ms: float = CALL_BACKOFF_MAX_S * 1000
    multiplier: float = 2.0
    jitter: float = 0.0

    def __post_init__(self) -> None:
        checks = (
            ("initial_ms", self.initial_ms, self.initial_ms > 0, "more than 0"),
            ("max_ms", self.max_ms, self.max_ms >= self.initial_ms, f"at least initial_ms, {self.initial_ms:g}"),
            ("multiplier", self.multiplier, 1 <= self.multiplier <= MAX_MULTIPLIER, f"1 to {MAX_MULTIPLIER:g}"),
            ("jitter", self.jitter, 0 <= self.jitter < 1, "0 or more, and less than 1"),
        )  # fmt: skip
        for name, value, holds, accepted in checks:
            if not holds:
                raise ConfigError("retry_backoff", f"{name} is {value!r}: accepts {accepted}")

    def wait_s(self, failures: int, rand: Callable[[], float]) -> float:
        """Seconds to wait after so many failures in a row. `rand` gives 0..1."""
        initial, maximum = self.initial_ms / 1000, self.max_ms / 1000
        return exponential_backoff(
            failures, initial, maximum, rand, multiplier=self.multiplier, jitter=self.jitter
        )

    def longest_s(self, failures: int) -> float:
        """The most seconds that are waited after the first `failures` failures together."""
        return sum(self.wait_s(number, lambda: 1.0) for number in range(1, failures + 1))


class RetryTimer:
    """Counts the failures in a row of one host or one kind of request, and says when the next try may be made.

    Times are seconds; `initial`, `maximum` and `rand` are those of `exponential_backoff`.
    """

    def __init__(self, initial: float, maximum: float, rand: Callable[[], float] | None = None) -> None:
        self._initial = initial
        self._maximum = maximum
        self._rand = rand
        self.failures = 0
        """Failures since the last success."""
        self._until = 0.0

    def failed(self, now: float) -> float:
        """Counts a failure at `now`. Returns the seconds until the next try."""
        self.failures += 1
        pause = exponential_backoff(self.failures, self._initial, self._maximum, self._rand)
        self._until = now + pause
        return pause

    def succeeded(self) -> None:
        """Resets the count."""
        self.failures = 0
        self._until = 0.0

    def remaining(self, now: float) -> float:
        """Seconds until the next try; 0 if it may be made now."""
        return max(self._until - now, 0.0) if self.failures else 0.0


class GrowingTimeout:
    """Request timeout in seconds: `usual`, doubled after each request that timed out, up to `longest`.

    So a frozen broker is detected early, and a slow one gets enough time in the end.
    """

    def __init__(self, usual: float, longest: float) -> None:
        self.seconds = self._usual = min(usual, longest)
        self._longest = longest

    def unanswered(self) -> None:
        """Doubles the timeout, after a request that timed out."""
        self.seconds = min(self._longest, 2 * self.seconds)

    def answered(self, took: float) -> None:
        """Resets the timeout to the usual one if a response came within that, after `took` seconds."""
        if took < self._usual:
            self.seconds = self._usual
