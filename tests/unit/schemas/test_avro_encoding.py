"""Which columns can be written by which Avro types, and which values of those can't."""

import datetime
import decimal
import io
import uuid

import fastavro
import pyarrow as pa
import pytest

from kafka_actors.errors import ConfigError
from kafka_actors.schemas import AvroEncoder, _reference_avro_encoder, kernels

MACHINES = [kernels.avro_writer_kernel()[1], _reference_avro_encoder.ReferenceAvroWriterMachine]
D = decimal.Decimal
UTC = datetime.UTC


@pytest.fixture(params=MACHINES, ids=["cython", "python"], autouse=True)
def machine(request, monkeypatch):
    monkeypatch.setattr("kafka_actors.schemas.avro_encoder.avro_writer_kernel", lambda: ("", request.param))


def record(kind, **more):
    return {"type": "record", "name": "R", "fields": [{"name": "a", "type": kind, **more}]}


def logical(base, name, **more):
    return {"type": base, "logicalType": name, **more}


def fixed(size, **more):
    return {"type": "fixed", "name": "F", "size": size, **more}


def encode(kind, column):
    """Returns what fastavro reads of the values, and why the others failed."""
    schema = record(kind)
    made = AvroEncoder(schema).encode(pa.record_batch({"a": column}))
    parsed = fastavro.parse_schema(schema)
    read = [
        fastavro.schemaless_reader(io.BytesIO(value), parsed, None)["a"] for value in made.values.to_pylist()
    ]
    return read, [reason.removeprefix("a: ") for _, reason in made.failures]


MOMENT = datetime.datetime(2026, 1, 2, 3, 4, 5, 678000)  # noqa: DTZ001  of a local timestamp
DAY = datetime.date(2026, 1, 2)
UUID = "e3e70682-c209-4cac-a29f-6fbed82c07cd"
MONEY = {"precision": 5, "scale": 2}


@pytest.mark.parametrize(
    ("kind", "column", "values"),
    [
        ("null", pa.nulls(1), [None]),
        ("int", pa.array([-7], pa.int8()), [-7]),
        ("int", pa.array([65535], pa.uint16()), [65535]),
        ("int", pa.array([-(2**31), 2**31 - 1], pa.int64()), [-(2**31), 2**31 - 1]),
        ("long", pa.array([2**32 - 1], pa.uint32()), [2**32 - 1]),
        ("long", pa.array([-(2**63), 2**63 - 1]), [-(2**63), 2**63 - 1]),
        ("float", pa.array([1.5, float("inf")]), [1.5, float("inf")]),
        ("float", pa.array([3], pa.int16()), [3.0]),
        ("double", pa.array([1.5], pa.float32()), [1.5]),
        ("double", pa.array([2**31 - 1], pa.int32()), [float(2**31 - 1)]),
        ("bytes", pa.array([b"", b"ab"], pa.large_binary()), [b"", b"ab"]),
        ("bytes", pa.array([b"ab"], pa.binary(2)), [b"ab"]),
        ("string", pa.array(["é"], pa.large_string()), ["é"]),
        ("string", pa.array(["é"], pa.string_view()), ["é"]),
        ("string", pa.array(["a", "b", "a"]).dictionary_encode(), ["a", "b", "a"]),
        (fixed(2), pa.array([b"ab"]), [b"ab"]),
        (fixed(2), pa.array([b"ab"], pa.binary(2)), [b"ab"]),
        ({"type": "array", "items": "int"}, pa.array([[1, 2], []], pa.large_list(pa.int32())), [[1, 2], []]),
        ({"type": "array", "items": "int"}, pa.array([[1, 2]], pa.list_(pa.int32(), 2)), [[1, 2]]),
        (["null", {"type": "array", "items": "int"}], pa.array([[1, 2], None], pa.list_(pa.int32(), 2)), [[1, 2], None]),
        ({"type": "array", "items": "int"}, pa.array([[1, 2], []], pa.list_view(pa.int32())), [[1, 2], []]),
        ({"type": "array", "items": "int"}, pa.array([[1, 2], []], pa.large_list_view(pa.int32())), [[1, 2], []]),
        ("float", pa.array([1.5], pa.float16()), [1.5]),
        ({"type": "map", "values": "int"}, pa.array([[("k", 1)]], pa.map_(pa.string(), pa.int64())), [{"k": 1}]),
        ({"type": "map", "values": "int"}, pa.array([[("k", 1)]], pa.map_(pa.large_string(), pa.int64())), [{"k": 1}]),
        (logical("int", "date"), pa.array([DAY], pa.date64()), [DAY]),
        (logical("int", "time-millis"), pa.array([5], pa.time32("s")), [datetime.time(0, 0, 5)]),
        (logical("int", "time-millis"), pa.array([5000], pa.time64("us")), [datetime.time(0, 0, 0, 5000)]),
        (logical("long", "time-micros"), pa.array([5], pa.time32("ms")), [datetime.time(0, 0, 0, 5000)]),
        (logical("long", "timestamp-millis"), pa.array([MOMENT], pa.timestamp("us", "Europe/Berlin")), [MOMENT.replace(tzinfo=UTC)]),
        (logical("long", "timestamp-micros"), pa.array([MOMENT], pa.timestamp("ms", "UTC")), [MOMENT.replace(tzinfo=UTC)]),
        (logical("long", "local-timestamp-millis"), pa.array([MOMENT], pa.timestamp("ns")), [MOMENT]),
        (logical("bytes", "decimal", **MONEY), pa.array([D("-999.99"), D("1.00"), D("-1.28"), D("1.28"), D(0)]), [D("-999.99"), D("1.00"), D("-1.28"), D("1.28"), D(0)]),
        (logical("bytes", "decimal", **MONEY), pa.array([D("1.5")], pa.decimal128(3, 1)), [D("1.50")]),
        (logical("bytes", "decimal", **MONEY), pa.array([D("1.50")], pa.decimal256(50, 2)), [D("1.50")]),
        (logical("bytes", "decimal", precision=40, scale=0), pa.array([D(10**39)], pa.decimal256(40, 0)), [D(10**39)]),
        (fixed(3, logicalType="decimal", **MONEY), pa.array([D("-999.99"), D("0.01")]), [D("-999.99"), D("0.01")]),
        (logical("string", "uuid"), pa.array([UUID]), [uuid.UUID(UUID)]),
        (["null", "long"], pa.array([1, None]), [1, None]),
        (["string", "null"], pa.array([None, "a"]), [None, "a"]),
        (["null", "long"], pa.nulls(1), [None]),
        (["null", "int", "long", "string"], pa.array([2**40, None]), [2**40, None]),
        (["null", "int", "string"], pa.array(["x", None]), ["x", None]),
        (["null", "int", "string"], pa.array([{"member0": 1}, {"member1": "x"}, {}, None], pa.struct([("member0", pa.int32()), ("member1", pa.string())])), [1, "x", None, None]),
    ],
)  # fmt: skip
def test_columns_that_give_a_type(kind, column, values):
    assert encode(kind, column) == (values, [])


