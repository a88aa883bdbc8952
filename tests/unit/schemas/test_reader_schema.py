"""The reader's schema of a pipeline: chosen once, by subject, version or id, and refused where topics don't agree."""

import uuid

import pyarrow as pa
import pytest
from fakes.registries import RegistryInMemory

from kafka_actors.errors import ConfigError
from kafka_actors.schemas import AvroDecoder, ProtobufDecoder, SchemaNotFoundError
from kafka_actors.schemas.framing import frame
from kafka_actors.schemas.reader_schema import ReaderSchema


def order(*more):
    fields = [{"name": "id", "type": "long"}, *more]
    return {"type": "record", "name": "Order", "fields": fields}


@pytest.fixture
def registry():
    made = RegistryInMemory()
    made.add("a-value", order())
    made.add("a-value", order({"name": "x", "type": "int", "default": 0}))
    made.add("b-value", order({"name": "x", "type": "int", "default": 1}))
    made.add("c-value", order())
    made.add("p-value", 'syntax = "proto3"; message M { int32 a = 1; }', "PROTOBUF")
    return made


def test_topics_that_agree_are_read_by_the_first_ones_schema(registry):
    decoder, schema, known = ReaderSchema(registry=registry).chosen("decode", ["a", "b"])
    assert isinstance(decoder, AvroDecoder)
    assert {key for key in known if isinstance(key, int)} == {1, 2, 3}
    assert {key for key in known if isinstance(key, str)} == {one.guid for one in registry.schemas[:3]}
    assert (schema.id, schema.subject, schema.version) == (2, "a-value", 2)
    assert decoder.schema.names == ["id", "x"]


def test_schemas_of_all_topics_are_known_before(registry):
    """Also where new ones make values fail."""
    decoder, *_ = ReaderSchema(registry=registry, on_new_schema="fail").chosen("decode", ["a", "b"])
    later = registry.add("b-value", order({"name": "x", "type": "int", "default": 2}))
    values = [frame(3) + b"\2\4", frame(later) + b"\2\4"]
    rows = decoder.decode(pa.array(values, pa.binary()))
    assert rows.batch.to_pylist() == [{"id": 1, "x": 2}]
    assert [at for at, _ in rows.failures] == [1]


def guid_frame(schema):
    return b"\1" + uuid.UUID(schema.guid).bytes


def kept_by(registry):
    """The decoder of a query that is started again, by the schema that it chose before."""
    return ReaderSchema(registry=registry, on_new_schema="fail").again(
        "decode", 2, "a-value", 2, ["a", "b", "z"]
    )


@pytest.mark.parametrize(
    "chosen",
    [
        kept_by,
        lambda registry: ReaderSchema(registry=registry, schema_id=2, on_new_schema="fail").chosen(
            "decode", ["a", "b", "z"]
        ),
        lambda registry: ReaderSchema(registry=registry, subject="a-value", on_new_schema="fail").chosen(
            "decode", ["a", "b", "z"]
        ),
    ],
    ids=["again", "id", "subject"],
)
def test_where_new_schemas_fail_those_of_all_topics_are_known_whatever_names_the_readers(registry, chosen):
    """A topic's subject that the registry doesn't have has no schema to know."""
    decoder, _, known = chosen(registry)
    later = registry.add("b-value", order({"name": "x", "type": "int", "default": 2}))
    body = [b"\2", b"\2\4", b"\2\4"]
    values = [frame(key) + value for key, value in zip((1, 2, 3), body, strict=True)]
    by_guid = [guid_frame(one) + value for one, value in zip(registry.schemas[:3], body, strict=True)]
    rows = decoder.decode(pa.array([*values, *by_guid, frame(later) + b"\2\4"], pa.binary()))
    assert rows.records.tolist() == [0, 1, 2, 3, 4, 5]
    assert [at for at, _ in rows.failures] == [6]
    assert known == {key for one in registry.schemas[:3] for key in (one.id, one.guid)}


