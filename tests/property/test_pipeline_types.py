"""Whatever the schema and the values are: what Kafka's sink is given is the same on both engines, and what was produced."""

import datetime
import decimal

import msgspec
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from fakes.records import records
from hypothesis import given
from hypothesis import strategies as st

from kafka_actors.errors import ConfigError
from kafka_actors.pipeline import Pipeline
from kafka_actors.pipeline.fused import FusedSteps
from kafka_actors.sinks.stage import json_values, key_values

pytest.importorskip("pyspark")

from kafka_actors.spark.engine.frames import PipelineFrame

READ = Pipeline.read_kafka("orders", bootstrap_servers="localhost:9092")

texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=4)
names = st.text(
    st.characters(exclude_categories=["Cs", "Cc"], exclude_characters='"\\\\'), min_size=1, max_size=3
).filter(lambda name: name != "_kafka")
moments = st.datetimes(datetime.datetime(1, 1, 2), datetime.datetime(9999, 12, 30))  # noqa: DTZ001


def integers_of(unit, moments=moments):
    """As fine as the unit, so that no digit is lost."""
    step = {"s": 1_000_000, "ms": 1_000, "us": 1, "ns": 1}[unit]
    return moments.map(lambda at: at.replace(microsecond=at.microsecond // step * step))


IN_NANOSECONDS = st.datetimes(datetime.datetime(1700, 1, 1), datetime.datetime(2200, 1, 1))  # noqa: DTZ001


@st.composite
def times(draw):
    unit = draw(st.sampled_from(["s", "ms", "us", "ns"]))
    zone = draw(st.sampled_from([None, "UTC", "Europe/Berlin"]))
    values = integers_of(unit, IN_NANOSECONDS if unit == "ns" else moments)
    return pa.timestamp(unit, tz=zone), values.map(
        lambda at: at if zone is None else at.replace(tzinfo=datetime.UTC)
    )


EXACT = decimal.Context(prec=decimal.MAX_PREC)  # the usual one rounds to 28 digits


@st.composite
def decimals(draw):
    precision = draw(st.integers(1, 38))
    scale = draw(st.integers(0, precision))
    most = 10**precision - 1
    return pa.decimal128(precision, scale), st.integers(-most, most).map(
        lambda n: decimal.Decimal(n).scaleb(-scale, EXACT)
    )


def integers(bits):
    return st.integers(-(2 ** (bits - 1)), 2 ** (bits - 1) - 1)


finite = st.floats(allow_nan=False, allow_infinity=False)
leaves = (
    st.sampled_from(
        [
            (pa.bool_(), st.booleans()),
            (pa.int8(), integers(8)),
            (pa.int32(), integers(32)),
            (pa.int64(), integers(64)),
            (pa.float32(), st.floats(width=32, allow_nan=False, allow_infinity=False)),
            (pa.float64(), finite),
            (pa.string(), texts),
            (pa.large_string(), texts),
            (pa.binary(), st.binary(max_size=4)),
            (pa.date32(), st.dates()),
        ]
    )
    | times()
    | decimals()
)


def nullable(pair, is_nullable):
    kind, values = pair
    return kind, (st.none() | values if is_nullable else values)


@st.composite
def lists(draw, inner):
    is_nullable = draw(st.booleans())
    kind, values = nullable(draw(inner), is_nullable)
    make = draw(st.sampled_from([pa.list_, pa.large_list]))
    return make(pa.field("element", kind, is_nullable)), st.lists(values, max_size=3)


@st.composite
def maps(draw, inner):
    is_nullable = draw(st.booleans())
    kind, values = nullable(draw(inner), is_nullable)
    return pa.map_(pa.string(), pa.field("value", kind, is_nullable)), st.dictionaries(
        texts, values, max_size=3
    )


@st.composite
def structs(draw, inner):
    fields = draw(st.dictionaries(names, st.tuples(inner, st.booleans()), min_size=1, max_size=3))
    made = {name: (*nullable(pair, is_nullable), is_nullable) for name, (pair, is_nullable) in fields.items()}
    kind = pa.struct([pa.field(name, kind, is_nullable) for name, (kind, _, is_nullable) in made.items()])
    return kind, st.fixed_dictionaries({name: values for name, (_, values, _) in made.items()})


types = st.recursive(leaves, lambda inner: lists(inner) | maps(inner) | structs(inner), max_leaves=4)


@st.composite
def tables(draw):
    """A schema and rows."""
    columns = draw(
        st.dictionaries(
            names,
            st.tuples(types, st.booleans()),
            min_size=1,
            max_size=4,
        )
    )
    made = {name: nullable(pair, is_nullable) for name, (pair, is_nullable) in columns.items()}
    schema = pa.schema([pa.field(name, made[name][0], columns[name][1]) for name in columns])
    return schema, draw(
        st.lists(
            st.fixed_dictionaries({name: values for name, (_, values) in made.items()}),
            min_size=1,
            max_size=4,
        )
    )


as_json = msgspec.json.Encoder(decimal_format="number").encode


def spark_gives_back(frame, rows, source):
    """What the sink's tasks get of what left the source."""
    good, failed = frame.split(frame.pack(rows, source))
    assert failed is None
    (part,) = frame.parts(good)
    return part.rows


@given(tables())
def test_what_is_decoded_is_what_was_written_and_crosses_the_jvm_unchanged(table):
    schema, rows_in = table
    source = records([as_json(row) for row in rows_in])
    (rows,) = FusedSteps(READ.decode_json(schema).check().steps).run(source).rows
    assert rows.batch.to_pylist(maps_as_pydicts="strict") == rows_in
    frame = PipelineFrame(schema, kafka=True)
    if "timestamp[ns" in str(schema):
        with pytest.raises(ConfigError, match="which Spark doesn't have"):
            _ = frame.schema
        return
    back = spark_gives_back(frame, rows, source)
    assert back.origin.tolist() == rows.origin.tolist()
    on_ray, on_spark = (
        [msgspec.json.decode(value) for value in json_values(made).to_pylist()]
        for made in (rows.batch, back.batch)
    )
    assert on_ray == on_spark
    for name in schema.names:
        if not pa.types.is_nested(schema.field(name).type):
            assert key_values(rows.batch[name]).equals(key_values(back.batch[name]))


@given(tables())
def test_rows_of_a_users_function_are_what_it_gave(table):
    schema, rows_in = table
    source = records([b"x"])
    pipeline = READ.flat_map(lambda row: rows_in, schema=schema)
    (rows,) = FusedSteps(pipeline.check().steps).run(source).rows
    assert rows.batch.to_pylist(maps_as_pydicts="strict") == rows_in
    again = READ.map_batches(lambda batch: pa.Table.from_batches([rows.batch, rows.batch[:0]]), schema=schema)
    (back,) = FusedSteps(again.check().steps).run(source).rows
    assert back.batch.equals(rows.batch)


COMPARED = {">": pc.greater, "==": pc.equal, "<=": pc.less_equal}


@given(
    st.lists(st.none() | integers(64), min_size=1, max_size=20), st.sampled_from(list(COMPARED)), integers(64)
)
def test_filters_and_columns_are_those_of_arrow_with_its_nulls(values, operator, limit):
    source = records([as_json({"x": value}) for value in values])
    compared = COMPARED[operator](pc.field("x"), limit)
    pipeline = (
        READ.decode_json("x BIGINT").with_columns(is_so=compared).filter(compared | pc.field("x").is_null())
    )
    outcome = FusedSteps(pipeline.check().steps).run(source)
    found = [row for rows in outcome.rows for row in rows.batch.to_pylist()]
    plain = pa.table({"x": pa.array(values, pa.int64())})
    plain = plain.append_column("is_so", COMPARED[operator](plain["x"], limit))
    wanted = [row for row in plain.to_pylist() if row["is_so"] is True or row["x"] is None]
    assert found == wanted
