"""The decoder of Avro values: frames, writers' schemas by their ids, failures, and copies in other processes."""

import io
import json
import pickle

import fastavro
import pyarrow as pa
import pytest
from fakes.registries import RegistryInMemory

from kafka_actors.errors import ConfigError
from kafka_actors.schemas import (
    AvroDecoder,
    AvroEncoder,
    DeserializationError,
    SchemaRegistryUnavailableError,
)
from kafka_actors.schemas.framing import frame

FIRST = {"type": "record", "name": "Order", "fields": [{"name": "id", "type": "int"}]}
SECOND = {
    **FIRST,
    "fields": [{"name": "id", "type": "long"}, {"name": "city", "type": "string", "default": "-"}],
}
OTHER = {"type": "record", "name": "Refund", "fields": [{"name": "id", "type": "int"}]}


def written(schema, row, schema_id=None):
    stream = io.BytesIO()
    fastavro.schemaless_writer(stream, fastavro.parse_schema(schema), row)
    return (b"" if schema_id is None else frame(schema_id)) + stream.getvalue()


def binary(*values):
    return pa.array(values, pa.binary())


@pytest.fixture
def registry():
    made = RegistryInMemory()
    made.add("orders-value", FIRST)
    made.add("orders-value", SECOND)
    return made


def test_values_without_a_frame_are_of_the_schema_or_of_the_writers():
    assert AvroDecoder(FIRST)(binary(written(FIRST, {"id": 5}))).to_pylist() == [{"id": 5}]
    decoder = AvroDecoder(SECOND, writer=FIRST)
    assert decoder(binary(written(FIRST, {"id": 5}), None)).to_pylist() == [{"id": 5, "city": "-"}, None]
    with pytest.raises(ConfigError, match="writer Order, reader Refund"):
        AvroDecoder(OTHER, writer=FIRST)


def test_each_value_is_read_by_the_schema_of_its_id_which_is_asked_for_once(registry):
    decoder = AvroDecoder(SECOND, registry=registry)
    values = [
        written(SECOND, {"id": 1, "city": "x"}, 2),
        written(FIRST, {"id": 2}, 1),
        written(SECOND, {"id": 3, "city": "z"}, 2),
    ]
    for _ in range(2):
        assert decoder(binary(*values)).to_pylist() == [
            {"id": 1, "city": "x"},
            {"id": 2, "city": "-"},
            {"id": 3, "city": "z"},
        ]
    assert sorted(registry.asked) == [1, 2]
    known = AvroDecoder(SECOND, registry=registry, known=registry.known_schemas("orders-value"))
    assert len(known(binary(*values))) == 3
    assert sorted(registry.asked) == [1, 2]


def test_a_registry_alone_gives_the_columns_of_a_subject_or_of_the_first_value(registry):
    values = binary(written(FIRST, {"id": 2}, 1), written(SECOND, {"id": 3, "city": "z"}, 2))
    of_subject = AvroDecoder(registry, subject="orders-value")
    assert of_subject.schema.names == ["id", "city"]
    assert of_subject(values).to_pylist() == [{"id": 2, "city": "-"}, {"id": 3, "city": "z"}]
    assert AvroDecoder(registry, subject="orders-value", version=1).schema.names == ["id"]
    of_first = pickle.loads(pickle.dumps(AvroDecoder(registry)))
    assert of_first.decode(binary()).batch.num_rows == 0
    unknown = of_first.decode(binary(b"no frame", written(FIRST, {"id": 1}, 9)))
    assert [at for at, _ in unknown.failures] == [0, 1]
    assert of_first.schema.names == [], "none of a value that can be read"
    assert of_first(values.slice(1)).to_pylist() == [{"id": 3, "city": "z"}]
    assert pickle.loads(pickle.dumps(of_first))(values).to_pylist() == [
        {"id": 2, "city": "-"},
        {"id": 3, "city": "z"},
    ]


def test_a_subject_of_a_context_is_refused_because_ids_are_looked_up_in_that_of_the_address(registry):
    """Each context has ids of its own: the same one is another schema there."""
    with pytest.raises(
        ConfigError, match=r"end the registry's address with /contexts/\.prod, and name the subject as 'o-v'"
    ):
        AvroDecoder(registry, subject=":.prod:o-v")


def test_a_schema_may_be_a_file_which_is_read_once(tmp_path):
    file = tmp_path / "order.avsc"
    file.write_text(json.dumps(FIRST))
    decoders = [AvroDecoder(file), AvroDecoder(str(file)), AvroDecoder(SECOND, writer=file)]
    encoder = AvroEncoder(file)
    copies = [pickle.dumps(one) for one in (*decoders, encoder)]
    file.unlink()
    *decoders, encoder = map(pickle.loads, copies)
    assert [one(encoder(pa.record_batch({"id": [5]})))[0]["id"].as_py() for one in decoders] == [5, 5, 5]
    with pytest.raises(
        ConfigError, match=r"^schema: \S+order.avsc can't be read: No such file or directory$"
    ):
        AvroDecoder(file)


