"""Revenue per country from a topic of orders in JSON: a first job to run, and to copy.

kafka-actors run examples/orders.py:job --workers 4
BOOTSTRAP=broker:9092 python examples/orders.py
"""

import json
import os
from collections import Counter

import pyarrow as pa

import kafka_actors as ka


class Revenue:
    """Made once per worker and called per batch: the place for a model, a session, a connection."""

    def __init__(self) -> None:
        self.cents: Counter[str] = Counter()

    def __call__(self, batch: pa.RecordBatch) -> None:
        """`batch` has records of one partition in the order of their offsets.

        Its columns: key, value, topic, partition, offset, timestamp, timestampType, headers. After this call has
        returned, the batch's offsets are committed; if the worker dies before, another one gets the records again.
        """
        for value in batch.column("value").to_pylist():
            if value is None:
                continue  # a tombstone
            order = json.loads(value)
            self.cents[order["country"]] += order["amount_cents"]

    def close(self) -> None:
        """Called when the worker ends."""
        print("revenue of this worker:", {c: f"{cents / 100:,.2f}" for c, cents in self.cents.most_common()})


job = ka.Job(
    topics=["orders"],
    group_id="revenue",
    bootstrap_servers=os.environ.get("BOOTSTRAP", "localhost:9092"),
    process=Revenue,
    workers=4,
)


if __name__ == "__main__":
    with job.start() as running:
        running.wait()
