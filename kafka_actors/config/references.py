"""References in the values of options, such as `${env:NAME}` and `${file:path:key}`, as Kafka's own config providers have them
(KIP-297, KIP-421, KIP-887); and Java's .properties files, to which they lead."""

from __future__ import annotations

import os
import re
from pathlib import Path

from kafka_actors.errors import ConfigError

__all__ = ["parse_properties", "refers", "resolve", "trimmed"]

_REFERENCE = re.compile(r"\$\{([^}:]*):(?:([^}]*):)?([^}:]*)\}")
_SEPARATOR = re.compile(r"(?:\\.|[^\\\s=:])*")
_ESCAPE = re.compile(r"\\(?:u([0-9A-Fa-f]{4})|(.))", re.DOTALL)
_BLANKS = "".join(map(chr, range(33)))
"""Characters that `String.trim` takes away."""
_ESCAPED = {"t": "\t", "n": "\n", "r": "\r", "f": "\f"}


def refers(text: str) -> bool:
    """Whether a text has a reference in it."""
    return _REFERENCE.search(text) is not None


def resolve(option: str, text: str) -> str:
    """The text with every reference replaced: `${env:NAME}` by a variable of this process's environment,
    `${file:path:key}` by a value of a .properties file, `${file:path}` by a whole file, and
    `${directory:path:name}` by that file in a directory; a line's end at the end of a file isn't part of it.

    Raises `ConfigError` about `option` where there is no such variable, file or key; it shows no value.
    """
    return _REFERENCE.sub(lambda match: _value(option, match), text)


def _value(option: str, match: re.Match[str]) -> str:
    provider, path, key = match[1], match[2], match[3]
    if provider == "env" and not path:
        value = os.environ.get(key)
        if value is None:
            raise ConfigError(option, f"refers to {match[0]}: there is no such variable here")
        return value
    if provider == "file" and path is None:
        return _text(option, match[0], key).removesuffix("\n").removesuffix("\r")
    if provider == "file":
        values = parse_properties(_text(option, match[0], str(path)))
        if key not in values:
            raise ConfigError(option, f"refers to {match[0]}: the file has no such key")
        return trimmed(values[key])
    if provider == "directory" and path is not None:
        name = os.path.join(path, os.path.basename(key))
        return _text(option, match[0], name).removesuffix("\n").removesuffix("\r")
    raise ConfigError(
        option,
        f"refers to {match[0]}: there are ${{env:NAME}}, ${{file:path:key}}, ${{file:path}} and "
        "${directory:path:name}",
    )


def _text(option: str, reference: str, path: str) -> str:
    try:
        return Path(path).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        reason = getattr(error, "strerror", None) or "not UTF-8"
        raise ConfigError(option, f"refers to {reference}: {reason}") from None


# ---------------------------------------------------------------- .properties files


def parse_properties(text: str) -> dict[str, str]:
    """Keys and values of a .properties file, as `java.util.Properties.load` reads it: comments, continued lines, escapes."""
    found = {}
    for line in _logical_lines(text):
        end = _SEPARATOR.match(line)
        assert end is not None  # it matches the empty text
        key, rest = line[: end.end()], line[end.end() :].lstrip(" \t\f")
        value = rest[1:].lstrip(" \t\f") if rest[:1] in ("=", ":") and rest else rest
        found[_unescaped(key)] = _unescaped(value)
    return found


def trimmed(text: str) -> str:
    """The text without blanks around it, as Java's clients take the value of an option: `.properties` keeps those at the end of a line."""
    return text.strip(_BLANKS)


def _logical_lines(text: str) -> list[str]:
    """The lines without comments; a line that ends with a backslash goes on in the next."""
    lines: list[str] = []
    begun = ""
    for raw in re.split(r"\r\n|\r|\n", text):
        line = raw.lstrip(" \t\f")
        if not begun and line[:1] in ("", "#", "!"):
            continue
        begun += line
        if (len(begun) - len(begun.rstrip("\\"))) % 2:
            begun = begun[:-1]
            continue
        lines.append(begun)
        begun = ""
    return lines + ([begun] if begun else [])


def _unescaped(text: str) -> str:
    return _ESCAPE.sub(lambda m: chr(int(m[1], 16)) if m[1] else _ESCAPED.get(m[2], m[2]), text)
