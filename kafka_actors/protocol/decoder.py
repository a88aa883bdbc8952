"""Decoders, compiled once per (message, version) from the declarations.

A decoder is one flat function `decode(b, p, e) -> (message, position)`: `b` a memoryview, `p` where to
start, `e` the end. Loops over structs are inlined and neighbours of fixed size are read by one call, because
a Python call per struct or field is what costs. The bytes come from the network: each length is compared with
what is left before it is used, a count with the least that so many elements need, so that memory grows only in
proportion to the bytes that are there.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from struct import Struct
from typing import Any, NoReturn

from kafka_actors.errors import DecodeError

from .schema import Element, FieldSpec, Message, check_version, fields_of, uuid_of
from .source import FIXED, CodecSource, compiled_struct

Decode = Callable[[memoryview, int, int], tuple[Any, int]]


@cache
def decoder(cls: type[Message], version: int) -> Decode:
    """The compiled decoder of a message in a version. Raises `UnsupportedVersionError` for one that the message lacks."""
    check_version(cls, version)
    flexible = cls.flexible_from is not None and version >= cls.flexible_from
    return _Decoder(version, flexible).compile(cls)


class _Decoder:
    def __init__(self, version: int, flexible: bool) -> None:
        self.version = version
        self.flexible = flexible
        self.source = CodecSource()
        self.source.namespace.update(
            varint=_varint, truncated=_truncated, null=_null, tag_size=_tag_size, new_uuid=uuid_of
        )
        # Lines to emit after the pending run: conversions of its values.
        self.after: list[str] = []

    def compile(self, cls: type[Message]) -> Decode:
        source = self.source
        with source.block("def decode(b, p, e):"):
            result = self.struct(cls, cls.__name__)
            source.line(f"return {result}, p")
        return source.compile("decode", f"<decoder of {cls.__name__} v{self.version}>")

    def struct(self, cls: type[Element], path: str) -> str:
        """Emits the reading of a struct; returns the expression that makes it."""
        present: dict[str, str] = {}
        tagged = []
        for f in fields_of(cls):
            if self.version not in f.versions:
                continue
            if f.tag is None:
                present[f.name] = self.value(f, f"{path}.{f.name}")
            elif self.flexible:
                tagged.append(f)
        self.flush()
        if self.flexible:
            present |= self.tags(tagged, path)
        arguments = (present.get(f.name) or self.default(f) for f in fields_of(cls))
        return f"{self.source.constant(cls, cls.__name__)}({', '.join(arguments)})"

    def default(self, f: FieldSpec) -> str:
        return "[]" if f.default == [] else self.source.constant(f.default)

    def flush(self) -> None:
        """Emits the pending run: one unpack for all of it."""
        source = self.source
        if source.run:
            codec, names = source.packer()
            unpack = source.constant(codec.unpack_from, "unpack")
            source.line(f"{', '.join(names)}, = {unpack}(b, p); p += {codec.size}")
        for line in self.after:
            source.line(line)
        self.after = []

    # -------------------------------------------------------- values

    def value(self, f: FieldSpec, path: str) -> str:
        """Emits the reading of a field; returns the variable that holds it (after the next flush)."""
        target = self.source.fresh("v")
        nullable = self.version in f.nullable
        if f.wire in FIXED:
            self.fixed(f.wire, target)
        elif f.wire == "struct":
            self.inner_struct(f, target, nullable, path)
        else:
            self.sized(f, target, nullable, path)
        return target

    def fixed(self, wire: str, target: str) -> None:
        self.source.run.append((FIXED[wire], target))
        if wire == "uuid":
            self.after.append(f"{target} = new_uuid({target})")

    def inner_struct(self, f: FieldSpec, target: str, nullable: bool, path: str) -> None:
        assert f.struct is not None
        self.flush()
        if not nullable:
            self.source.line(f"{target} = {self.struct(f.struct, path)}")
            return
        self.source.line("p += 1")
        with self.source.block("if b[p - 1] > 127:"):  # a negative int8
            self.source.line(f"{target} = None")
        with self.source.block("else:"):
            self.source.line(f"{target} = {self.struct(f.struct, path)}")

    def sized(self, f: FieldSpec, target: str, nullable: bool, path: str) -> None:
        """Emits the reading of a string, bytes or array: a length, which may be that of null, then the content."""
        source = self.source
        n = self.length(f)
        with source.block(f"if {n} >= 0:"):
            if f.wire == "array":
                self.array(f, target, n, path)
            else:
                self.content(f.wire, target, n, path)
        with source.block("else:"):
            if nullable:
                source.line(f"{n} == -1 or null({path!r}, {n})")
                source.line(f"{target} = None")
            else:
                source.line(f"null({path!r}, {n})")

    def length(self, f: FieldSpec) -> str:
        """Emits the reading of a length; null is -1, as in the classic form. Returns its variable."""
        source, n = self.source, self.source.fresh("n")
        if not (self.flexible and f.flexible):
            source.run.append(("h" if f.wire == "string" else "i", n))
            self.flush()
            return n
        self.flush()
        source.line(f"{n} = b[p] - 1; p += 1")
        with source.block(f"if {n} > 126:"):
            source.line(f"{n}, p = varint(b, p - 1); {n} -= 1")
        return n

    def content(self, wire: str, target: str, n: str, path: str) -> None:
        source, q = self.source, self.source.fresh("q")
        source.line(f"{q} = p + {n}")
        with source.block(f"if {q} > e:"):
            source.line(f"truncated({path!r}, {n}, e - p)")
        made = {"string": f'str(b[p:{q}], "utf-8")', "bytes": f"bytes(b[p:{q}])", "records": f"b[p:{q}]"}
        source.line(f"{target} = {made[wire]}; p = {q}")

    def array(self, f: FieldSpec, target: str, n: str, path: str) -> None:
        source = self.source
        least = self.least_size(f)
        with source.block(f"if {n} * {least} > e - p:"):
            source.line(f"truncated({path!r}, {n}, e - p)")
        if f.item in FIXED and f.item != "uuid":
            ints = source.constant(_INTS[FIXED[f.item]], "ints")
            source.line(f"{target} = [*{ints}[{n}](b, p)]; p += {least} * {n}")
            return
        add = source.fresh("add")
        source.line(f"{target} = []; {add} = {target}.append")
        with source.block(f"for _ in range({n}):"):
            element = self.element(f, path)
            source.line(f"{add}({element})")

    def element(self, f: FieldSpec, path: str) -> str:
        if f.struct is not None:
            return self.struct(f.struct, f"{path}[]")
        target = self.source.fresh("v")
        assert f.item is not None
        if f.item in FIXED:
            self.fixed(f.item, target)
            self.flush()
        else:
            self.sized(f.element(), target, False, f"{path}[]")
        return target

    def least_size(self, f: FieldSpec) -> int:
        """The fewest bytes that an element of an array can have."""
        if f.struct is not None:
            size = self.least_struct_size(f.struct)
            assert size > 0, f"{f.struct.__name__} has no bytes in version {self.version}"
            return size
        assert f.item is not None
        return self.least_field_size(f.element())

    def least_struct_size(self, cls: type[Element]) -> int:
        present = (f for f in fields_of(cls) if self.version in f.versions and f.tag is None)
        return sum(map(self.least_field_size, present)) + self.flexible

    def least_field_size(self, f: FieldSpec) -> int:
        if f.wire in FIXED:
            return compiled_struct(">" + FIXED[f.wire]).size
        if f.wire == "struct":
            assert f.struct is not None
            return 1 if self.version in f.nullable else self.least_struct_size(f.struct)
        if self.flexible and f.flexible:
            return 1
        return 2 if f.wire == "string" else 4

    # -------------------------------------------------------- tagged fields

    def tags(self, tagged: list[FieldSpec], path: str) -> dict[str, str]:
        """Emits the reading of a struct's tagged fields, which skips unknown ones (KIP-482). Returns the variables by field."""
        source = self.source
        targets = {f.name: source.fresh("v") for f in tagged}
        for f in tagged:
            source.line(f"{targets[f.name]} = {self.default(f)}")
        with source.block("if b[p]:"):
            count, tag, end = source.fresh("n"), source.fresh("t"), source.fresh("q")
            source.line(f"{count}, p = varint(b, p)")
            with source.block(f"for _ in range({count}):"):
                source.line(f"{tag}, {end}, p = tag_size(b, p, e, {path!r})")
                for f in tagged:
                    self.tagged_value(f, targets[f.name], tag, end, path)
                source.line(f"p = {end}")
        with source.block("else:"):
            source.line("p += 1")
        return targets

    def tagged_value(self, f: FieldSpec, target: str, tag: str, end: str, path: str) -> None:
        source = self.source
        with source.block(f"if {tag} == {f.tag}:"):
            value = self.value(f, f"{path}.{f.name}")
            self.flush()
            source.line(f"{target} = {value}")
            with source.block(f"if p != {end}:"):
                source.line(f"truncated({path + '.' + f.name!r}, {end} - p, 0)")