@pytest.mark.parametrize("column", [pa.array([UUID]), pa.array([UUID.upper()]), pa.array([bytes.fromhex(UUID.replace("-", ""))], pa.binary(16)), pa.array([uuid.UUID(UUID)], pa.uuid())])  # fmt: skip
def test_a_uuid_of_sixteen_bytes(column):
    made = AvroEncoder(record(fixed(16, logicalType="uuid")))(pa.record_batch({"a": column}))
    assert made.to_pylist() == [bytes.fromhex(UUID.replace("-", ""))]


def test_a_duration_has_months_days_and_milliseconds():
    column = pa.array([(1, 2, 3_000_000), (-1, 0, 0), (0, 0, 1)], pa.month_day_nano_interval())
    made = AvroEncoder(record(fixed(12, logicalType="duration"))).encode(pa.record_batch({"a": column}))
    assert made.values.to_pylist() == [b"\1\0\0\0\2\0\0\0\3\0\0\0"]
    assert made.failures == [(n, "a: a duration is negative, or has parts of a millisecond") for n in (1, 2)]


@pytest.mark.parametrize(
    ("kind", "column", "said"),
    [
        ("long", pa.array([None], pa.int64()), "the value is null, which the schema doesn't allow"),
        ("int", pa.array([-(2**31) - 1]), "-2147483649 is no int of 32 bits"),
        ("float", pa.array([1e39]), "a double is too large for a float"),
        (fixed(2), pa.array([b"abc"]), "there are 3 bytes, and the schema has a fixed size"),
        ({"type": "enum", "name": "E", "symbols": ["A"]}, pa.array(["B"]), "the text is none of the enum's symbols"),
        ({"type": "enum", "name": "E", "symbols": ["A"]}, pa.array([None], pa.string()), "the value is null, which the schema doesn't allow"),
        (logical("long", "timestamp-millis"), pa.array([1001], pa.timestamp("us", "UTC")), "1001 is no whole number in the schema's unit: round it before"),
        (logical("long", "timestamp-nanos"), pa.array([2**60], pa.timestamp("us", "UTC")), "1152921504606846976 is too large in the schema's unit"),
        (logical("bytes", "decimal", **MONEY), pa.array([D("1000.00")]), "a decimal has more digits than its precision"),
        (logical("bytes", "decimal", **MONEY), pa.array([D("-1000.00")]), "a decimal has more digits than its precision"),
        (fixed(16, logicalType="uuid"), pa.array(["e3e70682-c209-4cac-a29f-6fbed82c07c_"]), "the text is no UUID"),
        (fixed(16, logicalType="uuid"), pa.array(["x"]), "the text is no UUID"),
        (["int", "string"], pa.array([{}], pa.struct([("member0", pa.int32()), ("member1", pa.string())])), "no member of the union is set, and null is none of its types"),
        (["int", "string"], pa.array([{"member0": 1, "member1": "x"}]), "2 members of the union are set"),
        ({"type": "array", "items": "int"}, pa.array([[1, None]]), "the value is null, which the schema doesn't allow"),
    ],
)  # fmt: skip
def test_values_that_fail_by_themselves(kind, column, said):
    read, failures = encode(kind, column)
    assert read == []
    assert [reason.removeprefix("a[]: ") for reason in failures] == [said]


