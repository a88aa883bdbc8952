"""Columns of decoded values, without Spark: which are offered, what a value that can't be decoded becomes, and when the registry is asked."""

from __future__ import annotations

import json
import pickle
import re
import uuid
from typing import Any

import pyarrow as pa
import pytest
from fakes.records import records
from fakes.registries import RegistryInMemory
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import LongType, StringType, StructField, StructType

from kafka_actors.errors import ConfigError, StageError
from kafka_actors.schemas import SchemaRegistryUnavailableError
from kafka_actors.schemas.framing import HEADERS
from kafka_actors.spark.source.data_source import KafkaDataSource
from kafka_actors.spark.source.decode_options import RegistryOptions
from kafka_actors.spark.source.decoded_columns import DecodedColumns, ValueDecoding, decoding_of, kept_in
from kafka_actors.spark.source.machines.stream_offsets import KeptSchema
from kafka_actors.spark.source.options import parse_batch
from kafka_actors.spark.source.query_schema import ReadBy

ID = {"name": "id", "type": "long"}
NOTE = {"name": "note", "type": ["null", "string"], "default": None}
AT = {"name": "at", "type": {"type": "int", "logicalType": "time-millis"}, "default": 0}
NANOS = {**AT, "type": {"type": "long", "logicalType": "timestamp-nanos"}}
BASE = {"kafka.bootstrap.servers": "a:1", "subscribe": "orders", "decode": "avro", "schema.registry.url": "http://r:1"}  # fmt: skip


def order(*fields: dict[str, Any], name: str = "Order") -> dict[str, Any]:
    return {"type": "record", "name": name, "fields": list(fields)}


def value(number: int, order_id: int, schema_id: int = 1) -> bytes:
    """An order without a note."""
    return b"\0" + schema_id.to_bytes(4, "big") + bytes([order_id * 2, 0])


@pytest.fixture
def registry(monkeypatch: pytest.MonkeyPatch) -> RegistryInMemory:
    made = RegistryInMemory()
    made.add("orders-value", order(ID, NOTE))
    monkeypatch.setattr(RegistryOptions, "registry", lambda self: made)
    return made


def decoding(kept: KeptSchema | None = None, **options: str) -> ValueDecoding:
    parsed = parse_batch({**BASE, **{name.replace("__", "."): value for name, value in options.items()}})
    assert parsed.decode is not None
    return decoding_of(parsed.decode, parsed.selection, kept)


def columns(wanted: StructType | None = None, **options: str) -> DecodedColumns:
    made = decoding(**options)
    return made.columns_of(made.available if wanted is None else wanted, 1_000)


GOOD, CUT = value(0, 1), value(0, 2)[:-1]


# ---------------------------------------------------------------- which columns there are


def test_the_columns_are_the_schemas_all_nullable_and_kafkas_own_in_one(registry: RegistryInMemory) -> None:
    plain, permissive = decoding().available, decoding(decode__mode="PERMISSIVE").available
    assert plain.fieldNames() == ["id", "note", "_kafka"]
    assert permissive.fieldNames() == ["id", "note", "_kafka", "_error"]
    assert all(field.nullable for field in permissive.fields)


def test_spark_gets_exactly_the_arrow_types_of_its_columns(registry: RegistryInMemory) -> None:
    for mode in ("FAILFAST", "PERMISSIVE"):
        made = decoding(decode__mode=mode)
        batch = made.columns_of(made.available, 1_000).of(records([GOOD, None]))
        assert batch.schema == to_arrow_schema(made.available, timezone="UTC")


def test_fewer_columns_in_another_order(registry: RegistryInMemory) -> None:
    wanted = StructType([StructField("note", StringType()), StructField("id", LongType())])
    assert columns(wanted).of(records([GOOD])).to_pylist() == [{"note": None, "id": 1}]


@pytest.mark.parametrize(
    ("field", "says"),
    [
        (StructField("ids", LongType()), "schema: column 'ids' is not one of this source; did you mean 'id'"),
        (StructField("value", StringType()), "schema: column 'value' is not one of this source"),
        (StructField("id", StringType()), "schema: column 'id' is string, but the source has bigint"),
        (StructField("id", LongType(), nullable=False), "schema: column 'id' is NOT NULL"),
    ],
)
def test_a_column_that_cannot_be_is_named(registry: RegistryInMemory, field: StructField, says: str) -> None:
    with pytest.raises(ConfigError) as caught:
        columns(StructType([field]))
    assert str(caught.value).startswith(says)


