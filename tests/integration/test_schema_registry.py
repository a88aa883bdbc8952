"""Two registries, Apicurio's and the fake, held by confluent-kafka's own client; values that its serializers, and Apicurio's in Java, write and
read. Apicurio has no GUIDs."""

import json
import pickle
import uuid
from base64 import b64encode
from contextlib import closing
from functools import partial

import pyarrow as pa
import pytest
from confluent_kafka.schema_registry import Schema as ConfluentSchema
from confluent_kafka.schema_registry import (
    SchemaRegistryClient,
    dual_schema_id_deserializer,
    header_schema_id_serializer,
)
from confluent_kafka.schema_registry.avro import AvroDeserializer, AvroSerializer
from confluent_kafka.schema_registry.error import SchemaRegistryError as ConfluentError
from confluent_kafka.schema_registry.json_schema import JSONDeserializer, JSONSerializer
from confluent_kafka.schema_registry.protobuf import ProtobufDeserializer, ProtobufSerializer
from confluent_kafka.serialization import MessageField, SerializationContext
from fakes.apicurio import Apicurio, ApicuriosSerde
from fakes.schema_registry import FakeSchemaRegistry
from google.protobuf import descriptor_pb2, message_factory

import kafka_actors as ka
from kafka_actors.pipeline.encoders import FORMATS
from kafka_actors.pipeline.json_schema import JsonSchemaDecoder
from kafka_actors.schemas.protobuf_schema import Files, compiled
from kafka_actors.schemas.reader_schema import ReaderSchema
from kafka_actors.schemas.writer_schema import WriterSchema

FIRST = {
    "type": "record",
    "name": "Order",
    "namespace": "shop",
    "fields": [{"name": "id", "type": "long"}, {"name": "note", "type": ["null", "string"], "default": None}],
}
SECOND = {**FIRST, "fields": [*FIRST["fields"], {"name": "amount", "type": "double", "default": 1.5}]}
VALUE = SerializationContext("orders", MessageField.VALUE)


@pytest.fixture(scope="module")
def apicurio(tmp_path_factory):
    with closing(Apicurio(tmp_path_factory.mktemp("apicurio"))) as server:
        yield server


@pytest.fixture
def fake():
    with FakeSchemaRegistry() as registry:
        yield registry


@pytest.fixture(params=["fake", "apicurio"])
def server(request):
    """A registry without subjects."""
    found = request.getfixturevalue(request.param)
    if request.param == "apicurio":
        found.clear()
    return found


@pytest.fixture
def confluent(request):
    """confluent-kafka's client of the test's registry."""
    name = "server" if "server" in request.fixturenames else "fake"
    return SchemaRegistryClient({"url": request.getfixturevalue(name).url})


def test_both_clients_get_the_same_answers(server, confluent):
    ours = ka.SchemaRegistry(server.url)
    first = confluent.register_schema("orders-value", ConfluentSchema(json.dumps(FIRST), "AVRO"))
    assert ours.register("orders-value", json.dumps(FIRST)) == first
    second = ours.register("orders-value", json.dumps(SECOND))
    theirs = confluent.get_latest_version("orders-value")
    found = ours.schema_of("orders-value")
    assert (theirs.schema_id, theirs.version, theirs.schema.schema_str) == (second, 2, found.text)
    assert confluent.get_schema(first).schema_str == ours.schema_by_id(first).text
    assert confluent.get_subjects() == ours.subjects() == ["orders-value"]
    assert confluent.get_versions("orders-value") == ours.versions("orders-value") == [1, 2]
    looked_up = confluent.lookup_schema("orders-value", ConfluentSchema(json.dumps(FIRST), "AVRO"))
    assert looked_up.version == ours.look_up("orders-value", json.dumps(FIRST)).version == 1
    assert confluent.test_compatibility("orders-value", ConfluentSchema(json.dumps(SECOND), "AVRO"))


@pytest.mark.parametrize("subject", ["nothing", "orders-value"])
def test_both_clients_are_refused_alike(server, confluent, subject):
    server.add("orders-value", FIRST)
    with pytest.raises(ConfluentError) as theirs:
        confluent.get_version(subject, 9)
    with pytest.raises(ka.schemas.SchemaNotFoundError) as ours:
        ka.SchemaRegistry(server.url).schema_of(subject, 9)
    assert theirs.value.error_message in str(ours.value)


