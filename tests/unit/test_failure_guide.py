"""The lines that the failure guide quotes are those that the code has: whoever searches for one finds it."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from kafka_actors import errors, events

ROOT = Path(__file__).parents[2]
PAGES = [
    ROOT / "docs" / name
    for name in ("failures.md", "how-to/secured-clusters.md", "how-to/backfill-then-live.md")
]
QUOTING = {"it says", "the reason says"}
"""Headings of columns that quote."""
CODE = re.compile(r"([A-Z_]+) \((\d+)\)")


def texts() -> Iterator[str]:
    """All texts in the package, docstrings apart; of an f-string the pieces between its values."""
    for file in sorted((ROOT / "kafka_actors").rglob("*.py")):
        tree = ast.parse(file.read_text())
        said = {node.value for node in ast.walk(tree) if isinstance(node, ast.Expr)}
        for node in ast.walk(tree):
            if isinstance(node, ast.Constant) and isinstance(node.value, str) and node not in said:
                yield node.value


def quoted(page: Path) -> Iterator[tuple[int, str]]:
    """Line and text of each piece of code in a column that quotes."""
    quoting = False
    for number, line in enumerate(page.read_text().splitlines(), 1):
        if not line.startswith("|"):
            quoting = False
            continue
        first = line.split("|")[1].strip()
        if quoting:
            yield from ((number, text) for text in re.findall(r"`([^`]+)`", first))
        quoting = quoting or first in QUOTING


@pytest.fixture(scope="module")
def package() -> str:
    return "\0".join(texts())


def is_said(text: str, package: str) -> bool:
    """`…` stands for a value; what is between has to be in the code as it stands here."""
    if code := CODE.fullmatch(text):
        known = errors.for_code(int(code[2]))
        return known is not None and known.name == code[1]
    if text in events.__all__:
        return True
    return all(piece in package for piece in text.split("…"))


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_the_code_says_what_the_guide_quotes(page: Path, package: str) -> None:
    found = list(quoted(page))
    assert len(found) >= 8
    assert [f"{page.name}:{number}: {text}" for number, text in found if not is_said(text, package)] == []


def test_a_line_that_nobody_says_is_noticed(package: str) -> None:
    assert is_said("died (…); a replacement starts", package)
    assert not is_said("died (…); a replacement begins", package)
    assert is_said("FENCED_INSTANCE_ID (82)", package)
    assert not is_said("FENCED_INSTANCE_ID (81)", package)
    assert not is_said("the chosen policy says so", package)
