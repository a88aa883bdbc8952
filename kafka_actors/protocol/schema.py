"""The types by which messages are declared, and the schema that is read back from a declaration.

A message is a Struct with its fields in wire order. A field's annotation says its wire type; where a field is
not in all versions, is nullable, ignorable or tagged, `V` says so, with version ranges written as in Kafka's
own definitions (`"4+"`, `"0-12"`)::

    @message(ApiKey.FETCH, "4-18", flexible="12+")
    class FetchRequest(Request["FetchResponse"]):
        cluster_id: Annotated[str | None, V("12+", nullable="12+", tag=0, ignorable=True)] = None
        max_wait_ms: Int32 = 0
"""

from __future__ import annotations

import types
import typing
import uuid
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from enum import IntEnum
from functools import cache, lru_cache
from typing import Annotated, Any, ClassVar, Generic, TypeAlias, TypeVar, dataclass_transform

import msgspec

from kafka_actors.errors import UnsupportedVersionError

R_co = TypeVar("R_co", bound="Response", covariant=True)
M = TypeVar("M", bound="Message")


@dataclass(frozen=True, slots=True)
class Range:
    """A range of versions, both ends inside."""

    low: int
    high: int

    def __contains__(self, version: int) -> bool:
        return self.low <= version <= self.high

    @classmethod
    def parse(cls, text: str) -> Range:
        """`"3+"`, `"0-12"`, `"7"` or `"none"`."""
        if text == "none":
            return NEVER
        low, dash, high = text.removesuffix("+").partition("-")
        if text.endswith("+"):
            return cls(int(low), 32767)
        return cls(int(low), int(high if dash else low))


NEVER = Range(0, -1)


@dataclass(frozen=True, slots=True)
class WireType:
    """The wire type behind a Python type that has several."""

    name: str


class V:
    """Marks a field: the versions that have it, and its form in them.

    `versions`: those that have the field. `nullable`: those in which it may be None. `ignorable`: left
    out silently where a version lacks it, instead of an error if it is set. `tag`: a tagged field in all of
    its versions. `flexible=False`: keeps its classic form in flexible versions.
    """

    __slots__ = ("flexible", "ignorable", "nullable", "tag", "versions")

    def __init__(
        self,
        versions: str = "0+",
        *,
        nullable: str = "none",
        ignorable: bool = False,
        tag: int | None = None,
        flexible: bool = True,
    ) -> None:
        self.versions = Range.parse(versions)
        self.nullable = Range.parse(nullable)
        self.ignorable = ignorable
        self.tag = tag
        self.flexible = flexible


Int8: TypeAlias = Annotated[int, WireType("int8")]
Int16: TypeAlias = Annotated[int, WireType("int16")]
Int32: TypeAlias = Annotated[int, WireType("int32")]
Int64: TypeAlias = Annotated[int, WireType("int64")]
Records: TypeAlias = Annotated[bytes | memoryview | None, WireType("records")]
"""Record batches. Decoded as a view of the input, not a copy."""

Uuid: TypeAlias = uuid.UUID
ZERO_UUID = uuid.UUID(int=0)
"""Kafka's "no id"."""


@lru_cache(maxsize=16384)
def uuid_of(topic_id: bytes | None) -> uuid.UUID:
    """Returns a topic's id as messages have it, of its 16 bytes; None is "no id". Cached: ids come again in each request and response, and
    `UUID()` is slow."""
    return ZERO_UUID if topic_id is None or topic_id == ZERO_UUID.bytes else uuid.UUID(bytes=topic_id)


@dataclass_transform(frozen_default=True)
class _Declared(msgspec.StructMeta):
    """Makes type checkers treat every subclass of Element as frozen."""


class Element(msgspec.Struct, metaclass=_Declared, frozen=True, gc=False):
    """A struct inside a message. Immutable; messages are trees, so the cycle collector can skip them."""


class Message(Element):
    """A struct that is encoded on its own: the body of a request or response, a header, a consumer protocol blob."""

    min_version: ClassVar[int]
    max_version: ClassVar[int]
    """All versions that Kafka 4.1 calls valid."""
    latest: ClassVar[int]
    """The newest version that Kafka 4.1 calls stable."""
    flexible_from: ClassVar[int | None]
    """The first version with compact types and tagged fields, None if there is none."""


def check_version(cls: type[Message], version: int) -> None:
    """Raises `UnsupportedVersionError` for a version that a message lacks."""
    if not cls.min_version <= version <= cls.max_version:
        known = f"{cls.min_version} to {cls.max_version}"
        raise UnsupportedVersionError(f"{cls.__name__} has versions {known}, not {version}")


