"""Protobuf schemas with every kind of field, and random messages of them."""

from __future__ import annotations

from typing import Any

from hypothesis import strategies as st

from kafka_actors.schemas.protobuf_schema import MESSAGES, is_map, is_repeated, kind_of_field

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
DYNAMIC = """
syntax = "proto3";
package t;
import "google/protobuf/struct.proto";
message Inner { google.protobuf.Value v = 1; int32 n = 2; repeated google.protobuf.ListValue l = 3; }
message All {
  google.protobuf.Struct s = 1; google.protobuf.Value v = 2; google.protobuf.ListValue l = 3; repeated google.protobuf.Value many = 4;
  map<string, google.protobuf.Value> by_name = 5; map<int32, Inner> inner_by = 6; repeated Inner inners = 7; Inner inner = 8; string text = 9;
  oneof choice { google.protobuf.Struct first = 10; google.protobuf.ListValue second = 11; int32 third = 12; }
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


def fill(draw: Any, made: Any, message: Any, depth: int = 0) -> None:
    """Sets random fields of a message."""
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


def scalar(draw: Any, field: Any) -> Any:
    """A random value of a field's type."""
    if field.enum_type is not None:
        known = [value.number for value in field.enum_type.values]
        return draw(
            st.sampled_from(known)
            if field.enum_type.is_closed
            else st.sampled_from(known) | st.integers(-3, 9)
        )
    return draw(_NUMBERS[kind_of_field(field)])


def sorted_maps(value: Any) -> Any:
    """Rows in which the entries of maps are in the order of their keys: the runtime keeps none."""
    if isinstance(value, dict):
        return {name: sorted_maps(one) for name, one in value.items()}
    if isinstance(value, list):
        made = [sorted_maps(one) for one in value]
        return sorted(made, key=lambda pair: str(pair[0])) if made and isinstance(made[0], tuple) else made
    if isinstance(value, tuple):
        return value[0], sorted_maps(value[1])
    return value
