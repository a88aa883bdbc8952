"""Health of a job: the verdict that `status()`, `/healthz` and `/readyz` give.

The verdict is made from what the supervisor saw last (`LastSeen`) and how long ago that was, so it can also be made
while the supervisor hangs. A job is live while its supervisor looks at it. A live job is ready when it is running or
paused, its coordinator answers, its member is in the group and the broker acknowledges its heartbeats, and at least
one worker is ready. A pause that a user asked for and a rebalance during which heartbeats are acknowledged leave a
job ready. The first condition that fails is the reason, in one line.
"""

from __future__ import annotations

from msgspec import Struct

__all__ = ["LOOKS_S", "UNANSWERED_S", "Health", "LastSeen", "health"]

LOOKS_S = 10.0
"""Seconds without a look of the supervisor at its job after which the job isn't live."""
UNANSWERED_S = 3.0
"""Seconds without an answer of the coordinator after which the job isn't ready. The supervisor asks all the time, and
a coordinator answers within a second."""

_WORKS = frozenset({"running", "paused"})
_MEMBER = frozenset({"stable", "joining", "syncing", "revoking"})


class Health(Struct, frozen=True, kw_only=True):
    """Whether a job is live and ready, as `/healthz` and `/readyz` say. `reason`: why it isn't ready, in one line; empty
    where it is."""

    live: bool = False
    ready: bool = False
    reason: str = ""


class LastSeen(Struct, frozen=True, kw_only=True):
    """Observations of the supervisor from which the verdict is made. Moments are of one steady clock, in seconds.

    `state`: the job's, as in `JobStatus`; `why`: the reason why it failed or has not started yet. `coordinator`: whether
    a coordinator runs. `answered_at`: when it answered last, None for never; `member` and `heartbeat_age_s`: the state of
    the group's member in that answer, and the age that its last acknowledged heartbeat had then. `fatal`: the error that
    ended the member, empty if there is none.
    """

    looked_at: float
    state: str = "starting"
    why: str = ""
    coordinator: bool = False
    answered_at: float | None = None
    member: str = ""
    heartbeat_age_s: float | None = None
    fatal: str = ""
    session_timeout_s: float = 0.0
    workers_ready: int = 0


def health(seen: LastSeen, now: float) -> Health:
    """The verdict at the moment `now`, in seconds of the clock of `LastSeen`."""
    silent = now - seen.looked_at
    live = silent <= LOOKS_S
    reason = _not_ready(seen, now) if live else f"the supervisor has not looked at its job for {silent:.0f} s"
    return Health(live=live, ready=not reason, reason=reason)


def _not_ready(seen: LastSeen, now: float) -> str:
    """The reason why a live job isn't ready, in one line; empty where it is."""
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
