"""Responses of a status page by path, made from the status that the job's supervisor put here last.

One thread puts a status (`look`), another answers requests. A status is replaced as a whole, and the lock between the
threads is held only while a list is copied.
"""

from __future__ import annotations

import threading
from collections.abc import Callable

import msgspec
from msgspec.structs import replace

from kafka_actors.job.machines.health import Health, LastSeen, health
from kafka_actors.job.status import JobStatus

from .assets import page
from .machines.history import PlotHistory
from .machines.http import BadRequest, HttpRequest, HttpResponse, plain

__all__ = ["SLOW", "Exposition", "Site"]

JSON = "application/json"
SLOW = frozenset({"/metrics"})
"""Paths whose responses take a moment to make."""

Exposition = Callable[[str], tuple[bytes, str] | str]
"""Takes an Accept header; returns the metrics as text with its content type, or why there are none."""


class Site:
    """The page of a job and the data, metrics and probes beside it. `run`: a text of this process alone, see `History`;
    `clock` gives steady seconds."""

    def __init__(self, run: str, *, metrics: Exposition, clock: Callable[[], float]) -> None:
        self._metrics = metrics
        self._clock = clock
        self._history = PlotHistory(run)
        self._lock = threading.Lock()
        self._seen = LastSeen(looked_at=clock())
        self._status: JobStatus | None = None
        self._paths: dict[str, Callable[[HttpRequest], HttpResponse]] = {
            "/": self._page,
            "/status.json": self._status_json,
            "/history.json": self._history_json,
            "/metrics": self._exposition,
            "/healthz": self._healthz,
            "/readyz": self._readyz,
        }

    # ------------------------------------------------------------ calls of the supervisor

    def look(self, status: JobStatus, seen: LastSeen) -> None:
        """Puts the job's status of this moment here, and adds it to the history: as a gap where the coordinator has not
        answered since the last look."""
        answered_before = None if self._status is None else self._status.answered_s
        with self._lock:
            self._history.add(status.totals if status.answered_s != answered_before else None, status.at_s)
            self._seen, self._status = seen, status

    # ------------------------------------------------------------ requests of clients

    def answer(self, request: HttpRequest) -> HttpResponse:
        """Response to a request. Raises `BadRequest`."""
        found = self._paths.get(request.path)
        if found is None:
            return plain(404, f"no such path: there are {', '.join(self._paths)}")
        return found(request)

    def _page(self, request: HttpRequest) -> HttpResponse:
        whole = page()
        return HttpResponse(200, whole.html, "text/html; charset=utf-8", whole.policy)

    def _status_json(self, request: HttpRequest) -> HttpResponse:
        """The status of the last look, with the verdict on its health of this moment."""
        with self._lock:
            status = self._status
        if status is None:
            return plain(503, "the job is about to start")
        return HttpResponse(200, msgspec.json.encode(replace(status, health=self._verdict())), JSON)

    def _history_json(self, request: HttpRequest) -> HttpResponse:
        after = request.query.get("after", "0")
        if not (after.isascii() and after.isdigit() and len(after) < 16):
            raise BadRequest(400, "after: give the number of the last point that you have, as in ?after=17")
        with self._lock:
            history = self._history.after(int(after))
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

    def _verdict(self) -> Health:
        with self._lock:
            return health(self._seen, self._clock())
