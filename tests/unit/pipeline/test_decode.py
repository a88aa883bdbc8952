"""A decoder gives one row or one error for each record, and never a row for another record's."""

import datetime
import decimal
import enum
import re
import uuid
from typing import NamedTuple, TypedDict

import msgspec
import pyarrow as pa
import pytest
from fakes.records import records

from kafka_actors.errors import ConfigError, StageError
from kafka_actors.pipeline import Pipeline
from kafka_actors.pipeline.fused import FusedSteps

READ = Pipeline.read_kafka("orders", bootstrap_servers="localhost:9092")
SCHEMA = "id BIGINT NOT NULL, name STRING, amount DOUBLE"


def run(pipeline, source):
    return FusedSteps(pipeline.check().steps).run(source)


def rows_of(outcome):
    return [row for rows in outcome.rows for row in rows.batch.to_pylist()]


def offsets_of(outcome, source):
    return [o for rows in outcome.rows for o in rows.with_kafka(source)["_kafka"].field("offset").to_pylist()]


GOOD = [b'{"id": %d, "name": "n%d", "amount": %d.5}' % (n, n, n) for n in range(7)]

BAD = {
    "null": (None, "tombstone"),
    "empty": (b"", "the value is empty"),
    "whitespace": (b" \t\n ", "only whitespace"),
    "two documents": (b'{"id": 1} {"id": 2}', "trailing characters"),
    "two documents, a line each": (b'{"id": 1}\n{"id": 2}', "trailing characters"),
    "a line break in a text": (b'{"id": 1, "name": "a\nb"}', "invalid character"),
    "BOM": (b'\xef\xbb\xbf{"id": 1}', "byte order mark"),
    "bad UTF-8": (b'{"id": 1, "name": "\xff"}', "the value is not UTF-8: byte 0xff at position 19"),
    "lone surrogate": (b'{"id": 1, "name": "\\ud800 and more"}', "surrogate"),
    "array": (b'[{"id": 1}]', "Expected `object`, got `array`"),
    "a JSON null": (b"null", "Expected `object`, got `null`"),
    "half": (b'{"id": 1, "na', "truncated"),
    "wrong type": (b'{"id": "1"}', "Expected `int`, got `str` - at `$.id`"),
    "too large": (b'{"id": 9223372036854775808}', "column 'id'"),
    "missing": (b'{"name": "x"}', "missing required field `id`"),
    "null for NOT NULL": (b'{"id": null}', "Expected `int`, got `null`"),
    "no JSON": (b"\x00\x01\x02", "malformed"),
    "very deep": (b'{"id": 1, "x": ' + b"[" * 100_000, ""),
}


@pytest.mark.parametrize("at", [0, 3, 6])
@pytest.mark.parametrize("kind", BAD)
def test_a_bad_record_is_one_error_and_moves_no_other(kind, at):
    bad, said = BAD[kind]
    values = [*GOOD[:at], bad, *GOOD[at + 1 :]]
    source = records(values)
    outcome = run(READ.decode_json(SCHEMA, on_error="skip"), source)
    assert [f.record for f in outcome.failures] == [at]
    assert outcome.failures[0].stage == "decode_json"
    assert said in outcome.failures[0].reason
    good = [n for n in range(7) if n != at]
    assert rows_of(outcome) == [{"id": n, "name": f"n{n}", "amount": n + 0.5} for n in good]
    assert offsets_of(outcome, source) == [100 + n for n in good]


@pytest.mark.parametrize(
    "value",
    [
        b'\n{"id": 1,\n "name": "x"}\n',
        b'  {"id":1,"name":"x"}  ',
        b'{"name": "x", "more": [1, {"id": 9}], "id": 1}',
        b'{"id": 2, "name": "x", "id": 1}',
        b'{"id": 1, "name": "\\u0078"}',
    ],
)
def test_one_document_however_it_is_written_is_one_row(value):
    source = records([GOOD[0], value, GOOD[2]])
    outcome = run(READ.decode_json(SCHEMA), source)
    assert rows_of(outcome)[1] == {"id": 1, "name": "x", "amount": None}
    assert offsets_of(outcome, source) == [100, 101, 102]