def test_values_of_confluents_serializer_are_read_by_any_version(server, confluent):
    first = AvroSerializer(confluent, json.dumps(FIRST))
    second = AvroSerializer(confluent, json.dumps(SECOND))
    values = [
        first({"id": 1, "note": "é"}, VALUE),
        second({"id": 2, "note": None, "amount": 9.0}, VALUE),
        first({"id": 3, "note": None}, VALUE),
    ]
    registry = ka.SchemaRegistry(server.url)
    newest = ka.schemas.AvroDecoder(registry.schema_of("orders-value").text, registry=registry)
    assert newest(pa.array(values, pa.binary())).to_pylist() == [
        {"id": 1, "note": "é", "amount": 1.5},
        {"id": 2, "note": None, "amount": 9.0},
        {"id": 3, "note": None, "amount": 1.5},
    ]
    oldest = ka.schemas.AvroDecoder(registry.schema_of("orders-value", 1).text, registry=registry)
    assert [row["id"] for row in oldest(pa.array(values, pa.binary())).to_pylist()] == [1, 2, 3]


SHOP = 'syntax = "proto3"; package shop; message Refund { int64 id = 1; } message Order { int64 id = 1; Part part = 2; message Part { string sku = 1; } }'
WIDER = SHOP.replace("int64 id = 1; Part part", "int64 id = 1; bool paid = 3; Part part")


def test_values_of_confluents_protobuf_serializer_are_read_by_any_version_and_other_messages_are_refused(
    server, confluent
):
    """The serializer registers the schema under its own id, with the indexes of each message in front of its values."""

    def written(text, name, **fields):
        made = message_factory.GetMessageClass(Files(compiled(text)).message(name))(**fields)
        serializer = ProtobufSerializer(
            type(made), confluent, {"use.deprecated.format": False, "auto.register.schemas": True}
        )
        return serializer(made, VALUE)

    values = [
        written(SHOP, "shop.Order", id=1, part={"sku": "a"}),
        written(SHOP, "shop.Refund", id=2),
        written(WIDER, "shop.Order", id=3, paid=True),
    ]
    registry = ka.SchemaRegistry(server.url)
    decoder = ka.schemas.ProtobufDecoder(WIDER, message="shop.Order", registry=registry)
    rows = decoder.decode(pa.array(values, pa.binary()))
    assert rows.batch.to_pylist() == [
        {"id": 1, "paid": False, "part": {"sku": "a"}},
        {"id": 3, "paid": True, "part": None},
    ]
    assert rows.failures == [(1, "the value is shop.Refund, not shop.Order")]
    assert pickle.loads(pickle.dumps(decoder)).decode(pa.array(values, pa.binary())).batch.equals(rows.batch)


def test_values_of_confluents_json_serializer_are_read(server, confluent):
    schema = {
        "type": "object",
        "title": "Order",
        "properties": {"id": {"type": "integer"}, "note": {"type": ["string", "null"]}},
        "required": ["id"],
    }
    serialize = JSONSerializer(json.dumps(schema), confluent)
    values = [serialize({"id": 1, "note": "é"}, VALUE), serialize({"id": 2}, VALUE)]
    registry = ka.SchemaRegistry(server.url)
    found = registry.schema_of("orders-value")
    assert found.type == "JSON"
    decoder = JsonSchemaDecoder(found.text, registry=registry, validate=True)
    assert decoder(pa.array(values, pa.binary())).to_pylist() == [
        {"id": 1, "note": "é"},
        {"id": 2, "note": None},
    ]


def batch_of(values, headers, keys=None):
    """Records with the headers that confluent's serializers have added to lists."""
    kind = pa.list_(pa.struct([pa.field("key", pa.string()), pa.field("value", pa.binary())]))
    pairs = [[{"key": key, "value": value} for key, value in one] for one in headers]
    return pa.record_batch(
        {
            "key": pa.array(keys or [None] * len(values), pa.binary()),
            "value": pa.array(values, pa.binary()),
            "headers": pa.array(pairs, kind),
        }
    )


