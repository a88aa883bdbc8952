"""Struct, Value and ListValue of Protobuf are columns of JSON text, wherever they stand; what is none fails by record."""

import math

import pyarrow as pa
import pytest
from fakes.protobuf import MACHINES, compiled_once, written_by, written_field
from google.protobuf import message_factory, struct_pb2

from kafka_actors.errors import ConfigError
from kafka_actors.schemas import ProtobufDecoder, ProtobufEncoder, kernels
from kafka_actors.schemas.protobuf_runtime import RuntimeProtobufMachine
from kafka_actors.schemas.protobuf_schema import Files

IMPORT = 'import "google/protobuf/struct.proto";'
SHOP = f"""syntax = "proto3"; package shop; {IMPORT}
message Order {{ int32 id = 1; google.protobuf.Struct more = 2; repeated google.protobuf.Value tags = 3;
  map<string, google.protobuf.ListValue> lists = 4; Part part = 5; message Part {{ repeated google.protobuf.Struct of = 1; }} }}"""
READERS = [kernels.protobuf_kernel()[1], RuntimeProtobufMachine]


@pytest.fixture(params=READERS, ids=["cython", "runtime"])
def decoder(request, monkeypatch):
    monkeypatch.setattr("kafka_actors.schemas.protobuf_decoder.compiled", compiled_once)
    monkeypatch.setattr("kafka_actors.schemas.protobuf_decoder.protobuf_kernel", lambda: ("", request.param))
    return ProtobufDecoder(SHOP, message="shop.Order")


NEW = message_factory.GetMessageClass(Files(compiled_once(SHOP)).message("shop.Order"))


def order(*, part=None, **fields):
    """An order; its messages are of another pool than struct_pb2's."""
    made = NEW(id=fields.pop("id", 0))
    if part is not None:
        made.part.SetInParent()
        for one in part:
            made.part.of.add().MergeFromString(one.SerializeToString())
    for name, value in fields.items():
        if isinstance(value, list):
            for one in value:
                getattr(made, name).add().MergeFromString(one.SerializeToString())
        elif isinstance(value, dict):
            for key, one in value.items():
                getattr(made, name)[key].MergeFromString(one.SerializeToString())
        else:
            getattr(made, name).SetInParent()
            getattr(made, name).MergeFromString(value.SerializeToString())
    return made


def struct(**fields):
    made = struct_pb2.Struct()
    made.update(fields)
    return made


def value(one):
    made = struct_pb2.Value()
    if one is None:
        made.null_value = struct_pb2.NULL_VALUE
    elif isinstance(one, str):
        made.string_value = one
    else:
        made.number_value = one
    return made


def listed(*items):
    made = struct_pb2.ListValue()
    made.extend(items)
    return made


def test_texts_have_their_keys_in_order_and_say_what_is_null(decoder):
    kind = decoder.schema.field
    assert kind("more").type == kind("tags").type.value_type == pa.string()
    values = [
        order(id=1, more=struct(b=1, a="é", n=None), tags=[value("x"), value(None), value(2.5)]),
        order(id=2, lists={"k": listed(True, [1], {})}, part=[struct(), struct(x=1e300)]),
        order(id=3),
    ]
    rows = decoder(pa.array([one.SerializeToString() for one in values], pa.binary())).to_pylist()
    assert rows == [
        {
            "id": 1,
            "more": '{"a":"é","b":1.0,"n":null}',
            "tags": ['"x"', "null", "2.5"],
            "lists": [],
            "part": None,
        },
        {
            "id": 2,
            "more": None,
            "tags": [],
            "lists": [("k", "[true,[1.0],{}]")],
            "part": {"of": ["{}", '{"x":1e300}']},
        },
        {"id": 3, "more": None, "tags": [], "lists": [], "part": None},
    ]