class Response(Message):
    """The body of a response."""

    api_key: ClassVar[int]


class Request(Message, Generic[R_co]):
    """The body of a request that is answered with an `R_co`."""

    api_key: ClassVar[int]
    response: ClassVar[type[Response]]


REQUESTS: dict[int, type[Request[Any]]] = {}
RESPONSES: dict[int, type[Response]] = {}


def message(
    api_key: IntEnum, versions: str, *, flexible: str, latest: int | None = None
) -> Callable[[type[M]], type[M]]:
    """Declares a request or response; the request comes first. `latest` only where the last is unstable."""

    def declare(cls: type[M]) -> type[M]:
        data(versions, flexible=flexible, latest=latest)(cls)
        if issubclass(cls, Request):
            REQUESTS[api_key] = cls
            cls.api_key = int(api_key)
        elif issubclass(cls, Response):
            RESPONSES[api_key] = cls
            cls.api_key = int(api_key)
            REQUESTS[api_key].response = cls
        return cls

    return declare


def data(versions: str, *, flexible: str, latest: int | None = None) -> Callable[[type[M]], type[M]]:
    """Declares a message that is neither request nor response."""

    def declare(cls: type[M]) -> type[M]:
        valid = Range.parse(versions)
        cls.min_version, cls.max_version = valid.low, valid.high
        cls.latest = valid.high if latest is None else latest
        cls.flexible_from = None if flexible == "none" else Range.parse(flexible).low
        return cls

    return declare


# ---------------------------------------------------------------- schemas, read back from the declarations


@dataclass(frozen=True, slots=True)
class FieldSpec:
    """One field. `wire` is a wire type's name, or `"array"` or `"struct"`.

    Of an array `item` is the wire type of its elements (`"struct"` too); `struct` the class of the struct.
    """

    name: str
    wire: str
    item: str | None
    struct: type[Element] | None
    versions: Range
    nullable: Range
    ignorable: bool
    tag: int | None
    flexible: bool
    default: Any

    def element(self) -> FieldSpec:
        """An array's element as a field of its own: never null, and compact if the array is."""
        assert self.item is not None
        return replace(self, wire=self.item, item=None, nullable=NEVER, tag=None)


_PLAIN: Mapping[Any, str] = {str: "string", bool: "bool", bytes: "bytes", uuid.UUID: "uuid"}
_EVERYWHERE = V()


@cache
def fields_of(cls: type[Element]) -> tuple[FieldSpec, ...]:
    """The fields of a message or inner struct, in wire order."""
    hints = typing.get_type_hints(cls, include_extras=True)
    defaults = {f.name: f for f in msgspec.structs.fields(cls)}
    return tuple(_field(name, hints[name], _default(defaults[name])) for name in cls.__struct_fields__)


def _default(info: msgspec.structs.FieldInfo) -> Any:
    return info.default if info.default_factory is msgspec.NODEFAULT else info.default_factory()


def _field(name: str, hint: Any, default: Any) -> FieldSpec:
    hint, wire, v = _unwrap(hint)
    kind, item, struct = (wire.name, None, None) if wire else _kind(hint)
    return FieldSpec(
        name, kind, item, struct, v.versions, v.nullable, v.ignorable, v.tag, v.flexible, default
    )


def _unwrap(hint: Any) -> tuple[Any, WireType | None, V]:
    """The bare type of an annotation, with its `WireType` (None for a plain type) and its `V`."""
    wire, v = None, _EVERYWHERE
    if typing.get_origin(hint) is Annotated:
        hint, *extras = typing.get_args(hint)
        wire = next((x for x in extras if isinstance(x, WireType)), None)
        v = next((x for x in extras if isinstance(x, V)), _EVERYWHERE)
    if wire is None and typing.get_origin(hint) in (types.UnionType, typing.Union):
        (hint,) = (arg for arg in typing.get_args(hint) if arg is not type(None))
    return hint, wire, v


def _kind(hint: Any) -> tuple[str, str | None, type[Element] | None]:
    if typing.get_origin(hint) is list:
        inner, wire, _ = _unwrap(typing.get_args(hint)[0])
        item, _, struct = (wire.name, None, None) if wire else _kind(inner)
        return "array", item, struct
    if isinstance(hint, type) and issubclass(hint, Element):
        return "struct", None, hint
    return _PLAIN[hint], None, None
