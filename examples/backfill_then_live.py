"""History on Spark, then live on Ray, from exactly the next offset: one pipeline, one command.

    python examples/backfill_then_live.py                    # on a Kafka of its own, with records in it and more coming
    BOOTSTRAP=broker:9092 TOPIC=orders python examples/backfill_then_live.py /data/orders

Needs `pip install kafka-actors[spark,ray]` and Java 17; without BOOTSTRAP also `[testing]` and Maven. With BOOTSTRAP it
goes on until it is stopped. Kill it whenever you like and start it again with the same directory: no order is
missing, and none of the history is there twice.
"""

import json
import os
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pyarrow.compute as pc
import pyarrow.parquet as pq
from pyspark.sql import SparkSession

import kafka_actors as ka

HISTORY, LIVE = 20_000, 2_000


def pipeline(bootstrap_servers: str, topic: str, directory: Path) -> ka.Pipeline:
    """Defined once, for both engines."""
    return (
        ka.Pipeline.read_kafka(topic, group_id="orders-to-files", bootstrap_servers=bootstrap_servers)
        .decode_json("id BIGINT NOT NULL, country STRING, amount DOUBLE")
        .filter(pc.field("amount") > 0)
        .with_columns(tax=pc.field("amount") * 0.19)
        .write_parquet(str(directory / "orders"), kafka=True)
    )


def main(bootstrap_servers: str, topic: str, directory: Path, wanted: int | None) -> None:
    spark = (
        SparkSession.builder.master("local[2]")
        .config("spark.ui.enabled", "false")
        .config("spark.ui.showConsoleProgress", "false")
        .getOrCreate()
    )
    spark.sparkContext.setLogLevel("ERROR")
    orders = pipeline(bootstrap_servers, topic, directory)
    backfill = orders.backfill(spark, checkpoint=str(directory / "checkpoint"))
    plan = backfill.plan()
    print(
        f"history ends, and live begins, at {sum(plan.ends.values())} orders: {directory}/checkpoint/handover.json"
    )
    backfill.run()
    spark.stop()  # the live job needs no Spark
    print(f"read on Spark and handed over to group {plan.group_id}: {count(directory)} orders in files")
    with backfill.then_live(workers=2) as live:
        print("live on Ray")
        if wanted is None:
            live.wait()
        while wanted is not None and count(directory) < wanted:
            live.status()  # raises JobFailed, with its cause
            time.sleep(0.5)
    table = pq.read_table(directory / "orders", columns=["id"])
    print(f"{table.num_rows} orders in files, {len(pc.unique(table['id']))} different ones")


def count(directory: Path) -> int:
    files = list((directory / "orders").glob("[!.]*.parquet"))
    return sum(pq.read_metadata(file).num_rows for file in files)


@contextmanager
def kafka_with_orders() -> Iterator[tuple[str, str]]:
    """A broker with a history; more orders come while this is there."""
    from kafka_actors.testing import KafkaCluster

    with KafkaCluster() as cluster, ka.Producer(bootstrap_servers=cluster.bootstrap_servers) as producer:
        cluster.create_topic("orders", partitions=4)

        def send(numbers: range) -> None:
            for number in numbers:
                order = {"id": number, "country": ("DE", "FR", "IT")[number % 3], "amount": 1 + number % 90}
                producer.send("orders", json.dumps(order).encode(), key=b"%d" % number)
            producer.flush()

        def go_on() -> None:
            for first in range(HISTORY, HISTORY + LIVE, 20):
                send(range(first, first + 20))
                time.sleep(0.2)

        send(range(HISTORY))
        coming = threading.Thread(target=go_on)
        coming.start()
        yield cluster.bootstrap_servers, "orders"
        coming.join()


if __name__ == "__main__":
    # The interpreter in which Spark looks for the source.
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    where = Path(sys.argv[1] if len(sys.argv) > 1 else tempfile.mkdtemp(prefix="orders-")).absolute()
    if "BOOTSTRAP" in os.environ:
        main(os.environ["BOOTSTRAP"], os.environ.get("TOPIC", "orders"), where, None)
    else:
        with kafka_with_orders() as (servers, name):
            main(servers, name, where, HISTORY + LIVE)
