"""A pipeline: orders in JSON, checked, enriched by a class, keyed by country, to another topic.

BOOTSTRAP=broker:9092 python examples/revenue_pipeline.py            # runs until stopped
BOOTSTRAP=broker:9092 python examples/revenue_pipeline.py --once     # stops at the end offsets of now
python examples/revenue_pipeline.py --explain                        # what would run where; connects to nothing
"""

import os
import sys

import pyarrow as pa
import pyarrow.compute as pc

import kafka_actors as ka


class Taxed:
    """Made once in each worker process: the place for a model, a session, a connection."""

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


orders = (
    ka.Pipeline.read_kafka(
        "orders",
        group_id="revenue-pipeline",
        bootstrap_servers=os.environ.get("BOOTSTRAP", "localhost:9092"),
    )
    .decode_json("order_id STRING NOT NULL, country STRING, amount_cents BIGINT", on_error="dead_letter")
    .filter(pc.field("amount_cents") > 0)
    .map_batches(Taxed, fn_constructor_kwargs={"rates": {"DE": 0.19, "FR": 0.2, "IT": 0.22}})
    .with_key("country")
    .write_kafka("orders-taxed", compression_type="zstd")
    .dead_letters("orders-dead")
)


if __name__ == "__main__":
    if "--explain" in sys.argv:
        print(orders.explain("ray"))
    else:
        orders.on_ray(workers=4, until="latest" if "--once" in sys.argv else None).run()
