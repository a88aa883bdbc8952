"""Avro and raw values: one row or one error for each record, as with JSON."""

import datetime
import decimal
import io

import pyarrow as pa
import pytest
from fakes.records import records

from kafka_actors.errors import ConfigError
from kafka_actors.pipeline import Pipeline
from kafka_actors.pipeline.fused import FusedSteps

fastavro = pytest.importorskip("fastavro")

READ = Pipeline.read_kafka("orders", bootstrap_servers="localhost:9092")
AVRO = {
    "type": "record",
    "name": "Order",
    "fields": [
        {"name": "id", "type": "long"},
        {"name": "name", "type": ["null", "string"]},
        {"name": "at", "type": {"type": "long", "logicalType": "timestamp-micros"}},
        {"name": "price", "type": {"type": "bytes", "logicalType": "decimal", "precision": 6, "scale": 2}},
        {"name": "ref", "type": {"type": "string", "logicalType": "uuid"}},
        {
            "name": "lines",
            "type": {
                "type": "array",
                "items": {"type": "record", "name": "Line", "fields": [{"name": "sku", "type": "string"}]},
            },
        },
        {"name": "first", "type": ["null", "Line"]},
        {"name": "counts", "type": {"type": "map", "values": "int"}},
    ],
}
ROW = {
    "id": 1,
    "name": "x",
    "at": datetime.datetime(2026, 1, 2, tzinfo=datetime.UTC),
    "price": decimal.Decimal("1.10"),
    "ref": "12345678-1234-5678-1234-567812345678",
    "lines": [{"sku": "a"}],
    "first": {"sku": "b"},
    "counts": {"k": 7},
}


def written(row):
    stream = io.BytesIO()
    fastavro.schemaless_writer(stream, fastavro.parse_schema(AVRO), row)
    return stream.getvalue()


def run(pipeline, values):
    return FusedSteps(pipeline.check().steps).run(records(values))


@pytest.mark.parametrize(
    ("bad", "said"),
    [
        (None, "tombstone"),
        (b"", "ends before"),
        (written(ROW)[:-1], "ends before"),
        (written(ROW) + b"x", "1 bytes follow the record"),
        (written(ROW) * 2, "bytes follow the record"),
    ],
)
@pytest.mark.parametrize("at", [0, 1, 2])
def test_avro_gives_one_row_or_one_error(bad, said, at):
    rows = [written({**ROW, "id": n}) for n in range(3)]
    rows[at] = bad
    outcome = run(READ.decode_avro(AVRO, on_error="skip"), rows)
    assert [f.record for f in outcome.failures] == [at]
    assert said in outcome.failures[0].reason
    (found,) = outcome.rows
    assert found.batch["id"].to_pylist() == found.origin.tolist() == [n for n in range(3) if n != at]


def test_avro_types():
    (found,) = run(READ.decode_avro(AVRO), [written(ROW)]).rows
    assert found.batch.schema.field("id") == pa.field("id", pa.int64(), False)
    assert found.batch.schema.field("name").nullable
    assert found.batch.to_pylist(maps_as_pydicts="strict") == [ROW]


def record(name, *fields, **more):
    return {"type": "record", "name": name, "fields": [{"name": n, "type": t} for n, t in fields], **more}


def test_avro_types_are_found_by_their_full_names():
    """As Java writes them: without a namespace where it is the one around them, else with it."""
    city, number = record("Address", ("city", "string"), namespace="geo"), record("Address", ("no", "long"))
    inner = record(
        "shop.parts.Line", ("sku", "string"), ("mark", {"type": "enum", "name": "Mark", "symbols": ["A"]})
    )
    avro = record(
        "Order",
        ("home", city),
        ("bill", number),
        ("work", "geo.Address"),
        ("first", ["null", "Address"]),
        ("again", "shop.Address"),
        ("lines", {"type": "array", "items": inner}),
        ("best", ["null", "shop.parts.Line"]),
        ("mark", "shop.parts.Mark"),
        namespace="shop",
    )
    row = {
        "home": {"city": "a"},
        "bill": {"no": 1},
        "work": {"city": "b"},
        "first": {"no": 2},
        "again": {"no": 3},
        "lines": [{"sku": "x", "mark": "A"}],
        "best": None,
        "mark": "A",
    }
    stream = io.BytesIO()
    fastavro.schemaless_writer(stream, fastavro.parse_schema(avro), row)
    (found,) = run(READ.decode_avro(avro), [stream.getvalue()]).rows
    assert found.batch.to_pylist() == [row]
    loop = record("R", ("x", ["null", "shop.R"]), namespace="shop")
    with pytest.raises(ConfigError, match=r"^decode_avro: schema: field 'x' is shop.R, which holds itself"):
        READ.decode_avro(loop)
    elsewhere = record("R", ("a", city), ("x", "Address"), namespace="shop")
    with pytest.raises(ConfigError, match=r"names the type 'Address', which isn't defined before"):
        READ.decode_avro(elsewhere)


