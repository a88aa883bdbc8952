"""Records as text: format strings with kcat's tokens, and JSON lines in both directions.

A text is made by the batch, which has records of one partition: columns become lists, and lists become bytes, in C; Python code
runs for each column. In JSON, bytes that aren't UTF-8 stand as base64 under another name, `key_base64` or `value_base64`.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator
from functools import cache
from itertools import chain, repeat
from typing import Annotated, Any, TypeAlias

import msgspec
import pyarrow as pa
from msgspec import UNSET, Meta, Struct, UnsetType

from kafka_actors.base import decoders
from kafka_actors.base.batches import HEADERS_TYPE, numbers
from kafka_actors.errors import UsageError

__all__ = [
    "NULL",
    "JsonHeader",
    "JsonRecord",
    "RecordFormat",
    "batch_of",
    "json_lines",
    "literal",
    "unescaped",
]

Column: TypeAlias = Iterable[bytes]

_ESCAPE = re.compile(r"\\(?:x([0-9A-Fa-f]{1,2})|([0-7]{1,3})|(.))", re.DOTALL)
_NAMED = {"n": b"\n", "r": b"\r", "t": b"\t"}
NULL = b"NULL"
"""Text of a null with -Z, and of a header without a value; kcat's."""


def unescaped(text: str, option: str) -> bytes:
    r"""Bytes of a text of the command line with kcat's escapes: `\n`, `\r`, `\t`, `\xHH`, `\NNN` (octal), `\\`.

    Raises `UsageError`, which names the option, for a lone backslash at the end and for an octal number above 377."""
    found, at = b"", 0
    for match in _ESCAPE.finditer(text):
        found += text[at : match.start()].encode("utf-8", "surrogateescape")
        hexadecimal, octal, other = match.groups()
        code = int(hexadecimal, 16) if hexadecimal else int(octal, 8) if octal else 0
        if code > 0xFF:
            raise UsageError(f"{option} {text!r}: \\{octal} is more than a byte")
        found += bytes([code]) if hexadecimal or octal else _NAMED.get(other, other.encode())
        at = match.end()
    if text[at:].endswith("\\"):
        raise UsageError(f"{option} {text!r}: ends with a lone backslash")
    return found + text[at:].encode("utf-8", "surrogateescape")


def literal(text: str) -> str:
    """A text as it stands in a format string."""
    return text.replace("%", "%%")


# ------------------------------------------------------------ format strings


class RecordFormat:
    """Text of each record by a format string; `null` stands for keys and values that are null. Raises `UsageError`."""

    def __init__(self, text: str, null: bytes = b"") -> None:
        self._null = null
        self._parts: list[Callable[[pa.RecordBatch], Column]] = []
        for plain, token in _parsed(text):
            if plain:
                self._parts.append(_repeated(unescaped(plain, "--format")))
            if token == "%":
                self._parts.append(_repeated(b"%"))
            elif token:
                self._parts.append(self._column_of(token, text))

    def render(self, batch: pa.RecordBatch) -> bytes:
        """Texts of all records of a batch, one after the other."""
        rows = repeat(b"", batch.num_rows)  # literals are without end
        return b"".join(chain.from_iterable(zip(rows, *(part(batch) for part in self._parts), strict=False)))

    def _column_of(self, token: str, text: str) -> Callable[[pa.RecordBatch], Column]:
        try:
            column = _COLUMNS[token]
        except KeyError:
            known = ", ".join(f"%{name}" for name in (*_COLUMNS, "%"))
            raise UsageError(f"--format {text!r}: %{token} is none of {known}") from None
        return lambda batch: column(batch, self._null)


def _parsed(text: str) -> Iterator[tuple[str, str]]:
    """Pairs of a literal text and the token behind it, which is empty at the end."""
    plain, *rest = text.split("%")
    while rest:
        part = rest.pop(0)
        if part:
            yield plain, part[0]
            plain = part[1:]
        elif rest:  # two percent signs
            yield plain, "%"
            plain = rest.pop(0)
        else:
            raise UsageError(f"--format {text!r}: ends with a lone %")
    yield plain, ""


def _repeated(text: bytes) -> Callable[[pa.RecordBatch], Column]:
    return lambda batch: repeat(text)


def _key(batch: pa.RecordBatch, null: bytes) -> Column:
    return _binary(batch.column("key"), null)


def _value(batch: pa.RecordBatch, null: bytes) -> Column:
    return _binary(batch.column("value"), null)


def _binary(column: Any, null: bytes) -> Column:
    found: list[bytes] = (column.fill_null(null) if column.null_count else column).to_pylist()
    return found


def _sizes(column: Any) -> Iterator[int]:
    return (-1 if each is None else len(each) for each in column.to_pylist())


def _texts(values: Iterable[int]) -> Column:
    return map(b"%d".__mod__, values)


def _headers(batch: pa.RecordBatch, null: bytes) -> Column:
    rows = batch.column("headers").to_pylist()
    return (
        b",".join(
            header["key"].encode() + b"=" + (NULL if header["value"] is None else header["value"])
            for header in row or ()
        )
        for row in rows
    )


