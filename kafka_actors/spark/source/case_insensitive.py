"""Options as Spark passes them: case-insensitive names in lower case, values as text.

`CaseInsensitiveOptions` has them by their documented names, and refuses unknown ones.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable, Mapping

from kafka_actors.errors import ConfigError

KAFKA = "kafka."
"""Prefix of the options of the Kafka client."""

INT_MAX = 2**31 - 1
LONG_MAX = 2**63 - 1

# Options that Spark's catalog adds to those of a table (CREATE TABLE … USING kafka_actors), which it also repeats under
# a prefix; and options that Spark passes to a streaming write.
_OF_TABLE_OPTIONS = "option."
_OF_SPARK = frozenset(
    {
        "checkpointlocation",
        "collation",
        "comment",
        "external",
        "is_managed_location",
        "location",
        "owner",
        "provider",
        "queryname",
    }
)
# Options that name topics elsewhere: in the other direction, or in `.load(path)` and `.save(path)`.
_OF_TOPICS = ("path", "topic", "topics", "subscribe")
_UNITS_MS = {"us": 0.001, "ms": 1, "s": 1_000, "m": 60_000, "min": 60_000, "h": 3_600_000, "d": 86_400_000}


class CaseInsensitiveOptions:
    """Options by documented name. Raises `ConfigError` for one that is not among `names`."""

    def __init__(self, options: Mapping[str, str], names: Iterable[str]) -> None:
        documented = {name.lower(): name for name in names}
        self.kafka: dict[str, str] = {}
        """Options of the Kafka client, with their prefix."""
        self._own: dict[str, str] = {}
        for name, value in options.items():
            lower = name.lower().removeprefix(_OF_TABLE_OPTIONS)
            if lower.startswith(KAFKA):
                self.kafka[lower] = value
            elif lower in documented:
                self._own[documented[lower]] = value
            elif lower not in _OF_SPARK:
                raise ConfigError(name, "is not an option" + _suggestion(lower, documented))

    def present(self, names: Iterable[str]) -> list[str]:
        """The names among these that have a value."""
        return [name for name in names if name in self._own]

    def text(self, name: str) -> str | None:
        """The stripped value, None for a missing option."""
        value = self._own.get(name)
        return None if value is None else value.strip()

    def boolean(self, name: str, default: bool) -> bool:
        """A boolean. Raises `ConfigError` for another value."""
        return self.choice(name, ("true", "false"), str(default).lower()) == "true"

    def choice(self, name: str, accepted: tuple[str, ...], default: str) -> str:
        """Returns one of the `accepted` words, in lower case. Raises `ConfigError` for another value."""
        text = self.text(name)
        value = default if text is None else text.lower()
        if value not in accepted:
            listed = " or ".join(repr(choice) for choice in accepted)
            raise ConfigError(name, f"is {self._own[name]!r}: accepts {listed}")
        return value

    def number(self, name: str, default: int | None, lowest: int, highest: int) -> int | None:
        """A whole number between these bounds. Raises `ConfigError` for another value."""
        text = self.text(name)
        if text is None:
            return default
        if not re.fullmatch(r"[+-]?[0-9]{1,19}", text) or not lowest <= int(text) <= highest:
            raise ConfigError(name, f"is {text!r}: accepts a whole number from {lowest} to {highest}")
        return int(text)

    def duration_ms(self, name: str, default: int) -> int:
        """A duration as Spark's settings have them, such as 500ms or 15m; without a unit milliseconds.

        Raises `ConfigError` for another value.
        """
        text = self.text(name)
        if text is None:
            return default
        match = re.fullmatch(r"([0-9]{1,18})\s*([a-z]*)", text.lower())
        unit = _UNITS_MS.get(match[2] or "ms") if match else None
        if match is None or unit is None:
            raise ConfigError(
                name, f"is {text!r}: accepts a duration such as 500ms, 30s or 15m (us, ms, s, m, min, h, d)"
            )
        return int(int(match[1]) * unit)


def _suggestion(name: str, documented: Mapping[str, str]) -> str:
    if name in _OF_TOPICS:
        return f"; topics are named by {'subscribe' if 'subscribe' in documented else 'topic'}"
    if (guess := difflib.get_close_matches(name, documented, n=1)) and guess[0] != name:
        return f"; did you mean {documented[guess[0]]!r}?"
    return f"; options of the Kafka client start with {KAFKA!r}" if "." in name else ""
