"""Whether a job is well: what `/healthz` and `/readyz` say, decided from what was seen last and how long ago.

Live is a job whose supervisor looks at it. Ready is one that also works: it is in its group, its coordinator answers and is heard
by the broker, and there is a worker. A pause that somebody asked for, and a rebalance while heartbeats are
acknowledged, are no reasons.
"""

from __future__ import annotations

from msgspec import Struct

from kafka_actors.status_page.document import HealthView

__all__ = ["LOOKS_S", "UNANSWERED_S", "LastSeen", "health"]

LOOKS_S = 10.0
"""A supervisor that has not looked at its job for so long isn't live."""
UNANSWERED_S = 3.0
"""A coordinator that has not answered for so long isn't ready. The supervisor asks all the time, and is
answered after a second at most."""

_WORKS = frozenset({"running", "paused"})
_MEMBER = frozenset({"stable", "joining", "syncing", "revoking"})


class LastSeen(Struct, frozen=True, kw_only=True):
    """What the supervisor saw last. Moments are of one steady clock, in seconds.

    `state` and `why`: of the job, and why it failed or has not started yet. `coordinator`: whether there is one that has begun. `answered_at`: when it answered
    last, None for never; `member` and `heartbeat_age_s`: what it said then of the group's member, and of the last
    heartbeat that was acknowledged. `fatal`: what ended the member, empty if nothing did.
    """

    looked_at: float
    state: str = "starting"
    why: str = ""
    coordinator: bool = False
    answered_at: float | None = None
    member: str = ""
    heartbeat_age_s: float | None = None
    fatal: str = ""
    session_timeout_s: float
    workers_ready: int = 0


def health(seen: LastSeen, now: float) -> HealthView:
    """The verdict at this moment."""
    silent = now - seen.looked_at
    live = silent <= LOOKS_S
    reason = _not_ready(seen, now) if live else f"the supervisor has not looked at its job for {silent:.0f} s"
    return HealthView(live=live, ready=not reason, reason=reason)


def _not_ready(seen: LastSeen, now: float) -> str:
    """In one line; empty where it is ready."""
    if seen.state == "failed":
        return f"the job failed: {_line(seen.why)}"
    if seen.state not in _WORKS:
        waits = f": it waits for {_line(seen.why)}" if seen.state == "starting" and seen.why else ""
        return "the job has stopped" if seen.state == "stopped" else f"the job is {seen.state}{waits}"
    if seen.fatal:
        return f"the group's member has ended: {_line(seen.fatal)}"
    if not seen.coordinator:
        return "the coordinator is being replaced"
    if seen.answered_at is None:
        return "the coordinator has not answered yet"
    silent = now - seen.answered_at
    if silent > UNANSWERED_S:
        return f"the coordinator has not answered for {silent:.0f} s (limit {UNANSWERED_S:g} s)"
    return _not_in_group(seen, silent) or ("" if seen.workers_ready else "no worker is ready")


def _not_in_group(seen: LastSeen, silent: float) -> str:
    if seen.member not in _MEMBER:
        return f"the job is not in its group: its member is {seen.member or 'unknown'}"
    if seen.heartbeat_age_s is None:
        return "the group's coordinator has acknowledged no heartbeat yet"
    age = seen.heartbeat_age_s + silent
    if age > seen.session_timeout_s:
        return f"no heartbeat was acknowledged for {age:.0f} s: the session of {seen.session_timeout_s:g} s is over"
    return ""


def _line(text: str) -> str:
    return " ".join(text.split()) or "no reason is known"
