"""A pipeline's Arrow stages inside Spark's data source, against real Kafka: the rows that Ray would give."""

import json
import sys

import pyarrow.compute as pc
import pytest
from pyspark import cloudpickle
from pyspark.sql import SparkSession

import kafka_actors as ka
from kafka_actors.errors import ConfigError

pytestmark = [pytest.mark.spark, pytest.mark.kafka, pytest.mark.timeout(300)]

SCHEMA = "id BIGINT NOT NULL, country STRING, amount DOUBLE"
COUNTRIES = ["DE", "FR", "IT"]


@pytest.fixture(scope="module")
def spark(tmp_path_factory):
    cloudpickle.register_pickle_by_value(sys.modules[__name__])  # the functions of this file
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYSPARK_PYTHON", sys.executable)
        patch.setenv("SPARK_LOCAL_IP", "127.0.0.1")
        session = (
            SparkSession.builder.master("local[2]")
            .config("spark.ui.enabled", "false")
            .config("spark.driver.memory", "1g")
            .config("spark.sql.shuffle.partitions", "2")
            .config("spark.sql.session.timeZone", "UTC")
            .config("spark.sql.warehouse.dir", str(tmp_path_factory.mktemp("warehouse")))
            .getOrCreate()
        )
        session.sparkContext.setLogLevel("OFF")
        yield session
        session.stop()


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


def test_rows_are_those_of_the_stages_and_a_dataframe_stage_goes_on_from_there(spark, orders):
    pipeline = (
        orders.decode_json(SCHEMA, on_error="skip")
        .filter(pc.field("amount") >= 10)
        .map_batches(taxed, schema=f"{SCHEMA}, tax DOUBLE")
    )
    df = pipeline.on_spark(spark).dataframe()
    assert df.columns == ["id", "country", "amount", "tax"]
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


def test_what_cannot_be_is_refused_before_anything_starts(spark, orders):
    for make, said in (
        (
            lambda: orders.decode_json(SCHEMA).on_spark(spark).dataframe(streaming=True),
            "streaming: is not built yet",
        ),
        (
            lambda: (
                orders.raw()
                .sql("select * from {this}")
                .map_batches(taxed, schema=SCHEMA)
                .on_spark(spark)
                .dataframe()
            ),
            "would run as mapInArrow",
        ),
    ):
        with pytest.raises(ConfigError, match=said):
            make()