def test_a_schema_that_is_named_by_its_id_is_known_by_its_guid_too(registry):
    decoder, _, known = ReaderSchema(registry=registry, schema_id=2, on_new_schema="fail").chosen(
        "decode", None
    )
    rows = decoder.decode(pa.array([guid_frame(registry.schemas[1]) + b"\2\4"], pa.binary()))
    assert (rows.batch.num_rows, known) == (1, {2, registry.schemas[1].guid})


def test_topics_whose_records_have_other_names_are_refused_though_their_columns_are_the_same(registry):
    """Otherwise each value of all topics but the first would fail."""
    registry.add("us-value", {**order(), "name": "OrderUs"})
    with pytest.raises(
        ConfigError,
        match=r"^decode: values of us can't be read by the schema of c: .*writer OrderUs.*: read each topic by itself",
    ):
        ReaderSchema(registry=registry).chosen("decode", ["c", "us"])
    registry.add("q-value", 'syntax = "proto3"; message Other { int32 a = 1; }', "PROTOBUF")
    with pytest.raises(
        ConfigError, match=r"^decode: values of q can't be read by the schema of p: .*M.*: read each topic"
    ):
        ReaderSchema(registry=registry).chosen("decode", ["p", "q"])


def test_a_reason_names_the_subject_of_its_own_schema_and_none_where_that_is_not_known(registry):
    registry.add("b-value", {**order(), "name": "Refund"})
    registry.add("b-value", registry.schemas[2].text)
    decoder, *_ = ReaderSchema(registry=registry).chosen("decode", ["a", "b"])
    rows = decoder.decode(pa.array([frame(6) + b"\2", frame(9) + b"\2", frame(2)], pa.binary()))
    assert [reason.split(":")[0] for _, reason in rows.failures] == [
        "schema 6 (subject b-value) can't be read by the reader's",
        "schema 9",
        "schema 2 (subject a-value)",
    ]


def test_topics_that_do_not_agree_are_refused(registry):
    with pytest.raises(
        ConfigError,
        match=r"^decode: the schemas of a and c give different columns \(id int64, x int32; id int64\)",
    ):
        ReaderSchema(registry=registry).chosen("decode", ["a", "c"])


@pytest.mark.parametrize(
    ("chosen", "names"),
    [
        ({"subject": "a-value", "version": 1}, ["id"]),
        ({"subject": "b-value"}, ["id", "x"]),
        ({"schema_id": 4}, ["id"]),
    ],
    ids=["version", "subject", "id"],
)
def test_a_schema_may_be_named(registry, chosen, names):
    decoder, *_ = ReaderSchema(registry=registry, **chosen).chosen("decode", None)
    assert decoder.schema.names == names


def test_the_registry_says_which_format_it_is(registry):
    decoder, *_ = ReaderSchema(registry=registry).chosen("decode", ["p"])
    assert isinstance(decoder, ProtobufDecoder)
    with pytest.raises(
        ConfigError, match=r"^decode_avro: schema 5 \(p-value version 1\) is of type PROTOBUF, not AVRO"
    ):
        ReaderSchema(registry=registry, schema_type="AVRO").chosen("decode_avro", ["p"])


def test_a_pattern_needs_a_subject_and_a_subject_has_to_be_there(registry):
    with pytest.raises(ConfigError, match="say with subject= whose schema holds"):
        ReaderSchema(registry=registry).chosen("decode", None)
    with pytest.raises(SchemaNotFoundError, match="subject z-value"):
        ReaderSchema(registry=registry).chosen("decode", ["z"])


def test_a_schema_that_gives_no_columns_names_stage_and_schema(registry):
    registry.add(
        "loop-value", {"type": "record", "name": "L", "fields": [{"name": "x", "type": ["null", "L"]}]}
    )
    with pytest.raises(
        ConfigError, match=r"^decode: schema 6 \(loop-value version 1\): field 'x' is L, which holds itself"
    ):
        ReaderSchema(registry=registry).chosen("decode", ["loop"])
