"""A pipeline's Arrow stages inside Spark's data source, against real Kafka: the rows that Ray would give."""

import io
import json
import sys

import fastavro
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from fakes.schema_registry import FakeSchemaRegistry
from fakes.spark import spark_session
from pyspark import cloudpickle
from pyspark.sql import functions
from waiting import slow_s

import kafka_actors as ka
from kafka_actors.errors import ConfigError

pytestmark = [pytest.mark.spark, pytest.mark.kafka]

SCHEMA = "id BIGINT NOT NULL, country STRING, amount DOUBLE"
COUNTRIES = ["DE", "FR", "IT"]


@pytest.fixture(scope="module")
def spark(tmp_path_factory):
    cloudpickle.register_pickle_by_value(sys.modules[__name__])  # the functions of this file
    with spark_session(tmp_path_factory.mktemp("warehouse")) as session:
        yield session


@pytest.fixture
def orders(kafka_cluster, kafka_topic, produce):
    """Three partitions of orders with the ids 0, 1, …, 299; three of them are no orders."""
    topic = kafka_topic(3)
    bad = {7: b"", 100: b"{}{}", 299: b"\xff"}
    values = [
        bad.get(n, json.dumps({"id": n, "country": COUNTRIES[n % 3], "amount": n / 2}).encode())
        for n in range(300)
    ]
    produce(topic, values, partition=[n % 3 for n in range(300)], keys=[b"k%d" % n for n in range(300)])
    return ka.Pipeline.read_kafka(
        topic, group_id="any", bootstrap_servers=kafka_cluster.bootstrap_servers, start_timeout_s=30
    )


def taxed(batch):
    return batch.append_column("tax", pc.multiply(batch["amount"], 0.25))


@pytest.mark.spark_versions
def test_rows_are_those_of_the_stages_and_a_dataframe_stage_goes_on_from_there(spark, orders):
    pipeline = (
        orders.decode_json(SCHEMA, on_error="skip")
        .filter(pc.field("amount") >= 10)
        .map_batches(taxed, schema=f"{SCHEMA}, tax DOUBLE")
    )
    df = pipeline.on_spark(spark).dataframe()
    assert df.columns == ["id", "country", "amount", "tax"]
    assert "MapInArrow" not in df._jdf.queryExecution().toString(), "all of it runs in the source"
    found = {row.id: (row.country, row.amount, row.tax) for row in df.collect()}
    good = [n for n in range(20, 300) if n not in (100, 299)]
    assert found == {n: (COUNTRIES[n % 3], n / 2, n / 8) for n in good}
    totals = (
        pipeline.sql("select country, sum(tax) as tax from {this} group by country")
        .spark(lambda df: df.where("tax > 0"))
        .on_spark(spark)
        .dataframe()
    )
    assert {row.country: row.tax for row in totals.collect()} == {
        c: sum(n / 8 for n in good if COUNTRIES[n % 3] == c) for c in COUNTRIES
    }


