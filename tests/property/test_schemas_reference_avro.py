"""Avro: random schemas, values and pairs of writer and reader, with fastavro as the oracle; and random damage."""

import io

import fastavro
import numpy as np
import pyarrow as pa
import pytest
from fakes.avro import Namer, changed, encoded, records, written
from hypothesis import given
from hypothesis import strategies as st

from kafka_actors.errors import ConfigError
from kafka_actors.schemas import _reference_avro, kernels
from kafka_actors.schemas.avro_program import MOST_EMPTY
from kafka_actors.schemas.avro_resolution import program
from kafka_actors.schemas.avro_schema import (
    Array,
    AvroRecord,
    Map,
    Primitive,
    Union,
    is_null,
    members_of,
    parse,
)

MACHINES = {"cython": kernels.avro_kernel()[1], "python": _reference_avro.ReferenceAvroMachine}


def expected(kind, value):
    """A value as fastavro gives it, in the form that Arrow's `to_pylist` has."""
    if isinstance(kind, Union):
        members = members_of(kind)
        if value is None or len(members) == 1:
            return None if value is None else expected(members[0], value)
        return value  # which branch it is, is compared by `plain`
    if isinstance(kind, AvroRecord):
        return {field.name: expected(field.type, value[field.name]) for field in kind.fields}
    if isinstance(kind, Array):
        return [expected(kind.items, one) for one in value]
    if isinstance(kind, Map):
        return [(key, expected(kind.values, one)) for key, one in value.items()]
    return value


def plain(kind, value):
    """Arrow's value, in which a union's struct is the value of its one member that is set."""
    if isinstance(kind, Union):
        members = members_of(kind)
        if value is None:
            return None
        if len(members) == 1:
            return plain(members[0], value)
        found = [
            (one, value[f"member{n}"]) for n, one in enumerate(members) if value[f"member{n}"] is not None
        ]
        assert len(found) == 1
        return plain(*found[0])
    if isinstance(kind, AvroRecord):
        return {field.name: plain(field.type, value[field.name]) for field in kind.fields}
    if isinstance(kind, Array):
        return [plain(kind.items, one) for one in value]
    if isinstance(kind, Map):
        return [(key, plain(kind.values, one)) for key, one in value]
    if isinstance(kind, Primitive) and is_null(kind):
        assert value is None
    return value


def run(machine, made, values):
    """The batch and the failures of one machine, whose buffers are sound."""
    batch, failures = MACHINES[machine](made).run(
        pa.array(values, pa.binary()), np.arange(len(values), dtype=np.int32), 0
    )
    batch.validate(full=True)
    return batch, failures


def both(made, values):
    """Returns what both machines give, which is the same."""
    batch, failures = run("cython", made, values)
    other, others = run("python", made, values)
    assert batch.schema.equals(other.schema)
    assert repr(batch.to_pylist()) == repr(other.to_pylist())  # nan is not itself
    assert failures == others
    return batch, failures


@given(st.data())
def test_rows_are_those_that_fastavro_reads(data):
    schema = data.draw(records(Namer()))
    rows = data.draw(st.lists(written(schema), max_size=4))
    ours, theirs = parse(schema), fastavro.parse_schema(schema)
    values = [encoded(theirs, row) for row in rows]
    batch, failures = both(program(ours, ours), values)
    assert failures == []
    read = [fastavro.schemaless_reader(io.BytesIO(value), theirs, None) for value in values]
    assert [plain(ours, row) for row in batch.to_pylist()] == [expected(ours, row) for row in read]


@given(st.data())
def test_rows_by_a_readers_schema_are_those_that_fastavro_resolves(data):
    schema = data.draw(records(Namer()))
    reader = data.draw(changed(schema, Namer()))
    rows = data.draw(st.lists(written(schema), max_size=4))
    writes, reads = fastavro.parse_schema(schema), fastavro.parse_schema(reader)
    ours = parse(reader)
    values = [encoded(writes, row) for row in rows]
    batch, failures = both(program(parse(schema), ours), values)
    assert failures == []
    read = [fastavro.schemaless_reader(io.BytesIO(value), writes, reads) for value in values]
    found = [plain(ours, row) for row in batch.to_pylist()]
    assert alike(found, [as_float32(ours, expected(ours, row)) for row in read])


def alike(ours, theirs):
    """Whether values are the same. Of a union that has a double before a long fastavro takes the double for a long; here the exact type goes
    before promotions, as in `Resolver.ReaderUnion` of Java's Avro."""
    if isinstance(ours, dict):
        return ours.keys() == theirs.keys() and all(alike(ours[name], theirs[name]) for name in ours)
    if isinstance(ours, (list, tuple)):
        return len(ours) == len(theirs) and all(map(alike, ours, theirs))
    if (type(ours), type(theirs)) == (int, float):
        return float(ours) == theirs
    return ours == theirs