@pytest.mark.parametrize(
    ("field", "kind"), [(AT, "time32[ms]"), (NANOS, "timestamp[ns, tz=UTC]")], ids=["time", "nanoseconds"]
)
def test_a_column_that_spark_has_no_type_for_may_be_left_out(
    registry: RegistryInMemory, field: dict[str, Any], kind: str
) -> None:
    registry.add("orders-value", order(ID, NOTE, field))
    made = decoding()
    with pytest.raises(
        ConfigError,
        match=rf"decode: column 'at' is {re.escape(kind)}, which Spark doesn't have: name the other",
    ):
        made.available  # noqa: B018
    wanted = StructType([StructField("id", LongType())])
    assert made.columns_of(wanted, 1_000).of(records([GOOD])).to_pylist() == [{"id": 1}]


@pytest.mark.parametrize(("name", "mode"), [("_kafka", "FAILFAST"), ("_error", "PERMISSIVE")])
def test_a_field_with_a_hidden_columns_name_is_refused(
    registry: RegistryInMemory, name: str, mode: str
) -> None:
    registry.add("orders-value", order({**ID, "name": name}))
    with pytest.raises(ConfigError, match=name):
        decoding(decode__mode=mode)


# ---------------------------------------------------------------- values


def test_a_tombstone_is_a_row_of_nulls_in_its_place(registry: RegistryInMemory) -> None:
    rows = columns().of(records([None, GOOD, None], keys=[b"a", b"b", b"c"])).to_pylist()
    assert [(row["id"], row["_kafka"]["key"], row["_kafka"]["offset"]) for row in rows] == [
        (None, b"a", 100),
        (1, b"b", 101),
        (None, b"c", 102),
    ]


def test_a_frame_may_be_in_a_header(registry: RegistryInMemory) -> None:
    guid = uuid.UUID(registry.schemas[0].guid)
    headers = [None, [(HEADERS["value"], b"\1" + guid.bytes)]]
    found = columns().of(records([GOOD, GOOD[5:]], headers=headers)).to_pylist()
    assert [row["id"] for row in found] == [1, 1]


def test_a_value_that_cannot_be_decoded_fails_with_its_record(registry: RegistryInMemory) -> None:
    with pytest.raises(StageError) as caught:
        columns().of(records([None, GOOD, CUT, CUT]))
    assert (caught.value.topic, caught.value.partition, caught.value.first_offset) == ("orders", 3, 102)
    assert "schema 1 (subject orders-value)" in str(caught.value)


def test_a_value_that_cannot_be_decoded_may_be_a_row_with_its_error(registry: RegistryInMemory) -> None:
    made = columns(decode__mode="PERMISSIVE").of(
        records([CUT, None, GOOD, b"{}"], keys=[b"a", b"b", b"c", b"d"])
    )
    rows = made.to_pylist()
    assert [row["id"] for row in rows] == [None, None, 1, None]
    assert [row["_error"] and (row["_error"]["offset"], row["_error"]["value"]) for row in rows] == [
        (100, CUT),
        None,
        None,
        (103, b"{}"),
    ]
    assert "begins with byte 123" in rows[3]["_error"]["reason"]
    assert [row["_kafka"]["key"] for row in rows] == [b"a", b"b", b"c", b"d"]


SINCE = {"name": "since", "type": {"type": "long", "logicalType": "timestamp-millis"}, "default": 0}
EVER = b"\0\0\0\0\2\4" + b"\xfe" + b"\xff" * 8 + b"\1"  # Java's largest long, in milliseconds
SOON = b"\0\0\0\0\2\6\2"


def test_a_value_beyond_sparks_types_is_the_error_of_its_record_alone(registry: RegistryInMemory) -> None:
    registry.add("orders-value", order(ID, SINCE))
    values = [SOON, EVER, b"{}", None, *[EVER] * 80, SOON]
    rows = columns(decode__mode="PERMISSIVE").of(records(values)).to_pylist()
    assert [n for n, row in enumerate(rows) if row["id"] == 3] == [0, 84]
    assert rows[3]["_error"] is None
    assert [row["_error"]["offset"] for row in rows if row["_error"]] == [101, 102, *range(104, 184)]
    assert (rows[1]["id"], rows[1]["_kafka"]["offset"], rows[1]["_error"]["value"]) == (None, 101, EVER)
    reason = "on Spark, column 'since' is timestamp[ms, tz=UTC] and its schema says timestamp[us, tz=UTC]: "
    assert rows[1]["_error"]["reason"].startswith(reason)
    assert "begins with byte 123" in rows[2]["_error"]["reason"]