CITY = 'syntax = "proto3"; package geo; message City { string name = 1; Size size = 2; message Size { int32 people = 1; } }'
SHIP = 'syntax = "proto3"; package shop; import "geo/city.proto"; message Shipment { int64 id = 1; geo.City to = 2; }'


def test_a_proto_with_imports_is_registered_with_its_references_read_and_written(server, confluent):
    """Their serializer registers each imported file under a subject of its own."""
    file = Files(compiled(SHIP, {"geo/city.proto": CITY}))
    new = message_factory.GetMessageClass(file.message("shop.Shipment"))
    made = [new(id=1, to={"name": "Ulm", "size": {"people": 128_928}}), new(id=2)]
    conf = {"use.deprecated.format": False, "auto.register.schemas": True}
    serialize = ProtobufSerializer(new, confluent, conf)
    values = [serialize(one, VALUE) for one in made]
    registry = ka.SchemaRegistry(server.url)
    assert registry.schema_of("orders-value").references
    decoder = ReaderSchema(registry=registry).chosen("decode", ["orders"]).decoder
    rows = decoder(pa.array(values, pa.binary()))
    assert rows.to_pylist() == [
        {"id": 1, "to": {"name": "Ulm", "size": {"people": 128_928}}},
        {"id": 2, "to": None},
    ]
    assert pickle.loads(pickle.dumps(decoder))(pa.array(values, pa.binary())).equals(rows)
    writer = WriterSchema(registry=registry, format=FORMATS["protobuf"])
    encoder, schema = writer.chosen("write_kafka", "orders", pa.schema(list(rows.type)))
    by_text = WriterSchema(registry=registry, format=FORMATS["protobuf"], text=schema.text)
    assert by_text.chosen("write_kafka", "orders", pa.schema(list(rows.type))).schema == schema
    assert encoder(rows).to_pylist() == values
    read = ProtobufDeserializer(new, {"use.deprecated.format": False}, confluent)
    assert [read(value, VALUE) for value in encoder(rows).to_pylist()] == made


IN_HEADERS = {"schema.id.serializer": header_schema_id_serializer}


def test_guids_that_confluents_avro_serializer_puts_into_headers_are_read_for_keys_and_values(
    fake, confluent
):
    serialize = AvroSerializer(
        confluent, json.dumps(FIRST), conf={"auto.register.schemas": True, **IN_HEADERS}
    )
    headers = [[("x", b"1")], []]
    contexts = [
        [SerializationContext("orders", field, one) for field in (MessageField.KEY, MessageField.VALUE)]
        for one in headers
    ]
    keys = [serialize({"id": number, "note": None}, key) for number, (key, _) in enumerate(contexts)]
    values = [
        serialize({"id": 10 + number, "note": "for two"}, value) for number, (_, value) in enumerate(contexts)
    ]
    assert not values[0].startswith(b"\0")
    registry = ka.SchemaRegistry(fake.url)
    batch = batch_of(values, headers, keys)
    decoder = ka.schemas.AvroDecoder(FIRST, registry=registry)
    assert [row["id"] for row in decoder(ka.schemas.framed(batch)).to_pylist()] == [10, 11]
    assert [row["id"] for row in decoder(ka.schemas.framed(batch, "key")).to_pylist()] == [0, 1]
    read = AvroDeserializer(confluent, conf={"schema.id.deserializer": dual_schema_id_deserializer})
    assert [read(value, of[1])["id"] for value, of in zip(values, contexts, strict=True)] == [10, 11]


def test_a_guid_in_front_of_the_value_is_read_as_confluents_deserializer_reads_it(fake, confluent):
    """No serializer of confluent's writes it there; their deserializers read it."""
    number = fake.add("orders-value", FIRST)
    value = b"\1" + uuid.UUID(fake.guid(number)).bytes + b"\x0a\0"
    assert AvroDeserializer(confluent)(value, VALUE) == {"id": 5, "note": None}
    decoder = ka.schemas.AvroDecoder(FIRST, registry=ka.SchemaRegistry(fake.url))
    assert decoder(pa.array([value], pa.binary())).to_pylist() == [{"id": 5, "note": None}]


