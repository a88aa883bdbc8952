"""One Spark session in a process of its own, which answers what it is asked: both sides of a comparison run in it.

Requests and answers are lines of JSON. A query is timed from `.load()` to its result, planning included.
"""

from __future__ import annotations

import json
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from functools import cache, partial

import psutil
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.json as pa_json
from pyspark.sql import DataFrame, SparkSession

from benchmarks.reading import Run, cpu_of

TOTALS = ("count(*)", "sum(length(value))")
SUMMED = ("sum(rows)", "sum(amount)")
ORDERS = pa_json.ParseOptions(
    explicit_schema=pa.schema([("id", pa.int64()), ("amount", pa.int64()), ("note", pa.string())])
)
"""All that an order has."""
SUMS_SCHEMA = pa.schema([pa.field("rows", pa.int64()), pa.field("amount", pa.int64())])


def main() -> None:
    facts = json.loads(sys.argv[1])
    builder = SparkSession.builder.master("local[*]").appName("kafka-actors benchmarks")
    for name, value in facts["conf"].items():
        builder = builder.config(name, value)
    spark = builder.getOrCreate()
    spark.sparkContext.setLogLevel("ERROR")
    for line in sys.stdin:
        asked = json.loads(line)
        query = partial(QUERIES[asked.pop("query")], spark, **asked)
        print(json.dumps(timed(query, facts["broker_pid"])), flush=True)
    spark.stop()


def timed(query: Callable[[], list[int]], broker_pid: int) -> Run:
    """CPU in seconds of the driver, the JVM and Spark's Python workers together; `result` is what the query found."""
    broker, own = cpu_of(broker_pid), cpu_of_tree()
    began = time.perf_counter()
    result = query()
    seconds = time.perf_counter() - began
    return {
        "result": result,
        "seconds": seconds,
        "cpu": cpu_of_tree() - own,
        "broker_cpu": cpu_of(broker_pid) - broker,
    }


def cpu_of_tree() -> float:
    """Seconds of CPU of this process and all below it, those included that have ended and were waited for."""
    found = 0.0
    for process in [psutil.Process(), *psutil.Process().children(recursive=True)]:
        try:
            times = process.cpu_times()
        except psutil.NoSuchProcess:
            continue
        found += times.user + times.system + times.children_user + times.children_system
    return found


def loaded(
    spark: SparkSession, source: str, servers: str, topic: str, schema: str | None = None
) -> DataFrame:
    reader = spark.read.format(source).option("kafka.bootstrap.servers", servers).option("subscribe", topic)
    return (reader if schema is None else reader.schema(schema)).load()


def first(df: DataFrame) -> list[int]:
    return [int(value) for value in df.first() or ()]


# ---------------------------------------------------------------- queries


def totals(
    spark: SparkSession, source: str, servers: str, topic: str, schema: str | None = None
) -> list[int]:
    """Records, and the bytes of their values."""
    return first(loaded(spark, source, servers, topic, schema).selectExpr(*TOTALS))


def stream_totals(spark: SparkSession, source: str, servers: str, topic: str) -> list[int]:
    """The same, kept up to date by a stream that ends when it has read all there is."""
    stream = spark.readStream.format(source).option("kafka.bootstrap.servers", servers)
    stream = stream.option("subscribe", topic).option("startingOffsets", "earliest")
    with tempfile.TemporaryDirectory() as checkpoint:
        writer = stream.load().selectExpr(*TOTALS).writeStream.outputMode("complete").format("memory")
        writer = writer.queryName("totals").option("checkpointLocation", checkpoint)
        writer.trigger(availableNow=True).start().awaitTermination()
    return first(spark.table("totals"))


def sums_of_orders(batch: pa.RecordBatch) -> pa.RecordBatch:
    """Parses the JSON of the values with Arrow's own reader, every field, and sums the amounts: the user's function."""
    values = batch.column("value")
    lines = pc.binary_join(pa.ListArray.from_arrays(pa.array([0, len(values)], pa.int32()), values), b"\n")
    orders = pa_json.read_json(pa.BufferReader(lines[0].as_buffer()), parse_options=ORDERS)
    amount = pc.sum(orders["amount"]).as_py()
    return pa.record_batch([[orders.num_rows], [amount]], schema=SUMS_SCHEMA)


def json_fused(spark: SparkSession, servers: str, topic: str) -> list[int]:
    """The function as a stage of a pipeline."""
    import kafka_actors as ka

    orders = ka.Pipeline.read_kafka(topic, bootstrap_servers=servers)
    pipeline = orders.map_batches(sums_of_orders, schema=SUMS_SCHEMA)
    return first(pipeline.on_spark(spark).dataframe().selectExpr(*SUMMED))