def test_behind_a_schema_id_only_values_with_that_id():
    framed = b"\0\0\0\0\x07" + written(ROW)
    other = b"\0\0\0\0\x08" + written(ROW)
    outcome = run(READ.decode_avro(AVRO, schema_id=7, on_error="skip"), [framed, other, written(ROW), b"\0"])
    assert outcome.rows[0].origin.tolist() == [0]
    assert outcome.failures[0].reason == "the value was written with schema id 8, not 7"
    assert "begins with byte 2, not with the frame of a registry" in outcome.failures[1].reason
    assert "shorter than the five bytes" in outcome.failures[2].reason


@pytest.mark.parametrize(
    ("avro", "said"),
    [
        ("{", "no Avro schema in JSON"),
        (7, "is an int"),
        (
            {"type": "record", "name": "R", "fields": [{"name": "x", "type": ["int", "int"]}]},
            "same type twice",
        ),
        ({"type": "record", "name": "R", "fields": [{"name": "x", "type": ["null", "R"]}]}, "holds itself"),
        (
            {"type": "record", "name": "R", "fields": [{"name": "x", "type": "nothing"}]},
            "names the type 'nothing'",
        ),
        (
            {
                "type": "record",
                "name": "R",
                "fields": [
                    {"name": "x", "type": {"type": "bytes", "logicalType": "decimal", "precision": 77}}
                ],
            },
            "a decimal with precision 77",
        ),
        ({"type": "record", "name": "R", "fields": [{"name": "x"}]}, "which has no 'type'"),
    ],
)
def test_avro_schemas_that_no_columns_can_hold_are_refused(avro, said):
    with pytest.raises(ConfigError, match=f"^decode_avro: schema: .*{said}"):
        READ.decode_avro(avro)


@pytest.mark.parametrize(
    ("names", "said"),
    [(["x", "x"], "has the field 'x' twice"), (["_kafka"], "the hidden column's")],
)
def test_avro_fields_that_are_no_columns_are_refused(names, said):
    with pytest.raises(ConfigError, match=f"^decode_avro: .*{said}"):
        READ.decode_avro(record("R", *((name, "int") for name in names)))


@pytest.mark.parametrize("no_id", ["7", -1, True, 2**32, 7.0])
def test_a_schema_id_that_no_value_can_have_is_refused(no_id):
    with pytest.raises(ConfigError, match=r"^decode_avro: schema_id is .*accepts a number"):
        READ.decode_avro(AVRO, schema_id=no_id)


def test_an_avro_field_may_always_be_null():
    avro = record(
        "R", ("n", "null"), ("u", ["null"]), ("l", {"type": "array", "items": "null"}), ("x", "int")
    )
    (found,) = run(READ.decode_avro(avro), [b"\0\4\0\2"]).rows
    assert found.batch.to_pylist() == [{"n": None, "u": None, "l": [None, None], "x": 1}]


def test_raw_keeps_keys_and_values_and_as_text_finds_what_is_none():
    source = records([b"a", b"\xff", None], keys=[b"k", None, b"\xfe"])
    (found,) = FusedSteps(READ.raw().check().steps).run(source).rows
    assert found.batch.to_pydict() == {"key": [b"k", None, b"\xfe"], "value": [b"a", b"\xff", None]}
    outcome = FusedSteps(READ.raw(text=True, on_error="skip").check().steps).run(source)
    assert outcome.rows[0].batch.to_pydict() == {"key": ["k"], "value": ["a"]}
    assert [(f.record, f.reason.partition(":")[0]) for f in outcome.failures] == [
        (1, "the value is not UTF-8"),
        (2, "the key is not UTF-8"),
    ]
