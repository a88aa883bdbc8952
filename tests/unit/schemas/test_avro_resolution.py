"""Schema resolution: what is refused by its path when a program is made, and what fails only for the values that have it."""

import io

import fastavro
import numpy as np
import pyarrow as pa
import pytest

from kafka_actors.errors import ConfigError
from kafka_actors.schemas import kernels
from kafka_actors.schemas.avro_resolution import program
from kafka_actors.schemas.avro_schema import parse


def record(*fields, name="R", **more):
    made = [{"name": n, "type": t, **dict(rest[0] if rest else {})} for n, t, *rest in fields]
    return {"type": "record", "name": name, "fields": made, **more}


def read(writer, reader, *rows):
    """Rows and reasons of values that a writer wrote, by a reader's schema."""
    values = []
    for row in rows:
        stream = io.BytesIO()
        fastavro.schemaless_writer(stream, fastavro.parse_schema(writer), row)
        values.append(stream.getvalue())
    made = program(parse(writer), parse(reader))
    batch, failures = kernels.avro_kernel()[1](made).run(
        pa.array(values, pa.binary()), np.arange(len(values), dtype=np.int32), 0
    )
    batch.validate(full=True)
    return batch.to_pylist(), [made.reason(*failure[1:]) for failure in failures]


LONG, DATE = "long", {"type": "int", "logicalType": "date"}
MILLIS = {"type": "long", "logicalType": "timestamp-millis"}
MICROS = {"type": "long", "logicalType": "timestamp-micros"}


@pytest.mark.parametrize(
    ("writer", "reader", "said"),
    [
        (LONG, "string", "x: writer long, reader string"),
        (LONG, "int", "x: writer long, reader int"),
        (MILLIS, MICROS, "x: writer long (timestamp-millis), reader long (timestamp-micros)"),
        (
            {"type": "bytes", "logicalType": "decimal", "precision": 9, "scale": 2},
            {"type": "bytes", "logicalType": "decimal", "precision": 9, "scale": 3},
            "x: writer bytes (decimal(9, 2)), reader bytes (decimal(9, 3))",
        ),
        (["null", "int"], "string", "x: writer null, reader string"),
        ("int", ["null", "string"], "x: writer int, reader union of null, string"),
        (
            {"type": "array", "items": "int"},
            {"type": "array", "items": "string"},
            "x[]: writer int, reader string",
        ),
        (
            {"type": "map", "values": "int"},
            {"type": "map", "values": "bytes"},
            "x{}: writer int, reader bytes",
        ),
        (record(("a", "int"), name="A"), record(("a", "string"), name="A"), "x.a: writer int, reader string"),
        (record(name="A"), record(name="B"), "x: writer A, reader B"),
        (
            {"type": "fixed", "name": "F", "size": 2},
            {"type": "fixed", "name": "F", "size": 3},
            "x: writer F, reader F",
        ),
    ],
    ids=str,
)
def test_what_can_never_be_read_is_refused_by_its_path(writer, reader, said):
    with pytest.raises(ConfigError) as raised:
        program(parse(record(("x", writer))), parse(record(("x", reader))))
    assert said in str(raised.value)
    assert type(raised.value) is ConfigError  # which users know


def test_a_field_that_nobody_writes_needs_a_default():
    with pytest.raises(
        ConfigError, match="x: the writer doesn't have it, and the reader has no default for it"
    ):
        program(parse(record()), parse(record(("x", "int"))))


def test_fields_are_found_by_name_before_alias_and_others_are_skipped():
    writer = record(("old", "int"), ("gone", {"type": "array", "items": "string"}), ("b", "string"))
    reader = record(("new", LONG, {"aliases": ["older", "old"]}), ("c", "int", {"default": 5}))
    assert read(writer, reader, {"old": 3, "gone": ["x", "y"], "b": "z"}) == ([{"new": 3, "c": 5}], [])
    both = record(("old", LONG), ("new", LONG, {"aliases": ["old"], "default": 9}))
    assert read(record(("old", "int")), both, {"old": 3}) == ([{"old": 3, "new": 9}], [])


def test_a_record_is_found_by_its_alias_and_without_its_namespace():
    reader = record(("x", "int"), name="new.Name", aliases=["Old"])
    assert read(record(("x", "int"), name="a.Old"), reader, {"x": 1}) == ([{"x": 1}], [])
    assert read(record(("x", "int"), name="other.Name"), reader, {"x": 1}) == ([{"x": 1}], [])


def test_branches_that_the_reader_lacks_fail_for_the_values_that_have_them():
    writer, reader = record(("x", ["null", "int", "string"])), record(("x", ["null", LONG]))
    rows, reasons = read(writer, reader, {"x": 7}, {"x": "seven"}, {"x": None})
    assert rows == [{"x": 7}, {"x": None}]
    assert reasons == ["x: the value is string, reader union of null, long"]


def test_symbols_that_the_reader_lacks_are_its_default_or_fail():
    def enum(*symbols, **more):
        return record(("x", {"type": "enum", "name": "E", "symbols": list(symbols), **more}))

    rows, reasons = read(enum("A", "B"), enum("B"), {"x": "A"}, {"x": "B"})
    assert rows == [{"x": "B"}]
    assert reasons == ["x: symbol 0 is none that the reader's enum has, and it has no default"]
    assert read(enum("A", "B"), enum("B", "C", default="C"), {"x": "A"}) == ([{"x": "C"}], [])


def test_each_member_of_a_union_has_its_own_column():
    writer = record(("x", ["int", "string", record(("a", "int"), name="Q")]))
    rows, _ = read(writer, writer, {"x": 1}, {"x": "s"}, {"x": {"a": 4}})
    assert rows == [
        {"x": {"member0": 1, "member1": None, "member2": None}},
        {"x": {"member0": None, "member1": "s", "member2": None}},
        {"x": {"member0": None, "member1": None, "member2": {"a": 4}}},
    ]


def test_a_type_that_holds_itself_can_be_skipped_to_a_bound():
    tree = record(("next", ["null", "Tree"]), name="Tree")
    writer, reader = record(("tree", tree), ("x", "int")), record(("x", "int"))
    deep = {"next": None}
    for _ in range(150):
        deep = {"next": deep}
    assert read(writer, reader, {"tree": deep, "x": 5}) == ([{"x": 5}], [])
    for _ in range(100):
        deep = {"next": deep}
    assert read(writer, reader, {"tree": deep, "x": 5}) == ([], ["values are nested more than 200 deep"])


def test_a_number_gets_a_logical_type_that_its_writer_did_not_say():
    rows, _ = read(record(("x", "int")), record(("x", MILLIS)), {"x": 1_000})
    assert rows[0]["x"].timestamp() == 1.0
