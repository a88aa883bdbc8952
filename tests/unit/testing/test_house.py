"""Rules of the house that no linter of ours knows."""

import ast
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
WALL_CLOCKS = {
    ("time", "time"),
    ("time", "time_ns"),
    ("datetime", "now"),
    ("datetime", "utcnow"),
    ("datetime", "today"),
}
MARK = "# wall clock:"


def _wall_clock_calls(source: str) -> list[int]:
    """Lines that read the wall clock, by attribute or by imported name, without a `# wall clock: why` beside them."""
    lines = source.splitlines()
    found = set()
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name | ast.Attribute):
            owner = node.value.id if isinstance(node.value, ast.Name) else node.value.attr
            if (owner, node.attr) in WALL_CLOCKS:
                found.add(node.lineno)
        elif isinstance(node, ast.ImportFrom) and node.module == "time":
            found |= {node.lineno for name in node.names if ("time", name.name) in WALL_CLOCKS}
    return sorted(line for line in found if MARK not in lines[line - 1])


@pytest.mark.parametrize("package", ["kafka_actors", "assignors"])
def test_the_core_measures_time_by_the_monotonic_clock_only(package: str) -> None:
    offenders = [
        f"{path.relative_to(ROOT)}:{line}"
        for path in sorted((ROOT / package).rglob("*.py"))
        for line in _wall_clock_calls(path.read_text())
    ]
    assert offenders == [], "time.time() jumps with the system clock: use time.monotonic(), or say why not"


@pytest.mark.parametrize(
    ("source", "lines"),
    [
        ("import time\nx = time.time()", [2]),
        ("import time\nx = time.monotonic()", []),
        ("from time import time\n", [1]),
        ("from time import monotonic, time_ns\n", [1]),
        ("import datetime\nx = datetime.datetime.now()", [2]),
        ("clock = time.time\n", [1]),
        ("now = time.time()  # wall clock: record timestamps are times of day\n", []),
    ],
)
def test_readings_of_the_wall_clock_are_found(source: str, lines: list[int]) -> None:
    assert _wall_clock_calls(source) == lines
