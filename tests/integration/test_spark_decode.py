"""The option `decode` of the Spark source in a real session, against real Kafka: columns by a registry's schema, with no pipeline."""

from __future__ import annotations

import io
import json
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import fastavro
import pyarrow.parquet as pq
import pytest
from fakes.schema_registry import FakeSchemaRegistry
from fakes.spark import errors_line, spark_session
from google.protobuf import message_factory
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f
from waiting import at_pace_s, slow_s

import kafka_actors as ka
from kafka_actors.schemas.protobuf_schema import Files, compiled
from kafka_actors.testing import KafkaCluster
from kafka_actors.testing.produce import Produce

pytestmark = [pytest.mark.spark, pytest.mark.kafka]

Topic = Callable[..., str]
Load = Callable[..., DataFrame]

FIRST = {
    "type": "record",
    "name": "Order",
    "fields": [{"name": "id", "type": "long"}, {"name": "note", "type": ["null", "string"], "default": None}],
}
SECOND = {**FIRST, "fields": [*FIRST["fields"], {"name": "amount", "type": "double", "default": 1.5}]}
PROTO = 'syntax = "proto3"; package shop; message Refund { int64 id = 1; } message Order { int64 id = 1; string note = 2; }'


def avro(schema: Any, number: int, row: dict[str, Any]) -> bytes:
    stream = io.BytesIO()
    fastavro.schemaless_writer(stream, fastavro.parse_schema(schema), row)
    return b"\0" + number.to_bytes(4, "big") + stream.getvalue()


@pytest.fixture(scope="module")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    with spark_session(tmp_path_factory.mktemp("warehouse")) as session:
        yield session


@pytest.fixture
def registry() -> Iterator[FakeSchemaRegistry]:
    with FakeSchemaRegistry(user="alice:hush") as fake:
        yield fake


@pytest.fixture
def options(registry: FakeSchemaRegistry, kafka_cluster: KafkaCluster) -> dict[str, str]:
    return {
        "kafka.bootstrap.servers": kafka_cluster.bootstrap_servers,
        "fetchOffset.retryIntervalMs": "10",
        "decode": "avro",
        "schema.registry.url": registry.url,
        "schema.registry.basic.auth.user.info": "alice:hush",
    }


@pytest.fixture
def load(spark: SparkSession, options: dict[str, str]) -> Load:
    def make(schema: str | None = None, **more: str) -> DataFrame:
        given = {**options, **{name.replace("__", "."): value for name, value in more.items()}}
        reader = spark.read.format("kafka_actors").options(**given)
        return (reader if schema is None else reader.schema(schema)).load()

    return make


def plain(df: DataFrame) -> list[dict[str, Any]]:
    return [row.asDict(recursive=True) for row in df.collect()]


# ---------------------------------------------------------------- a batch


@pytest.mark.spark_versions
def test_values_of_any_version_are_columns_of_the_latest_beside_kafkas_own(
    load: Load, registry: FakeSchemaRegistry, kafka_topic: Topic, produce: Produce
) -> None:
    topic = kafka_topic(2)
    first, second = registry.add(f"{topic}-value", FIRST), registry.add(f"{topic}-value", SECOND)
    values = [
        avro(FIRST, first, {"id": 1, "note": "é"}),
        avro(SECOND, second, {"id": 2, "note": None, "amount": 9.0}),
        None,
    ]
    produce(topic, values, keys=[b"a", b"b", b"c"], partition=[0, 0, 0])
    df = load(subscribe=topic)
    assert df.dtypes[:3] == [("id", "bigint"), ("note", "string"), ("amount", "double")]
    assert [field.name for field in df.schema["_kafka"].dataType.fields] == [
        "topic", "partition", "offset", "timestamp", "key", "headers",
    ]  # fmt: skip
    assert df.schema["_kafka"].metadata == {
        "schema.registry": {"id": second, "subject": f"{topic}-value", "version": 2}
    }
    rows = plain(df.select("id", "note", "amount", "_kafka.offset", "_kafka.key"))
    assert [(row["id"], row["note"], row["amount"], row["offset"], bytes(row["key"])) for row in rows] == [
        (1, "é", 1.5, 0, b"a"),
        (2, None, 9.0, 1, b"b"),
        (None, None, None, 2, b"c"),
    ]
    assert df.agg(f.sum("amount")).first()[0] == 10.5


