"""Paths and classes named in the maintainers' pages exist, so that whoever moves one learns which page names it."""

from __future__ import annotations

import builtins
import importlib
import re
import subprocess
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

from kafka_actors.protocol import ApiKey
from kafka_actors.telemetry.instruments import BY_NAME

ROOT = Path(__file__).parents[2]
PAGES = [
    ROOT / "ARCHITECTURE.md",
    ROOT / "CONTRIBUTING.md",
    *sorted((ROOT / "docs" / "development").glob("*.md")),
]
ROOTS = (ROOT, ROOT / "kafka_actors")
"""Directories to which a page's paths may be relative."""
MOST_LINES, MOST_CHARACTERS = 350, 140
"""Lines that ARCHITECTURE.md may have; a row of a table is one line."""
SOURCES = ("kafka_actors", "assignors", "tests", "benchmarks")

FOREIGN = {"K8sJobMode", "NamedTuple", "RayJob", "RecordBatch", "Struct", "TracerProvider"}
"""Names of other libraries and of Kubernetes that pages have."""
KAFKA_APIS = {"".join(word.capitalize() for word in key.name.split("_")) for key in ApiKey}
"""Names of Kafka's requests: `OffsetCommit`."""

_FENCED = re.compile(r"^( *)```.*?^\1```$", re.MULTILINE | re.DOTALL)
_CODE = re.compile(r"`([^`\n]+)`")
_PATH = re.compile(r"[\w.*-]+(?:/[\w.*-]+)*/?")
_FILE = re.compile(r"[\w-]+\.(?:py|pyx|pyi|md|toml|yml|yaml)")
_CLASS = re.compile(r"([A-Z]\w*[a-z]\w*)((?:\.\w+)*)(?:\(\))?")
_DOTTED = re.compile(r"(?:kafka_actors|assignors)(?:\.\w+)+")
_NAMED = re.compile(r"^ *(?:class|(?:async )?def) (\w+)|^(\w+)(?:: [^=\n]+)? = ", re.MULTILINE)
_DEFINED = re.compile(r"^ *class (\w+)|^([A-Z]\w*)(?:: TypeAlias)? = ", re.MULTILINE)


def names_in(text: str) -> Iterator[str]:
    """What stands in backticks, without code blocks."""
    for found in _CODE.finditer(_FENCED.sub("", text)):
        yield found[1]


def problem_of(name: str) -> str | None:
    """Why a name in backticks is wrong; None for one that exists, and for anything but a path, a class or a module."""
    if _DOTTED.fullmatch(name):
        return None if _is_there(name) else f"`{name}` is no module, class, metric or group of entry points"
    if _FILE.fullmatch(name) or ("/" in name and _PATH.fullmatch(name)):
        there = any(any(root.glob(name.rstrip("/"))) for root in ROOTS)
        return None if there else f"`{name}` is no path below the root or kafka_actors/"
    found = _CLASS.fullmatch(name)
    if found is None or found[1] in FOREIGN | KAFKA_APIS or hasattr(builtins, found[1]):
        return None
    texts = classes().get(found[1])
    if texts is None:
        return f"`{name}`: there is no class {found[1]}"
    attributes = found[2].split(".")[1:]
    known = all(any(re.search(rf"\b{attribute}\b", text) for text in texts) for attribute in attributes)
    return None if known else f"`{name}`: {found[1]} has no {found[2]}"


@cache
def classes() -> dict[str, list[str]]:
    """Class name → the texts of the files that define it."""
    found: dict[str, list[str]] = {}
    for folder in SOURCES:
        for path in (ROOT / folder).rglob("*.py"):
            text = path.read_text()
            for match in _DEFINED.finditer(text):
                found.setdefault(match[1] or match[2], []).append(text)
    return found


def _is_there(dotted: str) -> bool:
    if dotted in BY_NAME or f'entry-points."{dotted}"' in (ROOT / "pyproject.toml").read_text():
        return True
    module, _, attribute = dotted.rpartition(".")
    try:
        importlib.import_module(dotted)
    except ImportError:
        try:
            return hasattr(importlib.import_module(module), attribute)
        except ImportError:
            return False
    return True