_COLUMNS: dict[str, Callable[[pa.RecordBatch, bytes], Column]] = {
    "t": lambda batch, null: repeat(batch.column("topic")[0].as_py().encode()),
    "p": lambda batch, null: _texts(numbers(batch.column("partition")).tolist()),
    "o": lambda batch, null: _texts(numbers(batch.column("offset")).tolist()),
    "k": _key,
    "s": _value,
    "T": lambda batch, null: _texts(_milliseconds(batch)),
    "h": _headers,
    "K": lambda batch, null: _texts(_sizes(batch.column("key"))),
    "S": lambda batch, null: _texts(_sizes(batch.column("value"))),
    "R": lambda batch, null: (size.to_bytes(4, "big", signed=True) for size in _sizes(batch.column("value"))),
}
"""Columns of a batch by kcat's tokens: topic, partition, offset, key, value, timestamp in milliseconds, headers, length of key and
of value, length of the value as four bytes."""


def _milliseconds(batch: pa.RecordBatch) -> list[int]:
    found: list[int] = (numbers(batch.column("timestamp")) // 1000).tolist()
    return found


# ------------------------------------------------------------ JSON lines


class JsonHeader(Struct, frozen=True, forbid_unknown_fields=True):
    """A header of a record in JSON."""

    key: str
    value: str | UnsetType | None = UNSET
    value_base64: bytes | UnsetType = UNSET


class JsonRecord(Struct, frozen=True, forbid_unknown_fields=True):
    """A record in JSON, one a line. `timestamp`: milliseconds since 1970."""

    topic: str | None = None
    partition: Annotated[int, Meta(ge=0, le=2**31 - 1)] | None = None
    offset: int | None = None
    timestamp: Annotated[int, Meta(ge=-(2**63), le=2**63 - 1)] | None = None
    key: str | UnsetType | None = UNSET
    key_base64: bytes | UnsetType = UNSET
    value: str | UnsetType | None = UNSET
    value_base64: bytes | UnsetType = UNSET
    headers: list[JsonHeader] = []


_encoder = msgspec.json.Encoder()


def json_lines(batch: pa.RecordBatch) -> bytes:
    """JSON of all records of a batch, a line for each."""
    records = map(
        JsonRecord,
        batch.column("topic").to_pylist(),
        numbers(batch.column("partition")).tolist(),
        numbers(batch.column("offset")).tolist(),
        _milliseconds(batch),
        *_text_or_base64(batch.column("key")),
        *_text_or_base64(batch.column("value")),
        _json_headers(batch.column("headers")),
    )
    return _encoder.encode_lines(records)


def _text_or_base64(column: Any) -> tuple[Iterable[Any], Iterable[Any]]:
    """Values as text, and those that aren't UTF-8 as bytes; UNSET in the place of the other."""
    try:
        return column.cast(pa.string()).to_pylist(), repeat(UNSET)
    except pa.ArrowInvalid:
        pairs = [_text_or_bytes(value) for value in column.to_pylist()]
        return [text for text, _ in pairs], [raw for _, raw in pairs]


def _text_or_bytes(value: bytes | None) -> tuple[str | UnsetType | None, bytes | UnsetType]:
    try:
        return (None if value is None else value.decode()), UNSET
    except UnicodeDecodeError:
        return UNSET, value if value is not None else UNSET


def _json_headers(column: Any) -> Iterable[list[JsonHeader]]:
    if column.null_count == len(column):
        return repeat([])
    return [
        [JsonHeader(header["key"], *_text_or_bytes(header["value"])) for header in row or ()]
        for row in column.to_pylist()
    ]


# ------------------------------------------------------------ JSON lines that are read


def batch_of(
    lines: Iterable[tuple[int, bytes]], failed: Callable[[int, str], object]
) -> tuple[list[int], pa.RecordBatch]:
    """Batch of the records in numbered lines of JSON, with the columns that a producer takes, and the number of each row's line.

    `failed` is called with the number of a line that is no record, and the reason."""
    decode = _decoder().decode
    found: list[int] = []
    records: list[JsonRecord] = []
    for number, line in lines:
        try:
            record = decode(line)
        except decoders.UNREADABLE as error:
            failed(number, str(error))
            continue
        if wrong := _wrong(record):
            failed(number, wrong)
            continue
        found.append(number)
        records.append(record)
    columns = {
        "topic": pa.array([record.topic for record in records], pa.string()),
        "partition": pa.array([record.partition for record in records], pa.int32()),
        "timestamp": pa.array([record.timestamp for record in records], pa.int64()),
        "key": pa.array([_bytes(record.key, record.key_base64) for record in records], pa.binary()),
        "value": pa.array([_bytes(record.value, record.value_base64) for record in records], pa.binary()),
        "headers": pa.array([_pairs(record.headers) for record in records], HEADERS_TYPE),
    }
    return found, pa.RecordBatch.from_pydict(columns)


@cache
def _decoder() -> msgspec.json.Decoder[JsonRecord]:
    return decoders.json(JsonRecord)


def _wrong(record: JsonRecord) -> str | None:
    """Reason why a record can't be sent; None if it can."""
    if record.value is UNSET and record.value_base64 is UNSET:
        return "has neither value nor value_base64: write null for a tombstone"
    if record.value is not UNSET and record.value_base64 is not UNSET:
        return "has both value and value_base64"
    if record.key is not UNSET and record.key_base64 is not UNSET:
        return "has both key and key_base64"
    return None


def _bytes(text: str | UnsetType | None, raw: bytes | UnsetType) -> bytes | None:
    if raw is not UNSET:
        return raw
    return None if text is None or text is UNSET else text.encode()


def _pairs(headers: list[JsonHeader]) -> list[dict[str, str | bytes | None]] | None:
    return [{"key": each.key, "value": _bytes(each.value, each.value_base64)} for each in headers] or None
