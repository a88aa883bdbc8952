"""Encoders, compiled once per (message, version) from the declarations.

An encoder is one flat function `encode(m, out)` that appends to a bytearray. It checks no types by itself:
`struct` and the buffer protocol do; when they refuse something, `explain` walks the message once more, slowly,
to say which field it was.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from struct import pack
from typing import Any, NoReturn

from kafka_actors.errors import EncodeError

from .schema import Element, FieldSpec, Message, fields_of
from .source import FIXED, CodecSource

Encode = Callable[[Any, bytearray], None]
MAX_STRING = 0x7FFF
"""Bytes in a string, in flexible versions too: Kafka's readers refuse longer ones."""


@cache
def encoder(cls: type[Message], version: int) -> Encode:
    """The compiled encoder of a message in a version."""
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
        """Emit the pending run: one pack for all of it."""
        if self.source.run:
            codec, values = self.source.packer()
            pack = self.source.constant(codec.pack, "pack")
            self.source.line(f"{self.out} += {pack}({', '.join(values)})")

    def struct(self, cls: type[Element], value: str) -> None:
        """Emit the writing of the struct in the variable `value`."""
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
        """A string, bytes or records: a length and the content."""
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
        """Emit a length (-1 for null) and all that was pending before it."""
        if not (self.flexible and f.flexible):
            self.source.run.append(("h" if f.wire == "string" else "i", n))
            self.flush()
            return
        self.flush()
        self.varint(f"{n} + 1")

    def varint(self, expression: str) -> None:
        self.source.line(f"put_varint({self.out}, {expression})")

    # -------------------------------------------------------- tagged fields

    def tags(self, tagged: list[FieldSpec], value: str) -> None:
        """Emit the tagged fields: those that differ from their default, in ascending order (KIP-482)."""
        source = self.source
        if not tagged:
            source.line(f"{self.out}.append(0)")
            return
        outer, body, count = self.out, source.fresh("out"), source.fresh("n")
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
                self.varint(f"len({body})")
                source.line(f"{parts} += {body}")
        self.out = outer
        self.varint(count)
        source.line(f"{self.out} += {parts}")


def put_varint(out: bytearray, value: int) -> None:
    """Append an unsigned varint."""
    while value > 127:
        out.append(value & 127 | 128)
        value >>= 7
    out.append(value)


def _too_long(length: int) -> NoReturn:
    raise ValueError(f"{length} bytes are too many for a string")
