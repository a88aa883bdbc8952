"""Avro that is written: random schemas and values, with fastavro as the oracle; slices of batches; and nulls at random."""

import io

import fastavro
import numpy as np
import pyarrow as pa
from fakes.avro import Namer, encoded, records, topics, written
from hypothesis import given
from hypothesis import strategies as st

from kafka_actors.schemas import AvroDecoder, AvroEncoder, _reference_avro_encoder, kernels
from kafka_actors.schemas.avro_encoding import writer_program
from kafka_actors.schemas.avro_schema import Union, members_of, parse
from kafka_actors.schemas.results import struct_of

MACHINES = {
    "cython": kernels.avro_writer_kernel()[1],
    "python": _reference_avro_encoder.ReferenceAvroWriterMachine,
}


def both(schema, batch, frame=b""):
    """Returns what both machines give, which is the same: values, and failures with their reasons."""
    made = writer_program(parse(schema), batch.schema)
    rows = struct_of(batch)
    found = [
        MACHINES[one](made.program).run(made.columns.arrays(rows), len(rows), frame)
        for one in sorted(MACHINES)
    ]
    for values, _ in found:
        values.validate(full=True)
    (values, failures), (others, their_failures) = found
    assert values.to_pylist() == others.to_pylist()
    assert failures == their_failures
    return values.to_pylist(), [(row, made.program.reason(*failed)) for row, *failed in failures]


def has_merged_union(schema):
    """Whether a union's int and long, or float and double, are one column: their values are written as the wider branch."""
    if isinstance(schema, list):
        kind = parse(schema)
        return isinstance(kind, Union) and len(members_of(kind)) < len(set(schema) - {"null"})
    if not isinstance(schema, dict):
        return False
    inner = [field["type"] for field in schema.get("fields", ())]
    return any(map(has_merged_union, [*inner, schema.get("items"), schema.get("values")]))


@given(st.data())
def test_values_are_those_that_fastavro_writes(data):
    schema = data.draw(records(Namer()))
    rows = data.draw(st.lists(written(schema), max_size=4))
    theirs = fastavro.parse_schema(schema)
    values = [encoded(theirs, row) for row in rows]
    decoder = AvroDecoder(schema)
    batch = decoder.decode(pa.array(values, pa.binary())).batch
    made, failures = both(schema, batch)
    assert failures == []
    if not has_merged_union(schema):
        assert made == values
    read = [fastavro.schemaless_reader(io.BytesIO(value), theirs, None) for value in made]
    assert read == [fastavro.schemaless_reader(io.BytesIO(value), theirs, None) for value in values]
    assert decoder.decode(pa.array(made, pa.binary())).batch.equals(batch)


@given(topics())
def test_logical_types_are_written_as_fastavro_writes_them(topic):
    schema, rows = topic
    theirs = fastavro.parse_schema(schema)
    decoder = AvroDecoder(schema)
    values = pa.array([encoded(theirs, row) for row in rows], pa.binary())
    batch = decoder.decode(values).batch
    made, failures = both(schema, batch)
    assert failures == []
    read = [fastavro.schemaless_reader(io.BytesIO(value), theirs, None) for value in made]
    assert read == [
        fastavro.schemaless_reader(io.BytesIO(value), theirs, None) for value in values.to_pylist()
    ]
    assert decoder.decode(pa.array(made, pa.binary())).batch.equals(batch)


@given(st.data())
def test_a_slice_and_chosen_rows_are_written_as_the_whole(data):
    schema = data.draw(records(Namer()))
    rows = data.draw(st.lists(written(schema), min_size=1, max_size=6))
    theirs = fastavro.parse_schema(schema)
    values = pa.array([encoded(theirs, row) for row in rows], pa.binary())
    batch = AvroDecoder(schema).decode(values).batch
    whole, _ = both(schema, batch, b"front")
    first = data.draw(st.integers(0, len(rows)))
    count = data.draw(st.integers(0, len(rows) - first))
    assert both(schema, batch.slice(first, count), b"front")[0] == whole[first : first + count]
    chosen = data.draw(st.lists(st.integers(0, len(rows) - 1), max_size=5))
    if batch.num_columns:
        taken = batch.take(pa.array(chosen, pa.int32()))
        assert both(schema, taken, b"front")[0] == [whole[row] for row in chosen]


@given(st.data())
def test_nulls_anywhere_give_one_value_or_one_failure_and_leave_other_rows_alone(data):
    schema = data.draw(records(Namer()).filter(lambda made: made["fields"]))
    rows = data.draw(st.lists(written(schema), min_size=1, max_size=5))
    theirs = fastavro.parse_schema(schema)
    batch = AvroDecoder(schema).decode(pa.array([encoded(theirs, row) for row in rows], pa.binary())).batch
    whole, _ = both(schema, batch)
    at = data.draw(st.integers(0, batch.num_columns - 1))
    there = data.draw(st.lists(st.booleans(), min_size=len(rows), max_size=len(rows)))
    column = batch.column(at)
    index = pa.array(range(len(rows)), pa.int32())
    holed = column.take(pa.array(index.to_pylist(), pa.int32(), mask=~np.array(there)))
    columns = [holed if n == at else one for n, one in enumerate(batch.columns)]
    made, failures = both(schema, pa.RecordBatch.from_arrays(columns, names=batch.schema.names))
    assert len(made) + len(failures) == len(rows)
    failed = {row for row, _ in failures}
    assert all(not there[row] for row in failed)
    kept = [row for row in range(len(rows)) if row not in failed]
    for value, row in zip(made, kept, strict=True):
        if there[row]:
            assert value == whole[row]
    if not batch.schema.field(at).nullable:
        assert failed == {row for row, valid in enumerate(there) if not valid} or pa.types.is_null(
            column.type
        )


def test_an_encoder_frames_its_values():
    schema = {"type": "record", "name": "R", "fields": [{"name": "a", "type": "long"}]}
    made = AvroEncoder(schema, schema_id=7)(pa.record_batch({"a": [1, -1]}))
    assert made.to_pylist() == [b"\0\0\0\0\7\2", b"\0\0\0\0\7\1"]
