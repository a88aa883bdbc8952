"""Protobuf that is written: random messages, with Protobuf's own runtime as the oracle; slices; columns of other types, nulls and damage."""

from decimal import Decimal

import numpy as np
import pyarrow as pa
import pytest
from fakes.protobuf_messages import DYNAMIC, EDITION, PROTO2, PROTO3, fill, sorted_maps
from google.protobuf import message_factory
from hypothesis import given, settings
from hypothesis import strategies as st

from kafka_actors.schemas import _reference_protobuf_encoder, kernels
from kafka_actors.schemas.protobuf_encoding import message_program
from kafka_actors.schemas.protobuf_plan import plan
from kafka_actors.schemas.protobuf_runtime import RuntimeProtobufMachine
from kafka_actors.schemas.protobuf_schema import Files, compiled

MACHINES = {
    "cython": kernels.protobuf_writer_kernel()[1],
    "python": _reference_protobuf_encoder.ReferenceProtobufWriterMachine,
}


class Kind:
    """A message with its class, and the runtime as a reader of it."""

    def __init__(self, text, enums="name"):
        descriptors = compiled(text)
        self.message = Files(descriptors).message("t.All")
        self.new = message_factory.GetMessageClass(self.message)
        self.reader = RuntimeProtobufMachine(plan(self.message, descriptors, enums))

    def read(self, values):
        """Rows of values, all of which can be read."""
        rows = np.arange(len(values), dtype=np.int32)
        batch, failures = self.reader.run(
            pa.array(values, pa.binary()), rows, np.zeros(len(values), np.int32)
        )
        assert failures == []
        return batch

    def readable(self, value):
        found = self.reader.run(pa.array([value], pa.binary()), np.zeros(1, np.int32), np.zeros(1, np.int32))
        return not found[1]

    def both(self, batch, frame=b""):
        """Returns what both machines give, which is the same: values, and failures with their reasons."""
        made = message_program(self.message, batch.schema)
        rows = batch.to_struct_array()
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


KINDS = {
    "proto3": Kind(PROTO3),
    "numbers": Kind(PROTO3, "number"),
    "proto2": Kind(PROTO2),
    "edition": Kind(EDITION),
    "dynamic": Kind(DYNAMIC),
}


@st.composite
def values_of(draw, kind, most=3):
    """Values of random messages that a batch of rows can hold."""
    found = []
    for _ in range(draw(st.integers(1, most))):
        made = kind.new()
        fill(draw, made, kind.message)
        if "id" in kind.message.fields_by_name:
            made.id = 7
        for name in ("at", "lasts"):
            if name in kind.message.fields_by_name and made.HasField(name):
                sign = draw(st.sampled_from([1, -1]))
                getattr(made, name).seconds = sign * draw(st.integers(0, 10**9))
                getattr(made, name).nanos = (
                    (sign if name == "lasts" else 1) * 1000 * draw(st.integers(0, 999_999))
                )
        found.append(made.SerializeToString(deterministic=True))
    return [value for value in found if kind.readable(value)]


@pytest.mark.parametrize("name", sorted(KINDS))
@settings(max_examples=40, deadline=None)
@given(st.data())
def test_what_is_written_is_the_message_that_was_read(name, data):
    kind = KINDS[name]
    values = data.draw(values_of(kind))
    batch = kind.read(values)
    made, failures = kind.both(batch)
    assert failures == []
    for ours, theirs in zip(made, values, strict=True):
        if name == "dynamic":
            continue  # a Value without anything in it is read as null, and written as one
        assert kind.new.FromString(ours) == kind.new.FromString(theirs)
        assert len(ours) == len(theirs), "nothing stands twice, and the same is packed"
    assert sorted_maps(kind.read(made).to_pylist()) == sorted_maps(batch.to_pylist())


@pytest.mark.parametrize("name", sorted(KINDS))
@settings(max_examples=15, deadline=None)
@given(st.data())
def test_a_slice_and_chosen_rows_are_written_as_the_whole(name, data):
    kind = KINDS[name]
    batch = kind.read(data.draw(values_of(kind, 5)))
    whole, _ = kind.both(batch, b"front")
    first = data.draw(st.integers(0, len(batch)))
    count = data.draw(st.integers(0, len(batch) - first))
    assert kind.both(batch.slice(first, count), b"front")[0] == whole[first : first + count]
    chosen = data.draw(st.lists(st.integers(0, max(len(batch) - 1, 0)), max_size=5 if len(batch) else 0))
    assert kind.both(batch.take(pa.array(chosen, pa.int32())), b"front")[0] == [whole[row] for row in chosen]


