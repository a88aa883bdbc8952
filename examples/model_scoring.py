"""Scoring a topic with a model: a class stage, made once in each worker process, on Ray or on Spark.

    python examples/model_scoring.py           # on Ray, with a broker of its own
    python examples/model_scoring.py --spark   # the same pipeline on Spark; needs Java 17
    BOOTSTRAP=broker:9092 python examples/model_scoring.py

The model is a logistic regression, trained here on orders of which it is known whether they came back. It is saved as a
file, as a bigger one would be, and the stage loads it.
"""

import sys
import tempfile
import uuid
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from place import brokers, produce_orders

import kafka_actors as ka

Numbers = npt.NDArray[np.float64]


def features(batch: pa.RecordBatch) -> Numbers:
    """A row for each order: 1, the amount in hundreds, the number of items."""
    amounts, items = (batch[name].to_numpy(zero_copy_only=False) for name in ("amount_cents", "items"))
    return np.column_stack([np.ones(batch.num_rows), amounts / 10_000, items])


def train(path: Path, orders: int = 5_000, steps: int = 3_000) -> float:
    """Trains on made-up history, in which dear orders of few items come back. Returns the accuracy on held-out orders."""
    dice = np.random.default_rng(7)
    batch = pa.RecordBatch.from_pydict(
        {"amount_cents": dice.integers(0, 50_000, 2 * orders), "items": dice.integers(1, 9, 2 * orders)}
    )
    given = features(batch)
    came_back = dice.random(2 * orders) < sigmoid(given @ np.array([-2.0, 1.5, -0.5]))
    weights = np.zeros(3)
    for _ in range(steps):
        miss = sigmoid(given[:orders] @ weights) - came_back[:orders]
        weights -= 0.05 * given[:orders].T @ miss / orders
    np.save(path, weights)
    return float(np.mean((sigmoid(given[orders:] @ weights) > 0.5) == came_back[orders:]))


def sigmoid(x: Numbers) -> Numbers:
    return np.asarray(1 / (1 + np.exp(-x)))


class Risk:
    """The stage. On a cluster `model` is a path or URL that all workers can read."""

    def __init__(self, model: str) -> None:
        self.weights = np.load(model)

    @staticmethod
    def output_schema(columns: pa.Schema) -> pa.Schema:
        return columns.append(pa.field("risk", pa.float64(), nullable=False))

    def __call__(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        risk = sigmoid(features(batch) @ self.weights)
        return batch.append_column(pa.field("risk", pa.float64(), nullable=False), pa.array(risk))


def main(on_spark: bool) -> None:
    topic = f"orders-{uuid.uuid4().hex[:6]}"
    with brokers() as place, tempfile.TemporaryDirectory() as directory:
        model, out = Path(directory, "model.npy"), Path(directory, "scored")
        print(f"accuracy on held-out orders: {train(model):.3f}")
        place.create(topic)
        produce_orders(place.servers, topic, 20_000)
        scored = (
            ka.Pipeline.read_kafka(topic, group_id="scorer", bootstrap_servers=place.servers)
            .decode_json(
                "order_id STRING, amount_cents BIGINT NOT NULL, items BIGINT NOT NULL", on_error="skip"
            )
            .map_batches(Risk, fn_constructor_kwargs={"model": str(model)})
            .write_parquet(str(out))
        )
        if on_spark:
            from place import spark_session

            with spark_session() as spark:
                scored.on_spark(spark, progress=True).run()
        else:
            scored.on_ray(workers=2, until="latest", progress=True).run()
        import pyarrow.dataset as ds

        risks = ds.dataset(out, exclude_invalid_files=True).to_table()["risk"].to_numpy()
        print(f"{len(risks):,} orders scored; {np.mean(risks > 0.5):.1%} will rather come back than not")


if __name__ == "__main__":
    main("--spark" in sys.argv)