def test_under_fail_the_error_names_stage_topic_partition_and_offset():
    with pytest.raises(StageError) as raised:
        run(READ.decode_json(SCHEMA), records([GOOD[0], b"", GOOD[1], b"x"]))
    error = raised.value
    assert (error.stage, error.topic, error.partition) == ("decode_json", "orders", 3)
    assert (error.first_offset, error.last_offset) == (101, 101)
    assert str(error) == "stage decode_json failed on orders-3 offset 101 after 1 attempt: the value is empty"


def test_a_batch_in_which_all_fails_gives_no_rows():
    outcome = run(READ.decode_json(SCHEMA, on_error="skip"), records([b"", b"x"]))
    assert outcome.rows == []
    assert [f.record for f in outcome.failures] == [0, 1]


def test_every_type_of_a_schema():
    schema = (
        "b BOOLEAN, t TINYINT, s SMALLINT, i INT, l BIGINT, f FLOAT, d DOUBLE, dec DECIMAL(10,2), str STRING, "
        "bin BINARY, day DATE, at TIMESTAMP, local TIMESTAMP_NTZ, arr ARRAY<INT>, m MAP<STRING, INT>, "
        "st STRUCT<x: INT, `odd name`: STRING>"
    )
    value = (
        b'{"b": true, "t": -128, "s": 3, "i": 4, "l": 5, "f": 0.5, "d": 1, "dec": 1.10, "str": "x", "bin": "YWI=", '
        b'"day": "2026-01-02", "at": "2026-01-02T03:04:05.000006+02:00", "local": "2026-01-02T03:04:05", '
        b'"arr": [1, null], "m": {"k": 7}, "st": {"x": 1, "odd name": "y"}}'
    )
    (row, empty) = rows_of(run(READ.decode_json(schema), records([value, b"{}"])))
    utc = datetime.UTC
    assert row == {
        "b": True,
        "t": -128,
        "s": 3,
        "i": 4,
        "l": 5,
        "f": 0.5,
        "d": 1.0,
        "dec": decimal.Decimal("1.10"),
        "str": "x",
        "bin": b"ab",
        "day": datetime.date(2026, 1, 2),
        "at": datetime.datetime(2026, 1, 2, 1, 4, 5, 6, tzinfo=utc),
        "local": datetime.datetime(2026, 1, 2, 3, 4, 5),  # noqa: DTZ001
        "arr": [1, None],
        "m": [("k", 7)],
        "st": {"x": 1, "odd name": "y"},
    }
    assert set(empty.values()) == {None}


def test_names_within_a_struct_may_be_of_any_language():
    schema = "größe STRUCT<größe: INT, `Ā`: ARRAY<STRUCT<`名`: STRING NOT NULL>>, at: TIMESTAMP>, l ARRAY<STRUCT<é: BINARY>>"
    schema = schema.replace("größe", "`größe`").replace("é", "`é`")
    value = '{"größe": {"größe": 7, "Ā": [{"名": "x"}], "at": "2026-01-02T00:00:00Z"}, "l": [{"é": "YQ=="}, null, {}]}'
    outcome = run(
        READ.decode_json(schema, on_error="skip"),
        records([value.encode(), '{"größe": {"Ā": [{}]}}'.encode(), b"{}"]),
    )
    at = datetime.datetime(2026, 1, 2, tzinfo=datetime.UTC)
    assert rows_of(outcome) == [
        {"größe": {"größe": 7, "Ā": [{"名": "x"}], "at": at}, "l": [{"é": b"a"}, None, {"é": None}]},
        {"größe": None, "l": None},
    ]
    assert [f.reason for f in outcome.failures] == ["Object missing required field `名` - at `$.größe.Ā[0]`"]


@pytest.mark.parametrize("name", ['a"b', "a\\b", "a\nb"])
def test_a_name_that_is_none_in_json_without_escapes_is_refused(name):
    pipeline = READ.decode_json(pa.schema([(name, pa.int32())]))
    with pytest.raises(ConfigError, match=r"^decode_json: schema: .*must not contain"):
        pipeline.check()
    schema = pa.schema([("s", pa.struct([(name, pa.int32())]))])
    (row,) = rows_of(run(READ.decode_json(schema), records([msgspec.json.encode({"s": {name: 5}})])))
    assert row == {"s": {name: 5}}


