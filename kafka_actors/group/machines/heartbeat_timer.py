"""Decides when to send a heartbeat, and whether the session with the coordinator is still valid.

The session is counted from the moment a request was *sent* that the coordinator then acknowledged: that is the
only time before which the coordinator is known to have restarted its own count. So this side always gives
up first, and a lease derived from it is safe.
"""

from __future__ import annotations

import math


class HeartbeatTimer:
    """Times of one member's heartbeats. All times are seconds of one monotonic clock."""

    def __init__(self, interval: float, session_timeout: float) -> None:
        self.interval = interval
        self.session_timeout = session_timeout
        self.acknowledged_at: float | None = None
        """When the last acknowledged request was sent; None before the first."""
        self.sent_at: float | None = None
        """When a heartbeat was last sent; None before the first."""
        self._base: float | None = None
        self._not_before = 0.0
        self.enabled = True
        """Whether heartbeats are sent at all."""

    def reset(self, now: float) -> None:
        """Begins a new session."""
        self._base = now

    def stop(self) -> None:
        """Ends the session."""
        self._base = self.acknowledged_at = None

    def sent(self, now: float) -> None:
        """Notes that a heartbeat goes out."""
        self.sent_at = now

    def acknowledged(self, sent_at: float) -> None:
        """Notes that the coordinator answered a request sent at `sent_at` as it does for a member it knows."""
        if self.acknowledged_at is None or sent_at > self.acknowledged_at:
            self.acknowledged_at = sent_at

    def postpone(self, until: float) -> None:
        """Allows no heartbeat before `until`: the last one failed."""
        self._not_before = until

    def due_at(self) -> float:
        """Returns when the next heartbeat should go out; in the past if it is late, infinite while disabled."""
        if not self.enabled:
            return math.inf
        last = max((t for t in (self.sent_at, self._base) if t is not None), default=None)
        return self._not_before if last is None else max(last + self.interval, self._not_before)

    def ttl(self, now: float) -> float:
        """Returns the seconds until the next heartbeat, 0 if it is due."""
        return max(0.0, self.due_at() - now)

    def expires_at(self) -> float | None:
        """Returns when the session ends unless something is acknowledged; None if there is no session."""
        last = max((t for t in (self.acknowledged_at, self._base) if t is not None), default=None)
        return None if last is None else last + self.session_timeout

    def session_expired(self, now: float) -> bool:
        """Returns whether the session has ended as far as this side can know."""
        expires = self.expires_at()
        return expires is not None and now >= expires
