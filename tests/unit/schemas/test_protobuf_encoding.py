"""Columns of messages: which are refused, and presence, oneofs and groups; by the kernel and its twin."""

import pyarrow as pa
import pytest
from fakes.protobuf import MACHINES, written_by, written_field

from kafka_actors.errors import ConfigError
from kafka_actors.schemas import ProtobufEncoder

ORDER = """syntax = "proto3"; package shop;
enum Kind { NEW = 0; OPEN = 1; GONE = -1; }
message Refund { int64 id = 1; }
message Order {
  int32 id = 1; optional string note = 2; repeated int32 sizes = 3; repeated string tags = 4; map<string, Part> parts = 5;
  oneof pay { string card = 6; int64 cash = 7; } Kind kind = 8; Part part = 9;
  message Part { string sku = 1; map<string, int32> counts = 2; }
  message Other { Order order = 1; }
}"""


def order(**columns):
    return ProtobufEncoder(ORDER, message="shop.Order").encode(pa.record_batch(columns))


@pytest.fixture(autouse=True, params=MACHINES, ids=["kernel", "python"])
def machine(request, monkeypatch):
    written_by(request.param, monkeypatch)


def test_presence_of_proto2_and_closed_enums():
    enum = "enum K { X = 1; B = 5; }"
    assert written_field(
        "int32", pa.array([0, None], pa.int32()), "optional", "proto2"
    ).values.to_pylist() == [
        b"\x08\0",
        b"",
    ]
    assert written_field("int32", pa.array([0, None], pa.int32()), "required", "proto2").failures == [
        (1, "a: the value is null, which the schema doesn't allow")
    ]
    for column in (pa.array(["2", "B", None]), pa.array([2, 5, None])):
        made = written_field("K", column, "optional", "proto2", enum)
        assert made.values.to_pylist() == [b"\x08\5", b""]
        assert made.failures == [(0, "a: the value is none that the enum t.K has")]
    assert written_field("int32", pa.array([[1, 2]]), "repeated", "proto2").values.to_pylist() == [
        b"\x08\1\x08\2"
    ]
    group = ProtobufEncoder(
        'syntax = "proto2"; message A { optional group Part = 20 { optional int32 x = 1; } }'
    )
    assert group(pa.record_batch({"part": [{"x": 1}]})).to_pylist() == [b"\xa3\1\x08\1\xa4\1"]


@pytest.mark.parametrize(
    ("columns", "said"),
    [
        ({"ids": pa.int32()}, "ids: shop.Order has no such field, so the column would be lost"),
        ({"part": pa.struct([("x", pa.int32())])}, r"part\.x: shop.Order.Part has no such field"),
        ({"id": pa.string()}, "id: the column is string, the schema has int32"),
        ({"id": pa.float64()}, "id: the column is double, the schema has int32"),
        ({"sizes": pa.int32()}, "sizes: the column is int32, the schema has repeated int32"),
        ({"sizes": pa.list_(pa.string())}, r"sizes\[\]: the column is string, the schema has int32"),
        ({"parts": pa.struct([])}, "parts: the column is struct<>, the schema has a map"),
        ({"part": pa.string()}, "part: the column is string, the schema has shop.Order.Part"),
        ({"kind": pa.float64()}, "kind: the column is double, the schema has enum shop.Kind"),
    ],
)
def test_columns_that_can_never_be_written_are_refused(columns, said):
    with pytest.raises(ConfigError, match=said):
        ProtobufEncoder(ORDER, message="shop.Order").check(pa.schema(list(columns.items())))


def test_a_required_field_needs_a_column_and_columns_have_names_of_their_own():
    encoder = ProtobufEncoder('syntax = "proto2"; message A { required int32 a = 1; optional int32 b = 2; }')
    with pytest.raises(ConfigError, match="a: there is no such column, and the field is required"):
        encoder.check(pa.schema([("b", pa.int32())]))
    with pytest.raises(ConfigError, match="a: there is more than one such column"):
        encoder.check(pa.schema([("a", pa.int32()), ("a", pa.int32())]))


def test_timestamps_need_a_zone_and_messages_of_any_type_are_refused():
    more = 'import "google/protobuf/timestamp.proto"; import "google/protobuf/any.proto";'
    with pytest.raises(
        ConfigError, match=r"a: the column is timestamp\[us\], the schema has google.protobuf.Timestamp"
    ):
        written_field("google.protobuf.Timestamp", pa.array([1], pa.timestamp("us")), more=more)
    with pytest.raises(ConfigError, match=r"a: google.protobuf.Any can't be written from columns"):
        written_field("google.protobuf.Any", pa.array([{}], pa.struct([])), more=more)


def test_of_a_oneof_one_member_may_be_set():
    made = order(card=["a", None, "b", None], cash=[None, 1, 2, None])
    assert made.values.to_pylist() == [b"\x32\1a", b"\x38\1", b""]
    assert made.failures == [(2, "pay: card and cash are both set, of which one may be")]
    assert made.records.tolist() == [0, 1, 3]


def test_a_column_of_nulls_leaves_out_a_field_with_presence_and_is_refused_for_others():
    nulls = pa.nulls(2)
    assert ProtobufEncoder(ORDER, message="shop.Order")(pa.record_batch({"note": nulls})).to_pylist() == [
        b"",
        b"",
    ]
    with pytest.raises(ConfigError, match="id: the column is null, the schema has int32"):
        ProtobufEncoder(ORDER, message="shop.Order").check(pa.schema([("id", pa.null())]))
