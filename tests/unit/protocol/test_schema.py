"""Reading a declaration back."""

from typing import Annotated

import pytest

from kafka_actors import protocol
from kafka_actors.protocol.schema import NEVER, Element, Int32, Range, Uuid, V, fields_of


class Inner(Element):
    partition: Int32 = 0


class Outer(Element):
    name: str = ""
    topic_id: Annotated[Uuid, V("13+", ignorable=True)] = protocol.ZERO_UUID
    rack: Annotated[str | None, V("3-7", nullable="5+", tag=2)] = None
    inner: Annotated[list[Inner] | None, V(nullable="0+")] = []
    numbers: list[Int32] = []
    client_id: Annotated[str, V(flexible=False)] = "me"


@pytest.mark.parametrize(
    ("text", "expected"),
    [("3+", Range(3, 32767)), ("0-12", Range(0, 12)), ("7", Range(7, 7)), ("none", NEVER)],
)
def test_ranges(text, expected):
    assert Range.parse(text) == expected


def test_a_range_has_both_its_ends():
    assert [v for v in range(6) if v in Range(2, 4)] == [2, 3, 4]
    assert not any(v in NEVER for v in range(6))


def test_fields_are_read_in_wire_order_with_all_that_was_said():
    name, topic_id, rack, inner, numbers, client_id = fields_of(Outer)
    assert (name.name, name.wire, name.versions, name.tag) == ("name", "string", Range(0, 32767), None)
    assert (topic_id.wire, topic_id.versions.low, topic_id.ignorable) == ("uuid", 13, True)
    assert (rack.wire, rack.versions, rack.nullable.low, rack.tag) == ("string", Range(3, 7), 5, 2)
    assert (inner.wire, inner.item, inner.struct, inner.default) == ("array", "struct", Inner, [])
    assert (numbers.wire, numbers.item, numbers.struct) == ("array", "int32", None)
    assert (client_id.flexible, client_id.default) == (False, "me")


def test_an_element_is_a_field_that_is_never_null():
    inner = fields_of(Outer)[3]
    assert (inner.element().wire, inner.element().nullable, inner.element().struct) == (
        "struct",
        NEVER,
        Inner,
    )


def test_messages_are_immutable_and_compare_by_value():
    request = protocol.HeartbeatRequest("g", 5, "m")
    assert request == protocol.HeartbeatRequest(group_id="g", generation_id=5, member_id="m")
    with pytest.raises(AttributeError):
        request.group_id = "other"