def test_the_registry_is_asked_by_the_driver_alone(
    load: Load, registry: FakeSchemaRegistry, kafka_topic: Topic, produce: Produce
) -> None:
    topic = kafka_topic(4)
    number = registry.add(f"{topic}-value", FIRST)
    produce(
        topic,
        [avro(FIRST, number, {"id": n, "note": None}) for n in range(400)],
        partition=[n % 4 for n in range(400)],
    )
    df = load(subscribe=topic, minPartitions="8")
    asked = len(registry.requests)
    assert df.agg(f.count("id"), f.sum("id")).first()[:] == (400, sum(range(400)))
    assert df.count() == 400
    assert len(registry.requests) == asked


def test_a_users_schema_chooses_columns(
    load: Load, registry: FakeSchemaRegistry, kafka_topic: Topic, produce: Produce
) -> None:
    topic = kafka_topic(1)
    number = registry.add(f"{topic}-value", SECOND)
    produce(topic, [avro(SECOND, number, {"id": 1, "note": "x", "amount": 2.0})])
    assert plain(load("amount DOUBLE, id BIGINT", subscribe=topic)) == [{"amount": 2.0, "id": 1}]
    with pytest.raises(
        PySparkException, match="column 'amuont' is not one of this source; did you mean 'amount'"
    ):
        load("amuont DOUBLE", subscribe=topic).collect()


def test_filters_on_kafkas_own_columns_narrow_what_is_read_and_those_on_fields_do_not(
    load: Load, registry: FakeSchemaRegistry, kafka_topic: Topic, produce: Produce, spark: SparkSession
) -> None:
    topic = kafka_topic(1)
    schema = {"type": "record", "name": "Part", "fields": [{"name": "offset", "type": "long"}]}
    number = registry.add(f"{topic}-value", schema)
    produce(topic, [avro(schema, number, {"offset": 100 - n}) for n in range(100)])
    spark.conf.set("spark.sql.python.filterPushdown.enabled", "true")
    try:
        for condition, tasks, rows_left in (("_kafka.offset >= 90", 1, 10), ("offset > 95", 10, 5)):
            df = load(subscribe=topic, pushFilters="true", maxRecordsPerPartition="10").where(condition)
            assert (df.count(), df.rdd.getNumPartitions()) == (rows_left, tasks), condition
    finally:
        spark.conf.unset("spark.sql.python.filterPushdown.enabled")


def test_a_value_that_cannot_be_decoded_fails_the_query_or_is_a_row_with_its_error(
    load: Load, registry: FakeSchemaRegistry, kafka_topic: Topic, produce: Produce
) -> None:
    topic = kafka_topic(1)
    number = registry.add(f"{topic}-value", FIRST)
    good = avro(FIRST, number, {"id": 1, "note": None})
    produce(topic, [good, good[:-1], None, b"\0\0\0\0\x63x", b"{}"])
    with pytest.raises(PySparkException) as failed:
        load(subscribe=topic).collect()
    line = errors_line(failed)
    assert f"stage decode failed on {topic}-0 offset 1" in line, line
    assert f"schema {number} (subject {topic}-value)" in line, line
    df = load(subscribe=topic, decode__mode="PERMISSIVE")
    rows = plain(df.select("id", "_kafka.offset", "_error.reason", "_error.value"))
    assert [(row["id"], row["offset"]) for row in rows] == [
        (1, 0),
        (None, 1),
        (None, 2),
        (None, 3),
        (None, 4),
    ]
    assert [row["reason"] is not None for row in rows] == [False, True, False, True, True]
    assert "schema 99" in rows[3]["reason"]
    assert bytes(rows[4]["value"]) == b"{}"


