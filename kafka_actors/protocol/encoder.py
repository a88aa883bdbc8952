"""Encoders, compiled once per (message, version) from the declarations.

An encoder is one flat function `encode(m, out)` that appends to a bytearray. It checks no types by itself:
`struct` and the buffer protocol do; when they refuse a value, `explain` walks the message once more, slowly,
to name the field.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable
from functools import cache
from struct import pack
from typing import Any, NoReturn

from kafka_actors.errors import EncodeError, kind_of

from .schema import Element, FieldSpec, Message, check_version, fields_of
from .source import FIXED, CodecSource

Encode = Callable[[Any, bytearray], None]
MAX_STRING = 0x7FFF
"""Bytes in a string, in flexible versions too: Kafka's readers refuse longer ones."""


_BITS = {"int8": 8, "int16": 16, "int32": 32, "int64": 64}


@cache
def encoder(cls: type[Message], version: int) -> Encode:
    """The compiled encoder of a message in a version. Raises `UnsupportedVersionError` for one that the message lacks."""
    check_version(cls, version)
    flexible = cls.flexible_from is not None and version >= cls.flexible_from
    return _Encoder(version, flexible).compile(cls)


class _Encoder:
    def __init__(self, version: int, flexible: bool) -> None:
        self.version = version
        self.flexible = flexible
        self.source = CodecSource()
        self.source.namespace.update(
            put_varint=put_varint, too_long=_too_long, lacking=self.lacking, pack=pack
        )
        self.out = "out"

    def compile(self, cls: type[Message]) -> Encode:
        source = self.source
        with source.block("def encode(m, out):"):
            self.struct(cls, "m")
            source.line("return")
        return source.compile("encode", f"<encoder of {cls.__name__} v{self.version}>")

    def lacking(self, name: str) -> NoReturn:
        raise EncodeError(f"{name} is set, but version {self.version} lacks it")

    def flush(self) -> None:
        """Emits the pending run: one pack for all of it."""
        if self.source.run:
            codec, values = self.source.packer()
            pack = self.source.constant(codec.pack, "pack")
            self.source.line(f"{self.out} += {pack}({', '.join(values)})")

    def struct(self, cls: type[Element], value: str) -> None:
        """Emits the writing of the struct in the variable `value`."""
        tagged = []
        for f in fields_of(cls):
            attribute = f"{value}.{f.name}"
            if self.version not in f.versions or (f.tag is not None and not self.flexible):
                if not f.ignorable:
                    self.refuse(cls, f, attribute)
            elif f.tag is None:
                self.value(f, attribute)
            else:
                tagged.append(f)
        self.flush()
        if self.flexible:
            self.tags(tagged, value)

    def refuse(self, cls: type[Element], f: FieldSpec, attribute: str) -> None:
        with self.source.block(f"if {attribute} != {self.source.constant(f.default)}:"):
            self.source.line(f"lacking({f'{cls.__name__}.{f.name}'!r})")

    # -------------------------------------------------------- values

    def value(self, f: FieldSpec, expression: str) -> None:
        nullable = self.version in f.nullable
        if f.wire in FIXED:
            self.fixed(f.wire, expression)
        elif f.wire == "struct":
            self.inner_struct(f, expression, nullable)
        elif f.wire == "array":
            self.array(f, expression, nullable)
        else:
            self.blob(f, expression, nullable)

    def fixed(self, wire: str, expression: str) -> None:
        self.source.run.append((FIXED[wire], f"{expression}.bytes" if wire == "uuid" else expression))

    def inner_struct(self, f: FieldSpec, expression: str, nullable: bool) -> None:
        assert f.struct is not None
        source, inner = self.source, self.source.fresh("m")
        self.flush()
        source.line(f"{inner} = {expression}")
        if not nullable:
            self.struct(f.struct, inner)
            return
        with source.block(f"if {inner} is None:"):
            source.line(f"{self.out}.append(255)")  # int8 -1
        with source.block("else:"):
            source.line(f"{self.out}.append(1)")
            self.struct(f.struct, inner)

    def blob(self, f: FieldSpec, expression: str, nullable: bool) -> None:
        """Emits the writing of a string, bytes or records: a length and the content."""
        source, v, n = self.source, self.source.fresh("v"), self.source.fresh("n")
        source.line(f"{v} = {expression}")
        text = f.wire == "string"
        convert = (
            f"{v} = {v}.encode(); {n} = len({v})" if text else f"{v} = memoryview({v}); {n} = {v}.nbytes"
        )
        if nullable:
            with source.block(f"if {v} is None:"):
                source.line(f'{v} = b""; {n} = -1')
            with source.block("else:"):
                source.line(convert)
        else:
            source.line(convert)
        if text:
            source.line(f"{n} <= {MAX_STRING} or too_long({n})")
        self.length(f, n)
        source.line(f"{self.out} += {v}")

    def array(self, f: FieldSpec, expression: str, nullable: bool) -> None:
        source, v, n = self.source, self.source.fresh("v"), self.source.fresh("n")
        source.line(f"{v} = {expression}")
        if nullable:
            source.line(f"{n} = -1 if {v} is None else len({v})")
        else:
            source.line(f"{n} = len({v})")
        self.length(f, n)
        if f.item in FIXED and f.item != "uuid":
            with source.block(f"if {v}:"):
                source.line(f'{self.out} += pack(f">{{{n}}}{FIXED[f.item]}", *{v})')
            return
        element = source.fresh("m")
        with source.block(f"for {element} in {v} or ():" if nullable else f"for {element} in {v}:"):
            if f.struct is not None:
                self.struct(f.struct, element)
            else:
                self.value(f.element(), element)
            self.flush()

    def length(self, f: FieldSpec, n: str) -> None:
        """Emits the writing of a length (-1 for null), after the pending run."""
        if not (self.flexible and f.flexible):
            self.source.run.append(("h" if f.wire == "string" else "i", n))
            self.flush()
            return
        self.flush()
        self.varint(f"{n} + 1")

    def varint(self, number: str) -> None:
        """Emits the writing of a varint, which has one byte as a rule."""
        with self.source.block(f"if {number} < 128:"):
            self.source.line(f"{self.out}.append({number})")
        with self.source.block("else:"):
            self.source.line(f"put_varint({self.out}, {number})")

    # -------------------------------------------------------- tagged fields

    def tags(self, tagged: list[FieldSpec], value: str) -> None:
        """Emits the writing of tagged fields: those that differ from their default, in ascending order (KIP-482)."""
        source = self.source
        if not tagged:
            source.line(f"{self.out}.append(0)")
            return
        outer, body, count, size = self.out, source.fresh("out"), source.fresh("n"), source.fresh("n")
        parts = source.fresh("tags")
        source.line(f"{parts} = bytearray(); {count} = 0")
        for f in sorted(tagged, key=lambda f: f.tag or 0):
            attribute = f"{value}.{f.name}"
            with source.block(f"if {attribute} != {source.constant(f.default)}:"):
                source.line(f"{body} = bytearray(); {count} += 1")
                self.out = body
                self.value(f, attribute)
                self.flush()
                self.out = parts
                self.varint(str(f.tag))
                source.line(f"{size} = len({body})")
                self.varint(size)
                source.line(f"{parts} += {body}")
        self.out = outer
        self.varint(count)
        source.line(f"{self.out} += {parts}")


