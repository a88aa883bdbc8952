"""Schemas from msgspec Structs, and what is refused."""

import datetime
import decimal
import enum
import uuid
from typing import Annotated, Any, Literal

import msgspec
import pyarrow as pa
import pytest

from kafka_actors.errors import ConfigError
from kafka_actors.pipeline.schemas import as_schema


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
    ("given", "said"),
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
def test_what_is_no_schema_is_refused_with_the_stage(given, said):
    with pytest.raises(ConfigError) as raised:
        as_schema("decode_json", given)
    assert raised.value.option == "decode_json"
    assert said in str(raised.value)