@pytest.mark.parametrize("kind", ["plain", "async"])
def test_a_function_over_messages_makes_rows_and_an_order_by_key_is_refused_by_its_name(spark, orders, kind):
    def score(message):
        return {"key": message.key, "n": message.offset} if message.offset % 2 else None

    async def later(message):
        return score(message)

    def scored(**said):
        function = score if kind == "plain" else later
        return orders.map_messages(function, schema="key BINARY, n INT", name="score", **said)

    df = scored(concurrency=4, ordering="partition").on_spark(spark).dataframe(kafka=True)
    rows = [(bytes(row["key"]), row["n"], row["_kafka"]["partition"]) for row in df.collect()]
    assert sorted(rows) == sorted((b"k%d" % n, n // 3, n % 3) for n in range(300) if (n // 3) % 2)
    for ordering in ("key", "unordered"):
        with pytest.raises(
            ConfigError, match=f"^score: ordering is '{ordering}', which is for Ray: on Spark"
        ):
            scored(ordering=ordering, concurrency=4).on_spark(spark)


def test_values_by_several_schemas_of_a_registry_are_read_by_one(spark, kafka_cluster, kafka_topic, produce):
    topic = kafka_topic(1)
    fields = [{"name": "id", "type": "int"}, {"name": "tags", "type": {"type": "array", "items": "string"}}]
    first = {"type": "record", "name": "Order", "fields": fields}
    second = {
        **first,
        "fields": [
            *fields,
            {"name": "at", "type": {"type": "long", "logicalType": "timestamp-millis"}, "default": 0},
        ],
    }
    with FakeSchemaRegistry() as registry:
        ids = [registry.add(f"{topic}-value", schema) for schema in (first, second)]
        rows = [{"id": n, "tags": [f"t{n}"], "at": 1_000 * n} for n in range(20)]
        produce(topic, [avro(row, ids[n % 2], (first, second)[n % 2]) for n, row in enumerate(rows)])
        pipeline = ka.Pipeline.read_kafka(topic, bootstrap_servers=kafka_cluster.bootstrap_servers).decode(
            ka.SchemaRegistry(registry.url)
        )
        df = pipeline.on_spark(spark).dataframe()
        assert df.schema.simpleString() == "struct<id:int,tags:array<string>,at:timestamp>"
        found = [(row.id, row.tags, row.at.timestamp()) for row in df.collect()]
    assert found == [(n, [f"t{n}"], n if n % 2 else 0) for n in range(20)]


def avro(row, number, schema):
    """A row as Confluent's serializer writes it."""
    stream = io.BytesIO(b"\0" + number.to_bytes(4, "big"))
    stream.seek(5)
    fastavro.schemaless_writer(stream, fastavro.parse_schema(schema), row)
    return stream.getvalue()


def test_dead_letters_are_rows_and_the_hidden_column_comes_where_it_is_asked_for(spark, orders):
    df = orders.decode_json(SCHEMA, on_error="dead_letter").on_spark(spark).dataframe(kafka=True)
    rows = df.collect()
    assert len(rows) == 300
    failed = {bytes(row._error.key): row._error for row in rows if row._error is not None}
    assert failed.keys() == {b"k7", b"k100", b"k299"}
    assert (failed[b"k7"].stage, failed[b"k7"].reason) == ("decode_json", "the value is empty")
    assert (failed[b"k100"].partition, failed[b"k100"].offset) == (1, 33)
    assert all((row.id is None) == (row._error is not None) for row in rows)
    assert {(row._kafka.partition, row._kafka.offset) for row in rows} == {
        (n % 3, n // 3) for n in range(300)
    }


def test_a_stage_that_fails_names_itself_and_where(spark, orders):
    with pytest.raises(
        Exception, match=r"stage decode_json failed on .*-1 offset 33 after 1 attempt: Object missing"
    ) as raised:
        orders.filter(pc.field("key") == b"k100").decode_json(SCHEMA).on_spark(spark).dataframe().collect()
    assert "StageError" in str(raised.value)


class Scored:
    """Counts its own making: a column tells."""

    made = 0

    def __init__(self):
        type(self).made += 1

    def __call__(self, batch):
        if (wrong := batch.filter(pc.equal(batch["id"], 40))).num_rows:
            raise ValueError(f"no {wrong['id'][0]}")
        return batch.append_column(
            "made", pc.multiply(pc.add(pc.multiply(batch["id"], 0), 1), type(self).made)
        )


def test_a_stage_that_wants_a_gpu_and_what_follows_run_behind_the_source_with_their_records(spark, orders):
    pipeline = (
        orders.decode_json(SCHEMA, on_error="dead_letter")
        .map_batches(
            Scored, schema=f"{SCHEMA}, made BIGINT", num_gpus=1, name="score", on_error="dead_letter"
        )
        .with_columns(at=pc.field("_kafka", "offset"))
        .on_error("fail", retries=0)
    )
    df = pipeline.on_spark(spark).dataframe()
    assert "MapInArrow" in df._jdf.queryExecution().toString()
    rows = df.collect()
    good = {row.id: row for row in rows if row._error is None}
    assert good.keys() == {n for n in range(300) if n not in (7, 40, 100, 299)}
    assert all(row.at == n // 3 and row.made == 1 for n, row in good.items())
    dead = {int(row._error.key[1:]): row._error for row in rows if row._error is not None}
    assert {n: e.stage for n, e in dead.items()} == {
        7: "decode_json",
        100: "decode_json",
        299: "decode_json",
        40: "score",
    }
    assert (dead[40].value, dead[40].partition, dead[40].offset) == (
        json.dumps({"id": 40, "country": "FR", "amount": 20.0}).encode(),
        1,
        13,
    )


def test_arrow_stages_go_on_behind_a_dataframe_stage_and_are_cast_to_what_they_promise(spark, orders):
    grouped = orders.decode_json(SCHEMA, on_error="skip").sql(
        "select country, count(*) as n, max(_kafka.timestamp) as at, max_by(_kafka, id) as _kafka "
        "from {this} group by country"
    )
    last = grouped.filter(pc.field("n") > 98).with_columns(
        n=pc.field("n").cast("int32"), offset=pc.field("_kafka", "offset")
    )
    df = last.on_spark(spark).dataframe()
    assert dict(df.dtypes) == {"country": "string", "n": "int", "at": "timestamp", "offset": "bigint"}
    assert {row.country: (row.n, row.offset) for row in df.collect()} == {"DE": (100, 99), "IT": (99, 98)}
    small = grouped.spark(lambda df: df.drop("_kafka")).map_batches(
        lambda batch: pa.table({"n": pc.multiply(batch["n"], 10)}), schema="n TINYINT", name="small"
    )
    with pytest.raises(
        Exception, match="stage small failed on rows of no one record after 1 attempt: CastError"
    ):
        small.on_spark(spark).dataframe().collect()


def test_a_query_may_have_braces_and_a_name_that_holds_that_of_the_hidden_column(spark, orders):
    pipeline = (
        orders.decode_json(SCHEMA, on_error="skip")
        .select(from_kafka=pc.field("amount") > 10)
        .spark(lambda df: df.distinct())
        .sql("select from_kafka, '{1}' rlike '^.[0-9]{1}.$' as like from {this}")
        .filter(pc.field("from_kafka"))
    )
    (row,) = pipeline.on_spark(spark).dataframe().collect()
    assert row.asDict() == {"from_kafka": True, "like": True}


def test_a_watermark_has_the_records_timestamp(spark, orders, tmp_path):
    out = str(tmp_path / "out")
    windows = orders.decode_json(SCHEMA, on_error="skip").spark(
        lambda df: (
            df.withColumn("at", df["_kafka.timestamp"])
            .withWatermark("at", "1 minute")
            .groupBy(functions.window("at", "1 day").alias("day"), "country")
            .agg(functions.count("*").alias("n"))
            .select("country", "n")
        ),
        kafka=True,
    )
    df = windows.on_spark(spark).dataframe(streaming=True)
    query = (
        df.writeStream.outputMode("complete")
        .format("memory")
        .queryName("windows")
        .trigger(availableNow=True)
        .start()
    )
    assert query.awaitTermination(slow_s(90))
    assert sum(row.n for row in spark.table("windows").collect()) == 297
    run = windows.write_parquet(out).on_spark(spark, checkpoint=str(tmp_path / "c"), trigger="availableNow")
    run.run()
    assert run.status().records == 300


def test_what_cannot_be_is_refused_before_anything_starts(spark, orders):
    decoded = orders.decode_json(SCHEMA, on_error="dead_letter")
    for make, said in (
        (
            lambda: decoded.sql("select * from {this}").on_spark(spark).dataframe(),
            "failed records would be rows of its DataFrame",
        ),
        (
            lambda: (
                orders.raw()
                .sql("select key from {this}")
                .filter(pc.field("_kafka", "offset") > 1)
                .on_spark(spark)
                .start()
            ),
            "has no sink",
        ),
        (
            lambda: (
                orders.raw()
                .spark(lambda df: df.select("key"))
                .filter(pc.field("_kafka", "offset") > 1)
                .on_spark(spark)
                .dataframe()
            ),
            "asks for '_kafka', and a DataFrame stage before it dropped that column",
        ),
        (
            lambda: orders.raw().spark(lambda df: None).on_spark(spark).dataframe(),
            "must return a DataFrame",
        ),
        (
            lambda: orders.raw().on_spark(spark, start="latest").dataframe(),
            "startingOffsets: can't be 'latest'",
        ),
        (
            lambda: orders.raw().on_spark(spark, subscribe="others").dataframe(),
            "subscribe: is the pipeline's",
        ),
        (lambda: orders.raw().on_spark(spark, maxOffsets=5).dataframe(), "maxOffsets: is not an option"),
    ):
        with pytest.raises(ConfigError, match=said):
            make()