def test_message_indexes_that_confluents_protobuf_serializer_puts_into_headers_are_read(fake, confluent):
    def written(name, **fields):
        made = message_factory.GetMessageClass(Files(compiled(SHOP)).message(name))(**fields)
        conf = {"use.deprecated.format": False, "auto.register.schemas": True, **IN_HEADERS}
        headers = []
        value = ProtobufSerializer(type(made), confluent, conf)(
            made, SerializationContext("orders", MessageField.VALUE, headers)
        )
        return value, headers

    found = [
        written("shop.Order", id=1, part={"sku": "a"}),
        written("shop.Refund", id=2),
        written("shop.Order"),
    ]
    batch = batch_of(*zip(*found, strict=True))
    decoder = ka.schemas.ProtobufDecoder(SHOP, message="shop.Order", registry=ka.SchemaRegistry(fake.url))
    rows = decoder.decode(ka.schemas.framed(batch))
    assert rows.batch.to_pylist() == [{"id": 1, "part": {"sku": "a"}}, {"id": 0, "part": None}]
    assert rows.failures == [(1, "the value is shop.Refund, not shop.Order")]


def test_guids_that_confluents_json_serializer_puts_into_headers_are_read(fake, confluent):
    schema = {
        "type": "object",
        "title": "Order",
        "properties": {"id": {"type": "integer"}},
        "required": ["id"],
    }
    headers = []
    serialize = JSONSerializer(
        json.dumps(schema), confluent, conf={"auto.register.schemas": True, **IN_HEADERS}
    )
    value = serialize({"id": 3}, SerializationContext("orders", MessageField.VALUE, headers))
    decoder = JsonSchemaDecoder(schema, registry=ka.SchemaRegistry(fake.url))
    assert decoder(ka.schemas.framed(batch_of([value], [headers]))).to_pylist() == [{"id": 3}]


ROWS = pa.record_batch(
    {
        "id": [1, 2],
        "note": ["é", None],
        "at": pa.array([1, 2], pa.timestamp("ms", "UTC")),
        "tags": [["a"], []],
        "part": [{"sku": "x", "size": None}, None],
    }
)


def test_what_is_registered_and_written_is_read_by_confluents_avro_deserializer(server, confluent):
    writer = WriterSchema(registry=ka.SchemaRegistry(server.url), format=FORMATS["avro"], register=True)
    encoder, schema = writer.chosen("write_kafka", "orders", ROWS.schema)
    assert confluent.get_latest_version("orders-value").schema_id == schema.id
    read = AvroDeserializer(confluent)
    assert [read(value, VALUE) for value in encoder(ROWS).to_pylist()] == ROWS.to_pylist()


PROTO = """syntax = "proto3"; package shop; import "google/protobuf/timestamp.proto"; message Refund { int64 id = 1; }
message Order { int64 id = 1; optional string note = 2; google.protobuf.Timestamp at = 3; repeated string tags = 4; Part part = 5;
  message Part { string sku = 1; optional int32 size = 2; } }"""


@pytest.mark.parametrize("name", ["shop.Order", "shop.Order.Part", "shop.Refund"])
def test_what_is_written_as_protobuf_is_read_by_confluents_deserializer(server, confluent, name):
    file = descriptor_pb2.FileDescriptorSet.FromString(compiled(PROTO)).file[-1]
    server.add(
        "orders-value", b64encode(file.SerializeToString()).decode(), "PROTOBUF"
    )  # the form that their client reads
    rows = {
        "shop.Order": ROWS,
        "shop.Order.Part": pa.record_batch({"sku": ["x", ""], "size": pa.array([0, None], pa.int32())}),
        "shop.Refund": pa.record_batch({"id": [7, 0]}),
    }[name]
    form = FORMATS["protobuf"]._replace(encoder=partial(ka.schemas.ProtobufEncoder, message=name))
    writer = WriterSchema(registry=ka.SchemaRegistry(server.url), format=form)
    encoder, _ = writer.chosen("write_kafka", "orders", rows.schema)
    values = encoder(rows).to_pylist()
    made = message_factory.GetMessageClass(Files(compiled(PROTO)).message(name))
    read = ProtobufDeserializer(made, {"use.deprecated.format": False}, confluent)
    found = [read(value, VALUE) for value in values]
    assert all(value.endswith(one.SerializeToString()) for one, value in zip(found, values, strict=True))
    if name == "shop.Order":
        assert [
            (one.id, one.note, one.at.ToMilliseconds(), list(one.tags), one.part.sku) for one in found
        ] == [
            (1, "é", 1, ["a"], "x"),
            (2, "", 2, [], ""),
        ]
        assert [one.HasField("note") for one in found] == [True, False]