def json_map_in_arrow(spark: SparkSession, source: str, servers: str, topic: str) -> list[int]:
    """The function behind a source; only the values go to it."""

    def each(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        return map(sums_of_orders, batches)

    values = loaded(spark, source, servers, topic).select("value")
    return first(values.mapInArrow(each, "rows bigint, amount bigint").selectExpr(*SUMMED))


def json_from_json(spark: SparkSession, source: str, servers: str, topic: str) -> list[int]:
    """The same sums by Spark's own parser, told of all fields; it prunes them to the one that is used."""
    parsed = "from_json(cast(value as string), 'id bigint, amount bigint, note string').amount as amount"
    return first(
        loaded(spark, source, servers, topic).selectExpr(parsed).selectExpr("count(amount)", "sum(amount)")
    )


@cache
def registry(schema: str) -> str:
    """The address of a registry with this schema."""
    from benchmarks.schemas import SchemaServer

    return SchemaServer(schema).url


DECODED = ("count(id)", "cast(sum(amount) as bigint)")


def avro_decoded(spark: SparkSession, servers: str, topic: str, schema: str) -> list[int]:
    """Orders by the data source's own decoder: the option `decode`."""
    reader = spark.read.format("kafka_actors").option("kafka.bootstrap.servers", servers)
    reader = (
        reader.option("subscribe", topic)
        .option("decode", "avro")
        .option("schema.registry.url", registry(schema))
    )
    return first(
        reader.option("schema.registry.subject", "orders")
        .schema("id BIGINT, amount DOUBLE")
        .load()
        .selectExpr(*DECODED)
    )


def avro_pipeline(spark: SparkSession, servers: str, topic: str, schema: str) -> list[int]:
    """Decodes by a pipeline, whose rows Spark sums."""
    import kafka_actors as ka

    orders = ka.Pipeline.read_kafka(topic, bootstrap_servers=servers)
    pipeline = orders.decode_avro(registry=ka.SchemaRegistry(registry(schema)), subject="orders").select(
        "id", "amount"
    )
    return first(pipeline.on_spark(spark).dataframe().selectExpr(*DECODED))


def avro_from_avro(spark: SparkSession, servers: str, topic: str, schema: str) -> list[int]:
    """Decodes by Spark's own source and decoder, in the JVM; it is given the schema, and leaves out the five bytes in front."""
    from pyspark.sql.avro.functions import from_avro
    from pyspark.sql.functions import expr

    values = loaded(spark, "kafka", servers, topic).select(
        expr("substring(value, 6, length(value) - 5) as value")
    )
    return first(
        values.select(from_avro("value", schema).alias("order")).select("order.*").selectExpr(*DECODED)
    )


def write(
    spark: SparkSession,
    source: str,
    servers: str,
    topic: str,
    rows: int,
    times: int = 1,
    tasks: int | None = None,
    transactional: bool = False,
) -> list[int]:
    """Rows that Spark has in memory, to a topic, by so many queries."""
    import kafka_actors as ka

    for _ in range(times):
        df = orders_in_memory(spark, rows, tasks)
        writer = df.write.format(source).mode("append")
        if transactional:
            writer.options(**ka.spark.transactional(df))
        writer.option("kafka.bootstrap.servers", servers).option("topic", topic).save()
    return [rows * times]


def orders_in_memory(spark: SparkSession, rows: int, tasks: int | None = None) -> DataFrame:
    """Values of 100 bytes under 8-byte keys, in so many partitions; the same `DataFrame` each time."""
    if (rows, tasks) not in _IN_MEMORY:
        df = spark.range(rows, numPartitions=tasks).selectExpr(
            "cast(lpad(id, 8, '0') as binary) as key",
            """cast(rpad('{"id":' || id || ',"amount":' || (id * 7919) % 900000 || ',"note":"', 98, sha2(cast(id as string), 512))
               || '"}' as binary) as value""",
        )
        _IN_MEMORY[rows, tasks] = df.persist()
        df.count()
    return _IN_MEMORY[rows, tasks]


_IN_MEMORY: dict[tuple[int, int | None], DataFrame] = {}
QUERIES: dict[str, Callable[..., list[int]]] = {
    query.__name__: query
    for query in (
        totals,
        stream_totals,
        json_fused,
        json_map_in_arrow,
        json_from_json,
        avro_decoded,
        avro_pipeline,
        avro_from_avro,
        write,
    )
}

if __name__ == "__main__":
    main()
