"""For mkdocs: takes out of a page what only the tests of its code read (tests/pages/blocks.py)."""

from __future__ import annotations

import re
from typing import Any

FOR_TESTS = re.compile(
    r'^<!--(?:python$.*?| (?:runs with|topics): .*?)-->\n| +notest="[^"]*"', re.MULTILINE | re.DOTALL
)


def on_page_markdown(markdown: str, **_: Any) -> str:
    """The page without hidden code, without what it runs with, and without the reasons for what isn't run."""
    return FOR_TESTS.sub("", markdown)