def put_varint(out: bytearray, value: int) -> None:
    """Appends an unsigned varint."""
    while value > 127:
        out.append(value & 127 | 128)
        value >>= 7
    out.append(value)


def _too_long(length: int) -> NoReturn:
    raise ValueError(f"{length} bytes are too many for a string")


# ---------------------------------------------------------------- the slow walk after a failure


def explain(message: Element, version: int, path: str = "") -> str | None:
    """The first field of a message that can't be encoded, and why; None if there is none."""
    path = path or type(message).__name__
    for f in fields_of(type(message)):
        if version in f.versions:
            wrong = _field_problem(f, getattr(message, f.name), version, f"{path}.{f.name}")
            if wrong is not None:
                return wrong
    return None


def _field_problem(f: FieldSpec, value: Any, version: int, path: str) -> str | None:
    if value is None:
        return None if version in f.nullable else f"{path} is None, which it can't be in version {version}"
    if f.wire == "array":
        if not isinstance(value, list | tuple):
            return f"{path} is {kind_of(value)}, not a list"
        found = (_field_problem(f.element(), x, version, f"{path}[{i}]") for i, x in enumerate(value))
        return next((wrong for wrong in found if wrong is not None), None)
    if f.wire == "struct":
        assert f.struct is not None
        if not isinstance(value, f.struct):
            return f"{path} is {kind_of(value)}, not a {f.struct.__name__}"
        return explain(value, version, path)
    return _value_problem(f.wire, value, path)


def _value_problem(wire: str, value: Any, path: str) -> str | None:
    if wire in _BITS:
        half = 1 << (_BITS[wire] - 1)
        fits = isinstance(value, int) and -half <= value < half
        return None if fits else f"{path} is {value!r}, not an {wire}"
    if wire == "string":
        return _text_problem(value, path)
    if wire == "uuid":
        return None if isinstance(value, uuid.UUID) else f"{path} is {kind_of(value)}, not a UUID"
    if wire in ("bytes", "records"):
        try:
            memoryview(value)
        except TypeError:
            return f"{path} is {kind_of(value)}, not bytes"
    return None


def _text_problem(value: Any, path: str) -> str | None:
    if not isinstance(value, str):
        return f"{path} is {kind_of(value)}, not a str"
    try:
        size = len(value.encode())
    except UnicodeEncodeError:
        return f"{path} holds a lone surrogate, which UTF-8 can't express"
    return None if size <= MAX_STRING else f"{path} has {size} bytes, more than {MAX_STRING}"
