"""Every option, as its declaration has it: type, default, meaning, and what Java's clients call it."""

from __future__ import annotations

import types
from typing import Any, Literal, Union, get_args, get_origin, get_type_hints

import msgspec
from msgspec import Struct

from kafka_actors.config.security import Secret
from kafka_actors.options import ClientConfig, ConsumerConfig, JobConfig, ProducerConfig

from .java_names import JAVA_DEFAULTS, java_name
from .job_options import RunConfig, meanings

__all__ = ["SECTIONS", "OptionEntry", "OptionSection", "options"]

_UNITS = {"_ms": "milliseconds", "_s": "seconds", "_bytes": "bytes"}
_SIZES = ("batch_size", "max_request_size", "buffer_memory")


class OptionSection(Struct, frozen=True):
    """Options that are declared together."""

    title: str
    kind: type[Struct]
    about: str


SECTIONS = (
    OptionSection("Connections", ClientConfig, "Of a `Consumer`, a `Job`, a `Producer` and an `Admin`."),
    OptionSection("Reading, and the group", ConsumerConfig, "Of a `Consumer` and a `Job`."),
    OptionSection("Jobs", JobConfig, "Of a `Job` alone."),
    OptionSection("Sending", ProducerConfig, "Of a `Producer` and a `KafkaSink`."),
    OptionSection("Runs", RunConfig, "Of `kafka-actors run`, beside those of a job."),
)


class OptionEntry(Struct, frozen=True):
    """One option. `default` and `java_default` as they would be written, None for none; `job_default` where a job has
    another one; `java` is None where Java's clients have no such option."""

    name: str
    type: str
    default: str | None
    job_default: str | None
    java: str | None
    java_default: str | None
    meaning: str

    @property
    def as_in_java(self) -> bool:
        """Whether the default is Java's."""
        return self.java is not None and self.name not in JAVA_DEFAULTS


def options(section: OptionSection) -> list[OptionEntry]:
    """The options that the section's Struct declares, in its order, without those of which it only changes the
    default."""
    kind = section.kind
    inherited = {
        name for base in kind.__mro__[1:] if issubclass(base, ClientConfig) for name in base.__struct_fields__
    }
    hints = get_type_hints(kind, include_extras=True)
    texts = meanings(kind)
    own = [field for field in msgspec.structs.fields(kind) if field.name not in inherited]
    return [_option(section, field, hints[field.name], texts[field.name]) for field in own]


def _option(section: OptionSection, field: msgspec.structs.FieldInfo, hint: Any, meaning: str) -> OptionEntry:
    default = written(_default_of(section.kind, field.name))
    of_job = written(_default_of(JobConfig, field.name)) if issubclass(JobConfig, section.kind) else default
    java = java_name(field.name)
    return OptionEntry(
        name=field.name,
        type="name, or an object" if hint is Any and default else type_of(field.name, hint),
        default=default,
        job_default=of_job if of_job != default else None,
        java=java,
        java_default=None if java is None else JAVA_DEFAULTS.get(field.name, default) or None,
        meaning=meaning,
    )


def _default_of(kind: type[Struct], name: str) -> Any:
    if name == "client_id":  # the page stays the same from release to release
        return "kafka-actors-{version}"
    return getattr(kind(), name)


def written(value: Any) -> str | None:
    """As in a file of options."""
    if value is None or value == "" or value == {}:
        return None
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, list | tuple):
        return ",".join(" ".join(map(str, v)) if isinstance(v, tuple) else str(v) for v in value)
    return f"{value:g}" if isinstance(value, float) else str(value)


def type_of(name: str, hint: Any) -> str:
    """In words: unit, bounds, choices."""
    bounds = [meta for meta in getattr(hint, "__metadata__", ()) if isinstance(meta, msgspec.Meta)]
    if bounds:
        return _number(name, get_args(hint)[0], bounds[0])
    origin = get_origin(hint)
    if origin in (Union, types.UnionType):
        return type_of(name, next(part for part in get_args(hint) if part is not types.NoneType))
    if origin is Literal:
        return ", ".join(str(choice) for choice in get_args(hint))
    if origin is list:
        return "list"
    if origin is tuple:
        return "release, such as 3.9" if name == "api_version" else "list of number triples"
    if origin is dict:
        return "table"
    return {bool: "true, false", str: "text", Secret: "secret"}.get(hint, "object")


def _number(name: str, number: type, bounds: msgspec.Meta) -> str:
    unit = next((unit for suffix, unit in _UNITS.items() if name.endswith(suffix)), None)
    if name in _SIZES:
        unit = "bytes"
    above = f"above {bounds.gt}" if bounds.gt is not None else f"from {bounds.ge}"
    return f"{unit or ('number' if number is float else 'whole number')}, {above}"
