"""Protobuf: random messages, written anew in every way the wire allows, with Protobuf's own runtime as the oracle; and random damage."""

import numpy as np
import pyarrow as pa
import pytest
from fakes.protobuf_messages import DYNAMIC, EDITION, PROTO2, PROTO3, fill, sorted_maps
from google.protobuf import message_factory
from hypothesis import given, settings
from hypothesis import strategies as st

from kafka_actors.schemas import kernels
from kafka_actors.schemas.protobuf_plan import ProtobufCode, plan
from kafka_actors.schemas.protobuf_runtime import RuntimeProtobufMachine
from kafka_actors.schemas.protobuf_schema import Files, compiled


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
    "dynamic": Place(DYNAMIC),
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


def run(machine, values):
    rows = np.arange(len(values), dtype=np.int32)
    batch, failures = machine.run(pa.array(values, pa.binary()), rows, np.zeros(len(values), np.int32))
    batch.validate(full=True)
    return batch, failures


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


def part(number, content):
    """A field with a length in front."""
    return bytes([8 * number + 2, len(content)]) + content


TEXT = part(3, b"\xff")
"""A Value whose text is not UTF-8."""


@pytest.mark.parametrize(
    "broken",
    [
        part(11, b"\x12\x02"),  # it ends within a field
        part(11, part(1, TEXT)),
        part(11, part(1, part(6, part(1, TEXT)))),
        part(11, part(1, part(5, part(1, part(2, TEXT))))),
        part(10, part(1, part(1, b"\xff"))),  # the name of a field
        part(10, part(1, part(2, TEXT))),
    ],
)
def test_a_struct_or_list_that_another_one_of_its_oneof_replaces_is_read_too(broken):
    place = PLACES["dynamic"]
    third = b"\x60\x01"
    values = [third, broken + third, part(11, part(1, part(3, b"x"))) + third]
    ours, theirs = (run(machine, values) for machine in place.machines)
    same(ours, theirs)
    assert [at for at, *_ in ours[1]] == [1]


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
        ("proto2", b"\x08\x07\x22\x04\x08\x00\x10\x00"),  # one of `mapped` whose key is a number
        ("proto2", b"\x08\x00+\x12\x02\xc0\x80,"),  # a text of a group that is not UTF-8
        ("proto2", b"\x08\x00\x22\x06\x0a\x02\xc0\x80\x10\x04"),  # a key of a map that is none
        ("proto3", b"\x72\x01\xff\x72\x01\x30"),  # a text that is not UTF-8, and one that replaces it
        ("proto2", b"\x08\x00+\x12\x01\xff\x12\x01a,"),
        ("proto3", b"\xe2\x01\x01\xff\xd8\x01\x05"),  # the same in a oneof
        ("proto3", b"\xea\x01\x03\x12\x01\xff\xd8\x01\x05"),
        ("proto3", b"\xea\x01\x02\x12\x05\xd8\x01\x05"),  # half of a message there
        (
            "proto3",
            b"\xca\x01\x07\x08\x01\x12\x03\x12\x01\xff\xca\x01\x02\x08\x01",
        ),  # in an entry whose key comes again
    ],
)
def test_parts_that_are_not_whole_are_not_joined_and_entries_without_a_value_have_an_empty_one(name, value):
    ours, theirs = (run(machine, [value]) for machine in PLACES[name].machines)
    same(ours, theirs)


@pytest.mark.parametrize(
    ("field", "value", "entries"),
    [
        ("ms", b"\xc2\x01\x05\x0a\x01a\x10\x01\xc2\x01\x05\x0a\x01b\x10\x02\xc2\x01\x05\x0a\x01a\x10\x03", {"a": 3, "b": 2}),
        ("mb", b"\xd2\x01\x04\x08\x01\x10\x01\xd2\x01\x04\x08\x02\x10\x00", {True: 0}),  # any number but 0 is true
        ("mi", b"\xca\x01\x02\x08\x01\xca\x01\x06\x08\x81\x80\x80\x80\x10", {1: None}),  # the number's lower 32 bits are the key
    ],
)  # fmt: skip
def test_of_entries_of_a_map_with_one_key_the_last_one_counts(field, value, entries):
    """Random messages have such entries only now and then."""
    ours, theirs = (run(machine, [value]) for machine in PLACES["numbers"].machines)
    same(ours, theirs)
    (row,) = ours[0].column(field).to_pylist()
    assert len(row) == len(entries)
    assert {key: None if field == "mi" else one for key, one in row} == entries


def test_a_failure_names_its_field():
    place = PLACES["proto3"]
    made = plan(place.message, compiled(PROTO3), "name")
    _, failures = run(
        kernels.protobuf_kernel()[1](made), [b"\x72\x01\xff", b"\x8a\x01\x03\x12\x01\xff", b"\x08"]
    )
    assert [made.reason(code, field) for _, code, field in failures] == [
        "s: a string is not UTF-8",
        "inner.s: a string is not UTF-8",
        "the value ends within a field",
    ]
    assert failures[0][1] == ProtobufCode.UTF8
