"""Revenue per country out of a Kafka topic, as a Spark batch query with no JAR.

    python examples/spark_batch.py localhost:9092 orders

Needs `pip install kafka-actors[spark]` and Java 17. The records are JSON with `country` and `amount`.
"""

import os
import sys

from pyspark.sql import SparkSession
from pyspark.sql.functions import col, from_json
from pyspark.sql.functions import sum as total


def main(bootstrap_servers: str, topic: str) -> None:
    # The interpreter in which Spark looks for the source.
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    spark = SparkSession.builder.master("local[2]").config("spark.ui.enabled", "false").getOrCreate()
    spark.sparkContext.setLogLevel("ERROR")
    orders = (
        spark.read.format("kafka_actors")
        .option("kafka.bootstrap.servers", bootstrap_servers)
        .option("subscribe", topic)
        .load()
        .select(from_json(col("value").cast("string"), "country string, amount double").alias("order"))
    )
    revenue = orders.groupBy("order.country").agg(total("order.amount").alias("revenue"))
    revenue.orderBy("country").show()
    spark.stop()


if __name__ == "__main__":
    if len(sys.argv) != 3:
        sys.exit(f"usage: {sys.argv[0]} BOOTSTRAP_SERVERS TOPIC")
    main(*sys.argv[1:])