@pytest.mark.parametrize("kind", ["protobuf", "registry"])
def test_protobuf_by_the_registry(
    kind: str, load: Load, registry: FakeSchemaRegistry, kafka_topic: Topic, produce: Produce
) -> None:
    topic = kafka_topic(1)
    number = registry.add(f"{topic}-value", PROTO, "PROTOBUF")
    made = message_factory.GetMessageClass(Files(compiled(PROTO)).message("shop.Order"))(id=7, note="n")
    produce(topic, [b"\0" + number.to_bytes(4, "big") + b"\x02\x02" + made.SerializeToString()])
    df = load("id BIGINT, note STRING", subscribe=topic, decode=kind, decode__message="shop.Order")
    assert plain(df) == [{"id": 7, "note": "n"}]


def test_json_schema_and_a_schema_that_is_given(
    load: Load, registry: FakeSchemaRegistry, kafka_topic: Topic, produce: Produce, spark: SparkSession,
    kafka_cluster: KafkaCluster, tmp_path: Path,
) -> None:  # fmt: skip
    topic = kafka_topic(1)
    schema = {"type": "object", "properties": {"id": {"type": "integer"}}, "required": ["id"]}
    number = registry.add(f"{topic}-value", schema, "JSON")
    produce(topic, [b"\0" + number.to_bytes(4, "big") + b'{"id": 3}'])
    assert plain(load("id BIGINT", subscribe=topic, decode="json_schema")) == [{"id": 3}]
    raw = kafka_topic(1)
    produce(raw, [avro(FIRST, 1, {"id": 5, "note": "x"})[5:]])
    (tmp_path / "order.avsc").write_text(json.dumps(FIRST))
    for given in (json.dumps(FIRST), str(tmp_path / "order.avsc")):
        reader = spark.read.format("kafka_actors").option(
            "kafka.bootstrap.servers", kafka_cluster.bootstrap_servers
        )
        df = reader.options(**{"subscribe": raw, "decode": "avro", "decode.schema": given}).load()
        assert plain(df.select("id", "note")) == [{"id": 5, "note": "x"}]


def test_a_registry_that_is_away_or_refuses_is_one_line_within_seconds(
    load: Load, registry: FakeSchemaRegistry, kafka_topic: Topic
) -> None:
    topic = kafka_topic(1)
    began = time.monotonic()
    with pytest.raises(PySparkException) as away:
        load(subscribe=topic, schema__registry__url="http://127.0.0.1:1,http://127.0.0.1:2")
    assert time.monotonic() - began < slow_s(30)
    assert f"subject {topic}-value, version latest: no answer of the registry" in errors_line(away)
    with pytest.raises(PySparkException) as refused:
        load(subscribe=topic, schema__registry__basic__auth__user__info="alice:wrong")
    assert "refused user alice (401" in errors_line(refused)
    assert "wrong" not in str(refused.value)
    with pytest.raises(PySparkException) as missing:
        load(subscribe=topic)
    assert f"Subject '{topic}-value' not found" in errors_line(missing)
    with pytest.raises(PySparkException) as unknown:
        load(subscribe=topic, schema__registry__urll="x")
    assert "schema.registry.urll: is not an option; did you mean 'schema.registry.url'?" in errors_line(
        unknown
    )


def test_a_task_that_needs_a_schema_while_the_registry_is_away_waits_only_as_long_as_for_records(
    load: Load, registry: FakeSchemaRegistry, kafka_topic: Topic, produce: Produce
) -> None:
    topic = kafka_topic(1)
    first = registry.add(f"{topic}-value", FIRST)
    df = load(subscribe=topic, kafkaConsumer__pollTimeoutMs=f"{1_000 * at_pace_s(5):.0f}")
    later = registry.add(f"{topic}-value", SECOND)
    produce(
        topic,
        [
            avro(FIRST, first, {"id": 1, "note": None}),
            avro(SECOND, later, {"id": 2, "note": None, "amount": 1.0}),
        ],
    )
    registry.faults.extend([503] * 1_000)
    with pytest.raises(PySparkException) as away:
        df.collect()
    line = errors_line(away)
    assert f"{topic}-0 from offset 0: schema {later}: no answer of the registry" in line
    assert "waited for kafkaConsumer.pollTimeoutMs" in line
    registry.faults.clear()
    assert [row["id"] for row in plain(df.select("id"))] == [1, 2]


