"""Responses of a status page by path, made from the status that the job's supervisor put here last.

One thread puts a status (`look`), another answers requests. A status is replaced as a whole, and the lock between the
threads is held only while a list is copied.

The HTML of the page has its styles and scripts in it, and a policy lets a browser run only these. `page.html` names the
files of styles and scripts in tags, in their order: a later style wins, and a script uses what earlier ones define. All
styles become one element, and all scripts one function, so that their names are not global. The Content-Security-Policy
has the hashes of both, so attributes such as `style=` and `onclick=` and other scripts have no effect. Scripts may set
`element.style.width`, and fetch `status.json` and `history.json`.
"""

from __future__ import annotations

import base64
import hashlib
import re
import threading
from collections.abc import Callable
from functools import lru_cache
from importlib import resources

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from kafka_actors.job.machines.health import Health, LastSeen, health
from kafka_actors.job.status import JobStatus

from .machines.history import PlotHistory
from .machines.http import BadRequest, HttpRequest, HttpResponse, plain

__all__ = ["SLOW", "Exposition", "Page", "Site", "composed", "page"]


class _Tags(Struct, frozen=True):
    """Tags of `page.html` that name the files of a kind. `tag` matches a tag with its name; `opening` is in every tag of the kind."""

    tag: str
    opening: str

    def names(self, html: str) -> list[str]:
        found: list[str] = re.findall(self.tag, html)
        once = len(found) == len(set(found)) == html.count(self.opening)
        if not once or len(re.findall(self._all, html)) != 1:
            raise ValueError(
                "page.html has to have the tag of each style and of each script once, all of a kind in one place"
            )
        return found

    def replaced(self, html: str, by: str) -> str:
        return re.sub(self._all, lambda _: by, html)

    @property
    def _all(self) -> str:
        return rf"{self.tag}(?:\n{self.tag})*"


STYLES = _Tags(r'<link rel="stylesheet" href="([a-z]+\.css)">', "stylesheet")
SCRIPTS = _Tags(r'<script src="([a-z]+\.js)"></script>', "<script")


class Page(Struct, frozen=True):
    """HTML of the page, and its Content-Security-Policy."""

    html: bytes
    policy: str


@lru_cache(maxsize=1)
def page() -> Page:
    """Page made of the files of this package."""
    files = resources.files(__package__) / "assets"

    def text_of(name: str) -> str:
        return (files / name).read_text(encoding="utf-8")

    return composed(text_of("page.html"), text_of)


def composed(html: str, text_of: Callable[[str], str]) -> Page:
    """Page with styles and scripts in the places of their tags; `text_of` returns the text of a file by its name.

    Raises `ValueError` where a text would end the element that it is put into, and where tags are missing or scattered.
    """
    styles = {name: text_of(name) for name in STYLES.names(html)}
    scripts = {name: text_of(name) for name in SCRIPTS.names(html)}
    _check(styles, "</style")
    _check(scripts, "</script", "<!--")
    css = "\n".join(f"/* {name} */\n{text}" for name, text in styles.items())
    parts = "\n".join(f"// {name}\n{text}" for name, text in scripts.items())
    js = f"(() => {{\n{parts}\n}})();\n"
    page_text = STYLES.replaced(html, f"<style>{css}</style>")
    page_text = SCRIPTS.replaced(page_text, f"<script>{js}</script>")
    rules = (
        "default-src 'none'",
        f"script-src {_hash(js)}",
        f"style-src {_hash(css)}",
        "img-src data:",
        "connect-src 'self'",
        "base-uri 'none'",
        "form-action 'none'",
        "frame-ancestors 'none'",
    )
    return Page(page_text.encode(), "; ".join(rules))


def _check(files: dict[str, str], *endings: str) -> None:
    for name, text in files.items():
        if any(ending in text.lower() for ending in endings):
            raise ValueError(f"{name} may not end the element that it is put into")


def _hash(text: str) -> str:
    return f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'"


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
        page_text = page()
        return HttpResponse(200, page_text.html, "text/html; charset=utf-8", page_text.policy)

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
