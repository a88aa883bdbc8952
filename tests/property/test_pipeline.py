"""Whatever the values are, and whichever calls fail: of each record one row or one error, in order."""

import json

import pyarrow as pa
import pyarrow.compute as pc
from fakes.records import records
from hypothesis import given
from hypothesis import strategies as st

from kafka_actors.pipeline import Pipeline
from kafka_actors.pipeline.fused import FusedSteps, of_policy
from kafka_actors.sinks.stage import json_values

READ = Pipeline.read_kafka("orders", bootstrap_servers="localhost:9092")
SCHEMA = "id BIGINT NOT NULL, name STRING, flag BOOLEAN, tags ARRAY<STRING>, pos STRUCT<x: DOUBLE, y: DOUBLE>"

texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=6)
rows = st.fixed_dictionaries(
    {"id": st.integers(-(2**63), 2**63 - 1)},
    optional={
        "name": st.none() | texts,
        "flag": st.none() | st.booleans(),
        "tags": st.none() | st.lists(st.none() | texts, max_size=3),
        "pos": st.none()
        | st.fixed_dictionaries({"x": st.floats(allow_nan=False, allow_infinity=False), "y": st.none()}),
        "more": st.none() | st.integers(),
    },
)
spaces = st.sampled_from(["", " ", "\n", "\t\r\n"])


@st.composite
def good(draw):
    """A row, and one of the ways to write it."""
    row = draw(rows)
    indent = draw(st.sampled_from([None, 1]))
    written = json.dumps(row, indent=indent, ensure_ascii=draw(st.booleans()))
    return (draw(spaces) + written + draw(spaces)).encode(), row


BROKEN = [None, b"", b" \n", b"{}", b'{"id": 1}{"id": 2}', b'{"id": 1}\n{"id": 2}', b'\xef\xbb\xbf{"id": 1}']
BROKEN += [
    b'[{"id": 1}]',
    b'{"id": "1"}',
    b"null",
    b"\xff",
    b'{"id": 9223372036854775808}',
    b'{"id": 1',
    b"}",
]
bad = st.sampled_from(BROKEN).map(lambda value: (value, None))


def expected(row):
    pos = row.get("pos")
    return {
        "id": row["id"],
        "name": row.get("name"),
        "flag": row.get("flag"),
        "tags": row.get("tags"),
        "pos": None if pos is None else {"x": pos["x"], "y": pos["y"]},
    }


@given(st.lists(good() | bad, min_size=1, max_size=30))
def test_json_gives_each_record_one_row_or_one_error(rows_in):
    source = records([value for value, _ in rows_in])
    outcome = FusedSteps(READ.decode_json(SCHEMA, on_error="skip").check().steps).run(source)
    found = {
        o: row
        for made in outcome.rows
        for o, row in zip(
            made.with_kafka(source)["_kafka"].field("offset").to_pylist(), made.batch.to_pylist(), strict=True
        )
    }
    assert found == {100 + n: expected(row) for n, (_, row) in enumerate(rows_in) if row is not None}
    assert list(found) == sorted(found)
    assert [f.record for f in outcome.failures] == [n for n, (_, row) in enumerate(rows_in) if row is None]


@given(st.lists(st.binary(max_size=12) | st.none(), min_size=1, max_size=30))
def test_any_bytes_are_one_row_or_one_error(values):
    source = records(values)
    outcome = FusedSteps(READ.decode_json(SCHEMA, on_error="skip").check().steps).run(source)
    taken = [o for made in outcome.rows for o in made.origin.tolist()]
    assert sorted(taken + [f.record for f in outcome.failures]) == list(range(len(values)))


@given(
    st.integers(1, 60),
    st.sets(st.integers(0, 59), max_size=8),
    st.sets(st.integers(0, 59), max_size=8),
    st.integers(0, 3),
)
def test_failing_calls_take_out_exactly_the_records_at_fault(count, first, second, modulus):
    def failing(bad):
        def call(batch):
            if bad & set(batch["id"].to_pylist()):
                raise ValueError("no good")
            return batch

        return call

    pipeline = (
        READ.decode_json("id BIGINT")
        .map_batches(failing(first), schema="id BIGINT", on_error="skip")
        .filter(pc.field("id") != modulus)
        .map_batches(failing(second), schema="id BIGINT", on_error="dead_letter")
    )
    source = records([b'{"id": %d}' % n for n in range(count)])
    outcome = FusedSteps(pipeline.check().steps).run(source)
    kept = [o for made in outcome.rows for o in made.origin.tolist()]
    assert kept == [i for made in outcome.rows for i in made.batch["id"].to_pylist()]
    assert kept == [n for n in range(count) if n not in first and n != modulus and n not in second]
    policies = {step.stage.name: step.on_error for step in pipeline.check().steps}
    skipped, dead = (
        [f.record for f in of_policy(outcome.failures, policies, p)] for p in ("skip", "dead_letter")
    )
    assert skipped == sorted(n for n in first if n < count)
    assert dead == sorted(n for n in second - first - {modulus} if n < count)


@given(st.lists(good(), min_size=1, max_size=20))
def test_what_the_kafka_sink_writes_as_json_is_read_back(rows_in):
    decode = FusedSteps(READ.decode_json(SCHEMA).check().steps)
    (once,) = decode.run(records([value for value, _ in rows_in])).rows
    (twice,) = decode.run(records(json_values(once.batch).to_pylist())).rows
    assert twice.batch.equals(once.batch)


@given(st.lists(st.integers(-5, 5), min_size=1, max_size=50), st.integers(-5, 5))
def test_filter_and_columns_are_those_of_plain_python(numbers, least):
    pipeline = (
        READ.decode_json("id BIGINT")
        .with_columns(twice=pc.field("id") * 2, at=pc.field("_kafka", "offset"))
        .filter(pc.field("twice") > least)
        .select("at", "twice")
    )
    outcome = FusedSteps(pipeline.check().steps).run(records([b'{"id": %d}' % n for n in numbers]))
    found = pa.Table.from_batches([r.batch for r in outcome.rows], pipeline.check().columns).to_pylist()
    assert found == [{"at": 100 + i, "twice": n * 2} for i, n in enumerate(numbers) if n * 2 > least]