def test_what_is_written_by_a_json_schema_is_valid_for_confluents_json_deserializer(server, confluent):
    part = {"type": "object", "properties": {"sku": {"type": "string"}, "size": {"type": "integer"}}}
    schema = {
        "type": "object",
        "title": "Order",
        "properties": {
            "id": {"type": "integer"},
            "note": {"type": ["string", "null"]},
            "at": {"type": "string", "format": "date-time"},
            "tags": {"type": "array", "items": {"type": "string"}},
            "part": part,
        },
        "required": ["id", "note"],
        "additionalProperties": False,
    }
    server.add("orders-value", schema, "JSON")
    registry = ka.SchemaRegistry(server.url)
    encoder, _ = WriterSchema(registry=registry, format=FORMATS["json_schema"]).chosen("w", "orders", None)
    read = JSONDeserializer(None, schema_registry_client=confluent)
    assert [read(value, VALUE) for value in encoder(ROWS).to_pylist()] == [
        {"id": 1, "note": "é", "at": "1970-01-01T00:00:00.001000Z", "tags": ["a"], "part": {"sku": "x"}},
        {"id": 2, "note": None, "at": "1970-01-01T00:00:00.002000Z", "tags": []},
    ]


@pytest.fixture(scope="module")
def serde(apicurio):
    with closing(ApicuriosSerde(apicurio)) as made:
        yield made


def test_values_of_apicurios_serializer_are_read_and_ours_are_read_by_its_deserializer(apicurio, serde):
    apicurio.clear()
    registry = ka.SchemaRegistry(apicurio.url)
    first = serde.written("orders", FIRST, {"id": 1, "note": {"string": "é"}}, {"id": 2, "note": None})
    second = serde.written("orders", SECOND, {"id": 3, "note": None, "amount": 9.5})
    decoder = ka.schemas.AvroDecoder(registry.schema_of("orders-value").text, registry=registry)
    assert decoder(pa.array([*first, *second], pa.binary())).to_pylist() == [
        {"id": 1, "note": "é", "amount": 1.5},
        {"id": 2, "note": None, "amount": 1.5},
        {"id": 3, "note": None, "amount": 9.5},
    ]
    writer = WriterSchema(registry=registry, format=FORMATS["avro"], register=True)
    encoder, _ = writer.chosen("write_kafka", "scored", ROWS.schema)
    rows = serde.read("scored", encoder(ROWS).to_pylist())
    assert [(row["id"], row["note"], row["at"]) for row in rows] == [
        ({"long": 1}, {"string": "é"}, {"long": 1}),
        ({"long": 2}, None, {"long": 2}),
    ]


def test_a_value_that_only_looks_like_one_with_an_id_or_a_guid_fails_and_others_are_read(server):
    """Whatever a registry answers to it: the bytes of any value may be those of a frame."""
    number = server.add("orders-value", FIRST)
    good = b"\0" + number.to_bytes(4, "big") + b"\x0a\0"
    values = [good, b"\1" + bytes(range(40)), b"\0\xff\xff\xff\xffabc", b"\0\0\0\x30\x39abc", good]
    decoder = ka.schemas.AvroDecoder(FIRST, registry=ka.SchemaRegistry(server.url))
    rows = decoder.decode(pa.array(values, pa.binary()))
    assert rows.batch["id"].to_pylist() == [5, 5]
    assert [at for at, _ in rows.failures] == [1, 2, 3]
