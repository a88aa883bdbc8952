"""`${env:NAME}` and `${file:path:key}` in the values of options, as Kafka's own config providers have them (KIP-297,
KIP-421, KIP-887)."""

from __future__ import annotations

import os
import re
from pathlib import Path

from kafka_actors.errors import ConfigError

from .properties import parse_properties

__all__ = ["refers", "resolve"]

_REFERENCE = re.compile(r"\$\{([^}:]*):(?:([^}]*):)?([^}:]*)\}")


def refers(text: str) -> bool:
    """Whether there is a reference in it."""
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
        return values[key]
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
