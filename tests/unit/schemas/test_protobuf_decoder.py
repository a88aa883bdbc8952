"""The decoder of Protobuf values: message indexes, other writers' schemas, failures, and copies in other processes."""

import pickle
import subprocess

import pyarrow as pa
import pytest
from fakes.registries import RegistryInMemory
from waiting import within

from kafka_actors.errors import ConfigError
from kafka_actors.schemas import ProtobufDecoder
from kafka_actors.schemas.framing import frame
from kafka_actors.schemas.protobuf_schema import Files

ORDER = 'syntax = "proto3"; package shop; message Order { int64 id = 1; Part part = 2; message Part { string sku = 1; } } message Refund { int64 id = 1; }'
LATER = ORDER.replace("int64 id = 1; Part", "int64 id = 1; string city = 3; Part")


def binary(*values):
    return pa.array(values, pa.binary())


@pytest.fixture(scope="module")
def registry():
    made = RegistryInMemory()
    made.add("orders-value", ORDER, "PROTOBUF")
    made.add("orders-value", LATER, "PROTOBUF")
    made.add("other-value", '"int"')
    return made


@pytest.fixture(scope="module")
def decoder(registry):
    return ProtobufDecoder(
        LATER, message="shop.Order", registry=registry, subject="orders-value", schema_id=2
    )


def test_values_without_a_frame_are_of_the_message():
    decoder = ProtobufDecoder(ORDER, message="shop.Order.Part")
    assert decoder(binary(b"\x0a\x01x", None, b"")).to_pylist() == [{"sku": "x"}, None, {"sku": ""}]


@pytest.mark.parametrize(
    "value", [b"\x0a\x05a", b"\x0a\xff\xff\xff\xff\x0f", b"\x12\x02", b"\x0a\x01"], ids=repr
)
def test_a_length_beyond_the_end_of_its_value_is_a_failure_and_reads_nothing_of_the_next_one(value):
    decoder = ProtobufDecoder(ORDER, message="shop.Order.Part")
    rows = decoder.decode(binary(value, b"\x0a\x03abc", value))
    assert rows.batch.to_pylist() == [{"sku": "abc"}]
    assert [number for number, _ in rows.failures] == [0, 2]


def test_a_schema_may_be_a_file(tmp_path):
    path = tmp_path / "order.proto"
    path.write_text(ORDER)
    assert ProtobufDecoder(str(path), message="shop.Refund").schema.names == ["id"]
    with pytest.raises(ConfigError, match=r"schema: .*missing\.proto can't be read: No such file"):
        ProtobufDecoder(tmp_path / "missing.proto")
    with pytest.raises(ConfigError, match=r"schema: is an int: accepts a .proto file's path, or its text"):
        ProtobufDecoder(7)


def test_indexes_name_the_message_in_the_writers_schema(decoder):
    first, second = frame(1), frame(2)
    values = binary(
        first + b"\0\x08\x05",  # the short form of [0]
        second + b"\2\0\x08\x06\x1a\x01x",  # [0] in full
        first + b"\2\2\x08\x07",  # [1]
        first + b"\4\0\0\x0a\x01s",  # [0, 0]
        first + b"\2\x0e",  # [7]
        first + b"\x04\0",  # cut
        first,  # nothing
        frame(3) + b"\0",
        frame(8) + b"\0",
    )
    rows = decoder.decode(values)
    assert rows.batch.to_pylist() == [
        {"id": 5, "city": "", "part": None},
        {"id": 6, "city": "x", "part": None},
    ]
    what = "schema {} (subject orders-value)"
    assert [reason for _, reason in rows.failures] == [
        "the value is shop.Refund, not shop.Order",
        "the value is shop.Order.Part, not shop.Order",
        what.format(1) + " has no message [7]",
        "the value ends within its message indexes",
        "the value ends within its message indexes",
        what.format(3) + " is of type AVRO, not PROTOBUF",
        what.format(8) + ": schema 8: the registry doesn't have it",
    ]


def test_damage_is_an_error_of_its_value_which_names_schema_and_field(decoder):
    rows = decoder.decode(binary(frame(2) + b"\0\x1a\x01\xff", frame(2) + b"\0\x08", frame(2) + b"\0"))
    assert rows.records.tolist() == [2]
    assert rows.failures == [
        (0, "schema 2: city: a string is not UTF-8"),
        (1, "schema 2: the value ends within a field"),
    ]


