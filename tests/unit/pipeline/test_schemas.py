"""Schemas from msgspec Structs and from DDL strings as Spark reads them, and what is refused."""

import datetime
import decimal
import enum
import uuid
from typing import Annotated, Any, Literal

import msgspec
import pyarrow as pa
import pytest

from kafka_actors.errors import ConfigError
from kafka_actors.pipeline.schemas import as_schema, parse_ddl


class Kind(enum.Enum):
    A = "a"


class Line(msgspec.Struct):
    sku: str
    pieces: int | None = None


class Order(msgspec.Struct):
    id: int
    amount: Annotated[float, msgspec.Meta(ge=0)]
    lines: list[Line]
    at: datetime.datetime
    day: datetime.date
    price: decimal.Decimal
    tags: dict[str, int | None]
    ref: uuid.UUID
    kind: Kind
    state: Literal["new", "paid"]
    raw: bytes = b""
    note: str | None = None


class Tree(msgspec.Struct):
    children: list["Tree"]


class Loose(msgspec.Struct):
    anything: Any


class Either(msgspec.Struct):
    id: int | str


def test_a_struct_is_a_schema():
    line = pa.struct([pa.field("sku", pa.string(), False), pa.field("pieces", pa.int64())])
    assert as_schema("s", Order) == pa.schema(
        [
            pa.field("id", pa.int64(), False),
            pa.field("amount", pa.float64(), False),
            pa.field("lines", pa.list_(pa.field("element", line, False)), False),
            pa.field("at", pa.timestamp("us", tz="UTC"), False),
            pa.field("day", pa.date32(), False),
            pa.field("price", pa.decimal128(38, 18), False),
            pa.field("tags", pa.map_(pa.string(), pa.field("value", pa.int64())), False),
            pa.field("ref", pa.string(), False),
            pa.field("kind", pa.string(), False),
            pa.field("state", pa.string(), False),
            pa.field("raw", pa.binary(), False),
            pa.field("note", pa.string()),
        ]
    )


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        (Tree, "field 'element' holds itself"),
        (Loose, "field 'anything' is any"),
        (Either, "field 'id' is union"),
        (7, "schema: is 7, an int: accepts a pyarrow Schema, a DDL string"),
        ("id INT, id INT", "more than one column 'id'"),
        ("_kafka INT", "'_kafka'"),
        (pa.schema([]), "has no columns"),
    ],
)
def test_what_is_no_schema_is_refused_with_the_stage(wrong, said):
    with pytest.raises(ConfigError) as raised:
        as_schema("decode_json", wrong)
    assert raised.value.option == "decode_json"
    assert said in str(raised.value)


@pytest.mark.parametrize(
    ("word", "arrow"),
    [
        ("BOOLEAN", pa.bool_()),
        ("TINYINT", pa.int8()),
        ("BYTE", pa.int8()),
        ("SMALLINT", pa.int16()),
        ("INT", pa.int32()),
        ("integer", pa.int32()),
        ("BIGINT", pa.int64()),
        ("long", pa.int64()),
        ("FLOAT", pa.float32()),
        ("DOUBLE", pa.float64()),
        ("DECIMAL", pa.decimal128(10, 0)),
        ("DECIMAL(5)", pa.decimal128(5, 0)),
        ("DECIMAL(12, 2)", pa.decimal128(12, 2)),
        ("STRING", pa.string()),
        ("VARCHAR(10)", pa.string()),
        ("BINARY", pa.binary()),
        ("DATE", pa.date32()),
        ("TIMESTAMP", pa.timestamp("us", tz="UTC")),
        ("TIMESTAMP_NTZ", pa.timestamp("us")),
        ("ARRAY<INT>", pa.list_(pa.int32())),
        ("MAP<STRING, ARRAY<INT>>", pa.map_(pa.string(), pa.list_(pa.int32()))),
        (
            "STRUCT<a: INT, b: STRUCT<c: DATE>>",
            pa.struct({"a": pa.int32(), "b": pa.struct({"c": pa.date32()})}),
        ),
    ],
)
def test_types(word, arrow):
    assert parse_ddl(f"x {word}") == pa.schema({"x": arrow})


def test_names_may_be_quoted_and_columns_not_null_or_with_a_comment():
    found = parse_ddl("id BIGINT NOT NULL COMMENT 'the id, of course', `odd, name ``1`` ` STRING,\n at: DATE")
    assert found.names == ["id", "odd, name `1` ", "at"]
    assert [f.nullable for f in found] == [False, True, True]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "expected a column's name, found the end"),
        ("id", "expected a type, found the end"),
        ("id BIGINTT", "found 'BIGINTT'"),
        ("id INT name STRING", "expected a comma or the end, found 'name'"),
        ("a ARRAY<INT", "expected '>', found the end"),
        ("a DECIMAL(40,2)", "DECIMAL(40,2)"),
        ("a INT NOT", "expected NULL after NOT"),
        ("a INT; drop", "can't read it from '; drop'"),
    ],
)
def test_what_cannot_be_read_is_named(text, said):
    with pytest.raises(ConfigError) as raised:
        parse_ddl(text)
    assert raised.value.option == "schema"
    assert said in str(raised.value)