# ---------------------------------------------------------------- called by the compiled code


def _varint(b: memoryview, p: int) -> tuple[int, int]:
    """Reads an unsigned varint of at most 32 bits; returns it with the position behind it."""
    value = shift = 0
    while shift < 35:
        byte = b[p]
        p += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            break
        shift += 7
    else:
        raise DecodeError(f"a varint of more than 5 bytes at byte {p - 5}")
    if value > 0xFFFFFFFF:
        raise DecodeError(f"a varint of more than 32 bits at byte {p - 5}")
    return value, p


def _tag_size(b: memoryview, p: int, e: int, path: str) -> tuple[int, int, int]:
    """Reads the start of a tagged field: its number, its end, and the position of its value."""
    tag, p = _varint(b, p)
    size, p = _varint(b, p)
    if size > e - p:
        _truncated(f"{path}, tagged field {tag}", size, e - p)
    return tag, p + size, p


def _truncated(path: str, wanted: int, left: int) -> NoReturn:
    raise DecodeError(f"{path}: a length or count of {wanted} with {left} bytes left")


def _null(path: str, length: int) -> NoReturn:
    what = "null, which it can't be in this version" if length == -1 else f"a length of {length}"
    raise DecodeError(f"{path}: {what}")


class _Unpackers(dict[int, Callable[..., tuple[int, ...]]]):
    """Functions that unpack n integers at once, kept for small n, which are those of replicas, mostly."""

    def __init__(self, code: str) -> None:
        super().__init__()
        self.code = code

    def __missing__(self, n: int) -> Callable[..., tuple[int, ...]]:
        unpack = Struct(f">{n}{self.code}").unpack_from
        if n <= 64:
            self[n] = unpack
        return unpack


_INTS = {code: _Unpackers(code) for code in "bhiq?"}
