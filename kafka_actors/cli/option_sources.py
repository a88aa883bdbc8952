"""Sources of options: the command line wins over `KAFKA_ACTORS_*` in the environment, and that over a file.

Files are TOML, or Kafka's .properties. The names in them are those of `kafka_actors.options` with underscores or dots, or
Java's (`kafka_actors.config.java`). A dotted name means the same in both kinds of file, though TOML makes tables of it:
`sasl.mechanism`, `[sasl]` with `mechanism`, and `sasl_mechanism` are one option.

References (`${env:NAME}`, `${file:path:key}`) are looked up here, except in passwords: these travel as they are, and each
process that makes a client looks them up (`kafka_actors.config.resolved`). `OptionValues` keeps the source of each value
for errors and for `kafka-actors config show`.
"""

from __future__ import annotations

import logging
import re
import tomllib
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import msgspec
from msgspec import Struct

from kafka_actors.base import decoders
from kafka_actors.config import ClientConfig, convert, known_name
from kafka_actors.config.java import from_java, without_effect
from kafka_actors.config.references import parse_properties, refers, resolve, trimmed
from kafka_actors.config.security import LOOKED_UP_LATE, check_beside_context, is_secret
from kafka_actors.errors import ConfigError, UsageError
from kafka_actors.options import JobConfig, ProducerConfig

__all__ = [
    "PREFIX",
    "OptionSource",
    "OptionValues",
    "from_environment",
    "from_file",
    "from_flags",
    "layered",
    "name_alone",
    "parse_toml",
    "read_config_file",
]

log = logging.getLogger(__name__)

PREFIX = "KAFKA_ACTORS_"
_OF_SPARK = "spark_options"

_REFERENCE = re.compile(r"\$\{[^}]*\}")
_NAME = re.compile(r"[\w.]*")
# Variables that Kubernetes sets in every container for a Service named kafka-actors.
_OF_KUBERNETES = re.compile(r"SERVICE_HOST|SERVICE_PORT(_\w+)?|PORT(_\d+_(TCP|UDP|SCTP)(_\w+)?)?")
_OF_PROGRAMS = frozenset(
    {
        "group_remote_assignor",
        "interceptor_classes",
        "key_deserializer",
        "key_serializer",
        "partitioner_class",
        "transactional_id",
        "value_deserializer",
        "value_serializer",
    }
)
"""Options of Java's clients in files for several programs. A job refuses them, because they would have no effect."""
_ELSEWHERE = frozenset({*JobConfig.__struct_fields__, *ProducerConfig.__struct_fields__})
"""Options of another command or of the user's program: no mistake where they have no meaning."""


class OptionSource(Struct, frozen=True):
    """Source of a value. `kind`: `flag`, `environment` or `file`; `name`: of the flag, variable or file; `reference`: the
    reference in the value, if there was one; `given`: the name of the option there, if it is another one."""

    kind: str
    name: str
    reference: str | None = None
    given: str | None = None

    def __str__(self) -> str:
        parts = [f"{self.kind} {self.name}", self.given, self.reference]
        return ", ".join(part for part in parts if part)


class OptionValues:
    """Converted options by their names, and the source of each."""

    def __init__(self, options: Mapping[str, Any], sources: Mapping[str, OptionSource]) -> None:
        self.options = dict(options)
        self.sources = dict(sources)

    @contextmanager
    def named(self) -> Iterator[None]:
        """Context manager that adds the source of the value to a `ConfigError`, unless it is on the command line."""
        try:
            yield
        except ConfigError as error:
            raise _placed(error, self.sources) from error.__cause__

    def __repr__(self) -> str:
        return f"<OptionValues: {', '.join(sorted(self.options))}>"


Layer = dict[str, tuple[Any, OptionSource]]
"""Options of one source by their names with underscores: value and source of each."""


def layered(kind: type[ClientConfig], *layers: Layer) -> OptionValues:
    """Options of all layers, the first of which wins; each value is checked by itself.

    Raises `ConfigError` with the option and its source, for a value that wins, and for one that can't win over a store.
    """
    values: Layer = {}
    for layer in reversed(layers):
        values.update(layer)
    sources = {name: source for name, (_, source) in values.items()}
    settings = OptionValues({}, sources)
    context = sources.get("ssl_context")
    with settings.named():
        if context is not None and context.given is not None:  # made of a store in a file
            check_beside_context(values, f"the PKCS12 store of {context.given} in {context.name}")
        settings.options = convert(kind, {name: value for name, (value, _) in values.items()})
    return settings


def from_flags(kind: type[ClientConfig], pairs: tuple[str, ...], **flags: Any) -> Layer:
    """Layer of the command line: `NAME=VALUE` pairs of -X, and options with flags of their own. Raises `ConfigError`."""
    layer: Layer = {
        name: _resolved(name, value, OptionSource("flag", "--" + name.replace("_", "-")))
        for name, value in flags.items()
        if value is not None
    }
    for pair in pairs:
        key, equals, value = pair.partition("=")
        if not equals or not key.strip():
            raise ConfigError("-X", f"is {name_alone(pair)!r}: give NAME=VALUE")
        name = known_name(kind, key.strip())
        pair_value = _resolved(name, value, OptionSource("flag", "-X"))
        if name in layer and layer[name][0] != pair_value[0]:
            raise ConfigError(name, "is given twice with different values")
        layer.setdefault(name, pair_value)
    return layer


def name_alone(text: str) -> str:
    """Name that a text begins with, which was to be NAME=VALUE: what follows may be a secret."""
    rest = _NAME.sub("", text, count=1)
    return text.removesuffix(rest) + "…" if rest else text


