"""Protobuf: random messages, written anew in every way the wire allows, with Protobuf's own runtime as the oracle; and random damage."""

import numpy as np
import pyarrow as pa
import pytest
from google.protobuf import message_factory
from hypothesis import given, settings
from hypothesis import strategies as st

from kafka_actors.schemas import kernels
from kafka_actors.schemas.protobuf_plan import ProtobufCode, plan
from kafka_actors.schemas.protobuf_runtime import RuntimeProtobufMachine
from kafka_actors.schemas.protobuf_schema import MESSAGES, Files, compiled, is_map, is_repeated, kind_of_field

PROTO3 = """
syntax = "proto3";
package t;
import "google/protobuf/timestamp.proto";
import "google/protobuf/duration.proto";
import "google/protobuf/wrappers.proto";
enum Kind { NONE = 0; ONE = 1; MINUS = -1; }
message Inner { int32 a = 1; string s = 2; repeated sint64 z = 3; Deeper d = 4; }
message Deeper { bytes b = 1; optional double x = 2; }
message All {
  int32 i32 = 1; int64 i64 = 2; uint32 u32 = 3; uint64 u64 = 4; sint32 s32 = 5; sint64 s64 = 6;
  fixed32 f32 = 7; fixed64 f64 = 8; sfixed32 sf32 = 9; sfixed64 sf64 = 10; float f = 11; double d = 12; bool b = 13;
  string s = 14; bytes by = 15; Kind kind = 16; Inner inner = 17;
  repeated int32 ri = 18; repeated double rd = 19; repeated string rs = 20; repeated Inner rm = 21; repeated Kind rk = 22;
  repeated fixed32 unpacked = 23 [packed = false];
  map<string, int32> ms = 24; map<int32, Inner> mi = 25; map<bool, Kind> mb = 26;
  oneof choice { int32 first = 27; string second = 28; Inner third = 29; }
  optional int32 maybe = 30; optional string text = 200;
  google.protobuf.Timestamp at = 31; google.protobuf.Duration lasts = 32;
  google.protobuf.Int32Value wrapped = 33; google.protobuf.StringValue wtext = 34; repeated google.protobuf.BoolValue wmany = 35;
}
"""
PROTO2 = """
syntax = "proto2";
package t;
enum Closed { A = 1; B = 5; }
enum Zero { Z = 0; Y = 4; }
message All {
  required int32 id = 1; optional Closed closed = 2; repeated Closed many = 3; map<string, Zero> mapped = 4;
  optional group Part = 5 { optional int32 x = 1; optional string y = 2; }
  repeated group Parts = 6 { optional int32 z = 1; }
  optional int32 with_default = 7 [default = 41]; repeated int32 packed = 8 [packed = true];
}
"""
EDITION = """
edition = "2023";
package t;
message Sub { int32 a = 1; }
message All {
  int32 explicit = 1; int32 implicit = 2 [features.field_presence = IMPLICIT];
  Sub delimited = 3 [features.message_encoding = DELIMITED]; repeated int32 expanded = 4 [features.repeated_field_encoding = EXPANDED];
}
"""


class Place:
    """A message with its class, and both machines by name or by number of enums."""

    def __init__(self, text, enums="name"):
        descriptors = compiled(text)
        message = Files(descriptors).message("t.All")
        self.new = message_factory.GetMessageClass(message)
        self.message = message
        made = plan(message, descriptors, enums)
        self.machines = kernels.protobuf_kernel()[1](made), RuntimeProtobufMachine(made)


PLACES = {
    "proto3": Place(PROTO3),
    "numbers": Place(PROTO3, "number"),
    "proto2": Place(PROTO2),
    "edition": Place(EDITION),
}

_NUMBERS = {
    "int32": st.integers(-(2**31), 2**31 - 1),
    "int64": st.integers(-(2**63), 2**63 - 1),
    "uint32": st.integers(0, 2**32 - 1),
    "uint64": st.integers(0, 2**64 - 1),
    "float": st.floats(width=32, allow_nan=False),
    "double": st.floats(allow_nan=False),
    "bool": st.booleans(),
    "string": st.text(max_size=4),
    "bytes": st.binary(max_size=4),
}


@st.composite
def messages(draw, place):
    """Bytes of one or several messages behind each other, which are one; in the order of the runtime, or another one."""
    parts = []
    for _ in range(draw(st.sampled_from([1, 1, 2, 3]))):
        made = place.new()
        fill(draw, made, place.message)
        if "id" in place.message.fields_by_name and draw(st.integers(0, 9)):
            made.id = 7
        parts.append(made.SerializePartialToString())
    if draw(st.booleans()):
        parts.insert(draw(st.integers(0, len(parts))), unknown(draw))
    return b"".join(parts)


def unknown(draw):
    """A field that no schema has."""
    return draw(
        st.sampled_from(
            [
                b"\xc0\x3e\x01",
                b"\xc2\x3e\x02ab",
                b"\xc5\x3e\0\0\0\0",
                b"\xc1\x3e" + bytes(8),
                b"\xc3\x3e\x08\x01\xc4\x3e",
                b"\x80\x01\x63",
            ]
        )
    )