def _rows(text: str) -> list[list[str]]:
    """Cells of a page's table, without its head."""
    return [line.strip("| ").split(" | ") for line in text.splitlines() if line.startswith("| `")]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_what_a_maintainers_page_names_exists(page: Path) -> None:
    problems = [problem for name in names_in(page.read_text()) if (problem := problem_of(name)) is not None]
    assert problems == []


RENAMES = ROOT / "docs" / "renames.md"
FIRST = "9480e03"
"""Commit whose names the page of renames begins with."""


def test_what_was_renamed_is_where_the_page_of_renames_says() -> None:
    now = [name for cells in _rows(RENAMES.read_text()) for name in names_in(cells[-1])]
    assert len(now) > 600
    assert [problem for name in now if (problem := _problem_of_rename(name))] == []


def _problem_of_rename(name: str) -> str | None:
    """Why there is no such file, class or function."""
    if "/" in name or _FILE.search(name):
        return problem_of(name)
    there = name.split(".")[0] in defined_names()
    return None if there else f"`{name}`: kafka_actors defines nothing of this name"


@cache
def defined_names() -> set[str]:
    """The classes, functions and constants of the product."""
    texts = [path.read_text() for path in (ROOT / "kafka_actors").rglob("*.py")]
    return {name for text in texts for found in _NAMED.findall(text) for name in found}


def test_all_that_was_renamed_is_on_the_page_of_renames() -> None:
    """Needs the first commits, which a shallow clone and an unpacked source distribution lack."""
    git = ["git", "-C", str(ROOT)]
    there = subprocess.run(
        [*git, "ls-tree", "-r", "--name-only", FIRST, "kafka_actors"], capture_output=True, text=True
    )
    if there.returncode:
        pytest.skip(f"no commit {FIRST} here")
    defined = subprocess.run(
        [*git, "grep", "-hoE", r"^class \w+", FIRST, "--", "*kafka_actors/*.py"],
        capture_output=True,
        text=True,
    )
    rows = [[next(names_in(cell), "") for cell in cells] for cells in _rows(RENAMES.read_text())]
    modules = {cells[0] for cells in rows if len(cells) == 2}
    before = {cells[1].split(".")[0] for cells in rows if len(cells) == 3}
    paths = [path for path in there.stdout.split() if path.endswith(".py") and not (ROOT / path).exists()]
    gone = set(defined.stdout.replace("class ", "").split()) - classes().keys()
    assert len(paths) > 200
    assert len(gone) > 100
    assert sorted(path for path in paths if path.removeprefix("kafka_actors/") not in modules) == []
    assert sorted(gone - before) == []


def test_the_architecture_can_be_read_at_one_sitting() -> None:
    lines = (ROOT / "ARCHITECTURE.md").read_text().splitlines()
    assert len(lines) <= MOST_LINES, "say it shorter, or in docs/development/"
    long = [number for number, line in enumerate(lines, 1) if len(line) > MOST_CHARACTERS and line[0] != "|"]
    assert long == [], f"lines of more than {MOST_CHARACTERS} characters"


@pytest.mark.parametrize(
    "name",
    [
        "kafka_actors/errors.py",
        "errors.py",
        "fetch/machines/",
        "tests/unit/test_*.py",
        "Placement",
        "Fetcher.where",
        "OffsetCommit",
        "kafka_actors.coordinator.ConsumerCoordinator",
        "kafka_actors.events",
        "kafka_actors.partition.blocked",
        "kafka_actors.engines",
        "make test",
        "group_id",
        "OTEL_SDK_DISABLED",
        "/healthz",
    ],
)
def test_a_name_that_exists_is_no_problem(name: str) -> None:
    assert problem_of(name) is None


@pytest.mark.parametrize(
    "name",
    [
        "kafka_actors/doorkeeper.py",
        "doorkeeper.py",
        "fetch/engines/",
        "Doorkeeper",
        "Fetcher.wherever",
        "kafka_actors.coordinator.Doorkeeper",
        "kafka_actors.doorkeeper",
    ],
)
def test_a_name_that_does_not_exist_is_told(name: str) -> None:
    problem = problem_of(name)
    assert problem is not None
    assert name.rpartition(".")[0] in problem


def test_blocks_of_code_are_left_out() -> None:
    assert list(names_in("`A`\n\n```python\n`B`\n```\n\n    ```\n    `C`\n    ```\n`d e`")) == ["A", "d e"]
