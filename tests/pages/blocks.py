"""The code in the pages of the documentation: which blocks there are, and which are left out for what reason.

A page's Python is one program: its blocks in order, each at the lines at which it stands, so that a traceback names the
lines of the page. Where the page says `localhost:9092`, the program has the address of the test's broker. In a page:

    <!-- runs with: kafka, ray -->      what it needs: `broker` (the embedded one), `kafka` (a real one), `ray`, `spark`,
                                        `connector` (Spark's own source), `tables` (a Spark with Delta and Iceberg),
                                        `faust`; `slow` leaves it to `make test-slow`
    <!-- topics: orders, clicks:8 -->   topics that are there when it begins, with 4 partitions unless it says otherwise
    ```python                           a block that runs
    ```python notest="needs a GPU"      a block that doesn't, and why
    <!--python                          lines that run and aren't shown, up to a line with --> alone
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path
from textwrap import dedent
from typing import NamedTuple

from spark_home import spark_environment

from kafka_actors.testing.distribution import locked
from kafka_actors.testing.spark import CONNECTOR, OLDEST_SPARK, connector_jars, pyspark_path

ROOT = Path(__file__).parents[2]
ADDRESS = "localhost:9092"
PARTITIONS = 4

FENCE = re.compile(r"^ *(?P<fence>`{3,})(?P<info>[^`]*)$")
NEEDS = re.compile(r"^<!-- runs with: (?P<words>[a-z, ]+) -->$", re.MULTILINE)
TOPICS = re.compile(r"^<!-- topics: (?P<topics>[^>]+) -->$", re.MULTILINE)
NOT_RUN = re.compile(r'\bnotest\b(?:="(?P<reason>[^"]*)")?')
HIDDEN = "<!--python"
KNOWN = {"broker", "kafka", "ray", "spark", "connector", "tables", "faust", "slow"}
FAUST = "faust-streaming==0.15.3"
TABLES = (
    *(f"io.delta:{name}:4.3.1" for name in ("delta-spark_4.1_2.13", "delta-storage")),
    *(f"io.delta:delta-kernel-{name}:4.3.1" for name in ("api", "defaults", "unitycatalog")),
    *(f"io.unitycatalog:unitycatalog-{name}:0.5.0" for name in ("client", "hadoop")),
    "org.apache.iceberg:iceberg-spark-runtime-4.1_2.13:1.11.0",
)
"""Maven coordinates of Delta and of Iceberg, for the oldest Spark that works here: there are none of both for a newer one."""


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


def variables_of(page: Path) -> dict[str, str]:
    """Environment variables by which its program finds what it needs; the first call for a need fetches it."""
    needs = needs_of(page)
    found = [str(ROOT), *([str(_faust_path())] if "faust" in needs else [])]
    variables = {}
    if "tables" in needs:
        oldest = pyspark_path(OLDEST_SPARK)
        found.append(str(oldest))
        variables = {"SPARK_SUBMIT_OPTS": "", **spark_environment(oldest / "pyspark")}
    variables["PYTHONPATH"] = os.pathsep.join([*found, os.environ.get("PYTHONPATH", "")]).rstrip(os.pathsep)
    if {"connector", "tables"} & needs:
        jars = connector_jars(TABLES if "tables" in needs else CONNECTOR)
        variables["PYSPARK_SUBMIT_ARGS"] = f"--jars {jars} pyspark-shell"
    return variables


def _faust_path() -> Path:
    """Returns a directory with Faust and all that it needs, to be put in front of `PYTHONPATH`: it wants an older click than this Python
    environment has, in which the first call installs the directory, with pip in half a minute."""
    home = Path(sys.prefix, FAUST.replace("==", "-"))
    with locked(home.with_name(f"{home.name}.lock")):
        if not (home / "faust").is_dir():
            pip = [sys.executable, "-m", "pip", "--disable-pip-version-check", "--quiet", "install"]
            subprocess.run([*pip, "--target", home, FAUST], check=True)
    return home