def test_a_schema_that_was_not_known_before_can_be_a_failure(registry):
    decoder = ProtobufDecoder(
        ORDER, message="shop.Order", registry=registry, schema_id=1, on_new_schema="fail"
    )
    rows = decoder.decode(binary(frame(1) + b"\0", frame(2) + b"\0"))
    assert rows.records.tolist() == [0]
    assert rows.failures[0][1].startswith("schema 2 wasn't known when the pipeline was made ready")


def test_a_copy_decodes_as_the_original_and_compiles_nothing(decoder, monkeypatch):
    copy = pickle.loads(pickle.dumps(decoder))
    monkeypatch.setattr("kafka_actors.schemas.protobuf_decoder.compiled", None)
    assert copy(binary(frame(2) + b"\0\x08\x05")).to_pylist() == [{"id": 5, "city": "", "part": None}]
    assert repr(copy) == "<ProtobufDecoder shop.Order>"


def test_wrong_arguments_are_refused():
    with pytest.raises(ConfigError, match="enums: is 'text': accepts 'name' or 'number'"):
        ProtobufDecoder(ORDER, enums="text")


def test_a_schema_that_the_registry_does_not_have_yet_is_asked_for_again():
    lagging = RegistryInMemory()
    decoder = ProtobufDecoder(ORDER, message="shop.Order", registry=lagging)
    assert decoder.decode(binary(frame(1) + b"\0")).failures
    number = lagging.add("orders-value", LATER, "PROTOBUF")
    assert decoder.decode(binary(frame(number) + b"\0")).failures == []
    assert decoder.refusal(lagging.schemas[0]) == ""
    lagging.add("orders-value", 'syntax = "proto3"; package shop; message Refund { }', "PROTOBUF")
    assert decoder.refusal(lagging.schemas[1]) == "message: is 'shop.Order': the schema has shop.Refund"


@pytest.mark.parametrize("on_new_schema", ["keep", "fail"])
def test_values_that_name_no_message_take_no_memory(registry, on_new_schema, monkeypatch):
    """A producer that writes no indexes makes some of each message's own bytes."""
    decoder = ProtobufDecoder(
        ORDER, message="shop.Order", registry=registry, schema_id=1, on_new_schema=on_new_schema
    )
    before = len(pickle.dumps(decoder))
    made = []
    monkeypatch.setattr(
        "kafka_actors.schemas.protobuf_decoder.Files", lambda found: made.append(1) or Files(found)
    )
    wrong = [frame(1) + bytes([4, 2 * a, 2 * b]) for a in range(2, 12) for b in range(10)]
    rows = decoder.decode(binary(*wrong, frame(1) + b"\0"))
    assert len(rows.failures) == len(wrong)
    assert rows.failures[0][1] == "schema 1 has no message [2, 0]"
    assert len(made) <= 2
    unknown = decoder.decode(binary(*(frame(number) + b"\0" for number in range(100, 200))))
    assert len(unknown.failures) == 100
    assert len(pickle.dumps(decoder)) < before + 500


@pytest.mark.parametrize("shift", [0, 24, 47])
def test_keys_of_a_map_that_differ_in_their_high_bits_take_no_longer(shift):
    decoder = ProtobufDecoder('syntax = "proto3"; message M { map<fixed64, bool> m = 1; }')
    keys = [number << shift for number in range(1 << 17)]
    entries = (b"\x0a\x0b\x09" + key.to_bytes(8, "little") + b"\x10\x01" for key in keys)
    with within(0.5):
        rows = decoder(binary(b"".join(entries)))
    assert [int(key) for key, _ in rows.to_pylist()[0]["m"]] == keys


def test_a_compiler_that_is_killed_is_no_error_of_values(registry, monkeypatch):
    decoder = ProtobufDecoder(ORDER, message="shop.Order", registry=registry, schema_id=1)
    values = binary(frame(2) + b"\0\x08\x05")
    with monkeypatch.context() as patch:
        killed = subprocess.CompletedProcess([], -9, "", "")
        patch.setattr("kafka_actors.schemas.protobuf_schema.subprocess.run", lambda *_, **__: killed)
        with pytest.raises(OSError, match="protoc was ended by signal 9"):
            decoder.decode(values)
    assert decoder(values).to_pylist() == [{"id": 5, "part": None}]
