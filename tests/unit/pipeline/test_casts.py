"""What a function gives is what its schema says, or it is refused: no cast changes a value, no null is where none may be."""

import datetime

import numpy as np
import pyarrow as pa
import pytest
from fakes.records import records

from kafka_actors.errors import StageError
from kafka_actors.pipeline import Pipeline
from kafka_actors.pipeline.casts import unfit_rows
from kafka_actors.pipeline.fused import FusedSteps

RAW = Pipeline.read_kafka("orders", bootstrap_servers="localhost:9092").raw()
SOURCE = records([b"%d" % n for n in range(8)])


def run(pipeline):
    return FusedSteps(pipeline.check().steps).run(SOURCE)


NOON = pa.array([datetime.datetime(2026, 1, 2, 12)], pa.timestamp("us", tz="UTC"))  # noqa: DTZ001
AT_MIDNIGHT = pa.array([datetime.datetime(2026, 1, 2), None], pa.timestamp("us"))  # noqa: DTZ001


@pytest.mark.parametrize(
    ("values", "kind", "said"),
    [
        (NOON, pa.date32(), "2026-01-02 12:00:00.* has a time of day"),
        (NOON, pa.date64(), "has a time of day"),
        (NOON, pa.time64("us"), "has a date, too"),
        (pa.array([[None], [NOON[0].as_py()]]), pa.list_(pa.date32()), "has a time of day"),
        (pa.array([None, {"a": NOON[0].as_py()}]), pa.struct([("a", pa.date32())]), "has a time of day"),
        (
            pa.array([[("a", 2)]], pa.map_(pa.string(), pa.int8())),
            pa.map_(pa.string(), pa.bool_()),
            "2 is neither 0 nor 1",
        ),
        (NOON, pa.timestamp("us"), "its times have a zone"),
        (
            pa.array([None, {"a": NOON[0].as_py()}]),
            pa.struct([("a", pa.timestamp("s"))]),
            "its times have a zone",
        ),
        (pa.array([0.5]), pa.bool_(), "0.5 is neither 0 nor 1"),
        (pa.array([1.0, None, 1e300]), pa.float32(), r"1e\+300 is too large"),
        (pa.array([1.0, None, 1e300]).dictionary_encode(), pa.float32(), r"1e\+300 is too large"),
        (NOON.dictionary_encode(), pa.date32(), "has a time of day"),
    ],
)
def test_what_arrow_would_cut_off_without_a_word_is_refused(values, kind, said):
    def other(batch):
        return pa.record_batch({"x": values})

    with pytest.raises(StageError, match=f"column 'x' is .* and its schema says .*: .*{said}"):
        run(RAW.map_batches(other, schema=pa.schema({"x": kind})))


def test_rows_that_a_cast_refuses_are_found_each_with_its_first_such_value():
    schema = pa.schema([pa.field("a", pa.int8(), nullable=False), pa.field("b", pa.timestamp("us"))])
    batch = pa.record_batch(
        {"a": [1, 1000, 2, 1, None, 3], "b": pa.array([0, 2**62, 1, 2**62, 3, None], pa.timestamp("ms"))}
    )
    found = unfit_rows(schema, batch)
    assert [(row, value.column) for row, value in found.items()] == [(1, "a"), (3, "b"), (4, "a")]
    assert found[3].reason.startswith(
        "column 'b' is timestamp[ms] and its schema says timestamp[us]: Casting"
    )
    assert found[4].reason == "column 'a' has nulls, and its schema says NOT NULL"
    assert unfit_rows(schema, batch.take([0, 2, 5])) == {}


@pytest.mark.parametrize(
    ("values", "kind", "made"),
    [
        (pa.array([None], pa.timestamp("us", tz="UTC")), pa.timestamp("us"), [None]),
        (AT_MIDNIGHT, pa.date32(), [datetime.date(2026, 1, 2), None]),
        (pa.array([1, 0, None]), pa.bool_(), [True, False, None]),
        (pa.array([0.1, float("inf"), None]), pa.float32(), [np.float32(0.1), float("inf"), None]),
        (pa.array([0.5]), pa.float16(), [0.5]),
        (
            pa.array([{"a": 1, "more": 2}, None]),
            pa.struct([("b", pa.int8()), ("a", pa.int8())]),
            [{"a": 1, "b": None}, None],
        ),
    ],
)
def test_what_a_cast_keeps_is_taken(values, kind, made):
    (rows,) = run(
        RAW.map_batches(lambda batch: pa.record_batch({"x": values}), schema=pa.schema({"x": kind}))
    ).rows
    assert rows.batch["x"].to_pylist() == made


INNER = pa.struct([pa.field("a", pa.int32(), False)])
LIST = pa.list_(pa.field("element", pa.int32(), False))


@pytest.mark.parametrize(
    ("kind", "value", "path"),
    [
        (INNER, {"a": None}, "x.a"),
        (pa.struct([pa.field("s", INNER)]), {"s": {"a": None}}, "x.s.a"),
        (LIST, [1, None], "x.element"),
        (pa.list_(INNER, 1), [{"a": None}], "x.item.a"),
        (pa.map_(pa.string(), pa.field("value", pa.int32(), False)), [("a", None)], "x.value"),
    ],
)
def test_a_null_within_a_column_is_refused_where_the_schema_says_not_null(kind, value, path):
    schema = pa.schema({"x": kind})
    said = f"column '{path}' has nulls, and its schema says NOT NULL"
    table = pa.RecordBatch.from_arrays([pa.array([None, value], kind)], schema=schema)
    with pytest.raises(StageError, match=said):
        run(RAW.map_batches(lambda batch: table, schema=schema))
    with pytest.raises(StageError, match=said):
        run(RAW.flat_map(lambda row: [{"x": None}, {"x": value}], schema=schema))
    nothing = table.slice(0, 1)
    (rows,) = run(RAW.map_batches(lambda batch: nothing, schema=schema)).rows
    assert rows.batch["x"].to_pylist() == [None]