@pytest.mark.parametrize(
    ("kind", "arrow", "said"),
    [
        ("int", pa.string(), "a: the column is string, the schema has int"),
        ("long", pa.uint64(), "a: the column is uint64, the schema has long"),
        ("double", pa.int64(), "a: the column is int64, the schema has double"),
        ("string", pa.binary(), "a: the column is binary, the schema has string"),
        ("null", pa.int32(), "a: the column is int32, the schema has null"),
        (fixed(3), pa.binary(2), r"a: the column is fixed_size_binary\[2\], the schema has F"),
        (["null", "int"], pa.string(), "a: the column is string, the schema has int"),
        (["null", "int", "boolean"], pa.string(), "a: the column is string, the schema has union of null, int, boolean"),
        ({"type": "array", "items": "int"}, pa.list_(pa.string()), r"a\[\]: the column is string, the schema has int"),
        ({"type": "map", "values": "int"}, pa.map_(pa.int32(), pa.int32()), "a: the column is map"),
        (logical("long", "timestamp-millis"), pa.timestamp("ms"), r"the schema has long \(timestamp-millis\)"),
        (logical("long", "local-timestamp-millis"), pa.timestamp("ms", "UTC"), r"has long \(local-timestamp-millis\)"),
        (logical("long", "timestamp-millis"), pa.int64(), r"the column is int64, the schema has long \(timestamp-millis\)"),
        (logical("bytes", "decimal", **MONEY), pa.decimal128(9, 3), r"a: the column is decimal128\(9, 3\), the schema has bytes \(decimal\(5, 2\)\)"),
        (record("int") | {"name": "Inner"}, pa.struct([("b", pa.int32())]), "a.b: the schema has no such field"),
        (record("int") | {"name": "Inner"}, pa.struct([]), "a.a: there is no such column, and the schema has no default"),
        (record("int") | {"name": "Inner"}, pa.int32(), "a: the column is int32, the schema has Inner"),
        (["int", "string"], pa.struct([("member2", pa.int32())]), "a.member2: the union has 2 types"),
    ],
)  # fmt: skip
def test_columns_that_can_never_be_written_are_refused_by_their_path(kind, arrow, said):
    with pytest.raises(ConfigError, match=said) as raised:
        AvroEncoder(record(kind)).check(pa.schema([("a", arrow)]))
    assert type(raised.value) is ConfigError  # which users know


def test_a_column_that_the_schema_lacks_would_be_lost_and_one_twice_is_not_clear():
    with pytest.raises(ConfigError, match="b: the schema has no such field, so the column would be lost"):
        AvroEncoder(record("int")).check(pa.schema([("a", pa.int32()), ("b", pa.int32())]))
    with pytest.raises(ConfigError, match="a: there is more than one such column"):
        AvroEncoder(record("int")).check(pa.schema([("a", pa.int32()), ("a", pa.int32())]))


@pytest.mark.parametrize(
    ("kind", "default", "value"),
    [("int", 7, 7), (["null", "int"], None, None), (["int", "null"], 7, 7), (["null", "string"], "x", "x")],
)
def test_a_field_without_a_column_has_its_default(kind, default, value):
    schema = record(kind, default=default)
    (made,) = AvroEncoder(schema)(pa.array([{}], pa.struct([]))).to_pylist()
    assert fastavro.schemaless_reader(io.BytesIO(made), fastavro.parse_schema(schema), None) == {"a": value}


def test_a_type_that_holds_itself_is_written_as_deep_as_its_columns_go():
    node = record("long")
    node["fields"].append({"name": "next", "type": ["null", "R"], "default": None})
    batch = pa.record_batch({"a": [1, 2], "next": [{"a": 3}, None]})
    made = AvroEncoder(node)(batch).to_pylist()
    parsed = fastavro.parse_schema(node)
    assert [fastavro.schemaless_reader(io.BytesIO(value), parsed, None) for value in made] == [
        {"a": 1, "next": {"a": 3, "next": None}},
        {"a": 2, "next": None},
    ]