def test_a_table_keeps_its_schema_and_no_secret(
    spark: SparkSession, options: dict[str, str], registry: FakeSchemaRegistry, kafka_topic: Topic,
    produce: Produce, tmp_path: Path,
) -> None:  # fmt: skip
    topic = kafka_topic(1)
    number = registry.add(f"{topic}-value", FIRST)
    produce(topic, [avro(FIRST, number, {"id": 1, "note": None})])

    def created(user: str) -> None:
        given = {**options, "subscribe": topic, "schema.registry.basic.auth.user.info": user}
        listed = ", ".join(f"'{name}' '{value}'" for name, value in given.items())
        spark.sql(f"CREATE TABLE decoded USING kafka_actors OPTIONS ({listed})")

    with pytest.raises(PySparkException, match=r"schema\.registry\.basic.auth.user.info: is in plain text"):
        created("alice:hush")
    (tmp_path / "who").write_text("alice:hush")
    created(f"${{file:{tmp_path}/who}}")
    registry.add(f"{topic}-value", SECOND)
    try:
        assert plain(spark.sql("SELECT id, note FROM decoded")) == [{"id": 1, "note": None}]
    finally:
        spark.sql("DROP TABLE decoded")


# ---------------------------------------------------------------- a stream


class Streams:
    """Queries over one checkpoint, one after the other, and the rows that they brought."""

    def __init__(self, spark: SparkSession, options: dict[str, str], checkpoint: Path) -> None:
        self._spark = spark
        self._options = options
        self.checkpoint = checkpoint
        self.rows: list[dict[str, Any]] = []
        self.fail_once = False

    def run(self, **more: str) -> None:
        given = {**self._options, "startingOffsets": "earliest"}
        given |= {name.replace("__", "."): value for name, value in more.items()}
        df = self._spark.readStream.format("kafka_actors").options(**given).load()
        writer = df.writeStream.option("checkpointLocation", str(self.checkpoint)).trigger(availableNow=True)
        assert writer.foreachBatch(self._take).start().awaitTermination(slow_s(90))

    def _take(self, df: DataFrame, _batch: int) -> None:
        if self.fail_once:
            self.fail_once = False
            raise RuntimeError("as if the driver had died")
        self.rows += plain(df.drop("_kafka"))

    @property
    def schema(self) -> dict[str, Any]:
        """The schema that the checkpoint has, of the last batch."""
        batches = [path for path in (self.checkpoint / "offsets").iterdir() if path.name.isdecimal()]
        last = max(batches, key=lambda path: int(path.name))
        return json.loads(last.read_text().splitlines()[-1])["@schema"]


@pytest.fixture
def streams(spark: SparkSession, options: dict[str, str], tmp_path: Path) -> Iterator[Streams]:
    made = Streams(spark, options, tmp_path / "checkpoint")
    yield made
    for query in spark.streams.active:
        query.stop()


@pytest.mark.spark_versions
def test_a_stream_keeps_its_schema_where_the_columns_are_the_same(
    streams: Streams, registry: FakeSchemaRegistry, kafka_topic: Topic, produce: Produce
) -> None:
    topic = kafka_topic(2)
    subject = f"{topic}-value"
    other = {**SECOND, "fields": [*SECOND["fields"][:2], {**SECOND["fields"][2], "default": 2.5}]}
    numbers = [registry.add(subject, one) for one in (FIRST, SECOND)]
    produce(topic, [avro(FIRST, numbers[0], {"id": 1, "note": None})], partition=0)
    streams.run(subscribe=topic)
    assert streams.schema == {"id": numbers[1], "subject": subject, "version": 2}
    newest = registry.add(subject, other)
    produce(
        topic,
        [avro(FIRST, numbers[0], {"id": 2, "note": None}), avro(other, newest, {"id": 3, "note": None, "amount": 9.0})],
        partition=[0, 1],
    )  # fmt: skip
    streams.run(subscribe=topic)
    assert streams.schema["id"] == numbers[1]
    assert sorted((row["id"], row["amount"]) for row in streams.rows) == [(1, 1.5), (2, 1.5), (3, 9.0)]


