"""`CodecSource`: Python source built line by line, with its constants, for the compilers of encoders and decoders."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache
from struct import Struct
from typing import Any

FIXED = {"int8": "b", "int16": "h", "int32": "i", "int64": "q", "bool": "?", "uuid": "16s"}
"""Wire types of fixed size, as `struct` formats."""


class CodecSource:
    """The source of one function.

    `run` collects values of fixed size that follow each other, so that they are read or written by one call;
    a compiler that emits anything else calls its `flush` first.
    """

    def __init__(self) -> None:
        self.lines: list[str] = []
        self.namespace: dict[str, Any] = {}
        self.run: list[tuple[str, str]] = []
        self._depth = 0
        self._names = 0

    def line(self, text: str) -> None:
        self.lines.append("    " * self._depth + text)

    @contextmanager
    def block(self, head: str) -> Iterator[None]:
        self.line(head)
        self._depth += 1
        yield
        self._depth -= 1

    def fresh(self, prefix: str) -> str:
        """A name not used before."""
        self._names += 1
        return f"{prefix}{self._names}"

    def constant(self, value: Any, prefix: str = "K") -> str:
        """The expression for a value: a literal where there is one, else a name in the namespace."""
        if value is None or isinstance(value, int | str | bytes):
            return repr(value)
        name = self.fresh(prefix)
        self.namespace[name] = value
        return name

    def packer(self) -> tuple[Struct, list[str]]:
        """Takes the collected run: returns its struct, and the expressions or targets in order."""
        codec = compiled_struct(">" + "".join(code for code, _ in self.run))
        names = [name for _, name in self.run]
        self.run = []
        return codec, names

    def compile(self, name: str, filename: str) -> Callable[..., Any]:
        exec(compile("\n".join(self.lines), filename, "exec"), self.namespace)
        function: Callable[..., Any] = self.namespace[name]
        return function


@cache
def compiled_struct(layout: str) -> Struct:
    return Struct(layout)
