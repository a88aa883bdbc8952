"""As many workers as the orders need: a quiet topic, a burst, and quiet again, on a broker of its own.

    python examples/autoscale.py
    BOOTSTRAP=broker:9092 python examples/autoscale.py

One worker scores 1,000 orders a second. After a while 30,000 come at once: half a minute of work for one, while none is
to wait for more than ten seconds. Watch the workers come, and go when the work is done.
"""

import time
import uuid
from collections.abc import Callable

import pyarrow as pa
from place import brokers, produce_orders

import kafka_actors as ka

POLICY = ka.Autoscale(
    min=1,
    max=8,
    target_lag_seconds=10,
    # Short times for a short show; the defaults, 10 and 120 seconds, keep workers longer.
    upscale_delay_seconds=2,
    downscale_delay_seconds=10,
)
BURST = 30_000


def score(batch: pa.RecordBatch) -> None:
    """Asks a service that takes a millisecond for each order."""
    time.sleep(batch.num_rows / 1_000)


def main() -> None:
    topic = f"orders-{uuid.uuid4().hex[:6]}"
    with brokers() as place:
        place.create(topic, partitions=8)
        job = ka.Job(
            topics=[topic],
            group_id="scorer",
            bootstrap_servers=place.servers,
            process=score,
            batch_rows=100,
            workers=POLICY,
        )
        with job.start() as running:
            produce_orders(place.servers, topic, 500)
            watch(running, lambda status: status.records >= 500)
            print(f"{BURST:,} orders come in at once")
            produce_orders(place.servers, topic, BURST)
            watch(running, lambda status: status.records >= 500 + BURST)
            watch(running, lambda status: len(status.workers) == POLICY.min)
            status = running.status()
            print(f"scored {status.records:,} orders; the group is at generation {status.group.generation}")


def watch(running: ka.RunningJob, done: Callable[[ka.JobStatus], bool]) -> None:
    """A line every second until it is done, and each change of the number of workers with its reason."""
    told = running.status().scaling.changes[-1].number if running.status().scaling.changes else 0
    while not done(status := running.status()):
        for change in status.scaling.changes:
            if change.number > told:
                told = change.number
                print(f"    {change.before} → {change.after} workers: {change.reason}")
        ready = sum(worker.ready for worker in status.workers)
        print(f"lag {status.lag:>6,}  {ready} of {status.scaling.workers} workers  {status.scaling.holding}")
        time.sleep(1)


if __name__ == "__main__":
    main()
