"""One pipeline on Ray and on Spark: orders in JSON, checked, enriched by a class, to another topic. Both results are
compared; then Spark groups them, which no consumer group can.

    python examples/revenue_pipeline.py                        # brings its own broker; Spark needs Java 17
    BOOTSTRAP=broker:9092 python examples/revenue_pipeline.py  # on topics of its own there, which are made
    python examples/revenue_pipeline.py --explain              # what would run where; connects to nothing
"""

import sys
import tempfile
import uuid
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from place import brokers, produce_orders, spark_session, values

import kafka_actors as ka

ORDERS = 20_000


class Taxed:
    """Made once in each worker process, of Ray or of Spark: the place for a model, a session, a connection."""

    def __init__(self, rates: dict[str, float]) -> None:
        self.countries = pa.array(rates)
        self.rates = pa.array(rates.values())

    @staticmethod
    def output_schema(columns: pa.Schema) -> pa.Schema:
        """What comes out, known before anything starts: what comes in, and the tax."""
        return columns.append(pa.field("tax_cents", pa.int64()))

    def __call__(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        rates = self.rates.take(pc.index_in(batch["country"], value_set=self.countries)).fill_null(0.0)
        tax = pc.round(pc.multiply(batch["amount_cents"].cast(pa.float64()), rates)).cast(pa.int64())
        return batch.append_column("tax_cents", tax)


# A pipeline without a source, to be put behind any.
taxed = (
    ka.Pipeline()
    .decode_json("order_id STRING NOT NULL, country STRING, amount_cents BIGINT")
    .filter(pc.field("amount_cents") > 0)
    .map_batches(Taxed, fn_constructor_kwargs={"rates": {"DE": 0.19, "FR": 0.2, "IT": 0.22}})
)


def orders(servers: str, topic: str, output: str) -> ka.Pipeline:
    read = ka.Pipeline.read_kafka(topic, group_id=f"{topic}-revenue", bootstrap_servers=servers)
    return (
        (read | taxed)
        .on_error("dead_letter")
        .with_key("country")
        .write_kafka(output)
        .dead_letters(f"{output}-dead")
    )


def main() -> None:
    topic = f"orders-{uuid.uuid4().hex[:6]}"
    ray_out, spark_out = f"{topic}-ray", f"{topic}-spark"
    with brokers() as place, tempfile.TemporaryDirectory() as checkpoint:
        place.create(topic, ray_out, spark_out, f"{ray_out}-dead", f"{spark_out}-dead")
        produce_orders(place.servers, topic, ORDERS)

        print("On Ray, as a consumer group of workers:")
        on_ray = orders(place.servers, topic, ray_out)
        on_ray.on_ray(workers=2, until="latest", progress=True).run()

        with spark_session() as spark:
            print("On Spark, as a streaming query:")
            on_spark = orders(place.servers, topic, spark_out)
            on_spark.on_spark(spark, checkpoint=checkpoint, trigger="availableNow", progress=True).run()
            compare(spark, place.servers, ray_out, spark_out)

            print("And on Spark alone:")
            revenue = (ka.Pipeline.read_kafka(topic, bootstrap_servers=place.servers) | taxed).on_error(
                "skip"
            )
            by_country = revenue.sql(
                "select country, count(*) as orders, sum(amount_cents - tax_cents) / 100 as revenue "
                "from {this} group by country order by country"
            )
            by_country.on_spark(spark).dataframe().show()


def compare(spark: Any, servers: str, ray_out: str, spark_out: str) -> None:
    """The same rows from both, and the same records left over."""
    for what, end in (("rows", ""), ("dead letters", "-dead")):
        ours, theirs = (values(spark, servers, topic + end) for topic in (ray_out, spark_out))
        if ours != theirs or not ours:
            sys.exit(f"different {what}: {len(ours):,} from Ray, {len(theirs):,} from Spark")
        print(f"The same {len(ours):,} {what} from both.")


if __name__ == "__main__":
    if "--explain" in sys.argv:
        for engine in ("ray", "spark"):
            print(orders("localhost:9092", "orders", "orders-taxed").explain(engine))
    else:
        main()
