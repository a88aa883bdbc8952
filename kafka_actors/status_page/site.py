"""Which answer belongs to which path, out of what a job's supervisor put here last.

One thread puts (`look`), another answers; what is put is replaced as a whole, and a lock is held for as long as it takes to copy
a list.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import TYPE_CHECKING

import msgspec

from .assets import page
from .document import Document, Health
from .machines.building import About, document_of, totals_of
from .machines.health import Seen, health
from .machines.history import Moments
from .machines.http import BadRequest, Request, Response, plain
from .machines.rates import Rates

if TYPE_CHECKING:
    from kafka_actors.actors.status import JobStatus

__all__ = ["SLOW", "Exposition", "Site"]

JSON = "application/json"
SLOW = frozenset({"/metrics"})
"""Paths whose answers take a moment."""

Exposition = Callable[[str], tuple[bytes, str] | str]
"""Accept header → the metrics as text and its content type; or why there are none."""


class Site:
    """A job's page and what lies beside it. `clock`: steady seconds; `wall`: seconds since 1970."""

    def __init__(
        self,
        about: About,
        run: str,
        *,
        metrics: Exposition,
        clock: Callable[[], float],
        wall: Callable[[], float],
    ) -> None:
        self._about = about
        self._metrics = metrics
        self._clock = clock
        self._wall = wall
        self._rates = Rates()
        self._moments = Moments(run)
        self._lock = threading.Lock()
        self._seen = Seen(looked_at=clock(), session_timeout_s=about.session_timeout_s)
        self._document: Document | None = None
        self._paths: dict[str, Callable[[Request], Response]] = {
            "/": self._page,
            "/status.json": self._status,
            "/history.json": self._history,
            "/metrics": self._exposition,
            "/healthz": self._healthz,
            "/readyz": self._readyz,
        }

    # ------------------------------------------------------------ the supervisor's side

    def look(self, status: JobStatus, seen: Seen, *, fresh: bool) -> None:
        """The job now. `fresh`: its coordinator has answered since the last look; what is measured counts only then."""
        now, at_s = self._clock(), self._wall()
        pace = self._rates.observe(status, now) if fresh else None
        totals = totals_of(status, pace)
        silent = None if seen.answered_at is None else now - seen.answered_at
        document = document_of(
            status, totals, pace, self._about, health(seen, now), at_s=at_s, silent_s=silent
        )
        with self._lock:
            self._moments.add(totals if fresh else None, at_s)
            self._seen, self._document = seen, document

    # ------------------------------------------------------------ the clients' side

    def answer(self, request: Request) -> Response:
        """The response. Raises `BadRequest`."""
        found = self._paths.get(request.path)
        if found is None:
            return plain(404, f"there are {', '.join(self._paths)}")
        return found(request)

    def _page(self, request: Request) -> Response:
        whole = page()
        return Response(200, whole.html, "text/html; charset=utf-8", whole.policy)

    def _status(self, request: Request) -> Response:
        """As it was at the last look, but for the verdict, which is that of this moment."""
        with self._lock:
            document = self._document
        if document is None:
            return plain(503, "the job begins just now")
        now = msgspec.structs.replace(document, health=self._verdict())
        return Response(200, msgspec.json.encode(now), JSON)

    def _history(self, request: Request) -> Response:
        after = request.query.get("after", "0")
        if not (after.isascii() and after.isdigit() and len(after) < 16):
            raise BadRequest(400, "after: give the number of the last point that is known, as in ?after=17")
        with self._lock:
            history = self._moments.after(int(after))
        return Response(200, msgspec.json.encode(history), JSON)

    def _exposition(self, request: Request) -> Response:
        found = self._metrics(request.headers.get("accept", ""))
        return plain(501, found) if isinstance(found, str) else Response(200, *found)

    def _healthz(self, request: Request) -> Response:
        verdict = self._verdict()
        return plain(200, "live") if verdict.live else plain(503, verdict.reason)

    def _readyz(self, request: Request) -> Response:
        verdict = self._verdict()
        return plain(200, "ready") if verdict.ready else plain(503, verdict.reason)

    def _verdict(self) -> Health:
        with self._lock:
            return health(self._seen, self._clock())
