"""Stages: the arguments that they take, and the columns behind them, which are known before the start."""

import pyarrow as pa
import pyarrow.compute as pc
import pytest

import kafka_actors as ka
from kafka_actors.base.batches import SCHEMA
from kafka_actors.errors import ConfigError

READ = ka.Pipeline.read_kafka("orders", group_id="revenue", bootstrap_servers="localhost:9092")


@pytest.mark.parametrize(
    ("path", "said"),
    [
        ("s3a://bucket/orders", "by Hadoop's name of the file system: write s3://, on every engine"),
        ("S3N://bucket/orders", "write s3://"),
        ("dbfs:/orders", "the URIs that are known begin with file://, s3://"),
        ("file:/orders", "the URIs that are known begin with"),
        ("", "accepts a directory or URI"),
    ],
)
def test_files_have_one_name_on_every_engine(path, said):
    with pytest.raises(ConfigError, match=f"^write_parquet: path is .*{said}"):
        ka.Pipeline().write_parquet(path)
    with pytest.raises(ConfigError, match=f"^path: is .*{said}"):
        ka.ParquetSink(path)
    for fine in ("s3://bucket/x", "hdfs://name/x", "gs://b/x", "file:///x", "/x", "out/of:here", "C:/x"):
        ka.Pipeline().write_parquet(fine)


@pytest.mark.parametrize("kind", ["BIGINT", "TIMESTAMP", "ARRAY<STRING>", "DECIMAL(5,2)", "BOOLEAN"])
@pytest.mark.parametrize("name", ["key", "value"])
def test_columns_that_can_not_be_sent_as_they_are_are_refused_before_the_start(name, kind):
    columns = {"key": "STRING", "value": "BINARY"} | {name: kind}
    schema = ", ".join(f"{column} {of}" for column, of in columns.items())
    pipeline = READ.decode_json(schema).write_kafka("b", format="columns")
    with pytest.raises(
        ConfigError, match=rf"^write_kafka\(b\): .*column '{name}' is .*must be binary or string"
    ):
        pipeline.check()


@pytest.mark.parametrize(
    "kind", [pa.binary(3), pa.large_string(), pa.null(), pa.dictionary(pa.int8(), pa.string())]
)
def test_columns_that_can_be_sent_are_taken(kind):
    schema = pa.schema({"value": kind})
    READ.map_batches(lambda batch: batch, schema=schema).write_kafka("b", format="columns").check()


JSON = READ.decode_json("id BIGINT NOT NULL, country STRING, amount DOUBLE")


class Known:
    output_schema = "id BIGINT"

    def __call__(self, batch):
        return batch


class Widened:
    @staticmethod
    def output_schema(columns):
        return columns.append(pa.field("more", pa.int32()))

    def __call__(self, batch):
        return batch


def test_columns_are_known_before_the_start():
    pipeline = (
        JSON.with_columns(cents=pc.field("amount") * 100, country=pc.utf8_upper(pc.field("country")))
        .select("id", "cents", "country", "_kafka.offset", at=pc.field("_kafka", "timestamp"))
        .map_batches(Widened)
    )
    assert pipeline.check().columns == pa.schema(
        [
            pa.field("id", pa.int64(), False),
            pa.field("cents", pa.float64()),
            pa.field("country", pa.string()),
            pa.field("offset", pa.int64()),
            pa.field("at", pa.timestamp("us", tz="UTC")),
            pa.field("more", pa.int32()),
        ]
    )
    assert READ.check().columns == SCHEMA
    assert JSON.map_batches(Known).check().columns == pa.schema({"id": pa.int64()})
    assert READ.raw(text=True).check().columns == pa.schema({"key": pa.string(), "value": pa.string()})


@pytest.mark.parametrize("text", [False, True])
def test_raw_needs_the_records_own_key_and_value(text):
    for before, missing in (
        (READ.select("value"), "key"),
        (READ.select("key"), "value"),
        (READ.with_columns(key=pc.field("offset")), "key"),
    ):
        with pytest.raises(ConfigError, match=f"^raw: needs the record's own column '{missing}': put one"):
            before.raw(text=text).check()
    assert READ.select("value", "key").raw(text=text).check().columns.names == ["key", "value"]
    READ.select("value").decode_json("id BIGINT").check()


def test_a_function_over_messages_gets_records_as_they_were_read():
    read = ka.Pipeline.read_kafka("orders", bootstrap_servers="a:1")
    filtered = read.filter(pc.field("key").is_valid()).map_messages(print, schema="id BIGINT")
    assert filtered.check().columns == pa.schema({"id": pa.int64()})
    for before in (read.raw(), read.decode_json("id BIGINT"), read.with_columns(x=pc.field("offset"))):
        with pytest.raises(
            ConfigError, match=r"map_messages\(print\): gets records as they were read: put it"
        ):
            before.map_messages(print, schema="id BIGINT").check()