@pytest.mark.parametrize(
    ("kind", "value"),
    [
        (pa.int8(), b"128"),
        (pa.uint16(), b"-1"),
        (pa.uint64(), b"18446744073709551616"),
        (pa.float32(), b"1e39"),
        (pa.decimal128(4, 2), b"1.234"),
        (pa.decimal128(4, 2), b"123.4"),
        (pa.timestamp("ms"), b'"2026-01-02T03:04:05.000006"'),
        (pa.timestamp("ns"), b'"9999-01-01T00:00:00"'),
        (pa.time32("ms"), b'"03:04:05.000006"'),
        (pa.struct([("t", pa.timestamp("ms"))]), b'{"t": "2026-01-02T03:04:05.000006"}'),
        (pa.list_(pa.timestamp("s", tz="UTC")), b'["2026-01-02T03:04:05.6Z"]'),
        (pa.list_(pa.time32("s"), 1), b'["03:04:05.6"]'),
        (pa.map_(pa.string(), pa.timestamp("ms")), b'{"a": "2026-01-02T03:04:05.000006"}'),
        (pa.binary(2), b'"YWJj"'),
        (pa.date32(), b'"2026-02-30"'),
    ],
)
def test_a_value_that_a_column_cannot_hold_is_an_error_of_its_record(kind, value):
    schema = pa.schema([pa.field("x", kind)])
    source = records([b"{}", b'{"x": %b}' % value, b"{}"])
    outcome = run(READ.decode_json(schema, on_error="skip"), source)
    assert [f.record for f in outcome.failures] == [1]
    assert "x" in outcome.failures[0].reason
    assert offsets_of(outcome, source) == [100, 102]


@pytest.mark.parametrize(
    ("kind", "value"),
    [
        (pa.timestamp("us"), '"2024-01-01T00:00:00+05:00"'),
        (pa.timestamp("us"), '"2024-01-01T00:00:00Z"'),
        (pa.timestamp("ms"), '"2024-01-01T00:00:00+05:00"'),
        (pa.time64("us"), '"10:00:00+05:00"'),
        (pa.struct([("t", pa.timestamp("us"))]), '{"t": "2024-01-01T00:00:00+05:00"}'),
        (pa.struct([("größe", pa.timestamp("us"))]), '{"größe": "2024-01-01T00:00:00+05:00"}'),
        (pa.list_(pa.timestamp("us")), '["2024-01-01T00:00:00+05:00"]'),
        (pa.map_(pa.string(), pa.timestamp("us")), '{"a": "2024-01-01T00:00:00+05:00"}'),
    ],
)
def test_a_time_with_a_zone_is_an_error_of_its_record_where_its_column_has_none(kind, value):
    without = value.replace("+05:00", "").replace("Z", "")
    source = records([b"{}", *(f'{{"x": {text}}}'.encode() for text in (value, without))])
    outcome = run(READ.decode_json(pa.schema({"x": kind}), on_error="skip"), source)
    assert [f.record for f in outcome.failures] == [1]
    assert re.search(r"^column 'x': .*00:00\+0[05]:00 has a time zone", outcome.failures[0].reason)
    assert offsets_of(outcome, source) == [100, 102]


class Opening(msgspec.Struct):
    at: datetime.time


def test_a_time_of_day_with_a_zone_is_an_error_of_its_record_in_a_struct_too():
    outcome = run(
        READ.decode_json(Opening, on_error="skip"),
        records([b'{"at": "10:00:00+05:00"}', b'{"at": "10:00:00"}']),
    )
    assert [f.reason for f in outcome.failures] == ["column 'at': 10:00:00+05:00 has a time zone"]
    assert rows_of(outcome) == [{"at": datetime.time(10)}]