def test_a_stream_whose_columns_would_change_says_what_keeps_its_schema(
    streams: Streams, registry: FakeSchemaRegistry, kafka_topic: Topic, produce: Produce
) -> None:
    topic = kafka_topic(1)
    subject = f"{topic}-value"
    first = registry.add(subject, FIRST)
    produce(topic, [avro(FIRST, first, {"id": 1, "note": None})])
    streams.run(subscribe=topic)
    second = registry.add(subject, SECOND)
    produce(topic, [avro(SECOND, second, {"id": 2, "note": None, "amount": 9.0})])
    with pytest.raises(PySparkException) as changed:
        streams.run(subscribe=topic)
    line = errors_line(changed)
    assert f"the query has read by schema {first} ({subject} version 1) since its first start" in line
    assert "(columns: amount is new): keep it with schema.registry.version=1" in line
    streams.run(subscribe=topic, schema__registry__version="1")
    assert streams.rows == [{"id": 1, "note": None}, {"id": 2, "note": None}]
    assert streams.schema["id"] == first
    produce(topic, [avro(SECOND, second, {"id": 3, "note": None, "amount": 9.0})])
    streams.run(subscribe=topic, schema__registry__version="2")
    assert streams.rows[2:] == [{"id": 3, "note": None, "amount": 9.0}]
    assert streams.schema["id"] == second


def test_a_batch_that_was_planned_is_read_by_the_schema_with_which_it_was(
    streams: Streams, registry: FakeSchemaRegistry, kafka_topic: Topic, produce: Produce
) -> None:
    topic = kafka_topic(1)
    subject = f"{topic}-value"
    numbers = [registry.add(subject, one) for one in (FIRST, SECOND)]
    produce(topic, [avro(FIRST, numbers[0], {"id": 1, "note": None})])
    streams.fail_once = True
    with pytest.raises(PySparkException, match="as if the driver had died"):
        streams.run(subscribe=topic)
    registry.add(
        subject, {**SECOND, "fields": [*SECOND["fields"][:2], {**SECOND["fields"][2], "default": 2.5}]}
    )
    streams.run(subscribe=topic)
    assert streams.rows == [{"id": 1, "note": None, "amount": 1.5}]


def test_in_sparks_own_form_of_offsets_the_schema_is_kept_beside_them(
    streams: Streams, registry: FakeSchemaRegistry, kafka_topic: Topic, produce: Produce, tmp_path: Path
) -> None:
    topic = kafka_topic(1)
    subject = f"{topic}-value"
    first = registry.add(subject, FIRST)
    produce(topic, [avro(FIRST, first, {"id": 1, "note": None})])
    form = {"offsetFormat": "spark", "stateLocation": str(tmp_path / "state")}
    streams.run(subscribe=topic, **form)
    registry.add(subject, SECOND)
    produce(topic, [avro(FIRST, first, {"id": 2, "note": None})])
    with pytest.raises(PySparkException, match=r"keep it with schema.registry.version=1"):
        streams.run(subscribe=topic, **form)


# ---------------------------------------------------------------- a pipeline's stream


def test_a_pipelines_query_keeps_its_schema_unless_another_one_is_named(
    spark: SparkSession, options: dict[str, str], registry: FakeSchemaRegistry, kafka_topic: Topic,
    produce: Produce, tmp_path: Path, group_id: str,
) -> None:  # fmt: skip
    topic, checkpoint = kafka_topic(1), str(tmp_path / "checkpoint")
    subject = f"{topic}-value"
    client = ka.SchemaRegistry(registry.url, basic_auth="alice:hush")
    read = ka.Pipeline.read_kafka(
        topic, bootstrap_servers=options["kafka.bootstrap.servers"], group_id=group_id
    )

    def run(**named: Any) -> str:
        pipeline = read.decode(client, **named).write_parquet(str(tmp_path / "out"))
        bound = pipeline.on_spark(spark, checkpoint=checkpoint, trigger="availableNow", progress=False)
        bound.run()
        return bound.pipeline.explain("spark")

    def columns() -> list[list[str]]:
        return sorted(pq.read_schema(path).names for path in (tmp_path / "out").glob("**/*.parquet"))

    first = registry.add(subject, FIRST)
    produce(topic, [avro(FIRST, first, {"id": 1, "note": None})])
    assert f"by schema {first} ({subject} version 1)" in run()
    second = registry.add(subject, SECOND)
    produce(topic, [avro(SECOND, second, {"id": 2, "note": None, "amount": 9.0})])
    assert f"by schema {first} ({subject} version 1)" in run(), "it goes on by the schema it began with"
    assert columns() == [["id", "note"]] * 2
    produce(topic, [avro(SECOND, second, {"id": 3, "note": None, "amount": 9.0})])
    assert f"by schema {second} ({subject} version 2)" in run(version=2)
    assert columns() == [["id", "note"]] * 2 + [["id", "note", "amount"]]


