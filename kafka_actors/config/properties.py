"""Java's .properties files, as `java.util.Properties.load` reads them."""

from __future__ import annotations

import re

__all__ = ["parse_properties"]

_SEPARATOR = re.compile(r"(?:\\.|[^\\\s=:])*")
_ESCAPE = re.compile(r"\\(?:u([0-9A-Fa-f]{4})|(.))", re.DOTALL)
_ESCAPED = {"t": "\t", "n": "\n", "r": "\r", "f": "\f"}


def parse_properties(text: str) -> dict[str, str]:
    """Keys and values of a file: comments, continued lines, escapes."""
    found = {}
    for line in _logical_lines(text):
        end = _SEPARATOR.match(line)
        assert end is not None  # it matches the empty text
        key, rest = line[: end.end()], line[end.end() :].lstrip(" \t\f")
        value = rest[1:].lstrip(" \t\f") if rest[:1] in ("=", ":") and rest else rest
        found[_unescaped(key)] = _unescaped(value)
    return found


def _logical_lines(text: str) -> list[str]:
    lines: list[str] = []
    held = ""
    for raw in re.split(r"\r\n|\r|\n", text):
        line = raw.lstrip(" \t\f")
        if not held and line[:1] in ("", "#", "!"):
            continue
        held += line
        if (len(held) - len(held.rstrip("\\"))) % 2:
            held = held[:-1]
            continue
        lines.append(held)
        held = ""
    return lines + ([held] if held else [])


def _unescaped(text: str) -> str:
    return _ESCAPE.sub(lambda m: chr(int(m[1], 16)) if m[1] else _ESCAPED.get(m[2], m[2]), text)
