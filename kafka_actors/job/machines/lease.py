"""The lease: how long a worker may work without hearing from the coordinator again.

The broker evicts the member when it has had no heartbeat for the session timeout. Time is counted from the
moment the last acknowledged heartbeat was *sent*, and by the worker from the moment it *asked*: both are
earlier than the broker's own moment, so a lease ends before the session does whatever the delays, and no
clocks are compared between machines.
"""

from __future__ import annotations

__all__ = ["Lease", "granted", "longest"]

MARGIN_SHARE = 0.1


def granted(now: float, acknowledged_sent_at: float | None, session_timeout_s: float) -> float:
    """Seconds the coordinator grants at `now`; 0 before the first acknowledged heartbeat or past the session."""
    if acknowledged_sent_at is None:
        return 0.0
    return max(0.0, longest(session_timeout_s) - (now - acknowledged_sent_at))


def longest(session_timeout_s: float) -> float:
    """Seconds for which any lease is granted at most."""
    return session_timeout_s * (1 - MARGIN_SHARE)


class Lease:
    """The worker's side. Starts expired."""

    def __init__(self) -> None:
        self.until = float("-inf")

    def renew(self, asked_at: float, seconds: float) -> None:
        """An answer to what was asked at `asked_at`. An answer that comes late can't shorten a newer one."""
        self.until = max(self.until, asked_at + seconds) if seconds > 0 else self.until

    def valid(self, now: float) -> bool:
        return now < self.until

    def remaining(self, now: float) -> float:
        return max(0.0, self.until - now)

    def __repr__(self) -> str:
        return f"<Lease until {self.until:.3f}>"
