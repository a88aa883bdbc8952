"""Revenue per country and minute, on Spark: a stream from Kafka through a pipeline, a watermark and a window, to Parquet.

    python examples/spark_structured_streaming.py                        # brings its own broker; needs Java 17
    BOOTSTRAP=broker:9092 python examples/spark_structured_streaming.py  # on a topic of its own there

The Arrow stages run in the source's own Python worker. Behind them it is Spark's: `kafka=True` hands the hidden column
`_kafka` over, whose timestamp the watermark needs. A second run goes on from the checkpoint.
"""

import tempfile
import uuid
from pathlib import Path
from typing import Any

import pyarrow.compute as pc
from place import brokers, produce_orders, spark_session
from pyspark.sql import functions as f

import kafka_actors as ka


def by_minute(orders: Any) -> Any:
    """From a DataFrame to one: whatever Structured Streaming can do."""
    return (
        orders.withColumn("at", f.col("_kafka.timestamp"))
        .withWatermark("at", "1 minute")
        .groupBy(f.window("at", "1 minute").alias("minute"), "country")
        .agg(f.count("*").alias("orders"), f.sum("amount_cents").alias("cents"))
        .select("minute.start", "country", "orders", "cents")
    )


def main() -> None:
    topic = f"orders-{uuid.uuid4().hex[:6]}"
    with brokers() as place, tempfile.TemporaryDirectory() as directory, spark_session() as spark:
        place.create(topic)
        revenue = (
            ka.Pipeline.read_kafka(topic, bootstrap_servers=place.servers)
            .decode_json("country STRING, amount_cents BIGINT", on_error="skip")
            .filter(pc.field("amount_cents") > 0)
            .spark(by_minute, kafka=True)
            .write_parquet(f"{directory}/revenue")
        )
        print(revenue.explain("spark"))
        hour_ms = 3_600_000
        for hour in (1, 2):  # an hour later the first one's windows are over
            produce_orders(place.servers, topic, 10_000, timestamp_ms=hour * hour_ms)
            run = revenue.on_spark(spark, checkpoint=f"{directory}/checkpoint", trigger="availableNow")
            run.run()
            print(f"run {hour}: {run.status()}")
        spark.read.parquet(str(Path(directory, "revenue"))).orderBy("start", "country").show()


if __name__ == "__main__":
    main()
