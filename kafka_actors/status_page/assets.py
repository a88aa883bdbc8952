"""The page itself: one HTML text with its style and scripts in it, and the policy that lets a browser run these alone.

`page.html` names `page.css` and the scripts by tags, so it can be looked at as files as well. The scripts stand there one
below the other, in the order in which each finds what it needs in those before it, and become one: a function, so that
none of their names are the browser's. The policy has the hashes of style and script: attributes `style=` and `onclick=`
in the HTML, and other scripts, do nothing. A script sets `element.style.width`, and asks for `status.json` and
`history.json`.
"""

from __future__ import annotations

import base64
import hashlib
import re
from collections.abc import Callable
from functools import lru_cache
from importlib import resources

from msgspec import Struct

__all__ = ["STYLE", "Page", "composed", "page"]

STYLE = '<link rel="stylesheet" href="page.css">'
_SCRIPT = re.compile(r'<script src="([a-z]+\.js)"></script>')
_SCRIPTS = re.compile(rf"{_SCRIPT.pattern}(?:\n{_SCRIPT.pattern})*")


class Page(Struct, frozen=True):
    """The page as it is sent. `policy`: its Content-Security-Policy."""

    html: bytes
    policy: str


@lru_cache(maxsize=1)
def page() -> Page:
    """The page of this package."""
    files = resources.files(__package__) / "assets"

    def text_of(name: str) -> str:
        return (files / name).read_text(encoding="utf-8")

    return composed(text_of("page.html"), text_of("page.css"), text_of)


def composed(html: str, css: str, script: Callable[[str], str]) -> Page:
    """Style and scripts in the places of their tags; `script` gives the text of a script by its name.

    Raises `ValueError` where that would not be what was written.
    """
    names = _SCRIPT.findall(html)
    once = len(names) == len(set(names)) == html.count("<script")
    if html.count(STYLE) != 1 or not once or len(_SCRIPTS.findall(html)) != 1:
        raise ValueError(
            f"page.html has to have {STYLE} once, and the tag of each script once, all in one place"
        )
    if "</style" in css.lower():
        raise ValueError("page.css may not end the element that it is put into")
    js = _joined({name: script(name) for name in names})
    whole = html.replace(STYLE, f"<style>{css}</style>")
    whole = _SCRIPTS.sub(lambda _: f"<script>{js}</script>", whole)
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


def _joined(scripts: dict[str, str]) -> str:
    for name, text in scripts.items():
        if "</script" in text.lower() or "<!--" in text:
            raise ValueError(f"{name} may not end the element that it is put into")
    parts = "\n".join(f"// {name}\n{text}" for name, text in scripts.items())
    return f"(() => {{\n{parts}\n}})();\n"


def _hash(text: str) -> str:
    return f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'"
