"""The lease: how long a worker may call the user's function and commit without hearing from the coordinator again.

Theory of operation. The group's broker evicts the job's member after a session timeout without heartbeats, and gives its
partitions to another member. A worker must have stopped by then, also one that is cut off. So each answer to a worker's poll
grants a lease of nine tenths of the session timeout, less the age of the last acknowledged heartbeat.

The age is counted from the moment the heartbeat was *sent*, and the worker counts its lease from the moment it *asked*. Both
are earlier than the moment on the broker's clock, so a lease ends before the session does, whatever the delays, and no clocks
of different machines are compared. A worker starts without a lease. A late answer never shortens a newer one.
"""

from __future__ import annotations

__all__ = ["Lease", "granted", "longest"]

MARGIN_SHARE = 0.1


def granted(now: float, acknowledged_sent_at: float | None, session_timeout_s: float) -> float:
    """Returns the seconds that the coordinator grants at `now`: 0 before the first acknowledged heartbeat, or after the
    session."""
    if acknowledged_sent_at is None:
        return 0.0
    return max(0.0, longest(session_timeout_s) - (now - acknowledged_sent_at))


def longest(session_timeout_s: float) -> float:
    """Returns the longest lease that is ever granted, in seconds."""
    return session_timeout_s * (1 - MARGIN_SHARE)


class Lease:
    """A worker's lease. Expired at first."""

    def __init__(self) -> None:
        self.until = float("-inf")

    def renew(self, polled_at: float, seconds: float) -> None:
        """Takes the lease in the answer to a poll that was sent at `polled_at`. An older lease never shortens a newer one."""
        self.until = max(self.until, polled_at + seconds) if seconds > 0 else self.until

    def valid(self, now: float) -> bool:
        return now < self.until

    def remaining(self, now: float) -> float:
        return max(0.0, self.until - now)

    def __repr__(self) -> str:
        return f"<Lease until {self.until:.3f}>"
