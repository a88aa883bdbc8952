"""HTML of the status page with its styles and scripts in it, and the policy that lets a browser run only these.

`page.html` names the files of styles and scripts in tags, in their order: a later style wins, and a script uses what
earlier ones define. All styles become one element, and all scripts one function, so that their names are not global. The
Content-Security-Policy has the hashes of both, so attributes such as `style=` and `onclick=` and other scripts have no
effect. Scripts may set `element.style.width`, and fetch `status.json` and `history.json`.
"""

from __future__ import annotations

import base64
import hashlib
import re
from collections.abc import Callable
from functools import lru_cache
from importlib import resources

from msgspec import Struct

__all__ = ["Page", "composed", "page"]


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
    whole = STYLES.replaced(html, f"<style>{css}</style>")
    whole = SCRIPTS.replaced(whole, f"<script>{js}</script>")
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


def _check(files: dict[str, str], *endings: str) -> None:
    for name, text in files.items():
        if any(ending in text.lower() for ending in endings):
            raise ValueError(f"{name} may not end the element that it is put into")


def _hash(text: str) -> str:
    return f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'"