def test_a_stream_of_a_pipelines_rows_says_what_keeps_its_schema(
    spark: SparkSession, options: dict[str, str], registry: FakeSchemaRegistry, kafka_topic: Topic,
    produce: Produce, tmp_path: Path,
) -> None:  # fmt: skip
    """Whoever starts the query himself tells Spark of the checkpoint when the pipeline has its schema already."""
    topic = kafka_topic(1)
    subject = f"{topic}-value"
    client = ka.SchemaRegistry(registry.url, basic_auth="alice:hush")
    read = ka.Pipeline.read_kafka(topic, bootstrap_servers=options["kafka.bootstrap.servers"])
    rows: list[dict[str, Any]] = []

    def run() -> None:
        df = read.decode(client).on_spark(spark).dataframe(streaming=True)
        writer = df.writeStream.option("checkpointLocation", str(tmp_path / "checkpoint"))
        query = (
            writer.trigger(availableNow=True).foreachBatch(lambda made, _: rows.extend(plain(made))).start()
        )
        assert query.awaitTermination(slow_s(90))

    other = {**SECOND, "fields": [*SECOND["fields"][:2], {**SECOND["fields"][2], "default": 2.5}]}
    first = registry.add(subject, FIRST)
    second = registry.add(subject, SECOND)
    produce(topic, [avro(FIRST, first, {"id": 1, "note": None})])
    run()
    registry.add(subject, other)
    produce(topic, [avro(FIRST, first, {"id": 2, "note": None})])
    run()
    assert [row["amount"] for row in rows] == [1.5, 1.5], "the columns are the same, so the schema is kept"
    registry.add(subject, {**FIRST, "doc": "again"})
    produce(topic, [avro(FIRST, first, {"id": 3, "note": None})])
    with pytest.raises(PySparkException) as changed:
        run()
    assert f"decode: the latest is schema {second + 2}" in errors_line(changed)
    assert "(columns: amount is gone): keep it with version=2, or go on by the new one with version=4" in str(
        changed.value
    )


def test_a_backfill_that_goes_on_keeps_its_schema_for_both_of_its_parts(
    spark: SparkSession,
    options: dict[str, str],
    registry: FakeSchemaRegistry,
    kafka_topic: Topic,
    tmp_path: Path,
) -> None:
    topic = kafka_topic(1)
    first = registry.add(f"{topic}-value", FIRST)
    registry.add(f"{topic}-value", SECOND)
    read = ka.Pipeline.read_kafka(
        topic, bootstrap_servers=options["kafka.bootstrap.servers"], group_id="backfill"
    )
    pipeline = read.decode(ka.SchemaRegistry(registry.url, basic_auth="alice:hush")).write_kafka("out")
    offsets = {topic: {"0": 5}, "@schema": {"id": first, "subject": f"{topic}-value", "version": 1}}
    (tmp_path / "offsets").mkdir()
    (tmp_path / "offsets" / "0").write_text(f"v1\n{{}}\n{json.dumps(offsets)}")
    again = pipeline.backfill(spark, checkpoint=str(tmp_path)).pipeline
    assert f"by schema {first} ({topic}-value version 1)" in again.explain("ray")
    new = pipeline.backfill(spark, checkpoint=str(tmp_path / "other")).pipeline
    assert f"by schema {first + 1} ({topic}-value version 2)" in new.explain("ray")