def test_failures_name_the_schema_and_what_is_wrong_and_leave_other_rows_alone(registry):
    registry.add("refunds-value", OTHER)
    registry.add("shop-value", 'syntax = "proto3";', "PROTOBUF")
    decoder = AvroDecoder(SECOND, registry=registry, subject="orders-value")
    good = written(FIRST, {"id": 2}, 1)
    rows = decoder.decode(
        binary(good, good[:-1], good + b"xx", frame(9) + b"\2", frame(3) + b"\2", frame(4), None, b"\2", good)
    )
    assert rows.records.tolist() == [0, 8]
    reasons = dict(rows.failures)
    assert reasons[1] == "schema 1 (subject orders-value): id: the value ends before the schema does"
    assert reasons[2].endswith("2 bytes follow the record that the schema describes")
    assert reasons[3] == "schema 9 (subject orders-value): schema 9: the registry doesn't have it"
    assert reasons[4].startswith(
        "schema 3 (subject orders-value) can't be read by the reader's: writer Refund"
    )
    assert reasons[5] == "schema 4 (subject orders-value) is of type PROTOBUF, not AVRO"
    assert reasons[6].startswith("the value is null")
    assert reasons[7].startswith("the value begins with byte 2")


def test_a_registry_that_is_away_is_no_error_of_a_value(registry):
    decoder = AvroDecoder(SECOND, registry=registry)
    registry.away = True
    with pytest.raises(SchemaRegistryUnavailableError):
        decoder.decode(binary(written(FIRST, {"id": 2}, 1)))
    registry.away = False
    assert decoder(binary(written(FIRST, {"id": 2}, 1))).to_pylist() == [{"id": 2, "city": "-"}]


def test_a_schema_that_the_registry_does_not_have_yet_is_asked_for_again(registry):
    """A registry of several nodes may lag behind the one where a schema was registered."""
    decoder = AvroDecoder(SECOND, registry=registry)
    value = binary(written(SECOND, {"id": 1, "city": "x"}, 3))
    assert decoder.decode(value).failures
    registry.add("orders-value", SECOND)
    assert decoder.decode(value).failures == []


def test_whether_a_writers_schema_can_be_read_is_known_before_a_value_is_there(registry):
    decoder = AvroDecoder(FIRST, registry=registry)
    assert decoder.refusal(registry.schemas[0]) == ""
    assert decoder.refusal(registry.schemas[1]) == "id: writer long, reader int"


def test_a_schema_that_was_not_known_before_can_be_a_failure(registry):
    decoder = AvroDecoder(SECOND, registry=registry, known={2: registry.schemas[1]}, on_new_schema="fail")
    rows = decoder.decode(binary(written(SECOND, {"id": 1, "city": "x"}, 2), written(FIRST, {"id": 2}, 1)))
    assert rows.records.tolist() == [0]
    assert rows.failures[0][1].startswith("schema 1 wasn't known when the pipeline was made ready")


def test_a_call_raises_for_the_first_value_that_can_not_be_decoded():
    with pytest.raises(
        DeserializationError, match=r"^value 2: x: the value ends before the schema does"
    ) as raised:
        AvroDecoder({"type": "record", "name": "R", "fields": [{"name": "x", "type": "int"}]})(
            binary(b"\2", None, b"")
        )
    assert (raised.value.row, pickle.loads(pickle.dumps(raised.value)).row) == (2, 2)


def test_a_copy_decodes_as_the_original(registry):
    decoder = AvroDecoder(SECOND, registry=registry)
    values = binary(written(FIRST, {"id": 2}, 1))
    before = decoder(values)
    copy = pickle.loads(pickle.dumps(decoder))
    assert copy.schema == decoder.schema
    assert copy(values).equals(before)
    assert repr(copy) == "<AvroDecoder id, city>"


def test_one_id_may_be_said_without_a_registry():
    decoder = AvroDecoder(FIRST, schema_id=7)
    rows = decoder.decode(binary(written(FIRST, {"id": 1}, 7), written(FIRST, {"id": 1}, 8)))
    assert rows.batch.to_pylist() == [{"id": 1}]
    assert rows.failures == [(1, "the value was written with schema id 8, not 7")]


@pytest.mark.parametrize(
    ("more", "said"),
    [
        ({"registry": RegistryInMemory(), "schema_id": 1}, "registry: knows which schema"),
        ({"registry": RegistryInMemory(), "writer": FIRST}, "registry: knows which schema"),
        ({"on_new_schema": "fail"}, "on_new_schema: is for values whose schemas a registry has"),
    ],
    ids=["id", "writer", "new"],
)
def test_arguments_that_contradict_each_other_are_refused(more, said):
    with pytest.raises(ConfigError, match=said):
        AvroDecoder(FIRST, **more)


def test_values_of_a_slice_and_strings_are_taken_as_they_are_and_other_columns_refused():
    decoder = AvroDecoder({"type": "record", "name": "R", "fields": [{"name": "x", "type": "int"}]})
    assert decoder(binary(b"\1", b"\2", b"\4").slice(1)).to_pylist() == [{"x": 1}, {"x": 2}]
    with pytest.raises(TypeError, match="the values are int64: give binary"):
        decoder(pa.array([1], pa.int64()))


def test_ids_of_broken_values_take_no_memory(registry):
    decoder = AvroDecoder(FIRST, registry=registry, on_new_schema="fail", known={1: registry.schemas[0]})
    rows = decoder.decode(binary(*(frame(number) + b"\2" for number in range(1000))))
    assert len(rows.failures) == 999
    assert list(decoder._machines) == [1]