@pytest.mark.parametrize("name", sorted(KINDS))
@settings(max_examples=20, deadline=None)
@given(st.data())
def test_nulls_anywhere_give_one_value_or_one_failure_and_leave_other_rows_alone(name, data):
    kind = KINDS[name]
    batch = kind.read(data.draw(values_of(kind, 4)))
    whole, _ = kind.both(batch)
    at = data.draw(st.integers(0, batch.num_columns - 1))
    there = data.draw(st.lists(st.booleans(), min_size=len(batch), max_size=len(batch)))
    index = pa.array(range(len(batch)), pa.int32(), mask=~np.array(there, bool))
    columns = [one.take(index) if n == at else one for n, one in enumerate(batch.columns)]
    made, failures = kind.both(pa.RecordBatch.from_arrays(columns, names=batch.schema.names))
    assert len(made) + len(failures) == len(batch)
    failed = {row for row, _ in failures}
    assert failed == (
        set() if batch.schema.field(at).nullable else {row for row, valid in enumerate(there) if not valid}
    )
    kept = [row for row in range(len(batch)) if row not in failed]
    for value, row in zip(made, kept, strict=True):
        assert value == whole[row] or not there[row]


NUMBERS = """syntax = "proto3"; package t; enum K { ZERO = 0; ONE = 1; }
message All { int32 a = 1; uint32 b = 2; sint32 c = 3; int64 d = 4; uint64 e = 5; fixed32 f = 6; sfixed64 g = 7; repeated sint32 h = 8;
  oneof one { int32 i = 9; int32 j = 10; bool k = 11; } float l = 12; K m = 13; }"""
SIGNED = (
    st.integers(-(2**33), 2**33)
    | st.integers(-(2**63), 2**63 - 1)
    | st.sampled_from([0, -1, 2**31, -(2**31), 2**32])
)
COLUMNS = {
    pa.int64(): SIGNED,
    pa.uint64(): st.integers(0, 2**64 - 1) | st.integers(2**31 - 1, 2**32),
    pa.decimal128(38, 0): st.builds(Decimal, st.integers(-(2**70), 2**70) | SIGNED),
    pa.uint8(): st.integers(0, 255),
}
LIMITS = {
    "int32": (-(2**31), 2**31 - 1),
    "uint32": (0, 2**32 - 1),
    "int64": (-(2**63), 2**63 - 1),
    "uint64": (0, 2**64 - 1),
}
FIELDS = {
    "a": "int32", "b": "uint32", "c": "int32", "d": "int64", "e": "uint64", "f": "uint32", "g": "int64", "h": "int32", "i": "int32", "j": "int32",
}  # fmt: skip
OF_NUMBERS = Kind(NUMBERS)


@given(st.data())
def test_a_number_that_the_runtime_refuses_is_a_failure_and_every_other_one_is_read_back(data):
    rows = data.draw(st.integers(1, 4))
    name = data.draw(st.sampled_from(sorted(FIELDS)))
    arrow = data.draw(st.sampled_from(sorted(COLUMNS, key=str)))
    numbers = data.draw(st.lists(COLUMNS[arrow], min_size=rows, max_size=rows))
    column = (
        pa.array(numbers, arrow) if name != "h" else pa.array([[one] for one in numbers], pa.list_(arrow))
    )
    made, failures = OF_NUMBERS.both(pa.record_batch({name: column}))
    low, high = LIMITS[FIELDS[name]]
    fits = [low <= one <= high for one in numbers]
    assert [row for row, _ in failures] == [row for row, fit in enumerate(fits) if not fit]
    read = [getattr(OF_NUMBERS.new.FromString(value), name) for value in made]
    expected = [int(one) for one, fit in zip(numbers, fits, strict=True) if fit]
    assert [one[0] if name == "h" else one for one in read] == expected


@given(
    st.lists(
        st.tuples(*[st.none() | st.integers(0, 3)] * 2, st.none() | st.booleans()), min_size=1, max_size=5
    )
)
def test_two_members_of_a_oneof_are_a_failure_and_one_is_read_back(rows):
    i, j, k = (list(column) for column in zip(*rows, strict=True))
    batch = pa.record_batch(
        {"i": pa.array(i, pa.int32()), "j": pa.array(j, pa.int32()), "k": pa.array(k, pa.bool_())}
    )
    made, failures = OF_NUMBERS.both(batch)
    several = [row for row, members in enumerate(rows) if sum(one is not None for one in members) > 1]
    assert [row for row, _ in failures] == several
    kept = [row for at, row in enumerate(rows) if at not in several]
    for value, members in zip(made, kept, strict=True):
        found = OF_NUMBERS.new.FromString(value)
        names = [name for name, one in zip("ijk", members, strict=True) if one is not None]
        assert found.WhichOneof("one") == (names[0] if names else None)
        assert all(getattr(found, name) == members["ijk".index(name)] for name in names)
