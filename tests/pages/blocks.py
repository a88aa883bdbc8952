"""The code in the pages of the documentation: which blocks there are, and which are left out for what reason.

A page's Python is one program: its blocks in order, each at the lines at which it stands, so that a traceback names the
lines of the page. Where the page says `localhost:9092`, the program has the address of the test's broker. In a page:

    <!-- runs with: kafka, ray -->      what it needs: `broker` (the embedded one), `kafka` (a real one), `ray`, `spark`;
                                        `slow` leaves it to `make test-slow`
    <!-- topics: orders, clicks:8 -->   topics that are there when it begins, with 4 partitions unless it says otherwise
    ```python                           a block that runs
    ```python notest="needs a GPU"      a block that doesn't, and why
    <!--python                          lines that run and aren't shown, up to a line with --> alone
"""

from __future__ import annotations

import re
from pathlib import Path
from textwrap import dedent
from typing import NamedTuple

ROOT = Path(__file__).parents[2]
ADDRESS = "localhost:9092"
PARTITIONS = 4

FENCE = re.compile(r"^ *(?P<fence>`{3,})(?P<info>[^`]*)$")
NEEDS = re.compile(r"^<!-- runs with: (?P<words>[a-z, ]+) -->$", re.MULTILINE)
TOPICS = re.compile(r"^<!-- topics: (?P<topics>[^>]+) -->$", re.MULTILINE)
NOT_RUN = re.compile(r'\bnotest\b(?:="(?P<reason>[^"]*)")?')
HIDDEN = "<!--python"
KNOWN = {"broker", "kafka", "ray", "spark", "slow"}


class Block(NamedTuple):
    """One block. `line`: where its code begins, from 1; `reason`: why it is not run, None where it is."""

    page: Path
    line: int
    language: str
    reason: str | None
    lines: list[str]

    @property
    def code(self) -> str:
        return dedent("\n".join(self.lines))

    @property
    def runs(self) -> bool:
        return self.language == "python" and self.reason is None

    def __str__(self) -> str:
        return f"{self.page.name}:{self.line}"


def pages() -> list[Path]:
    """The README and all pages of the site."""
    return [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]


def blocks_of(page: Path) -> list[Block]:
    """Its blocks in order. Raises `ValueError` for one that doesn't end."""
    found: list[Block] = []
    end: str | None = None
    for number, line in enumerate(page.read_text().splitlines(), 1):
        if end is not None:
            if line.strip() == end:
                end = None
            else:
                found[-1].lines.append(line)
        elif line.strip() == HIDDEN:
            end = "-->"
            found.append(Block(page, number + 1, "python", None, []))
        elif opened := FENCE.match(line):
            end = opened["fence"]
            found.append(Block(page, number + 1, *_read(opened["info"]), []))
    if end is not None:
        raise ValueError(f"{found[-1]}: this block doesn't end")
    return found


def _read(info: str) -> tuple[str, str | None]:
    """The language, and why it isn't run: empty where no reason is given."""
    left_out = NOT_RUN.search(info)
    return next(iter(info.split()), ""), None if left_out is None else (left_out["reason"] or "").strip()


def needs_of(page: Path) -> set[str]:
    """Returns the needs of its program. Raises `ValueError` for a word that isn't known."""
    said = NEEDS.search(page.read_text())
    words = set() if said is None else set(re.split(r"[, ]+", said["words"].strip()))
    if words - KNOWN:
        raise ValueError(f"{page.name} runs with {sorted(words - KNOWN)}: accepts {sorted(KNOWN)}")
    return words


def topics_of(page: Path) -> dict[str, int]:
    """The topics that it finds, and how many partitions each has."""
    said = TOPICS.search(page.read_text())
    topics: dict[str, int] = {}
    for word in said["topics"].split(",") if said is not None else ():
        name, _, partitions = word.strip().partition(":")
        topics[name] = int(partitions or PARTITIONS)
    return topics


def program_of(page: Path, servers: str) -> str:
    """Its blocks as one program, line by line where they stand; empty where it has none that runs."""
    lines: list[str] = []
    for block in blocks_of(page):
        if block.runs:
            lines += [""] * (block.line - 1 - len(lines))
            lines += block.code.split("\n")
    return "\n".join(lines).replace(ADDRESS, servers)