@pytest.mark.parametrize(
    ("values", "offset"),
    [([SOON, None, EVER, EVER], 102), ([EVER, b"{}"], 100), ([b"{}", EVER], 100)],
    ids=["behind others", "first", "behind one that is no value"],
)
def test_a_value_beyond_sparks_types_fails_with_its_record(
    registry: RegistryInMemory, values: list[bytes | None], offset: int
) -> None:
    registry.add("orders-value", order(ID, SINCE))
    with pytest.raises(StageError) as caught:
        columns().of(records(values))
    assert (caught.value.first_offset, caught.value.last_offset) == (offset, offset)


def test_a_value_beyond_sparks_types_is_none_where_its_column_is_left_out(registry: RegistryInMemory) -> None:
    registry.add("orders-value", order(ID, SINCE))
    wanted = StructType([StructField("id", LongType())])
    assert columns(wanted).of(records([EVER])).to_pylist() == [{"id": 2}]


def test_kafkas_own_columns_alone_need_no_decoding(registry: RegistryInMemory) -> None:
    made = decoding()
    kafka = StructType([field for field in made.available.fields if field.name == "_kafka"])
    assert made.columns_of(kafka, 1_000).of(records([CUT])).to_pylist()[0]["_kafka"]["offset"] == 100


class Away:
    """Decoder whose registry answers only after so many questions."""

    schema = pa.schema([pa.field("id", pa.int64())])

    def __init__(self, refusals: int, decoder: Any) -> None:
        self.left = refusals
        self._decoder = decoder
        self.framed = True

    def decode(self, values: Any) -> Any:
        self.left -= 1
        if self.left >= 0:
            raise SchemaRegistryUnavailableError("schema 7: no answer of the registry")
        return self._decoder.decode(values)


@pytest.mark.parametrize(("refusals", "answers"), [(2, True), (1_000, False)])
def test_a_registry_that_is_away_is_asked_again_for_as_long_as_records_are_waited_for(
    registry: RegistryInMemory, refusals: int, answers: bool
) -> None:
    made = decoding()
    away: Any = Away(refusals, made.decoder)
    replaced = ValueDecoding(f"away {refusals}", away, registry, made.schema, False, False)
    wanted = StructType([StructField("id", LongType())])
    now = [0.0]

    def sleep(seconds: float) -> None:
        now[0] += seconds

    chosen = DecodedColumns(replaced, made.columns_of(wanted, 1_000).chosen, 60.0)
    if answers:
        assert chosen.of(records([GOOD]), lambda: now[0], sleep).to_pylist() == [{"id": 1}]
        assert now[0] > 0
        return
    with pytest.raises(
        SchemaRegistryUnavailableError, match=r"orders-3 from offset 100: schema 7: no answer .*pollTimeoutMs"
    ):
        chosen.of(records([GOOD]), lambda: now[0], sleep)
    assert 30 < now[0] < 60


# ---------------------------------------------------------------- which schema it is


def test_the_latest_is_chosen_unless_it_was_before_or_is_named(registry: RegistryInMemory) -> None:
    registry.add("orders-value", order(ID, NOTE, {"name": "x", "type": "int", "default": 0}))
    kept = KeptSchema(1, "orders-value", 1)
    assert decoding().kept == KeptSchema(2, "orders-value", 2)
    assert decoding(kept).kept == kept
    assert decoding(kept, schema__registry__version="2").kept == KeptSchema(2, "orders-value", 2)
    assert decoding(schema__registry__version="1").kept == kept
    assert decoding(schema__registry__id="1").kept.id == 1  # type: ignore[union-attr]


@pytest.mark.parametrize("kept", [None, KeptSchema(1, "orders-value", 1)], ids=["first", "again"])
def test_where_new_schemas_fail_those_of_all_topics_are_known_at_each_start(
    registry: RegistryInMemory, kept: KeptSchema | None
) -> None:
    """Also of a table, whose columns have the schema that was chosen when it was created."""
    second = registry.add("more-value", order(ID, NOTE))
    made = decoding(kept, subscribe="orders,more", decode__on_new_schema="fail")
    later = registry.add("more-value", order(ID, NOTE, {"name": "x", "type": "int", "default": 0}))
    values = [value(0, 1), value(0, 2, second), value(0, 3, later)]
    rows = made.decoder.decode(pa.array(values, pa.binary()))
    assert [row["id"] for row in rows.batch.to_pylist()] == [1, 2]
    assert [at for at, _ in rows.failures] == [2]


