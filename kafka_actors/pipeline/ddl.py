"""Parser of Spark's DDL strings to Arrow schemas: `id BIGINT NOT NULL, tags ARRAY<STRING>, at STRUCT<x: DOUBLE>`."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any, NoReturn

import pyarrow as pa

from kafka_actors.errors import ConfigError

_SIMPLE: dict[str, Any] = {
    "boolean": pa.bool_(),
    "tinyint": pa.int8(),
    "byte": pa.int8(),
    "smallint": pa.int16(),
    "short": pa.int16(),
    "int": pa.int32(),
    "integer": pa.int32(),
    "bigint": pa.int64(),
    "long": pa.int64(),
    "float": pa.float32(),
    "real": pa.float32(),
    "double": pa.float64(),
    "string": pa.string(),
    "binary": pa.binary(),
    "date": pa.date32(),
    "timestamp": pa.timestamp("us", tz="UTC"),
    "timestamp_ltz": pa.timestamp("us", tz="UTC"),
    "timestamp_ntz": pa.timestamp("us"),
}
_SIZED = {"varchar", "char"}
_DECIMALS = {"decimal", "dec", "numeric"}
_TOKEN = re.compile(r"\s*(`(?:[^`]|``)+`|'(?:[^'\\]|\\.)*'|[A-Za-z_0-9]+|[<>(),:])", re.DOTALL)


def parse_ddl(text: str) -> pa.Schema:
    """The Arrow schema of a DDL string, as Spark's `DataFrame.schema` reads it. Names may be in backticks.

    Raises `ConfigError` (option `schema`) with what was expected.
    """
    return pa.schema(_Parser(text).fields(end=None))


class _Parser:
    def __init__(self, text: str) -> None:
        self._text = text
        self._tokens = list(_tokens(text))
        self._at = 0

    def fields(self, end: str | None) -> list[Any]:
        found = [self._field()]
        while self._peek() == ",":
            self._take()
            found.append(self._field())
        if end is None and self._peek() is not None:
            self._fail("a comma or the end")
        if end is not None:
            self._expect(end)
        return found

    def _field(self) -> Any:
        name = self._name()
        if self._peek() == ":":  # Spark accepts it at the top level too
            self._take()
        kind = self._type()
        nullable = True
        if self._word() == "not":
            self._take()
            if self._word() != "null":
                self._fail("NULL after NOT")
            self._take()
            nullable = False
        if self._word() == "comment":
            self._take()
            self._take()
        return pa.field(name, kind, nullable)

    def _type(self) -> Any:
        word = self._word()
        if word is None:
            self._fail("a type")
        self._take()
        if word in _SIMPLE:
            return _SIMPLE[word]
        if word in _SIZED:
            self._numbers()
            return pa.string()
        if word in _DECIMALS:
            return self._decimal()
        if word == "array":
            self._expect("<")
            element = self._type()
            self._expect(">")
            return pa.list_(element)
        if word == "map":
            self._expect("<")
            key = self._type()
            self._expect(",")
            value = self._type()
            self._expect(">")
            return pa.map_(key, value)
        if word == "struct":
            self._expect("<")
            return pa.struct(self.fields(end=">"))
        self._at -= 1
        self._fail(
            "a type (BOOLEAN, TINYINT … BIGINT, FLOAT, DOUBLE, DECIMAL, STRING, BINARY, DATE, TIMESTAMP, ARRAY, MAP, STRUCT)"
        )

    def _decimal(self) -> Any:
        numbers = self._numbers() if self._peek() == "(" else [10, 0]
        precision, scale = (*numbers, 0)[:2]
        if not 1 <= precision <= 38 or scale > precision:
            raise ConfigError(
                "schema", f"DECIMAL({precision},{scale}): accepts a precision of 1 to 38, a scale up to that"
            )
        return pa.decimal128(precision, scale)

    def _numbers(self) -> list[int]:
        self._expect("(")
        found = [self._number()]
        while self._peek() == ",":
            self._take()
            found.append(self._number())
        self._expect(")")
        return found

    def _number(self) -> int:
        token = self._peek()
        if token is None or not token.isdigit():
            self._fail("a number")
        self._take()
        return int(token)

    def _name(self) -> str:
        token = self._peek()
        if token is None or token in "<>(),:" or token[0] == "'":
            self._fail("a column's name")
        self._take()
        return token[1:-1].replace("``", "`") if token[0] == "`" else token

    def _word(self) -> str | None:
        token = self._peek()
        return None if token is None or token[0] == "`" else token.lower()

    def _peek(self) -> str | None:
        return self._tokens[self._at] if self._at < len(self._tokens) else None

    def _take(self) -> None:
        self._at += 1

    def _expect(self, token: str) -> None:
        if self._peek() != token:
            self._fail(repr(token))
        self._take()

    def _fail(self, wanted: str) -> NoReturn:
        token = self._peek()
        found = "the end" if token is None else repr(token)
        raise ConfigError("schema", f"{self._text!r}: expected {wanted}, found {found}")


def _tokens(text: str) -> Iterator[str]:
    at = 0
    while at < len(text.rstrip()):
        match = _TOKEN.match(text, at)
        if match is None:
            raise ConfigError("schema", f"{text!r}: can't read it from {text[at:].strip()[:10]!r} on")
        yield match.group(1)
        at = match.end()