def as_float32(kind, value):
    """fastavro leaves a promoted int as it is; a float has 24 bits."""
    if isinstance(kind, Union) and value is not None and len(members_of(kind)) == 1:
        return as_float32(members_of(kind)[0], value)
    if isinstance(kind, AvroRecord):
        return {field.name: as_float32(field.type, value[field.name]) for field in kind.fields}
    if isinstance(kind, Array):
        return [as_float32(kind.items, one) for one in value]
    if isinstance(kind, Map):
        return [(key, as_float32(kind.values, one)) for key, one in value]
    if isinstance(kind, Primitive) and kind.name == "float":
        return float(np.float32(value))
    if isinstance(kind, Primitive) and kind.name == "double":
        return float(value)
    return value


@given(st.data())
def test_two_schemas_are_refused_by_name_or_give_one_row_or_one_error_for_each_value(data):
    writer, reader = data.draw(records(Namer())), data.draw(records(Namer()))
    rows = data.draw(st.lists(written(writer), max_size=4))
    values = [encoded(fastavro.parse_schema(writer), row) for row in rows]
    try:
        made = program(parse(writer), parse(reader))
    except ConfigError:
        return
    batch, failures = both(made, values)
    assert batch.num_rows + len(failures) == len(values)


@given(st.data())
def test_damage_gives_one_row_or_one_error_and_leaves_other_rows_alone(data):
    schema = data.draw(records(Namer()))
    rows = data.draw(st.lists(written(schema), min_size=3, max_size=3))
    theirs, ours = fastavro.parse_schema(schema), parse(schema)
    values = [encoded(theirs, row) for row in rows]
    damaged = bytearray(values[1])
    match data.draw(st.sampled_from(["flip", "cut", "insert", "random"])):
        case "flip" if damaged:
            at = data.draw(st.integers(0, len(damaged) - 1))
            damaged[at] ^= 1 << data.draw(st.integers(0, 7))
        case "cut":
            del damaged[data.draw(st.integers(0, len(damaged))) :]
        case "insert":
            at = data.draw(st.integers(0, len(damaged)))
            damaged[at:at] = data.draw(st.binary(min_size=1, max_size=3))
        case _:
            damaged = data.draw(st.binary(max_size=30))
    made = program(ours, ours)
    whole, _ = both(made, values)
    batch, failures = both(made, [values[0], bytes(damaged), values[2]])
    assert batch.num_rows + len(failures) == 3
    assert batch.slice(0, 1).equals(whole.slice(0, 1))
    assert batch.slice(batch.num_rows - 1, 1).to_pylist() == whole.slice(2, 1).to_pylist()
    assert all(row == 1 for row, *_ in failures)


@pytest.mark.parametrize("machine", sorted(MACHINES))
@pytest.mark.parametrize(
    "text", [b"\xff", b"\xc3", b"\xed\xa0\x80", b"\xc0\x80", b"\xf5\x80\x80\x80"], ids=repr
)
def test_a_text_that_is_no_utf8_is_a_failure(machine, text):
    schema = {"type": "record", "name": "R", "fields": [{"name": "a", "type": "string"}]}
    made = program(parse(schema), parse(schema))
    values = [fastavro_long(len(text)) + text, fastavro_long(2) + "é".encode()]
    batch, failures = run(machine, made, values)
    assert batch.to_pylist() == [{"a": "é"}]
    assert [number for number, *_ in failures] == [0]


@pytest.mark.parametrize("machine", sorted(MACHINES))
def test_an_array_can_not_promise_more_empty_items_than_a_bound(machine):
    schema = {
        "type": "record",
        "name": "R",
        "fields": [{"name": "a", "type": {"type": "array", "items": "null"}}],
    }
    made = program(parse(schema), parse(schema))
    beyond, far_beyond, most = (fastavro_long(n) + b"\0" for n in (MOST_EMPTY + 1, 2**62, MOST_EMPTY))
    batch, failures = run(machine, made, [beyond, far_beyond, b"\0", most])
    assert [number for number, *_ in failures] == [0, 1]
    assert [len(items) for items in batch.column("a")] == [0, MOST_EMPTY]
    assert made.reason(*failures[0][1:]) == "a: arrays have more than 1,000,000 items that take no bytes"


@pytest.mark.parametrize("machine", sorted(MACHINES))
def test_the_arrays_of_a_value_can_not_promise_more_empty_items_together(machine):
    inner = {"type": "array", "items": "null"}
    field = {"name": "a", "type": {"type": "array", "items": inner}}
    schema = {"type": "record", "name": "R", "fields": [field]}
    made = program(parse(schema), parse(schema))
    most, one = (fastavro_long(1) + fastavro_long(n) + b"\0" for n in (MOST_EMPTY, 1))
    batch, failures = run(machine, made, [most + one + b"\0", one + one + b"\0"])
    assert [number for number, *_ in failures] == [0]
    assert batch.to_pylist() == [{"a": [[None], [None]]}]
    assert made.reason(*failures[0][1:]) == "a[]: arrays have more than 1,000,000 items that take no bytes"


def fastavro_long(number):
    stream = io.BytesIO()
    fastavro.schemaless_writer(stream, "long", number)
    return stream.getvalue()
