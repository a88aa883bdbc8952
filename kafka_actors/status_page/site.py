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
from .document import Document, HealthView
from .machines.document_builder import JobFacts, document_of, totals_of
from .machines.health import LastSeen, health
from .machines.history import PlotHistory
from .machines.http import BadRequest, HttpRequest, HttpResponse, plain
from .machines.rates import RateWindow

if TYPE_CHECKING:
    from kafka_actors.job.status import JobStatus

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
        about: JobFacts,
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
        self._rates = RateWindow()
        self._moments = PlotHistory(run)
        self._lock = threading.Lock()
        self._seen = LastSeen(looked_at=clock(), session_timeout_s=about.session_timeout_s)
        self._document: Document | None = None
        self._paths: dict[str, Callable[[HttpRequest], HttpResponse]] = {
            "/": self._page,
            "/status.json": self._status,
            "/history.json": self._history,
            "/metrics": self._exposition,
            "/healthz": self._healthz,
            "/readyz": self._readyz,
        }

    # ------------------------------------------------------------ the supervisor's side

    def look(self, status: JobStatus, seen: LastSeen, *, fresh: bool) -> None:
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

    def answer(self, request: HttpRequest) -> HttpResponse:
        """The response. Raises `BadRequest`."""
        found = self._paths.get(request.path)
        if found is None:
            return plain(404, f"there are {', '.join(self._paths)}")
        return found(request)

    def _page(self, request: HttpRequest) -> HttpResponse:
        whole = page()
        return HttpResponse(200, whole.html, "text/html; charset=utf-8", whole.policy)

    def _status(self, request: HttpRequest) -> HttpResponse:
        """As it was at the last look, but for the verdict, which is that of this moment."""
        with self._lock:
            document = self._document
        if document is None:
            return plain(503, "the job begins just now")
        now = msgspec.structs.replace(document, health=self._verdict())
        return HttpResponse(200, msgspec.json.encode(now), JSON)

    def _history(self, request: HttpRequest) -> HttpResponse:
        after = request.query.get("after", "0")
        if not (after.isascii() and after.isdigit() and len(after) < 16):
            raise BadRequest(400, "after: give the number of the last point that is known, as in ?after=17")
        with self._lock:
            history = self._moments.after(int(after))
        return HttpResponse(200, msgspec.json.encode(history), JSON)

    def _exposition(self, request: HttpRequest) -> HttpResponse:
        found = self._metrics(request.headers.get("accept", ""))
        return plain(501, found) if isinstance(found, str) else HttpResponse(200, *found)

    def _healthz(self, request: HttpRequest) -> HttpResponse:
        verdict = self._verdict()
        return plain(200, "live") if verdict.live else plain(503, verdict.reason)

    def _readyz(self, request: HttpRequest) -> HttpResponse:
        verdict = self._verdict()
        return plain(200, "ready") if verdict.ready else plain(503, verdict.reason)

    def _verdict(self) -> HealthView:
        with self._lock:
            return health(self._seen, self._clock())
