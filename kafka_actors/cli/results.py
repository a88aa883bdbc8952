"""Results on stdout: columns for people, JSON and YAML for programs."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Sequence
from typing import Any, TypeVar

import click
import msgspec

from .output import Output, encodes_all

__all__ = ["FORMS", "RECORD_FORMS", "columns", "form_option", "plain", "show", "to_yaml"]

F = TypeVar("F", bound=Callable[..., Any])

FORMS = ("text", "json", "yaml")
RECORD_FORMS = ("text", "json", "arrow", "parquet")
"""Forms of records, as `--output` of `consume` and `--input` of `produce` name them."""
NOT_KNOWN = "-"

# Scalars that are the same text in YAML 1.1 and 1.2, whoever reads them; all others are quoted.
_PLAIN = re.compile(r"[A-Za-z_/][A-Za-z0-9_./-]*")
_WORDS = {"true", "false", "yes", "no", "on", "off", "null", "y", "n"}


def form_option(help: str) -> Callable[[F], F]:  # noqa: A002  click's own name
    """Option `-o` of a command that answers with a document; its argument is called `form`."""
    return click.option(
        "-o",
        "--output",
        "form",
        type=click.Choice(FORMS),
        default="text",
        show_default=True,
        envvar="KAFKA_ACTORS_OUTPUT",
        help=help,
    )


def show(output: Output, form: str, text: Iterable[str], document: Any) -> None:
    """Prints the lines of `text`, or `document` (of Structs, dicts, lists and scalars) as JSON or YAML."""
    if form == "json":
        escaped = not encodes_all(output.console.file)
        lines: Iterable[str] = [json.dumps(plain(document), indent=2, ensure_ascii=escaped)]
    elif form == "yaml":
        lines = [to_yaml(plain(document))]
    else:
        lines = text
    for line in lines:
        # Not through rich: it would wrap lines and take ":100:" for an emoji.
        print(line, file=output.console.file)
    output.console.file.flush()


def plain(document: Any) -> Any:
    """Structs and named tuples as dicts, tuples as lists."""
    if isinstance(document, msgspec.Struct):
        return {name: plain(getattr(document, name)) for name in document.__struct_fields__}
    if isinstance(document, tuple) and hasattr(document, "_asdict"):
        return plain(document._asdict())
    if isinstance(document, dict):
        return {key: plain(value) for key, value in document.items()}
    return [plain(item) for item in document] if isinstance(document, (list, tuple)) else document


def columns(titles: Sequence[str], rows: Iterable[Sequence[Any]]) -> list[str]:
    """Lines with the columns below each other, as Kafka's tools print them; None is "-"."""
    table = [list(titles), *([NOT_KNOWN if cell is None else str(cell) for cell in row] for row in rows)]
    widths = [max(len(row[i]) for row in table) for i in range(len(titles))]
    return [
        "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()
        for row in table
    ]


def to_yaml(document: Any, depth: int = 0) -> str:
    """A document of dicts, lists and scalars in YAML's block style."""
    indent = "  " * depth
    if isinstance(document, dict) and document:
        return "\n".join(
            f"{indent}{_scalar(str(key))}:{_below(value, depth)}" for key, value in document.items()
        )
    if isinstance(document, list) and document:
        return "\n".join(f"{indent}-{_item(value, depth)}" for value in document)
    return indent + _scalar(document)


def _below(value: Any, depth: int) -> str:
    if isinstance(value, (dict, list)) and value:
        return "\n" + to_yaml(value, depth + 1)
    return " " + _scalar(value)


def _item(value: Any, depth: int) -> str:
    """An item begins on the line of its dash."""
    if isinstance(value, (dict, list)) and value:
        return " " + to_yaml(value, depth + 1).lstrip(" ")
    return " " + _scalar(value)


def _scalar(value: Any) -> str:
    if not isinstance(value, str):
        return json.dumps(value)
    if _PLAIN.fullmatch(value) and value.lower() not in _WORDS:
        return value
    return '"' + "".join(_in_quotes(c) for c in value) + '"'


def _in_quotes(character: str) -> str:
    if character in '"\\':
        return "\\" + character
    if character.isprintable():
        return character
    code = ord(character)
    return f"\\x{code:02X}" if code < 0x100 else f"\\u{code:04X}" if code < 0x10000 else f"\\U{code:08X}"
