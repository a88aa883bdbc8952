"""The table of values in the chart's README, from values.yaml and its comments: `make docs-values`.

A comment that begins with `--` is the meaning of the key below it, and of all that is below that.
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import yaml

CHART = Path(__file__).parents[2] / "helm" / "kafka-actors"
BEGIN, END = "<!-- values: make docs-values -->", "<!-- end of values -->"
_KEY = re.compile(r"^( *)([A-Za-z]\w*):")


class Value(NamedTuple):
    path: str
    default: Any
    meaning: str


def values(text: str) -> list[Value]:
    """The values that have a meaning, in their order."""
    found: list[Value] = []
    defaults = yaml.safe_load(text)
    path: list[tuple[int, str]] = []
    meaning: list[str] = []
    for line in text.splitlines():
        stripped = line.strip()
        if stripped.startswith("# -- "):
            meaning = [stripped[5:]]
        elif stripped.startswith("#") and meaning:
            meaning.append(stripped[1:].strip())
        elif (key := _KEY.match(line)) is not None:
            indent = len(key[1])
            path = [*(each for each in path if each[0] < indent), (indent, key[2])]
            names = [name for _, name in path]
            if meaning:
                found.append(Value(".".join(names), _at(defaults, names), " ".join(meaning)))
            meaning = []
        else:
            meaning = []
    return found


def leaves(defaults: Any, path: str = "") -> Iterator[str]:
    """Paths of all values that aren't tables, or empty ones."""
    if isinstance(defaults, dict) and defaults:
        for key, value in defaults.items():
            yield from leaves(value, f"{path}.{key}" if path else key)
    else:
        yield path


def _at(defaults: Any, names: list[str]) -> Any:
    for name in names:
        defaults = defaults[name]
    return defaults


def table(text: str) -> str:
    rows = ["| value | default | |", "|---|---|---|"]
    rows += [
        f"| `{v.path}` | {_written(v.default)} | {v.meaning.replace('|', chr(92) + '|')} |"
        for v in values(text)
    ]
    return "\n".join(rows)


def _written(default: Any) -> str:
    if default is None or default == "":
        return ""
    text = default if isinstance(default, str) else json.dumps(default)
    return f"`{text}`"


def page(readme: str, text: str) -> str:
    """The README with the table in its place."""
    before, _, rest = readme.partition(BEGIN)
    _, _, after = rest.partition(END)
    return f"{before}{BEGIN}\n\n{table(text)}\n\n{END}{after}"


def main() -> int:
    readme = CHART / "README.md"
    readme.write_text(page(readme.read_text(), (CHART / "values.yaml").read_text()))
    return 0


if __name__ == "__main__":
    sys.exit(main())
