"""The encoder of Protobuf values: frames, whole rows, null rows, and copies in other processes; by the kernel and its twin."""

import pickle

import pyarrow as pa
import pytest
from fakes.protobuf import MACHINES, written_by

from kafka_actors.errors import ConfigError
from kafka_actors.schemas import ProtobufDecoder, ProtobufEncoder, SerializationError

ORDER = """syntax = "proto3"; package shop;
enum Kind { NEW = 0; OPEN = 1; GONE = -1; }
message Refund { int64 id = 1; }
message Order {
  int32 id = 1; optional string note = 2; repeated int32 sizes = 3; repeated string tags = 4; map<string, Part> parts = 5;
  oneof pay { string card = 6; int64 cash = 7; } Kind kind = 8; Part part = 9;
  message Part { string sku = 1; map<string, int32> counts = 2; }
  message Other { Order order = 1; }
}"""


@pytest.fixture(autouse=True, params=MACHINES, ids=["kernel", "python"])
def machine(request, monkeypatch):
    written_by(request.param, monkeypatch)


def test_a_row_has_its_fields_in_the_order_of_their_numbers_and_the_message_is_named_behind_the_frame():
    batch = pa.record_batch({"note": ["x", None], "id": pa.array([5, 0], pa.int32())})
    assert ProtobufEncoder(ORDER, message="shop.Order")(batch).to_pylist() == [b"\x08\x05\x12\x01x", b""]
    framed = ProtobufEncoder(ORDER, message="shop.Order", schema_id=258)(batch)
    assert framed[1].as_py() == b"\0\0\0\1\2\2\2"
    part = ProtobufEncoder(ORDER, message="shop.Order.Other", schema_id=1)
    assert part(pa.array([{}], pa.struct([]))).to_pylist() == [b"\0\0\0\0\1\4\2\2"]
    first = ProtobufEncoder(ORDER, message="shop.Refund", schema_id=1)
    assert first(pa.record_batch({"id": [1]})).to_pylist() == [b"\0\0\0\0\1\0\x08\1"]


def test_the_decoder_reads_what_was_written():
    rows = pa.array(
        [
            {"id": 1, "note": "é", "sizes": [1, -1], "tags": ["a", ""], "parts": [("k", {"sku": "s", "counts": [("n", 2)]})],
             "card": None, "cash": 0, "kind": "OPEN", "part": {"sku": "", "counts": []}},
            {"id": -1, "note": None, "sizes": [], "tags": [], "parts": [], "card": "c", "cash": None, "kind": "7", "part": None},
        ],
        pa.struct(list(ProtobufDecoder(ORDER, message="shop.Order").schema)),
    )  # fmt: skip
    values = ProtobufEncoder(ORDER, message="shop.Order")(rows)
    assert ProtobufDecoder(ORDER, message="shop.Order")(values).to_pylist() == rows.to_pylist()


def test_a_long_message_has_a_length_of_several_bytes():
    rows = pa.record_batch({"part": [{"sku": "x" * 20_000}]})
    values = ProtobufEncoder(ORDER, message="shop.Order")(rows)
    assert values[0].as_py() == b"\x4a\xa4\x9c\x01" + b"\x0a\xa0\x9c\x01" + b"x" * 20_000


def test_null_rows_are_null_and_the_first_other_failure_is_raised():
    rows = pa.array([None, {"id": 1}, {"id": 2**40}], pa.struct([("id", pa.int64())]))
    encoder = ProtobufEncoder(ORDER, message="shop.Order")
    assert encoder(rows.slice(0, 2)).to_pylist() == [None, b"\x08\1"]
    assert encoder.encode(rows).failures == [(0, "the row is null"), (2, "id: 1099511627776 is no int32")]
    with pytest.raises(SerializationError, match="row 2: id: 1099511627776 is no int32"):
        encoder(rows)


def test_a_copy_encodes_as_the_original_and_compiles_nothing(monkeypatch):
    copy = pickle.loads(pickle.dumps(ProtobufEncoder(ORDER, message="shop.Order", schema_id=1)))
    monkeypatch.setattr("kafka_actors.schemas.protobuf_encoder.compiled", None)
    assert copy(pa.record_batch({"id": [1]})).to_pylist() == [b"\0\0\0\0\1\2\2\x08\1"]
    assert repr(copy) == "<ProtobufEncoder shop.Order>"


def test_messages_of_imported_files_can_be_written_only_without_a_frame():
    text = 'syntax = "proto3"; import "part.proto"; message A { Part part = 1; }'
    references = {"part.proto": 'syntax = "proto3"; message Part { int32 x = 1; }'}
    row = pa.record_batch({"part": [{"x": 1}]})
    assert ProtobufEncoder(text, references=references)(row).to_pylist() == [b"\x0a\2\x08\1"]
    assert (
        ProtobufEncoder(text, message="Part", references=references)(pa.record_batch({"x": [1]}))[0].as_py()
        == b"\x08\1"
    )
    with pytest.raises(
        ConfigError, match="message: is of an imported file: values name messages of the schema itself, A"
    ):
        ProtobufEncoder(text, message="Part", references=references, schema_id=1)