def from_environment(
    kind: type[ClientConfig], environment: Mapping[str, str], others: Collection[str]
) -> Layer:
    """Layer of the environment: the variables `KAFKA_ACTORS_<OPTION>`; an empty one counts as unset.

    `others`: variables with this prefix that are not options. Raises `ConfigError` for a misspelt one.
    """
    layer: Layer = {}
    for variable, value in environment.items():
        rest = variable.removeprefix(PREFIX)
        if rest == variable or not value or variable in others or _OF_KUBERNETES.fullmatch(rest):
            continue
        source = OptionSource("environment", variable)
        try:
            name = known_name(kind, rest.lower())
        except ConfigError as error:
            if rest.lower() in _ELSEWHERE:
                continue
            raise _placed(error, {error.option: source}) from None
        layer[name] = _resolved(name, value, source)
    return layer


def from_file(kind: type[ClientConfig], options: Mapping[str, Any], file: str, *, strict: bool) -> Layer:
    """Layer of a file: the options that `read_config_file` returned, with Java's names translated.

    `strict`: an option that only others use is an error; otherwise it is skipped with a warning, as Java's tools do with
    a file for several clients. Raises `ConfigError` for a name that is no option at all.
    """
    texts: dict[str, str] = {}
    rest: dict[str, Any] = {}
    references: dict[str, str | None] = {}
    here = OptionSource("file", file)
    for name, given in options.items():
        if without_effect(name):
            log.warning("%s: %s has no effect here", file, name)
            continue
        value, source = _resolved(name, given, here)
        references[name] = source.reference
        if isinstance(value, str):
            texts[name] = value
        else:
            rest[name] = value
    try:
        found, origins = from_java(texts)
    except ConfigError as error:
        raise _placed(error, {error.option: here}) from None
    layer: Layer = {}
    for key, value in {**rest, **found}.items():
        given_as = origins.get(key)
        source = OptionSource("file", file, references.get(given_as or key), given_as)
        try:
            layer[known_name(kind, key)] = value, source
        except ConfigError as error:
            if strict or key not in _ELSEWHERE | _OF_PROGRAMS:
                raise _placed(error, {error.option: source}) from None
            log.warning("%s: %s is not an option of a connection and not used", file, key)
    return layer


def _resolved(name: str, value: Any, source: OptionSource) -> tuple[Any, OptionSource]:
    """Value with its references looked up, also in the texts of a list; references in a secret stay."""
    if name == _OF_SPARK and isinstance(table := _decoded(value), dict):
        return _table_resolved(table, source)
    if isinstance(value, list):
        looked_up = [_resolved(name, item, source) for item in value]
        references = [each.reference for _, each in looked_up if each.reference]
        return [item for item, _ in looked_up], _referring(source, references)
    if not isinstance(value, str) or not refers(value):
        return value, source
    referring = _referring(source, _REFERENCE.findall(value))
    if name in LOOKED_UP_LATE:
        return value, referring
    try:
        return resolve(name, value), referring
    except ConfigError as error:
        raise _placed(error, {name: source}) from None


def _table_resolved(table: Mapping[Any, Any], source: OptionSource) -> tuple[dict[Any, Any], OptionSource]:
    """Options of Spark's source; the source itself looks up what its secrets refer to."""
    options = {
        key: value if is_secret(str(key)) else _resolved(str(key), value, source)[0]
        for key, value in table.items()
    }
    texts = [value for value in table.values() if isinstance(value, str) and refers(value)]
    return options, _referring(source, [found for text in texts for found in _REFERENCE.findall(text)])


def _decoded(value: Any) -> Any:
    """Table in a text of JSON; any other value as it is."""
    try:
        return msgspec.json.decode(value) if isinstance(value, str) else value
    except decoders.UNREADABLE:
        return value


def _referring(source: OptionSource, references: list[str]) -> OptionSource:
    return OptionSource(source.kind, source.name, " ".join(references) or None)


def _placed(error: ConfigError, sources: Mapping[str, OptionSource]) -> ConfigError:
    """Error with the source of the value, where that is a file or the environment: the command line is in view."""
    source = sources.get(error.option)
    if source is None or source.kind == "flag":
        return error
    return ConfigError(source.given or error.option, f"{error.message} (in {source.name})")


# ------------------------------------------------------------ files


def read_config_file(flag: str, path: str, known: Collection[str]) -> dict[str, Any]:
    """Options of the file that was given with `flag`: the values as written, by their names with underscores.

    `known`: names whose value may be a table. Raises `UsageError` for a file that can't be read, `ConfigError` for an
    option that stands there under two names.
    """
    try:
        text = Path(path).read_text(encoding="utf-8-sig")  # editors on Windows put a mark first
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(f"{flag} {path}: {error}") from None
    if path.lower().endswith(".toml"):
        try:
            return parse_toml(text, known)
        except tomllib.TOMLDecodeError as error:
            raise UsageError(f"{flag} {path} is not valid TOML: {error}") from None
    return _by_name((key, trimmed(value)) for key, value in parse_properties(text).items())


def parse_toml(text: str, known: Collection[str]) -> dict[str, Any]:
    """Options of a text in TOML. Numbers and booleans become text, as they are in .properties.

    Raises `tomllib.TOMLDecodeError`, and `ConfigError` for an option that stands there under two names.
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
            raise ConfigError(name, "is given twice, with dots and with underscores")
        found[name] = value
    return found