def test_times_that_are_coarser_than_microseconds_may_be_anywhere():
    at = pa.timestamp("ms", tz="UTC")
    schema = pa.schema({"x": pa.struct([("l", pa.list_(at)), ("m", pa.map_(pa.string(), pa.time32("s")))])})
    value = b'{"x": {"l": ["2026-01-02T03:04:05.006Z", null], "m": {"a": "03:04:05"}}}'
    outcome = run(READ.decode_json(schema), records([value, b"{}"]))
    assert outcome.rows[0].batch.schema == schema
    moment = datetime.datetime(2026, 1, 2, 3, 4, 5, 6000, tzinfo=datetime.UTC)
    assert rows_of(outcome) == [
        {"x": {"l": [moment, None], "m": [("a", datetime.time(3, 4, 5))]}},
        {"x": None},
    ]


class Kind(enum.Enum):
    BIG = "big"


class Line(msgspec.Struct):
    sku: str


class Order(msgspec.Struct, rename="camel"):
    order_id: int
    ref: uuid.UUID
    kind: Kind
    lines: list[Line] = []


def test_a_struct_of_the_users_decodes_and_validates():
    value = b'{"orderId": 1, "ref": "12345678-1234-5678-1234-567812345678", "kind": "big", "lines": [{"sku": "a"}]}'
    outcome = run(READ.decode_json(Order, on_error="skip"), records([value, value.replace(b"big", b"odd")]))
    assert rows_of(outcome) == [
        {
            "order_id": 1,
            "ref": "12345678-1234-5678-1234-567812345678",
            "kind": "big",
            "lines": [{"sku": "a"}],
        }
    ]
    assert outcome.failures[0].reason == "Invalid enum value 'odd' - at `$.kind`"


class Item(msgspec.Struct, rename="camel", omit_defaults=True):
    unit_price: decimal.Decimal
    item_count: int = 1
    when: datetime.datetime | None = None
    of_kind: Kind | msgspec.UnsetType = msgspec.UNSET


class Place(msgspec.Struct, array_like=True):
    lat: float
    lon: float
    name: str


class Box(NamedTuple):
    item: Item
    weight: int
    place: Place | None = None


class Extra(TypedDict, total=False):
    note: str
    more: dict[str, Item]


class Parcel(msgspec.Struct):
    first: Item
    place: Place
    items: list[Item | None]
    boxes: list[Box]
    extra: Extra
    ref: uuid.UUID | msgspec.UnsetType = msgspec.UNSET
    count: int | msgspec.UnsetType = msgspec.UNSET


def test_a_struct_within_a_struct_has_its_attributes_however_it_stands_in_json():
    value = (
        b'{"first": {"unitPrice": 2.5, "itemCount": 1}, "place": [1.5, 2.5, "home"], "items": [{"unitPrice": 1}, null], '
        b'"boxes": [[{"unitPrice": 3, "ofKind": "big"}, 4]], "extra": {"more": {"a": {"unitPrice": 7}}}}'
    )
    item = {"item_count": 1, "when": None, "of_kind": None}
    (row,) = rows_of(run(READ.decode_json(Parcel), records([value])))
    assert row == {
        "first": {**item, "unit_price": decimal.Decimal("2.5")},
        "place": {"lat": 1.5, "lon": 2.5, "name": "home"},
        "items": [{**item, "unit_price": decimal.Decimal(1)}, None],
        "boxes": [
            {"item": {**item, "unit_price": decimal.Decimal(3), "of_kind": "big"}, "weight": 4, "place": None}
        ],
        "extra": {"note": None, "more": [("a", {**item, "unit_price": decimal.Decimal(7)})]},
        "ref": None,
        "count": None,
    }
    columns = READ.decode_json(Parcel).check().columns
    assert columns.field("count").nullable
    assert columns.field("ref").nullable
    assert columns.field("first").type.field("of_kind").nullable
    assert columns.field("extra").type.field("note").nullable
    assert not columns.field("first").type.field("unit_price").nullable


class Measured(msgspec.Struct):
    value: float
    error: float | msgspec.UnsetType = msgspec.UNSET


def test_what_is_unset_is_null():
    found = rows_of(
        run(READ.decode_json(Measured), records([b'{"value": 1}', b'{"value": 2, "error": 0.5}']))
    )
    assert found == [{"value": 1.0, "error": None}, {"value": 2.0, "error": 0.5}]
