"""Where options come from: the command line wins over `KAFKA_ACTORS_*`, and that over a file.

References (`${env:NAME}`, `${file:path:key}`) are looked up here, wherever they stand, but for those that are a whole password: they
travel as they are, and each process that makes a client looks them up (`kafka_actors.config.resolved`). `OptionValues` knows
of each value where it came from: errors and `kafka-actors config show` say it.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from msgspec import Struct

from kafka_actors.config import ClientConfig, convert, known_name
from kafka_actors.config.java import from_java, without_effect
from kafka_actors.config.references import refers, resolve
from kafka_actors.config.security import SECRETS
from kafka_actors.errors import ConfigError
from kafka_actors.options import JobConfig, ProducerConfig

__all__ = ["PREFIX", "OptionSource", "OptionValues", "from_environment", "from_file", "from_flags", "layered"]

log = logging.getLogger(__name__)

PREFIX = "KAFKA_ACTORS_"

_REFERENCE = re.compile(r"\$\{[^}]*\}")
# What Kubernetes puts into every container for a Service by the name of kafka-actors.
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
"""Options of Java's programs, in files for several clients. A job refuses them: it would not do what they ask for."""
_ELSEWHERE = frozenset({*JobConfig.__struct_fields__, *ProducerConfig.__struct_fields__})
"""Options of some command, or of a program of the user's: no mistake where they mean nothing."""


class OptionSource(Struct, frozen=True):
    """Where a value came from. `kind`: `flag`, `environment` or `file`; `name`: which; `reference`: the text that was
    looked up, if there was one in it; `given`: the option as it is called there, where that isn't its own name."""

    kind: str
    name: str
    reference: str | None = None
    given: str | None = None

    def __str__(self) -> str:
        parts = [f"{self.kind} {self.name}", self.given, self.reference]
        return ", ".join(part for part in parts if part)


class OptionValues:
    """Options by their names, converted, and the source of each."""

    def __init__(self, options: Mapping[str, Any], sources: Mapping[str, OptionSource]) -> None:
        self.options = dict(options)
        self.sources = dict(sources)

    @contextmanager
    def named(self) -> Iterator[None]:
        """A `ConfigError` about one of these options says where its value came from, unless that is in view."""
        try:
            yield
        except ConfigError as error:
            raise _placed(error, self.sources) from error.__cause__

    def __repr__(self) -> str:
        return f"<Settings: {', '.join(sorted(self.options))}>"


Layer = dict[str, tuple[Any, OptionSource]]
"""The options of one source, with underscores."""


def layered(kind: type[ClientConfig], *layers: Layer) -> OptionValues:
    """What counts of these layers, the first of which wins; each value checked by itself.

    Raises `ConfigError` with the option and its source, for a value that wins.
    """
    values: Layer = {}
    for layer in reversed(layers):
        values.update(layer)
    sources = {name: source for name, (_, source) in values.items()}
    settings = OptionValues({}, sources)
    with settings.named():
        settings.options = convert(kind, {name: value for name, (value, _) in values.items()})
    return settings


def from_flags(kind: type[ClientConfig], pairs: tuple[str, ...], **flags: Any) -> Layer:
    """`NAME=VALUE` pairs of -X, and what has a flag of its own. Raises `ConfigError`."""
    layer: Layer = {
        name: _resolved(name, value, OptionSource("flag", "--" + name.replace("_", "-")))
        for name, value in flags.items()
        if value is not None
    }
    for pair in pairs:
        key, equals, value = pair.partition("=")
        if not equals or not key.strip():
            raise ConfigError("-X", f"is {pair!r}: give NAME=VALUE")
        name = known_name(kind, key.strip())
        given = _resolved(name, value, OptionSource("flag", "-X"))
        if name in layer and layer[name][0] != given[0]:
            raise ConfigError(name, "is given twice with different values")
        layer.setdefault(name, given)
    return layer


def from_environment(
    kind: type[ClientConfig], environment: Mapping[str, str], others: Collection[str]
) -> Layer:
    """The variables `KAFKA_ACTORS_<OPTION>`; an empty one counts for none.

    `others`: variables with this prefix that are no options. Raises `ConfigError` for what is misspelt.
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
    """What `read_config_file` found in `file`, with Java's names as ours.

    `strict`: what is an option elsewhere is a mistake here, too; else it is passed over with a warning, as Java's
    tools do with a file for several clients. Raises `ConfigError` for what is no option at all.
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
    """The value with references looked up, also in the texts of a list; those of a secret stay."""
    if isinstance(value, list):
        looked_up = [_resolved(name, item, source) for item in value]
        references = [each.reference for _, each in looked_up if each.reference]
        return [item for item, _ in looked_up], _referring(source, references)
    if not isinstance(value, str) or not refers(value):
        return value, source
    referring = _referring(source, _REFERENCE.findall(value))
    if name in SECRETS:
        return value, referring
    try:
        return resolve(name, value), referring
    except ConfigError as error:
        raise _placed(error, {name: source}) from None


def _referring(source: OptionSource, references: list[str]) -> OptionSource:
    return OptionSource(source.kind, source.name, " ".join(references) or None)


def _placed(error: ConfigError, sources: Mapping[str, OptionSource]) -> ConfigError:
    """The error with the place of the value: what a file or the environment has isn't before the user's eyes."""
    source = sources.get(error.option)
    if source is None or source.kind == "flag":
        return error
    return ConfigError(source.given or error.option, f"{error.message} (in {source.name})")
