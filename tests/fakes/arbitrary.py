"""Arbitrary messages of the wire protocol, for hypothesis; and messages with something in each field."""

from __future__ import annotations

from hypothesis import strategies as st

from kafka_actors import protocol
from kafka_actors.errors import DecodeError
from kafka_actors.protocol.schema import Element, FieldSpec, Message, fields_of

from .messages import REQUESTS, RESPONSES

DATA = [
    protocol.RequestHeader,
    protocol.ResponseHeader,
    protocol.ConsumerProtocolSubscription,
    protocol.ConsumerProtocolAssignment,
]
RECEIVED = [*RESPONSES.values(), *DATA]
MESSAGES = [*REQUESTS.values(), *RECEIVED]
TEXT = st.text(st.characters(codec="utf-8"), max_size=200)
PLAIN = {
    **{f"int{bits}": st.integers(-(1 << bits - 1), (1 << bits - 1) - 1) for bits in (8, 16, 32, 64)},
    "bool": st.booleans(),
    "uuid": st.uuids() | st.just(protocol.ZERO_UUID),
    "string": TEXT,
    "bytes": st.binary(max_size=200),
    "records": st.binary(max_size=200),
}


def structs(cls: type[Element], version: int, flexible: bool) -> st.SearchStrategy[Element]:
    present = [f for f in fields_of(cls) if version in f.versions and (flexible or f.tag is None)]
    return st.builds(cls, **{f.name: values(f, version, flexible) for f in present})


def values(f: FieldSpec, version: int, flexible: bool) -> st.SearchStrategy[object]:
    found: st.SearchStrategy[object]
    if f.wire == "array":
        found = st.lists(values(f.element(), version, flexible), max_size=3)
    elif f.struct is not None:
        found = structs(f.struct, version, flexible)
    else:
        found = PLAIN[f.wire]
    return st.none() | found if version in f.nullable else found


def messages(cls: type[Message], version: int) -> st.SearchStrategy[Message]:
    return structs(cls, version, cls.flexible_from is not None and version >= cls.flexible_from)


def in_some_version(classes: list[type[Message]]) -> st.SearchStrategy[tuple[type[Message], int]]:
    return st.sampled_from([(cls, v) for cls in classes for v in range(cls.min_version, cls.max_version + 1)])


def decode_hostile(cls: type[Message], version: int, body: bytes) -> None:
    """Decode what may be anything. No other error may come out, and whatever is made must be encodable."""
    try:
        message = protocol.decode_message(cls, version, body)
    except DecodeError:
        return
    protocol.encode(message, version)


def filled(cls: type[Message], version: int) -> bytes:
    """A message with something in each field."""
    flexible = cls.flexible_from is not None and version >= cls.flexible_from
    return protocol.encode(filled_struct(cls, version, flexible), version)


def filled_struct(cls: type[Element], version: int, flexible: bool) -> Message:
    present = [f for f in fields_of(cls) if version in f.versions and (flexible or f.tag is None)]
    made = cls(**{f.name: filled_value(f, version, flexible) for f in present})
    assert isinstance(made, Element)
    return made


def filled_value(f: FieldSpec, version: int, flexible: bool) -> object:
    if f.wire == "array":
        return [filled_value(f.element(), version, flexible)] * 2
    if f.struct is not None:
        return filled_struct(f.struct, version, flexible)
    some = {"bool": True, "string": "orders", "bytes": b"metadata", "records": b"batches"}
    return some.get(f.wire, protocol.ZERO_UUID if f.wire == "uuid" else 7)
