"""Whatever Avro's schema and the values are: what fastavro wrote is what decode_avro gives, each record for itself."""

import datetime
import decimal
import io
import itertools

import fastavro
from fakes.records import records
from hypothesis import given
from hypothesis import strategies as st

from kafka_actors.pipeline import Pipeline
from kafka_actors.pipeline.fused import FusedSteps

READ = Pipeline.read_kafka("orders", bootstrap_servers="localhost:9092")
UTC = datetime.UTC

texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=4)
moments = st.datetimes(datetime.datetime(1700, 1, 1), datetime.datetime(2200, 1, 1))  # noqa: DTZ001
in_milliseconds = moments.map(lambda at: at.replace(microsecond=at.microsecond // 1000 * 1000))


def logical(base, name):
    return {"type": base, "logicalType": name}


leaves = st.sampled_from(
    [
        ("boolean", st.booleans()),
        ("int", st.integers(-(2**31), 2**31 - 1)),
        ("long", st.integers(-(2**63), 2**63 - 1)),
        ("float", st.floats(width=32, allow_nan=False)),
        ("double", st.floats(allow_nan=False)),
        ("bytes", st.binary(max_size=4)),
        ("string", texts),
        (logical("int", "date"), st.dates()),
        (logical("long", "timestamp-millis"), in_milliseconds.map(lambda at: at.replace(tzinfo=UTC))),
        (logical("long", "timestamp-micros"), moments.map(lambda at: at.replace(tzinfo=UTC))),
        (logical("long", "local-timestamp-millis"), in_milliseconds),
        (logical("long", "local-timestamp-micros"), moments),
        (logical("long", "time-micros"), moments.map(lambda at: at.time())),
        (logical("string", "uuid"), st.uuids().map(str)),
        (
            {**logical("bytes", "decimal"), "precision": 9, "scale": 3},
            st.integers(-(10**9) + 1, 10**9 - 1).map(lambda n: decimal.Decimal(n).scaleb(-3)),
        ),
    ]
)


@st.composite
def unions(draw, inner):
    kind, values = draw(inner)
    return draw(st.sampled_from([["null", kind], [kind, "null"]])), st.none() | values


def arrays(inner):
    return inner.map(lambda of: ({"type": "array", "items": of[0]}, st.lists(of[1], max_size=3)))


def maps(inner):
    return inner.map(lambda of: ({"type": "map", "values": of[0]}, st.dictionaries(texts, of[1], max_size=3)))


_numbers = itertools.count()


@st.composite
def structs(draw, inner):
    fields = draw(st.dictionaries(st.sampled_from(["a", "b", "_c"]), inner, min_size=1))
    kind = {
        "type": "record",
        "name": f"R{next(_numbers)}",
        "fields": [{"name": name, "type": of} for name, (of, _) in fields.items()],
    }
    return kind, st.fixed_dictionaries({name: values for name, (_, values) in fields.items()})


def grown(inner):
    plain = arrays(inner) | maps(inner) | structs(inner)
    return plain | unions(plain)


types = st.recursive(leaves | unions(leaves), grown, max_leaves=4)


@st.composite
def topics(draw):
    """A schema and records."""
    kind, values = draw(structs(types))
    return kind, draw(st.lists(values, min_size=1, max_size=4))


def written(avro, row):
    stream = io.BytesIO()
    fastavro.schemaless_writer(stream, avro, row)
    return stream.getvalue()


@given(topics(), st.none() | st.integers(0, 2**32 - 1), st.binary(max_size=8) | st.none())
def test_what_was_written_is_decoded_whatever_is_beside_it(topic, schema_id, other):
    avro, rows = topic
    parsed = fastavro.parse_schema(avro)
    frame = b"" if schema_id is None else b"\0" + schema_id.to_bytes(4, "big")
    values = [frame + written(parsed, row) for row in rows]
    pipeline = READ.decode_avro(avro, schema_id=schema_id, on_error="skip")
    outcome = FusedSteps(pipeline.check().steps).run(records([*values, other, *values]))
    (made,) = outcome.rows
    found = dict(zip(made.origin.tolist(), made.batch.to_pylist(maps_as_pydicts="strict"), strict=True))
    failed = [failure.record for failure in outcome.failures]
    assert (len(rows) in found) != (len(rows) in failed), "one row or one error"
    found.pop(len(rows), None)
    assert [found[n] for n in sorted(found)] == rows * 2