@pytest.mark.parametrize("number", [math.nan, math.inf, -math.inf])
def test_a_number_that_json_does_not_have_fails_its_record_and_no_other(decoder, number):
    bad = [
        order(id=2, tags=[value(1), value(number)]),
        order(id=4, part=[struct(), struct(deep=[number])]),
        order(id=5, lists={"a": listed(number), "b": listed(1)}),
    ]
    good = [order(id=1, tags=[value(7)]), order(id=3, lists={"b": listed(1)})]
    records = [good[0], bad[0], good[1], bad[1], bad[2], good[0]]
    values = [one.SerializeToString() for one in records]
    values.insert(0, b"\x08")  # it ends within a field
    made = decoder.decode(pa.array(values, pa.binary()))
    assert [at for at, _ in made.failures] == [0, 2, 4, 5]
    assert made.records.tolist() == [1, 3, 6]
    assert made.batch["id"].to_pylist() == [1, 3, 1]
    assert made.batch["tags"].to_pylist() == [["7.0"], [], ["7.0"]]
    assert made.batch["lists"].to_pylist() == [[], [("b", "[1.0]")], []]


def test_a_failure_names_its_field_and_bytes_that_are_no_message_fail(monkeypatch):
    monkeypatch.setattr("kafka_actors.schemas.protobuf_decoder.compiled", compiled_once)
    decoder = ProtobufDecoder(SHOP, message="shop.Order")
    values = [
        order(part=[struct(x=math.nan)]).SerializeToString(),
        b"\x12\x02\x0a\x09",  # `more`, which ends within an entry
        b"\x1a\x03\x1a\x01\xff",  # a tag that is a text without UTF-8
        order(lists={"k": listed(math.inf)}).SerializeToString(),
    ]
    reasons = [reason for _, reason in decoder.decode(pa.array(values, pa.binary())).failures]
    said = "the value can't be given as JSON"
    assert reasons == [f"part.of: {said}", f"more: {said}", f"tags: {said}", f"lists.value: {said}"]


@pytest.fixture(params=MACHINES, ids=["cython", "python"])
def machine(request, monkeypatch):
    written_by(request.param, monkeypatch)


@pytest.mark.usefixtures("machine")
def test_what_is_written_is_read_by_the_runtime():
    encoder = ProtobufEncoder(SHOP, message="shop.Order")
    rows = pa.record_batch(
        {
            "more": ['{"b": 1, "a": [null, "x"]}', None, "{}"],
            "tags": [["1", '"x"', "null"], [], ["{}"]],
            "lists": pa.array([[("k", "[1]")], [], []], pa.map_(pa.string(), pa.string())),
            "part": [{"of": ['{"x": true}']}, None, {"of": []}],
        }
    )
    found = [NEW.FromString(one) for one in encoder(rows).to_pylist()]
    assert found == [
        order(
            more=struct(b=1, a=[None, "x"]),
            tags=[value(1), value("x"), value(None)],
            lists={"k": listed(1)},
            part=[struct(x=True)],
        ),
        order(),
        order(more=struct(), tags=[struct_pb2.Value(struct_value=struct())], part=[]),
    ]
    read = ProtobufDecoder(SHOP, message="shop.Order")(encoder(rows)).to_pylist()
    assert [row["more"] for row in read] == ['{"a":[null,"x"],"b":1.0}', None, "{}"]


@pytest.mark.usefixtures("machine")
@pytest.mark.parametrize("text", ["", "{", "[1]", '{"a": NaN}', '{"a": 1e999}', '{"a": 1, "a": 2}', '"x"'])
def test_a_text_that_is_no_struct_fails_its_row_and_no_other(text):
    made = written_field("google.protobuf.Struct", pa.array(["{}", text, None]), more=IMPORT)
    assert made.values.to_pylist() == [b"\x0a\0", b""]
    assert made.failures == [(1, "a: the text is no JSON of a google.protobuf.Struct")]


@pytest.mark.usefixtures("machine")
def test_other_columns_are_refused():
    with pytest.raises(ConfigError, match=r"a: the column is int64, the schema has google.protobuf.Value"):
        written_field("google.protobuf.Value", pa.array([1]), more=IMPORT)