@pytest.mark.parametrize(
    ("kind", "schema", "body"),
    [
        ("avro", json.dumps(order(ID)), b"\2"),
        ("protobuf", 'syntax = "proto3"; message Order { int64 id = 1; }', b"\0\x08\1"),
        ("json_schema", '{"type": "object", "properties": {"id": {"type": "integer"}}}', b'{"id": 1}'),
    ],
)
def test_by_a_schema_that_is_given_those_of_the_topics_are_known_where_new_ones_fail(
    registry: RegistryInMemory, kind: str, schema: str, body: bytes
) -> None:
    types = {"avro": "AVRO", "protobuf": "PROTOBUF", "json_schema": "JSON"}
    registry.schemas.clear()
    options = {"decode": kind, "decode__schema": schema, "decode__on_new_schema": "fail"}
    with pytest.raises(
        ConfigError, match=r"^decode: on_new_schema is 'fail', and .* no subject orders-value"
    ):
        decoding(**options)
    registry.add("orders-value", schema, types[kind])
    made = decoding(**options)
    registry.add("orders-value", schema.replace("id", "no"), types[kind])
    decoder = pickle.loads(pickle.dumps(made.decoder))
    rows = decoder.decode(pa.array([b"\0\0\0\0\1" + body, b"\0\0\0\0\2" + body], pa.binary()))
    assert rows.batch.to_pylist() == [{"id": 1}]
    assert [at for at, _ in rows.failures] == [1]
    pattern = {name.replace("__", "."): text for name, text in options.items()}
    parsed = parse_batch(
        {**{n: text for n, text in BASE.items() if n != "subscribe"}, **pattern, "subscribePattern": "ord.*"}
    )
    assert parsed.decode is not None
    with pytest.raises(ConfigError, match=r"^decode: on_new_schema is 'fail', and .* given by a pattern"):
        decoding_of(parsed.decode, parsed.selection)


def test_what_was_chosen_is_in_the_columns_that_spark_passes_back(registry: RegistryInMemory) -> None:
    made = decoding()
    back = StructType.fromJson(made.available.jsonValue())
    assert kept_in(back) == made.kept == KeptSchema(1, "orders-value", 1)
    assert kept_in(StructType([StructField("id", LongType())])) is None


def test_topics_of_a_pattern_need_a_subject(registry: RegistryInMemory) -> None:
    options = {name: text for name, text in BASE.items() if name != "subscribe"}
    parsed = parse_batch({**options, "subscribePattern": "ord.*"})
    assert parsed.decode is not None
    with pytest.raises(
        ConfigError, match=r"^schema.registry.subject: is missing: topics are given by a pattern"
    ):
        decoding_of(parsed.decode, parsed.selection)


def test_values_of_a_batch_that_began_under_another_schema_are_read_by_that(
    registry: RegistryInMemory,
) -> None:
    default = order(ID, NOTE, {"name": "x", "type": "long", "default": 5})
    registry.add("orders-value", order(ID, NOTE, {"name": "x", "type": "long", "default": 6}))
    registry.add("orders-value", default)
    made = decoding(schema__registry__version="2")
    chosen = made.columns_of(made.available, 1_000)
    before = chosen.reading_by(ReadBy(registry.schema_by_id(3), {}))
    assert [one.of(records([GOOD])).to_pylist()[0]["x"] for one in (chosen, before)] == [6, 5]


def test_spark_asks_once_and_pickles_what_was_chosen(registry: RegistryInMemory) -> None:
    source = KafkaDataSource(dict(BASE))
    schema = source.schema()
    registry.add("orders-value", order({**ID, "name": "other"}))
    reader = source.reader(StructType([schema["id"]]))
    assert reader._columns.of(records([GOOD])).column("id").to_pylist() == [1]
    travelled = pickle.loads(pickle.dumps(reader._columns))
    assert travelled.of(records([GOOD])).column("id").to_pylist() == [1]
    assert KafkaDataSource(dict(BASE)).reader(schema)._columns.of(records([GOOD])).column(
        "id"
    ).to_pylist() == [1]


@pytest.mark.parametrize(
    ("text", "says"),
    [
        (
            "nowhere.avsc",
            "decode.schema: is 'nowhere.avsc', neither JSON nor a file: No such file or directory",
        ),
        ('{"type": "record"}', "decode.schema: schema"),
    ],
)
def test_a_schema_that_is_given_and_cannot_be_read_is_refused(text: str, says: str) -> None:
    options = {name: value for name, value in BASE.items() if name != "schema.registry.url"}
    parsed = parse_batch({**options, "decode.schema": text})
    assert parsed.decode is not None
    with pytest.raises(ConfigError) as caught:
        decoding_of(parsed.decode, parsed.selection)
    assert str(caught.value).startswith(says)
