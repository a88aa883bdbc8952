"""Protobuf schemas: texts, imports, descriptors in base64, messages by name and by index, and their columns."""

import base64

import pyarrow as pa
import pytest
from google.protobuf import descriptor_pb2

from kafka_actors.errors import ConfigError
from kafka_actors.schemas.protobuf_schema import Files, arrow_schema, compiled

SHOP = """syntax = "proto3"; package shop; import "geo/city.proto"; import "google/protobuf/timestamp.proto";
enum Kind { NONE = 0; }
message Order {
  uint64 id = 1; optional string note = 2; geo.City city = 3; repeated Part parts = 4; map<string, Part> named = 5;
  google.protobuf.Timestamp at = 6; Kind kind = 7; oneof choice { int32 a = 8; bytes b = 9; }
  message Part { string sku = 1; message Deep { bool x = 1; } Deep deep = 2; }
}
message Refund { int64 id = 1; }"""
CITY = 'syntax = "proto3"; package geo; message City { string name = 1; }'
IMPORTS = {"geo/city.proto": CITY}


@pytest.fixture(scope="module")
def shop():
    return compiled(SHOP, IMPORTS)


def test_a_message_as_columns(shop):
    part = pa.struct(
        [pa.field("sku", pa.string(), False), pa.field("deep", pa.struct([pa.field("x", pa.bool_(), False)]))]
    )
    expected = pa.schema(
        [
            pa.field("id", pa.decimal128(20, 0), False),
            pa.field("note", pa.string()),
            pa.field("city", pa.struct([pa.field("name", pa.string(), False)])),
            pa.field("parts", pa.list_(pa.field("element", part, False)), False),
            pa.field("named", pa.map_(pa.string(), pa.field("value", part, False)), False),
            pa.field("at", pa.timestamp("us", "UTC")),
            pa.field("kind", pa.string(), False),
            pa.field("a", pa.int32()),
            pa.field("b", pa.binary()),
        ]
    )
    assert arrow_schema(Files(shop).message("shop.Order"), "name").equals(expected)
    assert arrow_schema(Files(shop).message("shop.Order"), "number").field("kind").type == pa.int32()


def test_messages_by_name_and_by_index(shop):
    files = Files(shop)
    assert files.message_at((1,)).full_name == "shop.Refund"
    assert files.message_at((0, 0, 0)).full_name == "shop.Order.Part.Deep"
    assert files.message_at((2,)) is None
    assert files.message("geo.City").full_name == "geo.City"
    with pytest.raises(
        ConfigError, match=r"message: is missing, and the schema has several: shop\.Order, shop\.Refund"
    ):
        files.message(None)
    with pytest.raises(ConfigError, match=r"message: is 'Order': the schema has shop\.Order, shop\.Refund"):
        files.message("Order")
    assert Files(compiled(CITY)).message(None).full_name == "geo.City"


def test_a_descriptor_in_base64_is_a_schema_too(shop):
    """As confluent-kafka registers one, with imports under their names."""

    def serialized(text, references):
        found = descriptor_pb2.FileDescriptorSet.FromString(compiled(text, references)).file[-1]
        return base64.b64encode(found.SerializeToString()).decode()

    city = serialized(CITY, {})
    made = Files(compiled(serialized(SHOP, IMPORTS), {"geo/city.proto": city}))
    assert arrow_schema(made.message("shop.Order"), "name") == arrow_schema(
        Files(shop).message("shop.Order"), "name"
    )


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (
            'syntax = "proto3"; message M { int32 a = 1 }',
            'schema: is no Protobuf schema: line 1:44: Expected ";"',
        ),
        (SHOP, "schema: is no Protobuf schema: .*geo/city.proto: File not found"),
        ("AAAA", "schema: is base64, and no FileDescriptorProto"),
    ],
    ids=["syntax", "import", "base64"],
)
def test_what_protoc_says_is_said(text, said):
    with pytest.raises(ConfigError, match=said):
        compiled(text)


def test_an_import_can_not_be_written_elsewhere():
    with pytest.raises(ConfigError, match=r"references: '../x.proto' is no name of an imported file"):
        compiled(CITY, {"../x.proto": CITY})


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ("M other = 1;", "M holds itself: no Arrow column can"),
        ("repeated M others = 1;", "M holds itself"),
    ],
)
def test_what_no_column_can_hold_is_refused_by_name(fields, said):
    text = f'syntax = "proto3"; import "google/protobuf/struct.proto"; message M {{ {fields} }}'
    with pytest.raises(ConfigError, match=said):
        arrow_schema(Files(compiled(text)).message("M"), "name")
