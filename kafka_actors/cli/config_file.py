"""Files of options: TOML, and Kafka's .properties.

Names are those of `kafka_actors.options` with underscores or dots, or Java's, as `kafka_actors.config.java` reads
them. A dotted name is what it looks like in both kinds of file, though TOML makes tables of it: `session.timeout.ms`,
`[sasl]` with `mechanism`, and `sasl_mechanism` are options all the same.
"""

from __future__ import annotations

import tomllib
from collections.abc import Collection, Iterator, Mapping
from pathlib import Path
from typing import Any

from kafka_actors.config.references import parse_properties
from kafka_actors.errors import ConfigError, UsageError

__all__ = ["parse_toml", "read_config_file"]


def read_config_file(flag: str, path: str, known: Collection[str]) -> dict[str, Any]:
    """The options of the file that was given with `flag`, as they stand there, by their names with underscores.

    `known`: names whose value may be a table. Raises `UsageError` for a file that can't be read, `ConfigError` for an
    option that is there under two names.
    """
    try:
        text = Path(path).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(f"{flag} {path}: {error}") from None
    if path.lower().endswith(".toml"):
        try:
            return parse_toml(text, known)
        except tomllib.TOMLDecodeError as error:
            raise UsageError(f"{flag} {path}: is no TOML: {error}") from None
    return _by_name((key, value) for key, value in parse_properties(text).items())


def parse_toml(text: str, known: Collection[str]) -> dict[str, Any]:
    """The options of a text in TOML. Numbers and truth values become text, which is what .properties have.

    Raises `tomllib.TOMLDecodeError`, and `ConfigError` for an option that is there under two names.
    """
    return _by_name(_flat(tomllib.loads(text), "", known))


def _flat(table: Mapping[str, Any], prefix: str, known: Collection[str]) -> Iterator[tuple[str, Any]]:
    for key, value in table.items():
        name = prefix + key
        if isinstance(value, dict) and name.replace(".", "_") not in known:
            yield from _flat(value, name + ".", known)
        else:
            yield name, _text(value)


def _text(value: Any) -> Any:
    if isinstance(value, bool):
        return str(value).lower()
    return str(value) if isinstance(value, int | float) else value


def _by_name(options: Iterator[tuple[str, Any]]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for key, value in options:
        name = key.replace(".", "_")
        if name in found:
            raise ConfigError(name, "is there twice, with dots and with underscores")
        found[name] = value
    return found
