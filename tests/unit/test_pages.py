"""How the documentation's code is found, and what of it can be told without running it."""

from __future__ import annotations

import re
from pathlib import Path
from xml.etree import ElementTree

import pytest
from pages import blocks
from pages.blocks import ROOT, Block, blocks_of, needs_of, pages, program_of, topics_of, variables_of
from pages.commands import SHELLS, commands_in, problems_of

SVG = "{http://www.w3.org/2000/svg}"

PAGE = """\
<!-- runs with: broker, ray -->

# A page

```python
servers = "localhost:9092"
```

<!--python
assert servers
-->

- in a list:

    ```python
    if servers:
        print(servers)
    ```

```python notest="needs a GPU"
import torch
```

```text
no = code
```
"""


def page(tmp_path: Path, text: str) -> Path:
    made = tmp_path / "page.md"
    made.write_text(text)
    return made


# ---------------------------------------------------------------- how it is found


def test_a_page_is_one_program_at_its_own_lines(tmp_path: Path) -> None:
    lines = program_of(page(tmp_path, PAGE), "127.0.0.1:4711").split("\n")
    assert {number: line for number, line in enumerate(lines, 1) if line} == {
        6: 'servers = "127.0.0.1:4711"',
        10: "assert servers",
        16: "if servers:",
        17: "    print(servers)",
    }


def test_what_is_left_out_says_why(tmp_path: Path) -> None:
    found = blocks_of(page(tmp_path, PAGE + "```python notest\nx\n```\n"))
    assert [(b.line, b.reason) for b in found if b.language == "python" and not b.runs] == [
        (21, "needs a GPU"),
        (28, ""),
    ]


def test_a_page_says_what_it_needs(tmp_path: Path) -> None:
    assert needs_of(page(tmp_path, PAGE)) == {"broker", "ray"}
    assert needs_of(page(tmp_path, "# Nothing\n")) == set()
    assert topics_of(page(tmp_path, "<!-- topics: orders, clicks:8 -->\n")) == {"orders": 4, "clicks": 8}
    assert topics_of(page(tmp_path, PAGE)) == {}
    with pytest.raises(ValueError, match="runs with \\['magic'\\]"):
        needs_of(page(tmp_path, "<!-- runs with: magic -->\n"))


def test_jars_and_other_versions_are_fetched_only_for_pages_that_need_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PYTHONPATH", "mine")
    monkeypatch.setattr(blocks, "connector_jars", lambda coordinates: ",".join(coordinates))
    monkeypatch.setattr(blocks, "pyspark_path", lambda version: Path("spark", version))
    monkeypatch.setattr(blocks, "spark_environment", lambda pyspark: {"SPARK_HOME": f"home of {pyspark}"})
    assert variables_of(page(tmp_path, PAGE)) == {"PYTHONPATH": f"{ROOT}:mine"}
    own = variables_of(page(tmp_path, "<!-- runs with: kafka, spark, connector -->\n"))
    assert own == {
        "PYTHONPATH": f"{ROOT}:mine",
        "PYSPARK_SUBMIT_ARGS": f"--jars {','.join(blocks.CONNECTOR)} pyspark-shell",
    }
    tables = variables_of(page(tmp_path, "<!-- runs with: kafka, spark, tables -->\n"))
    assert tables == {
        "SPARK_HOME": f"home of spark/{blocks.OLDEST_SPARK}/pyspark",
        "SPARK_SUBMIT_OPTS": "",
        "PYTHONPATH": f"{ROOT}:spark/{blocks.OLDEST_SPARK}:mine",
        "PYSPARK_SUBMIT_ARGS": f"--jars {','.join(blocks.TABLES)} pyspark-shell",
    }


def test_a_block_without_an_end_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"page\.md:2: this block doesn't end"):
        blocks_of(page(tmp_path, "```python\nx = 1\n"))


def test_commands_are_found_in_what_people_write() -> None:
    code = """\
$ KAFKA_ACTORS_WORKERS=4 .venv/bin/kafka-actors run orders.py:job \\
    --workers 8  # or more
cat > job.toml <<'END'
it's = "kafka"
END
kafka-actors lag --all-groups | head && make demo KAFKA=host:9092 > out.txt
echo "make or kafka-actors"
"""
    assert list(commands_in(code)) == [
        [".venv/bin/kafka-actors", "run", "orders.py:job", "--workers", "8"],
        ["kafka-actors", "lag", "--all-groups"],
        ["make", "demo", "KAFKA=host:9092"],
    ]


@pytest.mark.parametrize(
    ("line", "problem"),
    [
        ("kafka-actors run orders.py:job --workers 8 -X session_timeout_ms=30000", None),
        ("kafka-actors groups describe --group scorer --members", None),
        ("kafka-actors rum orders.py:job", "no such command 'rum'"),
        ("kafka-actors groups undo", "no such command 'undo'"),
        ("kafka-actors run orders.py:job --wrokers 8", "--wrokers"),
        ("make demo KAFKA=host:9092", None),
        ("make dmeo", "make has no target 'dmeo'"),
        ('pip install "kafka-actors[ray,testing]"', None),
        ('pip install "kafka-actors[rya]"', "there is no extra 'rya'"),
    ],
)
def test_a_command_that_is_not_there_is_a_problem(line: str, problem: str | None) -> None:
    found = problems_of(Block(Path("page.md"), 1, "sh", None, [line]))
    assert len(found) == (problem is not None)
    assert problem is None or problem in found[0]


# ---------------------------------------------------------------- what the pages have


ALL = [pytest.param(each, id=str(each.relative_to(ROOT))) for each in pages()]


@pytest.mark.parametrize("path", ALL)
def test_commands_of_a_page_are_there(path: Path) -> None:
    shells = [block for block in blocks_of(path) if block.language in SHELLS]
    assert [f"{block}: {problem}" for block in shells for problem in problems_of(block)] == []


@pytest.mark.parametrize("path", ALL)
def test_python_of_a_page_that_is_not_run_has_a_reason(path: Path) -> None:
    python = [block for block in blocks_of(path) if block.language == "python"]
    assert [str(block) for block in python if block.reason == ""] == []


@pytest.mark.parametrize("path", ALL)
def test_links_to_files_and_within_the_repository_are_good(path: Path) -> None:
    """Of the site's pages the build knows more; the README is no page of it."""
    links = re.findall(r"\]\((?!https?:|#)([^)#\s]+)", path.read_text())
    assert [link for link in links if not (path.parent / link).exists()] == []


PICTURES = sorted((ROOT / "docs").rglob("*.svg"))


@pytest.mark.parametrize("path", PICTURES, ids=lambda path: path.name)
def test_a_picture_has_words_for_who_does_not_see_it_and_loads_nothing(path: Path) -> None:
    root = ElementTree.parse(path).getroot()
    title, description = root.find(f"{SVG}title"), root.find(f"{SVG}desc")
    assert title is not None
    assert title.text
    assert description is not None
    assert len((description.text or "").split()) > 10
    assert root.get("role") == "img"
    assert (root.get("aria-labelledby") or "").split() == [title.get("id"), description.get("id")]
    assert not re.search(r"(?:href|src)=|url\((?!#)|@import", path.read_text())
    shown = re.compile(rf"!\[[^\]]{{20,}}\]\({re.escape(path.name)}\)")
    assert [each.name for each in path.parent.glob("*.md") if shown.search(each.read_text())], "not shown"