def fill(draw, made, message, depth=0):
    for field in message.fields:
        if draw(st.integers(0, 2)):
            continue
        if is_map(field):
            key, value = (field.message_type.fields_by_name[name] for name in ("key", "value"))
            for _ in range(draw(st.integers(0, 2))):
                one = draw(_NUMBERS[kind_of_field(key)])
                if value.type in MESSAGES:
                    fill(draw, getattr(made, field.name)[one], value.message_type, depth + 1)
                else:
                    getattr(made, field.name)[one] = scalar(draw, value)
        elif is_repeated(field):
            for _ in range(draw(st.integers(0, 3))):
                if field.type in MESSAGES:
                    fill(draw, getattr(made, field.name).add(), field.message_type, depth + 1)
                else:
                    getattr(made, field.name).append(scalar(draw, field))
        elif field.type in MESSAGES:
            getattr(made, field.name).SetInParent()
            fill(draw, getattr(made, field.name), field.message_type, depth + 1)
        else:
            setattr(made, field.name, scalar(draw, field))


def scalar(draw, field):
    if field.enum_type is not None:
        known = [value.number for value in field.enum_type.values]
        return draw(
            st.sampled_from(known)
            if field.enum_type.is_closed
            else st.sampled_from(known) | st.integers(-3, 9)
        )
    return draw(_NUMBERS[kind_of_field(field)])


def run(machine, values):
    rows = np.arange(len(values), dtype=np.int32)
    batch, failures = machine.run(pa.array(values, pa.binary()), rows, np.zeros(len(values), np.int32))
    batch.validate(full=True)
    return batch, failures


def sorted_maps(value):
    """Rows in which the entries of maps are in the order of their keys: the runtime keeps none."""
    if isinstance(value, dict):
        return {name: sorted_maps(one) for name, one in value.items()}
    if isinstance(value, list):
        made = [sorted_maps(one) for one in value]
        return sorted(made, key=lambda pair: str(pair[0])) if made and isinstance(made[0], tuple) else made
    if isinstance(value, tuple):
        return value[0], sorted_maps(value[1])
    return value


def same(ours, theirs):
    assert ours[0].schema.equals(theirs[0].schema)
    assert sorted_maps(ours[0].to_pylist()) == sorted_maps(theirs[0].to_pylist())
    assert [at for at, *_ in ours[1]] == [at for at, *_ in theirs[1]]


@pytest.mark.parametrize("name", sorted(PLACES))
@settings(max_examples=25, deadline=None)
@given(st.data())
def test_rows_are_those_of_the_runtime(name, data):
    place = PLACES[name]
    values = data.draw(st.lists(messages(place), max_size=3))
    ours, theirs = (run(machine, values) for machine in place.machines)
    same(ours, theirs)


@pytest.mark.parametrize("name", sorted(PLACES))
@settings(max_examples=25, deadline=None)
@given(st.data())
def test_damage_gives_one_row_or_one_error_and_leaves_other_rows_alone(name, data):
    place = PLACES[name]
    good = place.new()
    if name == "proto2":
        good.id = 3
    whole = good.SerializeToString()
    damaged = bytearray(data.draw(messages(place)))
    match data.draw(st.sampled_from(["flip", "cut", "insert", "random"])):
        case "flip" if damaged:
            damaged[data.draw(st.integers(0, len(damaged) - 1))] ^= 1 << data.draw(st.integers(0, 7))
        case "cut":
            del damaged[data.draw(st.integers(0, len(damaged))) :]
        case "insert":
            at = data.draw(st.integers(0, len(damaged)))
            damaged[at:at] = data.draw(st.binary(min_size=1, max_size=3))
        case _:
            damaged = data.draw(st.binary(max_size=30))
    ours, theirs = (run(machine, [whole, bytes(damaged), whole]) for machine in place.machines)
    same(ours, theirs)
    assert ours[0].num_rows + len(ours[1]) == 3
    assert ours[0].slice(0, 1).equals(ours[0].slice(ours[0].num_rows - 1, 1))


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("proto3", b"\x8a\x01\x02\x12\x02\x8a\x01\x02ab"),  # two halves of `inner`, whole only when joined
        ("proto3", b"\xca\x01\x02\x08\x05"),  # an entry of `mi` without its message
        ("proto2", b"\x08\x01\x22\x03\x0a\x01k"),  # one of `mapped` without its enum
        ("proto3", b"\xd2\x01\x00"),  # one of `mb` without anything
    ],
)
def test_parts_that_are_not_whole_are_not_joined_and_entries_without_a_value_have_an_empty_one(name, value):
    ours, theirs = (run(machine, [value]) for machine in PLACES[name].machines)
    same(ours, theirs)


def test_a_failure_names_its_field():
    place = PLACES["proto3"]
    made = plan(place.message, compiled(PROTO3), "name")
    _, failures = run(
        kernels.protobuf_kernel()[1](made), [b"\x72\x01\xff", b"\x8a\x01\x03\x12\x01\xff", b"\x08"]
    )
    assert [made.reason(code, field) for _, code, field in failures] == [
        "s: a string is no UTF-8",
        "inner.s: a string is no UTF-8",
        "the value ends within a field",
    ]
    assert failures[0][1] == ProtobufCode.UTF8
