"""The page itself: one HTML text with its style and script in it, and the policy that lets a browser run these and nothing else.

`page.html` names `page.css` and `page.js` by the two tags below, so it can be looked at as files as well. The policy has the
hashes of both: attributes `style=` and `onclick=` in the HTML, and other scripts, do nothing. A script sets
`element.style.width`, and asks for `status.json` and `history.json`.
"""

from __future__ import annotations

import base64
import hashlib
from functools import lru_cache
from importlib import resources

from msgspec import Struct

__all__ = ["SCRIPT", "STYLE", "Page", "composed", "page"]

STYLE = '<link rel="stylesheet" href="page.css">'
SCRIPT = '<script src="page.js"></script>'


class Page(Struct, frozen=True):
    """The page as it is sent. `policy`: its Content-Security-Policy."""

    html: bytes
    policy: str


@lru_cache(maxsize=1)
def page() -> Page:
    """The page of this package."""
    files = resources.files(__package__) / "assets"
    html, css, js = ((files / f"page.{kind}").read_text(encoding="utf-8") for kind in ("html", "css", "js"))
    return composed(html, css, js)


def composed(html: str, css: str, js: str) -> Page:
    """Style and script in the places of their tags. Raises `ValueError` where that would not be what was written."""
    if html.count(STYLE) != 1 or html.count(SCRIPT) != 1:
        raise ValueError(f"page.html has to have {STYLE} and {SCRIPT} once each")
    if "</style" in css.lower() or "</script" in js.lower() or "<!--" in js:
        raise ValueError("page.css and page.js may not end the element that they are put into")
    whole = html.replace(STYLE, f"<style>{css}</style>").replace(SCRIPT, f"<script>{js}</script>")
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
    return Page(whole.encode(), "; ".join(rules))


def _hash(text: str) -> str:
    return f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'"
